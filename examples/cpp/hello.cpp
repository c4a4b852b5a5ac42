// The smallest program: every rank prints its number, in order.
#include <cstdio>
#include <exception>

#include <kumi.hpp>

int main()
{
	try {
		kumi::context job;
		int turn = 0;

		// Rank r waits for a message of rank r - 1 before it prints.
		if (job.rank() > 0)
			job.recv(job.rank() - 1, 0, turn);
		std::printf("hello from rank %d of %d on node %d, turn %d\n",
		            job.rank(), job.size(), job.node(), turn);
		std::fflush(stdout);
		if (job.rank() + 1 < job.size())
			job.send(job.rank() + 1, 0, turn + 1);
		job.finalize();
		return 0;
	} catch (const std::exception &error) {
		std::fprintf(stderr, "hello: %s\n", error.what());
		return 1;
	}
}
