/* What the examples of shared memory have in common: options, the choice of a
 * version, clock, memory, and the line with the result.
 *
 * A program has up to three versions, which its first argument chooses:
 *
 *   sequential  one process, with memory of its own; needs no cluster
 *   dsm         ranks that share memory (kumi_dsm.h)
 *   putget      ranks with windows, puts and gets (kumi.h) */
#ifndef DSM_COMMON_H
#define DSM_COMMON_H

#include <stddef.h>
#include <stdint.h>

#include <kumi.h>
#include <kumi_dsm.h>

/* An option `--name VALUE` or `--name=VALUE`. */
struct option {
	const char *name;
	long *value;
	/* Numbers: the bounds. */
	long least, most;
	/* Words: what there is to choose, ended by NULL; *value is the index. */
	const char *const *words;
	const char *meaning;
};

/* What a version did at this rank. */
struct outcome {
	double seconds;
	int right; /* whether this rank's check found nothing wrong */
};

struct example {
	const char *name, *what;
	const struct option *options; /* ended by a name that is NULL */
	const long *size;             /* is printed */
	/* NULL where there is no such version */
	struct outcome (*sequential)(void);
	struct outcome (*dsm)(void);
	struct outcome (*putget)(void);
};

/* Joins the job, runs the version that was asked for, prints
 * "name version size ranks seconds checked yes|no" at rank 0 and leaves.
 * Returns the exit code: 0 checked, 1 not, 64 usage. */
int example_main(const struct example *example, int argc, char **argv);

/* Ends the program, and with it the job, if a call has failed. */
#define CHECK(call) check_call((call), #call)
void check_call(int code, const char *call);

/* The seconds between the two, in which all ranks begin together.  With
 * --statistics also what the shared memory did meanwhile. */
void start_clock(void);
double stop_clock(void);

/* Zeroed memory: of this process, and of all ranks.  At least one byte. */
void *private_memory(size_t bytes);
void *shared_memory(size_t bytes, kumi_dsm_home home);

/* `count` items are shared out: rank r has those from first_of(count, ranks, r)
 * to before first_of(count, ranks, r + 1), which may be none.  owner_of() is the
 * rank that has item `item`. */
long first_of(long count, int ranks, int rank);
int owner_of(long count, int ranks, long item);

/* Well mixed bits of a number: data that every rank can make for itself. */
uint64_t mix(uint64_t number);

/* `--homes`, for programs that can show what careless homes cost. */
enum homes { HOMES_MATCHED, HOMES_CARELESS, HOMES_ROUND_ROBIN };
extern const char *const homes_words[];

#endif
