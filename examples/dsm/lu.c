/* LU factorisation by blocks, without pivoting, of a matrix whose diagonal
 * dominates.
 *
 * Each block lies in one piece of memory, not in pieces of rows: then a page
 * holds elements of few blocks, and a rank that needs a block fetches little
 * else.  Ranks form a grid, and blocks are dealt to it in both directions, so
 * that all ranks have work until the end.  In step k
 *
 *   1. the owner of the diagonal block k factors it,
 *   2. owners of blocks below it and to its right divide these by it,
 *   3. owners of the other blocks below and to the right subtract products.
 *
 * The check multiplies the factors with a vector. */
#include "common.h"

#include <math.h>
#include <stdlib.h>

static long size = 100, block = 32;

static const struct option options[] = {
	{ "size", &size, 1, 16384, NULL, "--size takes 1 to 16384 rows" },
	{ "block", &block, 1, 256, NULL,
	  "--block takes 1 to 256 rows; 32 fill two pages of 4096 bytes" },
	{ 0 },
};

/* The grid of ranks, and this rank's place in it. */
struct grid {
	int ranks, rows, columns, row, column;
};

static struct grid make_grid(int me, int ranks)
{
	struct grid g = { .ranks = ranks, .rows = 1 };

	for (int rows = 1; rows * rows <= ranks; rows++)
		if (ranks % rows == 0)
			g.rows = rows;
	g.columns = ranks / g.rows;
	g.row = me / g.columns;
	g.column = me % g.columns;
	return g;
}

static int owner(const struct grid *g, long i, long j)
{
	return (int)(i % g->rows) * g->columns + (int)(j % g->columns);
}

static int own(const struct grid *g, long i, long j)
{
	return i % g->rows == g->row && j % g->columns == g->column;
}

/* Blocks in a row of the matrix, and elements of a block. */
static long blocks(void)
{
	return (size + block - 1) / block;
}

static size_t area(void)
{
	return (size_t)(block * block);
}

/* Beyond the matrix, in the last blocks, stands the identity. */
static double element(long i, long j)
{
	if (i >= size || j >= size)
		return i == j ? 1.0 : 0.0;
	if (i == j)
		return (double)size;
	return (double)(mix((uint64_t)(i * size + j)) >> 11) * 0x1p-52 - 1.0;
}

static void fill(double *a, long row, long column)
{
	for (long i = 0; i < block; i++)
		for (long j = 0; j < block; j++)
			*a++ = element(row * block + i, column * block + j);
}

/* a becomes L and U, with the 1s of L's diagonal left out. */
static void factor_block(double *a)
{
	for (long k = 0; k < block; k++)
		for (long i = k + 1; i < block; i++) {
			double l = a[i * block + k] /= a[k * block + k];

			for (long j = k + 1; j < block; j++)
				a[i * block + j] -= l * a[k * block + j];
		}
}

/* a becomes a / U, of the diagonal block d. */
static void divide_below(double *a, const double *d)
{
	for (long i = 0; i < block; i++, a += block)
		for (long k = 0; k < block; k++) {
			a[k] /= d[k * block + k];
			for (long j = k + 1; j < block; j++)
				a[j] -= a[k] * d[k * block + j];
		}
}

/* a becomes L \ a, of the diagonal block d. */
static void divide_right(double *a, const double *d)
{
	for (long i = 1; i < block; i++)
		for (long k = 0; k < i; k++)
			for (long j = 0; j < block; j++)
				a[i * block + j] -=
					d[i * block + k] * a[k * block + j];
}

static void subtract_product(double *c, const double *a, const double *b)
{
	for (long i = 0; i < block; i++)
		for (long k = 0; k < block; k++)
			for (long j = 0; j < block; j++)
				c[i * block + j] -=
					a[i * block + k] * b[k * block + j];
}

static double *at(double *a, long i, long j)
{
	return a + (size_t)(i * blocks() + j) * area();
}

/* Row `i` of L (lower) or U times x. */
static double row_times(double *a, long i, int lower, const double *x)
{
	double sum = lower ? x[i] : 0.0;

	for (long j = lower ? 0 : i; j < (lower ? i : size); j++)
		sum += at(a, i / block, j / block)[i % block * block +
		                                   j % block] * x[j];
	return sum;
}

/* Whether L (U x) is A x, for a vector x. */
static int right(double *a)
{
	double *x = private_memory((size_t)size * sizeof *x);
	double *ux = private_memory((size_t)size * sizeof *ux);
	double worst = 0.0;

	for (long i = 0; i < size; i++)
		x[i] = (double)(mix((uint64_t)i) % 1000) * 0.002 - 1.0;
	for (long i = 0; i < size; i++)
		ux[i] = row_times(a, i, 0, x);
	for (long i = 0; i < size; i++) {
		double difference = row_times(a, i, 1, ux);

		for (long j = 0; j < size; j++)
			difference -= element(i, j) * x[j];
		worst = fmax(worst, fabs(difference));
	}
	free(x);
	free(ux);
	return worst <= 1e-13 * (double)size * (double)(size + 10);
}

/* All blocks lie in memory that every rank sees.  Two barriers a step are enough:
 * the first block of the next step belongs to the rank that changed it last. */
static void factor(double *a, const struct grid *g, void (*barrier)(void))
{
	long n = blocks();

	for (long k = 0; k < n; k++) {
		if (own(g, k, k))
			factor_block(at(a, k, k));
		barrier();
		for (long i = k + 1; i < n; i++) {
			if (own(g, i, k))
				divide_below(at(a, i, k), at(a, k, k));
			if (own(g, k, i))
				divide_right(at(a, k, i), at(a, k, k));
		}
		barrier();
		for (long i = k + 1; i < n; i++)
			for (long j = k + 1; j < n; j++)
				if (own(g, i, j))
					subtract_product(at(a, i, j),
					                 at(a, i, k),
					                 at(a, k, j));
	}
}

static void fill_own(double *a, const struct grid *g)
{
	for (long i = 0; i < blocks(); i++)
		for (long j = 0; j < blocks(); j++)
			if (own(g, i, j))
				fill(at(a, i, j), i, j);
}

static size_t bytes_of_all(void)
{
	return (size_t)(blocks() * blocks()) * area() * sizeof(double);
}

static void no_barrier(void)
{
}

static struct outcome sequential(void)
{
	struct grid g = make_grid(0, 1);
	double *a = private_memory(bytes_of_all());
	struct outcome result;

	fill_own(a, &g);
	start_clock();
	factor(a, &g, no_barrier);
	result.seconds = stop_clock();
	result.right = right(a);
	free(a);
	return result;
}

static void memory_barrier(void)
{
	CHECK(kumi_dsm_barrier());
}

static struct outcome dsm(void)
{
	struct grid g = make_grid(kumi_rank(), kumi_size());
	/* Owners fill their blocks, so with first touch they have them at
	 * home. */
	double *a = shared_memory(bytes_of_all(), kumi_dsm_first_touch());
	struct outcome result = { .right = 1 };

	fill_own(a, &g);
	CHECK(kumi_dsm_barrier());
	start_clock();
	factor(a, &g, memory_barrier);
	CHECK(kumi_dsm_barrier());
	result.seconds = stop_clock();
	if (kumi_rank() == g.ranks - 1)
		result.right = right(a);
	return result;
}

/* This rank's blocks in its window, and copies of others' blocks. */
struct part {
	struct grid grid;
	kumi_window *window;
	double *base;
	double *diagonal, *below, *beside; /* copies, for one step */
};

/* The number of a block among its owner's. */
static size_t index_of(const struct grid *g, long i, long j)
{
	long columns = (blocks() + g->columns - 1) / g->columns;

	return (size_t)(i / g->rows * columns + j / g->columns) * area();
}

static double *mine(const struct part *p, long i, long j)
{
	return p->base + index_of(&p->grid, i, j);
}

static void get(const struct part *p, long i, long j, double *copy)
{
	CHECK(kumi_window_get(p->window, owner(&p->grid, i, j),
	                      index_of(&p->grid, i, j) * sizeof(double),
	                      area() * sizeof(double), copy));
}

static struct part make_part(void)
{
	struct part p = { .grid = make_grid(kumi_rank(), kumi_size()) };
	long rows = (blocks() + p.grid.rows - 1) / p.grid.rows;
	long columns = (blocks() + p.grid.columns - 1) / p.grid.columns;
	size_t bytes = area() * sizeof(double);

	CHECK(kumi_window_create((size_t)(rows * columns) * bytes, &p.window));
	p.base = kumi_window_base(p.window);
	p.diagonal = private_memory(bytes);
	p.below = private_memory(bytes);
	p.beside = private_memory((size_t)blocks() * bytes);
	for (long i = 0; i < blocks(); i++)
		for (long j = 0; j < blocks(); j++)
			if (own(&p.grid, i, j))
				fill(mine(&p, i, j), i, j);
	return p;
}

static int in_row(const struct grid *g, long i)
{
	return i % g->rows == g->row;
}

static int in_column(const struct grid *g, long j)
{
	return j % g->columns == g->column;
}

/* Step 2: only ranks in the diagonal block's row and column need it. */
static void divide_own(const struct part *p, long k)
{
	const struct grid *g = &p->grid;

	if (!in_row(g, k) && !in_column(g, k))
		return;
	get(p, k, k, p->diagonal);
	for (long i = k + 1; i < blocks(); i++) {
		if (own(g, i, k))
			divide_below(mine(p, i, k), p->diagonal);
		if (own(g, k, i))
			divide_right(mine(p, k, i), p->diagonal);
	}
}

/* Step 3: each block is fetched once by each rank that needs it. */
static void subtract_own(const struct part *p, long k)
{
	const struct grid *g = &p->grid;

	for (long j = k + 1; j < blocks(); j++)
		if (in_column(g, j))
			get(p, k, j, p->beside + (size_t)j * area());
	for (long i = k + 1; i < blocks(); i++) {
		if (!in_row(g, i))
			continue;
		get(p, i, k, p->below);
		for (long j = k + 1; j < blocks(); j++)
			if (in_column(g, j))
				subtract_product(mine(p, i, j), p->below,
				                 p->beside +
				                         (size_t)j * area());
	}
}

static int right_by_gets(const struct part *p)
{
	double *a = private_memory(bytes_of_all());
	int good;

	for (long i = 0; i < blocks(); i++)
		for (long j = 0; j < blocks(); j++)
			get(p, i, j, at(a, i, j));
	good = right(a);
	free(a);
	return good;
}

static struct outcome putget(void)
{
	struct part part = make_part();
	struct outcome result = { .right = 1 };

	start_clock();
	for (long k = 0; k < blocks(); k++) {
		if (own(&part.grid, k, k))
			factor_block(mine(&part, k, k));
		CHECK(kumi_barrier());
		divide_own(&part, k);
		CHECK(kumi_barrier());
		subtract_own(&part, k);
	}
	CHECK(kumi_barrier());
	result.seconds = stop_clock();
	if (kumi_rank() == part.grid.ranks - 1)
		result.right = right_by_gets(&part);
	CHECK(kumi_barrier());
	CHECK(kumi_window_free(part.window));
	free(part.diagonal);
	free(part.below);
	free(part.beside);
	return result;
}

int main(int argc, char **argv)
{
	static const struct example lu = {
		"lu", "factors a matrix", options, &size, sequential, dsm,
		putget,
	};

	return example_main(&lu, argc, argv);
}
