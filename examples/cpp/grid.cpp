// A product of a matrix and a vector on a grid of ranks: each row and each
// column of the grid is a group.  A rank has a block of the matrix.  The
// vector's parts go down the columns, and the rows sum up what their blocks
// give.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include <kumi.hpp>

namespace {

/* Rows and columns of a block. */
constexpr int size = 50;

double element(int i, int j)
{
	return std::cos(1e-3 * i * j);
}

bool run(kumi::context &job)
{
	const int me = job.rank(), ranks = job.size();
	int height = 1;
	for (int number = 1; number * number <= ranks; number++)
		if (ranks % number == 0)
			height = number;
	const int width = ranks / height;
	const kumi::group everyone(job);
	const auto row = everyone.split(me / width).value();
	const auto column = everyone.split(me % width).value();
	const int top = column.member() * size, left = row.member() * size;

	/* The first row of the grid has the vector, a part in each column. */
	std::vector<double> part(size), product(size);
	for (int j = 0; j < size && top == 0; j++)
		part[static_cast<std::size_t>(j)] = std::sin(left + j);
	column.broadcast(0, part);
	for (int i = 0; i < size; i++)
		for (int j = 0; j < size; j++)
			product[static_cast<std::size_t>(i)] +=
			    element(top + i, left + j) *
			    part[static_cast<std::size_t>(j)];
	row.allreduce(product, kumi::op::sum);

	/* Each number of the matrix follows from its place: every rank checks. */
	double worst = 0.0;
	for (int i = 0; i < size; i++) {
		double wanted = 0.0;
		for (int j = 0; j < width * size; j++)
			wanted += element(top + i, j) * std::sin(j);
		worst = std::max(
		    worst,
		    std::abs(product[static_cast<std::size_t>(i)] - wanted));
	}
	worst = everyone.allreduce(worst, kumi::op::max);
	if (me == 0)
		std::printf("RESULT name=grid verified=%s height=%d width=%d\n",
		            worst < 1e-9 ? "yes" : "no", height, width);
	return worst < 1e-9;
}

} // namespace

int main()
{
	try {
		kumi::context job;
		const bool right = run(job);
		job.finalize();
		return right ? 0 : 1;
	} catch (const std::exception &error) {
		std::fprintf(stderr, "grid: %s\n", error.what());
		return 1;
	}
}
