/* A product of a matrix and a vector on a grid of ranks: each row and each
 * column of the grid is a group.  A rank has a block of the matrix.  The
 * vector's parts go down the columns, and the rows sum up what their blocks
 * give. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <kumi.h>

/* Rows and columns of a block. */
enum { BLOCK = 50 };

static double element(int i, int j)
{
	return cos(1e-3 * i * j);
}

static void must(int code, const char *what)
{
	if (code >= 0)
		return;
	fprintf(stderr, "grid: %s: %s\n", what, kumi_error_detail());
	exit(1);
}

/* An operation of the program's own: keeps the number that is farther from 0. */
static void farthest(void *into, const void *other, size_t count,
                     kumi_type type, void *context)
{
	double *a = into;
	const double *b = other;

	(void)type, (void)context;
	for (size_t k = 0; k < count; k++)
		a[k] = fabs(b[k]) > fabs(a[k]) ? b[k] : a[k];
}

int main(void)
{
	must(kumi_init(), "kumi_init");
	const int me = kumi_rank(), ranks = kumi_size();
	int height = 1;
	for (int number = 1; number * number <= ranks; number++)
		if (ranks % number == 0)
			height = number;
	const int width = ranks / height;
	kumi_group *row, *column;
	must(kumi_group_split(KUMI_JOB, me / width, 0, &row), "the row");
	must(kumi_group_split(KUMI_JOB, me % width, 0, &column), "the column");
	const int top = kumi_group_member(column) * BLOCK;
	const int left = kumi_group_member(row) * BLOCK;

	/* The first row of the grid has the vector, a part in each column. */
	double part[BLOCK] = { 0 }, product[BLOCK] = { 0 };
	if (top == 0)
		for (int j = 0; j < BLOCK; j++)
			part[j] = sin(left + j);
	must(kumi_group_broadcast(column, 0, part, BLOCK, KUMI_F64), "broadcast");
	for (int i = 0; i < BLOCK; i++)
		for (int j = 0; j < BLOCK; j++)
			product[i] += element(top + i, left + j) * part[j];
	must(kumi_group_allreduce(row, product, product, BLOCK, KUMI_F64, KUMI_SUM),
	     "sum");

	/* Each number of the matrix follows from its place: every rank checks. */
	double error = 0.0, worst;
	for (int i = 0; i < BLOCK; i++) {
		double wanted = 0.0;
		for (int j = 0; j < width * BLOCK; j++)
			wanted += element(top + i, j) * sin(j);
		if (fabs(product[i] - wanted) > fabs(error))
			error = product[i] - wanted;
	}
	kumi_op op;
	must(kumi_op_create(farthest, NULL, 1, &op), "operation");
	must(kumi_allreduce(&error, &worst, 1, KUMI_F64, op), "farthest");
	const int right = fabs(worst) < 1e-9;
	if (me == 0)
		printf("RESULT name=grid verified=%s height=%d width=%d\n",
		       right ? "yes" : "no", height, width);
	must(kumi_finalize(), "kumi_finalize");
	return right ? 0 : 1;
}
