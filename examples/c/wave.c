/* A wave in a square membrane whose edge is held fast, by explicit steps on a
 * grid.  Each rank has some rows.  While its outer rows are on their way to its
 * neighbours and theirs to it, it computes the rows inside; then it computes each
 * outer row when the neighbour's row has come, whichever comes first.
 *
 * The beginning is one mode of the grid's Laplacian, which swings with a known
 * frequency.  So the program compares its end with what is known. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kumi.h>

#define EXIT_USAGE 64
#define PI 3.14159265358979323846
/* Square of the wave's speed by time step and distance; stable up to 1/2. */
#define RATIO 0.4

/* Tags of messages, as their sender names them. */
enum { TO_ABOVE, TO_BELOW };

struct options {
	int points, steps, help;
	const char *wrong;
};

struct membrane {
	int rank, ranks, points, width, first, rows;
	double *now, *before; /* rows 0 and rows + 1 are the neighbours' */
	double frequency;     /* per step */
};

static void check(int code, const char *what)
{
	if (code >= KUMI_OK)
		return;
	fprintf(stderr, "wave: %s: %s\n", what, kumi_error_detail());
	exit(1);
}

static int row_of(const struct membrane *m, int rank)
{
	return (int)((long)m->points * rank / m->ranks);
}

/* The membrane at a point after some steps. */
static double exact(const struct membrane *m, int row, int column, int step)
{
	double h = PI / (m->points + 1);

	return sin(2 * h * row) * sin(3 * h * column) * cos(m->frequency * step);
}

static void make(struct membrane *m, int points)
{
	double h = PI / (points + 1), y = sin(h), x = sin(1.5 * h);
	size_t bytes;

	m->rank = kumi_rank();
	m->ranks = kumi_size();
	m->points = points;
	m->width = points + 2;
	m->first = row_of(m, m->rank);
	m->rows = row_of(m, m->rank + 1) - m->first;
	m->frequency = 2 * asin(sqrt(RATIO * (y * y + x * x)));
	bytes = (size_t)(m->rows + 2) * (size_t)m->width * sizeof(double);
	m->now = malloc(bytes);
	m->before = malloc(bytes);
	if (m->now == NULL || m->before == NULL) {
		fprintf(stderr, "wave: no memory for %zu bytes\n", bytes);
		exit(1);
	}
	for (int row = 0; row < m->rows + 2; row++)
		for (int i = 0; i < m->width; i++) {
			int at = row * m->width + i;

			m->now[at] = exact(m, m->first + row, i, 0);
			m->before[at] = exact(m, m->first + row, i, -1);
		}
}

/* One row of the next step, in place of that of the step before. */
static void compute(struct membrane *m, int row)
{
	const double *here = m->now + row * m->width;
	const double *above = here - m->width, *below = here + m->width;
	double *next = m->before + row * m->width;

	for (int i = 1; i <= m->points; i++)
		next[i] = 2 * here[i] - next[i] +
		          RATIO * (above[i] + below[i] + here[i - 1] +
		                   here[i + 1] - 4 * here[i]);
}

static void step(struct membrane *m)
{
	size_t bytes = (size_t)m->width * sizeof(double), which;
	double *last = m->now + m->rows * m->width;
	kumi_request came[2] = { 0 }, gone[2] = { 0 };
	int up = m->rank - 1, down = m->rank + 1, halves = 0;
	double *swap;

	if (up >= 0) {
		check(kumi_message_irecv(up, TO_BELOW, m->now, bytes, NULL,
		                         &came[0]), "kumi_message_irecv");
		check(kumi_message_isend(up, TO_ABOVE, m->now + m->width, bytes,
		                         NULL, &gone[0]), "kumi_message_isend");
		halves++;
	}
	if (down < m->ranks) {
		check(kumi_message_irecv(down, TO_ABOVE, last + m->width, bytes,
		                         NULL, &came[1]), "kumi_message_irecv");
		check(kumi_message_isend(down, TO_BELOW, last, bytes, NULL,
		                         &gone[1]), "kumi_message_isend");
		halves++;
	}
	for (int row = 2; row < m->rows; row++)
		compute(m, row);
	/* A single row needs both neighbours; an outer row only one. */
	for (; halves > 0; halves--) {
		check(kumi_request_wait_any(came, 2, &which, NULL),
		      "kumi_request_wait_any");
		if (m->rows > 1)
			compute(m, which == 0 ? 1 : m->rows);
	}
	if (m->rows == 1 || up < 0)
		compute(m, 1);
	if (m->rows > 1 && down >= m->ranks)
		compute(m, m->rows);
	/* The rows that were sent are overwritten in the step after next. */
	check(kumi_request_wait_all(gone, 2, NULL), "kumi_request_wait_all");
	swap = m->now;
	m->now = m->before;
	m->before = swap;
}

/* The largest difference from what is known, at this rank. */
static double error_after(const struct membrane *m, int steps)
{
	double worst = 0.0;

	for (int row = 1; row <= m->rows; row++)
		for (int i = 1; i <= m->points; i++)
			worst = fmax(worst, fabs(m->now[row * m->width + i] -
			                         exact(m, m->first + row, i,
			                               steps)));
	return worst;
}

/* A number from 1 to `most`, or 0. */
static int number(const char *text, long most)
{
	char *end = NULL;
	long value = text == NULL ? 0 : strtol(text, &end, 10);

	return value < 1 || value > most || *end != '\0' ? 0 : (int)value;
}

static struct options parse(int argc, char **argv)
{
	struct options o = { 128, 200, 0, NULL };

	for (int i = 1; i < argc && o.wrong == NULL && !o.help; i += 2) {
		if (strcmp(argv[i], "--help") == 0)
			o.help = 1;
		else if (strcmp(argv[i], "--points") == 0)
			o.wrong = (o.points = number(argv[i + 1], 16384)) > 0
			              ? NULL
			              : "--points takes 1 to 16384";
		else if (strcmp(argv[i], "--steps") == 0)
			o.wrong = (o.steps = number(argv[i + 1], 1000000)) > 0
			              ? NULL
			              : "--steps takes 1 to 1000000";
		else
			o.wrong = "unknown option";
	}
	return o;
}

static int explain(const struct options *o)
{
	FILE *out = o->help ? stdout : stderr;

	if (!o->help)
		fprintf(out, "wave: %s\n", o->wrong);
	fprintf(out,
	        "wave: a wave in a membrane; rows travel while others are "
	        "computed\n"
	        "Usage: kumi run -n RANKS wave [--points N] [--steps N]\n"
	        "  --points N  inner grid points in each direction (default "
	        "128), at least RANKS\n"
	        "  --steps N   time steps (default 200)\n"
	        "Last line: RESULT name=wave ... verified=yes|no ...\n"
	        "Exit code: 0 verified, 1 not verified or failed, 64 usage.\n");
	fflush(out);
	return o->help ? 0 : EXIT_USAGE;
}

static int run(const struct options *o)
{
	struct membrane m;
	double begin, seconds, error;
	kumi_request slowest;
	int verified;

	make(&m, o->points);
	check(kumi_barrier(), "kumi_barrier");
	begin = kumi_time();
	for (int i = 0; i < o->steps; i++)
		step(&m);
	seconds = kumi_time() - begin;
	/* The ranks agree on the time while they look at the result. */
	check(kumi_iallreduce(&seconds, &seconds, 1, KUMI_F64, KUMI_MAX, NULL,
	                      &slowest), "kumi_iallreduce");
	error = error_after(&m, o->steps);
	check(kumi_request_wait(&slowest, NULL), "kumi_request_wait");
	check(kumi_allreduce(&error, &error, 1, KUMI_F64, KUMI_MAX),
	      "kumi_allreduce");
	verified = error < 1e-9;
	if (m.rank == 0) {
		double updates = (double)o->points * o->points * o->steps;

		printf("largest error %.3g after %d steps\n", error, o->steps);
		printf("RESULT name=wave class=- verified=%s seconds=%.6f "
		       "mops=%.2f ranks=%d repeat=1\n",
		       verified ? "yes" : "no", seconds,
		       seconds > 0.0 ? updates / seconds / 1e6 : 0.0, m.ranks);
		fflush(stdout);
	}
	free(m.now);
	free(m.before);
	return verified ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	int code = kumi_init();

	/* Outside a job this process is all there is, and may ask. */
	if (code == KUMI_ERR_NOT_LAUNCHED && (o.help || o.wrong != NULL))
		return explain(&o);
	check(code, "kumi_init");
	if (o.wrong == NULL && o.points < kumi_size())
		o.wrong = "more ranks than rows";
	if (o.help || o.wrong != NULL) {
		code = o.help ? 0 : EXIT_USAGE;
		if (kumi_rank() == 0)
			explain(&o);
	} else {
		code = run(&o);
	}
	/* A rank that exits with another code than 0 ends the whole job. */
	check(kumi_barrier(), "kumi_barrier");
	check(kumi_finalize(), "kumi_finalize");
	return code;
}
