// Counts the ways to place N queens on an N x N board without attacks.  Rank 0
// places the first queens and hands out each placement as a task; a free rank
// takes the next one.  There are two kinds of FIFO.  In rank 0's, a rank reports
// the result of its last task, and so that it is free.  In the one at every other
// rank, that rank gets its tasks.  Nobody polls, and a rank with a short task
// just comes back earlier.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include <kumi.hpp>

namespace {

constexpr int exit_usage = 64;
constexpr int most = 16;
/* The numbers of ways, for boards of 1 to 16 (OEIS A000170). */
constexpr std::array<std::uint64_t, most> known{
    1,   0,    0,     2,     10,     4,       40,       92,
    352, 724, 2680, 14200, 73712, 365596, 2279184, 14772512};

/* Queens in some of the first rows: bits of the columns, and of the diagonals
 * where they meet the next row. */
struct board {
	std::uint32_t columns, left, right;
	std::int32_t row;
};

/* What a rank says when it is free. */
struct answer {
	std::uint64_t ways;
	std::uint64_t tasks;
};

board with_queen(const board &b, std::uint32_t bit)
{
	return {b.columns | bit, (b.left | bit) << 1, (b.right | bit) >> 1,
	        b.row + 1};
}

/* Calls `use(board)` for every way to fill the rows up to `rows`. */
template <class Use>
void place(const board &b, int size, int rows, Use &use)
{
	if (b.row == rows) {
		use(b);
		return;
	}
	std::uint32_t all = (1U << size) - 1;
	std::uint32_t free = all & ~(b.columns | b.left | b.right);
	while (free != 0) {
		std::uint32_t bit = free & (~free + 1);
		free ^= bit;
		place(with_queen(b, bit), size, rows, use);
	}
}

std::uint64_t ways(const board &b, int size)
{
	std::uint64_t count = 0;
	auto one = [&count](const board &) { count++; };

	place(b, size, size, one);
	return count;
}

/* Room for the records that can be in a FIFO at once, each with its length:
 * a rank is given a task only when it has none, and answers it once. */
std::size_t capacity(std::size_t records, std::size_t bytes)
{
	return records * (8 + (bytes + 7) / 8 * 8) + 8;
}

/* Rank 0: hands out all tasks, and then to everybody one that is none. */
std::uint64_t hand_out(kumi::context &job, kumi::window<char> &window,
                       kumi::fifo &answers, int size)
{
	std::uint64_t sum = 0, tasks = 0, answered = 0;
	const board none{0, 0, 0, -1};

	auto give = [&](const board &task) {
		answer last{};
		int who = answers.pop(last).source;
		sum += last.ways;
		answered += last.tasks;
		window.append(who, 0, task);
		tasks++;
	};
	/* Alone it does what others would. */
	auto keep = [&](const board &task) {
		sum += ways(task, size);
		tasks++;
		answered++;
	};
	const int rows = size < 4 ? size : 3;
	if (job.size() == 1)
		place({0, 0, 0, 0}, size, rows, keep);
	else
		place({0, 0, 0, 0}, size, rows, give);
	for (int rank = 1; rank < job.size(); rank++) {
		give(none);
		tasks--;
	}
	if (answered != tasks)
		std::fprintf(stderr, "queens: a task was lost\n");
	std::printf("%llu tasks\n", static_cast<unsigned long long>(tasks));
	return answered == tasks ? sum : UINT64_MAX;
}

/* Another rank: is free, gets a task, does it, until there are no more. */
void work(kumi::window<char> &window, kumi::fifo &tasks, int size)
{
	answer mine{0, 0};

	for (;;) {
		window.append(0, 0, mine);
		board task = tasks.pop_value<board>();
		if (task.row < 0)
			return;
		mine = {ways(task, size), 1};
	}
}

int run(kumi::context &job, int size)
{
	const std::size_t room =
	    job.rank() == 0
	        ? capacity(static_cast<std::size_t>(job.size()), sizeof(answer))
	        : capacity(1, sizeof(board));
	kumi::window<char> window(job, KUMI_FIFO_OVERHEAD + room);
	kumi::fifo own(window, 0, room);
	bool verified = true;

	job.barrier(); /* All FIFOs are there. */
	double begin = job.time();
	if (job.rank() == 0) {
		std::uint64_t sum = hand_out(job, window, own, size);
		double seconds = job.time() - begin;
		verified = sum == known[static_cast<std::size_t>(size - 1)];
		std::printf("%llu ways for %d queens\n",
		            static_cast<unsigned long long>(sum), size);
		std::printf("RESULT name=queens class=- verified=%s "
		            "seconds=%.6f mops=%.2f ranks=%d repeat=1\n",
		            verified ? "yes" : "no", seconds,
		            seconds > 0.0 ? double(sum) / seconds / 1e6 : 0.0,
		            job.size());
		std::fflush(stdout);
	} else {
		work(window, own, size);
	}
	job.barrier(); /* Nobody appends any more. */
	return verified ? 0 : 1;
}

/* The board's size, or 0 if it is wrong, or -1 for --help. */
int parse(int argc, char **argv)
{
	if (argc == 1)
		return 10;
	if (std::strcmp(argv[1], "--help") == 0)
		return -1;
	if (argc != 3 || std::strcmp(argv[1], "--size") != 0)
		return 0;
	char *end = nullptr;
	long value = std::strtol(argv[2], &end, 10);
	return value < 1 || value > most || *end != '\0' ? 0 : int(value);
}

/* Says how to use it; the exit code. */
int explain(int size)
{
	std::FILE *out = size < 0 ? stdout : stderr;

	if (size == 0)
		std::fprintf(out, "queens: unknown option, or its value is not "
		                  "1 to 16\n");
	std::fprintf(out, "queens: N queens on a board, by tasks in FIFOs\n"
	                  "Usage: kumi run -n RANKS queens [--size N]\n"
	                  "  --size N  rows and columns (default 10)\n"
	                  "Last line: RESULT name=queens ... verified=yes|no "
	                  "...\n"
	                  "Exit code: 0 verified, 1 not verified or failed, 64 "
	                  "usage.\n");
	std::fflush(out);
	return size < 0 ? 0 : exit_usage;
}

} // namespace

int main(int argc, char **argv)
{
	const int size = parse(argc, argv);

	try {
		kumi::context job;
		int code = size > 0 ? run(job, size) : 0;
		if (size <= 0) {
			code = job.rank() == 0 ? explain(size)
			       : size < 0      ? 0
			                       : exit_usage;
			job.barrier();
		}
		job.finalize();
		return code;
	} catch (const kumi::error &error) {
		/* Outside a job this process is all there is, and may ask. */
		if (error.code() == KUMI_ERR_NOT_LAUNCHED && size <= 0)
			return explain(size);
		std::fprintf(stderr, "queens: %s\n", error.what());
	} catch (const std::exception &error) {
		std::fprintf(stderr, "queens: %s\n", error.what());
	}
	return 1;
}
