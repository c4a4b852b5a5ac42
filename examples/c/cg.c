/* The NAS kernel CG: the smallest eigenvalue of a large sparse symmetric
 * matrix by inverse iteration, each step solved by 25 steps of the conjugate
 * gradient method (NAS report RNR-94-007, section 2.2.4).
 *
 * Each rank has a block of rows.  Before a product with the matrix the ranks
 * assemble the whole vector in their windows: in step k each rank puts its
 * blocks, those of 2^k ranks, into its partner's window, so that log2(ranks)
 * puts per rank are enough.  The number of ranks must be a power of two. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kumi.h>

#include "cg_matrix.h"
#include "npb.h"

#define CG_STEPS 25 /* of the conjugate gradient method */

struct solver {
	const struct cg_class *class;
	struct cg_matrix matrix;
	int rank, ranks;
	kumi_window *window; /* holds the assembled vector */
	double *whole;       /* its memory in this rank */
	uint64_t assembled;  /* vectors so far */
	double *x, *z, *p, *q, *r; /* this rank's rows */
};

/* The first row of rank r (the order, if r is the number of ranks). */
static int first_row(int order, int r, int ranks)
{
	return (int)((int64_t)order * r / ranks);
}

static void solver_make(struct solver *s, char class_name)
{
	size_t bytes;

	s->class = cg_class_find(class_name);
	s->rank = kumi_rank();
	s->ranks = kumi_size();
	s->matrix = cg_matrix_make(
		s->class, first_row(s->class->order, s->rank, s->ranks),
		first_row(s->class->order, s->rank + 1, s->ranks));
	bytes = (size_t)s->class->order * sizeof(double);
	npb_check(kumi_window_create(bytes, &s->window), "kumi_window_create");
	s->whole = kumi_window_base(s->window);
	s->assembled = 0;
	s->x = npb_allocate((uint64_t)s->matrix.rows, sizeof(double));
	s->z = npb_allocate((uint64_t)s->matrix.rows, sizeof(double));
	s->p = npb_allocate((uint64_t)s->matrix.rows, sizeof(double));
	s->q = npb_allocate((uint64_t)s->matrix.rows, sizeof(double));
	s->r = npb_allocate((uint64_t)s->matrix.rows, sizeof(double));
}

static void solver_free(struct solver *s)
{
	npb_check(kumi_barrier(), "kumi_barrier");
	npb_check(kumi_window_free(s->window), "kumi_window_free");
	cg_matrix_free(&s->matrix);
	free(s->x);
	free(s->z);
	free(s->p);
	free(s->q);
	free(s->r);
}

/* Assembles the vector of which `part` is this rank's rows in s->whole.
 *
 * One buffer is enough: between two calls every caller takes part in a global
 * sum after its last use of s->whole, so nobody puts before all have read. */
static void assemble(struct solver *s, const double *part)
{
	int order = s->class->order;

	memcpy(s->whole + s->matrix.first_row, part,
	       (size_t)s->matrix.rows * sizeof(double));
	s->assembled++;
	for (int step = 0; 1 << step < s->ranks; step++) {
		int group = 1 << step;
		int partner = s->rank ^ group;
		int first = s->rank & ~(group - 1);
		size_t from = (size_t)first_row(order, first, s->ranks);
		size_t end = (size_t)first_row(order, first + group, s->ranks);

		npb_check(kumi_window_put_notify(
				  s->window, partner, from * sizeof(double),
				  s->whole + from, (end - from) * sizeof(double),
				  (unsigned)step),
		          "kumi_window_put_notify");
		npb_check(kumi_window_wait_notify(s->window, (unsigned)step,
		                                  s->assembled, NULL),
		          "kumi_window_wait_notify");
	}
}

static double dot(const double *a, const double *b, int rows)
{
	double sum = 0.0;

	for (int i = 0; i < rows; i++)
		sum += a[i] * b[i];
	return sum;
}

/* Sums over all ranks, in place. */
static void sum_all(double *values, size_t count)
{
	npb_check(kumi_allreduce(values, values, count, KUMI_F64, KUMI_SUM),
	          "kumi_allreduce");
}

static double dot_all(const double *a, const double *b, int rows)
{
	double sum = dot(a, b, rows);

	sum_all(&sum, 1);
	return sum;
}

/* z = about A^-1 x.  Returns the norm of what remains, |x - A z|. */
static double solve(struct solver *s)
{
	int rows = s->matrix.rows;
	double rho, rest = 0.0;

	for (int i = 0; i < rows; i++) {
		s->z[i] = 0.0;
		s->r[i] = s->x[i];
		s->p[i] = s->x[i];
	}
	rho = dot_all(s->r, s->r, rows);
	for (int step = 0; step < CG_STEPS; step++) {
		double alpha, beta, before = rho;

		assemble(s, s->p);
		cg_matrix_multiply(&s->matrix, s->whole, s->q);
		alpha = rho / dot_all(s->p, s->q, rows);
		for (int i = 0; i < rows; i++) {
			s->z[i] += alpha * s->p[i];
			s->r[i] -= alpha * s->q[i];
		}
		rho = dot_all(s->r, s->r, rows);
		beta = rho / before;
		for (int i = 0; i < rows; i++)
			s->p[i] = s->r[i] + beta * s->p[i];
	}
	assemble(s, s->z);
	cg_matrix_multiply(&s->matrix, s->whole, s->r);
	for (int i = 0; i < rows; i++) {
		double difference = s->x[i] - s->r[i];

		rest += difference * difference;
	}
	sum_all(&rest, 1);
	return sqrt(rest);
}

/* Inverse iteration from x = (1, ..., 1).  Returns the estimate zeta. */
static double iterate(struct solver *s, int iterations,
                      struct npb_options *options, int show)
{
	double zeta = 0.0;

	for (int i = 0; i < s->matrix.rows; i++)
		s->x[i] = 1.0;
	for (int step = 1; step <= iterations; step++) {
		double rest = solve(s);
		double products[2] = { dot(s->x, s->z, s->matrix.rows),
			               dot(s->z, s->z, s->matrix.rows) };

		sum_all(products, 2);
		zeta = s->class->shift + 1.0 / products[0];
		for (int i = 0; i < s->matrix.rows; i++)
			s->x[i] = s->z[i] / sqrt(products[1]);
		if (show && s->rank == 0)
			printf("iteration %2d  rest %.6e  zeta %.13f\n", step,
			       rest, zeta);
		npb_step_done(options);
	}
	return zeta;
}

int main(int argc, char **argv)
{
	struct npb_options options =
		npb_start(argc, argv, "cg",
	                  "NAS kernel CG on a power of two of ranks");
	struct solver solver;
	double seconds = 0.0, terms, operations;
	int verified = 1;

	if ((kumi_size() & (kumi_size() - 1)) != 0 || kumi_size() > 1024) {
		if (kumi_rank() == 0)
			fprintf(stderr, "cg: %d ranks: it must be a power of "
			                "two, at most 1024\n", kumi_size());
		npb_leave(NPB_EXIT_USAGE);
	}
	solver_make(&solver, options.class_name);
	/* One step to touch all memory, as the specification allows. */
	iterate(&solver, 1, &options, 0);
	for (int i = 0; i < options.repeat; i++) {
		double begin, zeta, error;

		npb_check(kumi_barrier(), "kumi_barrier");
		begin = kumi_time();
		zeta = iterate(&solver, solver.class->iterations, &options,
		               i == 0);
		seconds += npb_slowest(kumi_time() - begin);
		error = fabs(zeta - solver.class->zeta) / solver.class->zeta;
		/* Written so that a NaN fails. */
		if (!(error <= 1e-10))
			verified = 0;
		if (solver.rank == 0 && i == 0)
			printf("zeta %.13f  expected %.13f  error %.2e\n", zeta,
			       solver.class->zeta, error);
	}
	terms = solver.class->nonzeros * (solver.class->nonzeros + 1.0);
	operations = 2.0 * solver.class->iterations * solver.class->order *
	             (3.0 + terms + CG_STEPS * (5.0 + terms) + 3.0);
	solver_free(&solver);
	npb_finish("CG", options, verified, seconds, operations);
}
