/* Common parts of the NAS kernels here: the random numbers of the NAS
 * Parallel Benchmarks' specification (NAS report RNR-94-007, section 2.3),
 * options, and the line with the result. */
#ifndef NPB_H
#define NPB_H

#include <stdint.h>

/* Exit codes: 0 verified, 1 not verified or failed, and */
#define NPB_EXIT_USAGE 64

/* The multiplier 5^13 and the default seed of the specification. */
#define NPB_A UINT64_C(1220703125)
#define NPB_SEED UINT64_C(314159265)

/* x(k+1) = a x(k) mod 2^46: the next state. */
static inline uint64_t npb_step(uint64_t state, uint64_t a)
{
	return (state * a) & ((UINT64_C(1) << 46) - 1);
}

/* A state as a number in (0, 1). */
static inline double npb_unit(uint64_t state)
{
	return (double)state * 0x1p-46;
}

/* Advances *state and returns it as a number in (0, 1). */
static inline double npb_random(uint64_t *state)
{
	*state = npb_step(*state, NPB_A);
	return npb_unit(*state);
}

/* The state after `steps` more steps, in about log2(steps) multiplications. */
uint64_t npb_skip(uint64_t state, uint64_t steps);

struct npb_options {
	char class_name; /* 'S', 'W' or 'A' */
	int repeat;      /* times to run the timed section, at least 1 */
	int progress;    /* show how far the program is */
	long steps;      /* so far, see npb_step_done() */
	double shown;    /* when they were shown last */
};

/* Joins the job and reads the options.  For wrong options and for --help it
 * does not return: rank 0 prints, everybody exits (64 or 0). */
struct npb_options npb_start(int argc, char **argv, const char *name,
                             const char *what);

/* Counts a step of the kernel.  With --progress rank 0 prints, at most every
 * 50 ms, "PROGRESS <steps so far> <seconds since 1970>". */
void npb_step_done(struct npb_options *options);

/* Prints `what` failed with the kumi_error `code` and exits with 1. */
void npb_check(int code, const char *what);

/* malloc() that exits with a message instead of returning NULL. */
void *npb_allocate(uint64_t count, uint64_t size);

/* The largest `seconds` of all ranks.  Collective. */
double npb_slowest(double seconds);

/* Leaves the job together with the other ranks, and exits with `code`.  They
 * wait for each other because a rank that exits with a code other than 0 ends
 * the whole job, perhaps before rank 0 has said why. */
_Noreturn void npb_leave(int code);

/* Prints the RESULT line (rank 0), leaves the job and exits with the code.
 * `seconds` is the time of all repeats, `operations` what one repeat counts
 * as by the specification. */
_Noreturn void npb_finish(const char *name, struct npb_options options,
                          int verified, double seconds,
                          double operations);

#endif
