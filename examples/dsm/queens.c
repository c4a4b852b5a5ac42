/* N queens: in how many ways can they stand on a board of N rows so that none
 * attacks another?  The places of the queens in the first two rows are tasks.
 * Ranks take the next ones from a counter in shared memory, a few at a time, since
 * a task takes anything from no time to long.  The numbers of ways are known. */
#include "common.h"

#include <stdlib.h>

/* Tasks that are taken at a time. */
#define HANDFUL 4

enum { COUNTER_LOCK, WAYS_LOCK };

static long size = 9;

static const struct option options[] = {
	{ "size", &size, 1, 16, NULL, "--size takes 1 to 16 rows" },
	{ 0 },
};

static const uint64_t known[] = {
	1,   1,    0,     0,     2,      10,      4,        40,     92,
	352, 724,  2680,  14200, 73712,  365596,  2279184,  14772512,
};

/* Ways to go on with `row`s filled.  A bit of `columns` says that the column is
 * taken; `left` and `right` are the diagonals where they cross this row. */
static uint64_t ways(long row, uint32_t columns, uint32_t left, uint32_t right)
{
	uint32_t all = (UINT32_C(1) << size) - 1, free;
	uint64_t found = 0;

	if (row == size)
		return 1;
	for (free = all & ~(columns | left | right); free; free &= free - 1) {
		uint32_t queen = free & -free;

		found += ways(row + 1, columns | queen,
		              ((left | queen) << 1) & all,
		              (right | queen) >> 1);
	}
	return found;
}

static long tasks(void)
{
	return size == 1 ? 1 : size * size;
}

/* The ways of one task. */
static uint64_t solve(long task)
{
	uint32_t all = (UINT32_C(1) << size) - 1;
	uint32_t first = UINT32_C(1) << task % size;
	uint32_t second = UINT32_C(1) << task / size;

	if (size == 1)
		return 1;
	if (second & (first | first << 1 | first >> 1))
		return 0;
	return ways(2, first | second, (first << 2 | second << 1) & all,
	            first >> 2 | second >> 1);
}

static struct outcome sequential(void)
{
	struct outcome result;
	uint64_t sum = 0;

	start_clock();
	for (long task = 0; task < tasks(); task++)
		sum += solve(task);
	result.seconds = stop_clock();
	result.right = sum == known[size];
	return result;
}

/* The two numbers are used under locks of their own, by ranks at any time.  Each
 * has a page to itself: a rank that takes tasks does not wait for one that adds
 * ways. */
struct shared {
	long *next;
	uint64_t *ways;
};

/* The first of some tasks that nobody else has. */
static long take(const struct shared *shared)
{
	long first;

	CHECK(kumi_dsm_lock(COUNTER_LOCK));
	first = *shared->next;
	*shared->next = first + HANDFUL;
	CHECK(kumi_dsm_unlock(COUNTER_LOCK));
	return first;
}

static struct outcome dsm(void)
{
	/* A lock's manager is the rank of its number; the page that it guards
	 * lives there, too. */
	struct shared shared = {
		.next = shared_memory(sizeof(long), kumi_dsm_at(0)),
		.ways = shared_memory(sizeof(uint64_t),
		                      kumi_dsm_at(WAYS_LOCK % kumi_size())),
	};
	struct outcome result;
	uint64_t sum = 0;
	long first;

	/* Shared memory begins with zeros: nothing is to be initialised. */
	start_clock();
	while ((first = take(&shared)) < tasks())
		for (long i = first; i < first + HANDFUL && i < tasks(); i++)
			sum += solve(i);
	/* Each rank's sum once, rather than each task's ways. */
	CHECK(kumi_dsm_lock(WAYS_LOCK));
	*shared.ways += sum;
	CHECK(kumi_dsm_unlock(WAYS_LOCK));
	CHECK(kumi_dsm_barrier());
	result.seconds = stop_clock();
	result.right = *shared.ways == known[size];
	return result;
}

int main(int argc, char **argv)
{
	static const struct example queens = {
		"queens", "counts the ways to place N queens", options, &size,
		sequential, dsm, NULL,
	};

	return example_main(&queens, argc, argv);
}
