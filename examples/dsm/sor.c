/* Laplace's equation on a square by red-black successive over-relaxation.  Points
 * have two colours like the fields of a chessboard; a new value needs only the
 * other colour.  Each rank has some rows and reads one row of each neighbour.
 *
 * The beginning is the smoothest mode of the grid.  Each half step then multiplies
 * all points of a colour alike, by a factor that is known.  So each rank can say
 * after any number of steps what the rows of the next rank must hold. */
#include "common.h"

#include <math.h>
#include <stdlib.h>

#define PI 3.14159265358979323846
#define OMEGA 1.2

enum colour { RED, BLACK };
enum { FROM_ABOVE, FROM_BELOW }; /* counters of puts */

static long size = 61, steps = 20, homes = HOMES_MATCHED;

static const struct option options[] = {
	{ "size", &size, 1, 16384, NULL,
	  "--size takes 1 to 16384 inner points in each direction" },
	{ "steps", &steps, 0, 1000000, NULL, "--steps takes 0 to 1000000" },
	{ "homes", &homes, 0, 0, homes_words,
	  "--homes takes matched, careless (all pages at rank 0) or "
	  "round-robin" },
	{ 0 },
};

/* Points in a row, with the edge, which is 0. */
static long width(void)
{
	return size + 2;
}

static double mode(long row, long column)
{
	double h = PI / (double)(size + 1);

	return sin(h * (double)row) * sin(h * (double)column);
}

/* Rows of the inner points are 1 to size; `rows` is where `first` is to lie. */
static void fill(double *rows, long first, long end)
{
	for (long i = first; i < end; i++, rows += width())
		for (long j = 1; j <= size; j++)
			rows[j] = mode(i, j);
}

/* One colour of row number `number`; the rows around it lie next to it. */
static void relax(double *row, long number, enum colour colour)
{
	const double *above = row - width(), *below = row + width();

	for (long j = 1 + (number + 1 + (long)colour) % 2; j <= size; j += 2)
		row[j] = (1.0 - OMEGA) * row[j] +
		         OMEGA / 4.0 *
		                 (above[j] + below[j] + row[j - 1] + row[j + 1]);
}

static int right(const double *rows, long first, long end)
{
	double mu = cos(PI / (double)(size + 1)), factor[2] = { 1.0, 1.0 };
	double largest, worst = 0.0;

	for (long s = 0; s < steps; s++)
		for (int c = RED; c <= BLACK; c++)
			factor[c] = (1.0 - OMEGA) * factor[c] +
			            OMEGA * mu * factor[!c];
	largest = fmax(fabs(factor[RED]), fabs(factor[BLACK]));
	for (long i = first; i < end; i++, rows += width())
		for (long j = 1; j <= size; j++)
			worst = fmax(worst,
			             fabs(rows[j] -
			                  factor[(i + j) % 2] * mode(i, j)));
	/* Where both are too small for double, everything is 0. */
	return worst <= 1e-9 * largest + 1e-300;
}

static struct outcome sequential(void)
{
	double *grid = private_memory((size_t)(width() * width()) *
	                              sizeof(double));
	struct outcome result;

	fill(grid + width(), 1, size + 1);
	start_clock();
	for (long s = 0; s < steps; s++)
		for (int c = RED; c <= BLACK; c++)
			for (long i = 1; i <= size; i++)
				relax(grid + i * width(), i, (enum colour)c);
	result.seconds = stop_clock();
	result.right = right(grid + width(), 1, size + 1);
	free(grid);
	return result;
}

/* With first touch a page is at home at the rank that fills it below: the same
 * that computes it later, whatever the rows' length. */
static kumi_dsm_home home(void)
{
	if (homes == HOMES_CARELESS)
		return kumi_dsm_at(0);
	if (homes == HOMES_ROUND_ROBIN)
		return kumi_dsm_round_robin(1, 0);
	return kumi_dsm_first_touch();
}

static struct outcome dsm(void)
{
	int me = kumi_rank(), ranks = kumi_size(), next = (me + 1) % ranks;
	long first = 1 + first_of(size, ranks, me);
	long end = 1 + first_of(size, ranks, me + 1);
	double *grid = shared_memory((size_t)(width() * width()) *
	                             sizeof(double), home());
	struct outcome result;

	fill(grid + first * width(), first, end);
	CHECK(kumi_dsm_barrier());
	start_clock();
	for (long s = 0; s < steps; s++)
		for (int c = RED; c <= BLACK; c++) {
			for (long i = first; i < end; i++)
				relax(grid + i * width(), i, (enum colour)c);
			/* The neighbours read this colour next. */
			CHECK(kumi_dsm_barrier());
		}
	result.seconds = stop_clock();
	first = 1 + first_of(size, ranks, next);
	end = 1 + first_of(size, ranks, next + 1);
	result.right = right(grid + first * width(), first, end);
	return result;
}

/* A rank's rows in its window: row 0 and row `rows` + 1 are copies of the
 * neighbours' rows, which they put there. */
struct strip {
	kumi_window *window;
	double *base;
	long first, rows;
	int above, below; /* ranks, or -1 */
	long above_rows;  /* of the rank above */
};

static struct strip make_strip(void)
{
	int me = kumi_rank(), ranks = kumi_size();
	struct strip s = { .above = -1, .below = -1 };
	long end;

	s.first = 1 + first_of(size, ranks, me);
	s.rows = 1 + first_of(size, ranks, me + 1) - s.first;
	/* With fewer rows than ranks, some have none; neighbours are those who
	 * have the next rows. */
	if (s.rows > 0 && s.first > 1)
		s.above = owner_of(size, ranks, s.first - 2);
	if (s.rows > 0 && s.first + s.rows <= size)
		s.below = owner_of(size, ranks, s.first + s.rows - 1);
	if (s.above >= 0)
		s.above_rows = first_of(size, ranks, s.above + 1) -
		               first_of(size, ranks, s.above);
	CHECK(kumi_window_create((size_t)((s.rows + 2) * width()) *
	                         sizeof(double), &s.window));
	s.base = kumi_window_base(s.window);
	/* Also the copies; the edge, which is row 0 and row size + 1, stays 0. */
	end = s.first + s.rows + 1;
	fill(s.base, s.first - 1, end > size + 1 ? size + 1 : end);
	return s;
}

/* Puts the outer rows to the neighbours and waits for theirs.  Whole rows go: the
 * other colour in them is as the neighbour has it already.  A neighbour cannot be
 * further ahead than by one half step, so no value comes too early. */
static void exchange(const struct strip *s, uint64_t halves)
{
	size_t row = (size_t)width() * sizeof(double);

	if (s->above >= 0)
		CHECK(kumi_window_put_notify(
			s->window, s->above, (size_t)(s->above_rows + 1) * row,
			s->base + width(), row, FROM_BELOW));
	if (s->below >= 0)
		CHECK(kumi_window_put_notify(s->window, s->below, 0,
		                             s->base + s->rows * width(), row,
		                             FROM_ABOVE));
	if (s->above >= 0)
		CHECK(kumi_window_wait_notify(s->window, FROM_ABOVE, halves,
		                              NULL));
	if (s->below >= 0)
		CHECK(kumi_window_wait_notify(s->window, FROM_BELOW, halves,
		                              NULL));
}

static struct outcome putget(void)
{
	struct strip strip = make_strip();
	struct outcome result;

	start_clock();
	for (long half = 0; half < 2 * steps; half++) {
		for (long i = 0; i < strip.rows; i++)
			relax(strip.base + (i + 1) * width(), strip.first + i,
			      (enum colour)(half % 2));
		exchange(&strip, (uint64_t)half + 1);
	}
	result.seconds = stop_clock();
	result.right = right(strip.base + width(), strip.first,
	                     strip.first + strip.rows);
	/* A neighbour's last row may still be on its way. */
	CHECK(kumi_barrier());
	CHECK(kumi_window_free(strip.window));
	return result;
}

int main(int argc, char **argv)
{
	static const struct example sor = {
		"sor", "relaxes a grid", options, &size, sequential, dsm,
		putget,
	};

	return example_main(&sor, argc, argv);
}
