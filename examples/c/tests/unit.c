/* Tests of the kernels' parts that need no job: random numbers, the matrix of
 * CG, the key counting of IS.  Exit code 0 if all hold. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../cg_matrix.h"
#include "../is_keys.h"
#include "../npb.h"

static int failures;

static void expect(int holds, const char *what)
{
	if (holds)
		return;
	failures++;
	fprintf(stderr, "FAILED: %s\n", what);
}

/* A walk of a million steps and a jump end in the same state. */
static void test_random(void)
{
	uint64_t state = NPB_SEED;

	expect(npb_step(1, NPB_A) == NPB_A, "one step from 1 is the multiplier");
	expect(npb_skip(NPB_SEED, 0) == NPB_SEED, "no step");
	for (int i = 0; i < 1000000; i++) {
		double u = npb_random(&state);

		if (!(u > 0.0 && u < 1.0)) {
			expect(0, "numbers lie between 0 and 1");
			break;
		}
	}
	expect(state == npb_skip(NPB_SEED, 1000000), "a jump is many steps");
}

/* Rows made in two parts equal the whole; the matrix is symmetric; its
 * diagonal is negative because of the shift. */
static void test_matrix(void)
{
	const struct cg_class *class = cg_class_find('S');
	struct cg_matrix whole = cg_matrix_make(class, 0, class->order);
	struct cg_matrix part = cg_matrix_make(class, 500, 900);
	double *x = npb_allocate((uint64_t)class->order, sizeof *x);
	double *y = npb_allocate((uint64_t)class->order, sizeof *y);
	double *part_y = npb_allocate((uint64_t)part.rows, sizeof *part_y);
	double *dense_row = npb_allocate((uint64_t)class->order, sizeof(double));
	uint64_t state = NPB_SEED;

	for (int i = 0; i < class->order; i++)
		x[i] = npb_random(&state);
	cg_matrix_multiply(&whole, x, y);
	cg_matrix_multiply(&part, x, part_y);
	for (int i = 0; i < part.rows; i++)
		expect(part_y[i] == y[500 + i], "a part's product");
	for (int k = whole.start[700]; k < whole.start[701]; k++)
		dense_row[whole.column[k]] = whole.value[k];
	for (int row = 0; row < whole.rows; row++) {
		double in_row = 0.0;

		for (int k = whole.start[row]; k < whole.start[row + 1]; k++) {
			if (k > whole.start[row])
				expect(whole.column[k - 1] < whole.column[k],
				       "columns are in order");
			if (whole.column[k] == 700)
				in_row = whole.value[k];
		}
		expect(fabs(in_row - dense_row[row]) < 1e-14, "symmetric");
	}
	expect(dense_row[700] < 0.0, "the shift makes the diagonal negative");
	expect(cg_class_find('Z') == NULL, "no class Z");
	cg_matrix_free(&whole);
	cg_matrix_free(&part);
	free(x);
	free(y);
	free(part_y);
	free(dense_row);
}

static void test_keys(void)
{
	const struct is_class *class = is_class_find('S');
	int32_t all[1000], piece[100], below[6];
	int32_t few[] = { 12, 10, 14, 12, 12 };
	int32_t expected[] = { 0, 1, 1, 4, 4, 5 };

	is_keys_make(class, 0, 1000, all);
	is_keys_make(class, 777, 100, piece);
	for (int i = 0; i < 100; i++)
		expect(piece[i] == all[777 + i], "a piece of the sequence");
	for (int i = 0; i < 1000; i++)
		expect(all[i] >= 0 && all[i] < 1 << class->log2_max_key,
		       "keys are in range");
	is_count_below(few, 5, 10, 5, below);
	for (int k = 0; k < 6; k++)
		expect(below[k] == expected[k], "keys counted below");
}

/* The check values of class S in one piece, as the specification states them,
 * for every iteration. */
static void test_check_ranks(void)
{
	const struct is_class *class = is_class_find('S');
	int64_t count = INT64_C(1) << class->log2_keys;
	int32_t span = 1 << class->log2_max_key;
	int32_t *keys = npb_allocate((uint64_t)count, sizeof *keys);
	int32_t *below = npb_allocate((uint64_t)span + 1, sizeof *below);

	is_keys_make(class, 0, count, keys);
	for (int step = 1; step <= IS_ITERATIONS; step++) {
		keys[step] = step;
		keys[step + IS_ITERATIONS] = span - step;
		is_count_below(keys, count, 0, span, below);
		for (int c = 0; c < IS_CHECKS; c++)
			expect(below[keys[class->check_place[c]]] ==
			               is_expected_rank(class, c, step),
			       "official check ranks of class S");
	}
	free(keys);
	free(below);
}

int main(void)
{
	test_random();
	test_matrix();
	test_keys();
	test_check_ranks();
	if (failures > 0)
		fprintf(stderr, "%d checks failed\n", failures);
	else
		puts("all checks hold");
	return failures > 0;
}
