/* C = A B, square matrices.  Each rank computes some rows of C from the same rows
 * of A and all of B.
 *
 * The entries are small whole numbers, so every sum is exact.  For the check the
 * ranks multiply C and A (B x) for some vectors x, which must be the same
 * numbers.  Each rank checks the rows of the next one, so it sees what another
 * wrote. */
#include "common.h"

#include <stdlib.h>

enum { VECTORS = 3 };

static long size = 96, homes = HOMES_MATCHED;

static const struct option options[] = {
	{ "size", &size, 1, 8192, NULL, "--size takes 1 to 8192 rows" },
	{ "homes", &homes, 0, 0, homes_words,
	  "--homes takes matched, careless (all pages at rank 0) or "
	  "round-robin" },
	{ 0 },
};

/* -4 to 4.  Matrices are 'A' and 'B', 'x' is one of the vectors. */
static double entry(int matrix, long row, long column)
{
	uint64_t bits = mix((uint64_t)(row * size + column) * 256 +
	                    (uint64_t)matrix);

	return (double)(bits % 9) - 4.0;
}

static void fill(double *rows, int matrix, long first, long end)
{
	for (long i = first; i < end; i++)
		for (long j = 0; j < size; j++)
			*rows++ = entry(matrix, i, j);
}

/* c += a times rows `first` to before `end` of B, which begin at `b`. */
static void multiply_row(double *c, const double *a, const double *b,
                         long first, long end)
{
	for (long k = first; k < end; k++, b += size)
		for (long j = 0; j < size; j++)
			c[j] += a[k] * b[j];
}

/* Whether rows `first` to before `end` of C, which begin at `c`, are right. */
static int right(const double *c, long first, long end)
{
	double *bx = private_memory((size_t)size * sizeof *bx);
	int same = 1;

	for (int v = 0; v < VECTORS; v++) {
		for (long i = 0; i < size; i++) {
			bx[i] = 0.0;
			for (long j = 0; j < size; j++)
				bx[i] += entry('B', i, j) * entry('x', v, j);
		}
		for (long i = first; i < end; i++) {
			const double *row = c + (i - first) * size;
			double left = 0.0, expected = 0.0;

			for (long j = 0; j < size; j++) {
				left += row[j] * entry('x', v, j);
				expected += entry('A', i, j) * bx[j];
			}
			same &= left == expected;
		}
	}
	free(bx);
	return same;
}

static struct outcome sequential(void)
{
	size_t bytes = (size_t)(size * size) * sizeof(double);
	double *a = private_memory(bytes), *b = private_memory(bytes);
	double *c = private_memory(bytes);
	struct outcome result;

	fill(a, 'A', 0, size);
	fill(b, 'B', 0, size);
	start_clock();
	for (long i = 0; i < size; i++)
		multiply_row(c + i * size, a + i * size, b, 0, size);
	result.seconds = stop_clock();
	result.right = right(c, 0, size);
	free(a);
	free(b);
	free(c);
	return result;
}

/* Where pages live: with `matched`, a rank's rows of A and C are at home there.
 * Everybody reads all of B, so its pages are dealt out: no node has to serve
 * them all. */
static kumi_dsm_home home_of(int matrix)
{
	if (homes == HOMES_CARELESS)
		return kumi_dsm_at(0);
	if (homes == HOMES_ROUND_ROBIN || matrix == 'B')
		return kumi_dsm_round_robin(1, 0);
	return kumi_dsm_blocks();
}

static struct outcome dsm(void)
{
	int me = kumi_rank(), ranks = kumi_size(), next = (me + 1) % ranks;
	long first = first_of(size, ranks, me);
	long end = first_of(size, ranks, me + 1);
	size_t bytes = (size_t)(size * size) * sizeof(double);
	double *a = shared_memory(bytes, home_of('A'));
	double *b = shared_memory(bytes, home_of('B'));
	double *c = shared_memory(bytes, home_of('C'));
	struct outcome result;

	fill(a + first * size, 'A', first, end);
	fill(b + first * size, 'B', first, end);
	/* From here on everybody sees all of A and B. */
	CHECK(kumi_dsm_barrier());
	start_clock();
	for (long i = first; i < end; i++)
		multiply_row(c + i * size, a + i * size, b, 0, size);
	CHECK(kumi_dsm_barrier());
	result.seconds = stop_clock();
	first = first_of(size, ranks, next);
	end = first_of(size, ranks, next + 1);
	result.right = right(c + first * size, first, end);
	return result;
}

/* Each rank has its rows of B in a window, and gets those of the others in turn:
 * first its own, then the next rank's, so that not all ask the same one. */
static struct outcome putget(void)
{
	int me = kumi_rank(), ranks = kumi_size();
	long first = first_of(size, ranks, me);
	long end = first_of(size, ranks, me + 1);
	size_t row = (size_t)size * sizeof(double);
	size_t bytes = (size_t)(end - first) * row;
	/* Nobody has more rows than this. */
	double *part = private_memory((size_t)(size / ranks + 1) * row);
	double *a = private_memory(bytes), *c = private_memory(bytes);
	kumi_window *b;
	struct outcome result;

	CHECK(kumi_window_create(bytes, &b));
	fill(a, 'A', first, end);
	fill(kumi_window_base(b), 'B', first, end);
	start_clock();
	for (int turn = 0; turn < ranks; turn++) {
		int from = (me + turn) % ranks;
		long begin = first_of(size, ranks, from);
		long stop = first_of(size, ranks, from + 1);

		CHECK(kumi_window_get(b, from, 0, (size_t)(stop - begin) * row,
		                      part));
		for (long i = 0; i < end - first; i++)
			multiply_row(c + i * size, a + i * size, part, begin,
			             stop);
	}
	result.seconds = stop_clock();
	result.right = right(c, first, end);
	/* Others may still get rows from here. */
	CHECK(kumi_barrier());
	CHECK(kumi_window_free(b));
	free(part);
	free(a);
	free(c);
	return result;
}

int main(int argc, char **argv)
{
	static const struct example mm = {
		"mm", "multiplies matrices", options, &size, sequential, dsm,
		putget,
	};

	return example_main(&mm, argc, argv);
}
