#include "npb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kumi.h>

uint64_t npb_skip(uint64_t state, uint64_t steps)
{
	uint64_t a = NPB_A;

	for (; steps > 0; steps >>= 1) {
		if (steps & 1)
			state = npb_step(state, a);
		a = npb_step(a, a);
	}
	return state;
}

static void print_usage(FILE *out, const char *name, const char *what)
{
	fprintf(out,
	        "%s: %s\n"
	        "Usage: kumi run -n RANKS %s [--class S|W|A] [--repeat N] "
	        "[--progress]\n"
	        "  --class C    size of the problem (default S)\n"
	        "  --repeat N   run the timed section N times (default 1)\n"
	        "  --progress   print how far it is: PROGRESS steps unix_time\n"
	        "  --help       this text\n"
	        "Last line: RESULT name=... class=... verified=yes|no "
	        "seconds=... mops=... ranks=... repeat=...\n"
	        "Exit code: 0 verified, 1 not verified or failed, 64 usage.\n",
	        name, what, name);
}

/* Fills *options; returns NULL, or what is wrong. */
static const char *parse(int argc, char **argv, struct npb_options *options,
                         int *help)
{
	for (int i = 1; i < argc; i++) {
		const char *option = argv[i];
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (strcmp(option, "--help") == 0) {
			*help = 1;
			return NULL;
		}
		if (strcmp(option, "--progress") == 0) {
			options->progress = 1;
			continue;
		}
		if (strcmp(option, "--class") == 0) {
			if (value == NULL || strlen(value) != 1 ||
			    strchr("SWA", value[0]) == NULL)
				return "--class takes S, W or A";
			options->class_name = value[0];
		} else if (strcmp(option, "--repeat") == 0) {
			char *end = NULL;
			long number = value == NULL ? 0 : strtol(value, &end, 10);

			if (value == NULL || *value == '\0' || *end != '\0' ||
			    number < 1 || number > 1000000)
				return "--repeat takes a number from 1 to 1000000";
			options->repeat = (int)number;
		} else {
			return "unknown option";
		}
		i++;
	}
	return NULL;
}

struct npb_options npb_start(int argc, char **argv, const char *name,
                             const char *what)
{
	struct npb_options options = { .class_name = 'S', .repeat = 1 };
	int help = 0;
	const char *wrong = parse(argc, argv, &options, &help);
	int joined = kumi_init();

	if (wrong != NULL || help) {
		/* Outside a job there is no rank: everybody is rank 0. */
		if (joined != KUMI_OK || kumi_rank() == 0) {
			if (wrong != NULL)
				fprintf(stderr, "%s: %s\n", name, wrong);
			print_usage(help ? stdout : stderr, name, what);
		}
		if (joined == KUMI_OK)
			npb_leave(help ? 0 : NPB_EXIT_USAGE);
		exit(help ? 0 : NPB_EXIT_USAGE);
	}
	npb_check(joined, "kumi_init");
	return options;
}

void npb_step_done(struct npb_options *options)
{
	const double interval = 0.05;
	struct timespec now;
	double seconds;

	options->steps++;
	if (!options->progress || kumi_rank() != 0)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
	if (seconds < options->shown + interval)
		return;
	options->shown = seconds;
	printf("PROGRESS %ld %.6f\n", options->steps, seconds);
	fflush(stdout);
}

void npb_leave(int code)
{
	fflush(stdout);
	npb_check(kumi_barrier(), "kumi_barrier");
	npb_check(kumi_finalize(), "kumi_finalize");
	exit(code);
}

void npb_check(int code, const char *what)
{
	if (code >= KUMI_OK)
		return;
	fprintf(stderr, "%s: %s (%s)\n", what, kumi_error_string(code),
	        kumi_error_detail());
	exit(1);
}

void *npb_allocate(uint64_t count, uint64_t size)
{
	void *memory = calloc(count > 0 ? count : 1, size);

	if (memory == NULL) {
		fprintf(stderr, "cannot allocate %llu x %llu bytes: %s\n",
		        (unsigned long long)count, (unsigned long long)size,
		        strerror(errno));
		exit(1);
	}
	return memory;
}

double npb_slowest(double seconds)
{
	npb_check(kumi_allreduce(&seconds, &seconds, 1, KUMI_F64, KUMI_MAX),
	          "kumi_allreduce");
	return seconds;
}

void npb_finish(const char *name, struct npb_options options, int verified,
               double seconds, double operations)
{
	double mops = seconds > 0.0
	                  ? operations * options.repeat / seconds / 1e6
	                  : 0.0;

	if (kumi_rank() == 0) {
		printf(" Time in seconds = %24.6f\n"
		       " Verification    = %24s\n",
		       seconds, verified ? "SUCCESSFUL" : "UNSUCCESSFUL");
		printf("RESULT name=%s class=%c verified=%s seconds=%.6f "
		       "mops=%.2f ranks=%d repeat=%d\n",
		       name, options.class_name, verified ? "yes" : "no",
		       seconds, mops, kumi_size(), options.repeat);
	}
	npb_leave(verified ? 0 : 1);
}
