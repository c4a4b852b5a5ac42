#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXIT_USAGE 64

const char *const homes_words[] = { "matched", "careless", "round-robin",
	                            NULL };

/* What --statistics shows; the names are those of kumi_dsm_statistics(). */
static const char *const counters[] = { "faults", "fetches", "pages",
	                                "diffs", "diff_bytes", "locks",
	                                "packets" };
enum { COUNTERS = sizeof counters / sizeof *counters };

static int joined, sharing; /* this process is a rank; it shares memory */
static double started;
static uint64_t counts[COUNTERS];

/* What the arguments say. */
struct request {
	const char *version, *wrong;
	struct outcome (*run)(void);
	int help, statistics, shares;
};

void check_call(int code, const char *call)
{
	if (code >= KUMI_OK)
		return;
	fprintf(stderr, "%s: %s (%s)\n", call, kumi_error_string(code),
	        kumi_error_detail());
	exit(1);
}

/* Adds the counters' present state, or takes it off. */
static void count(int sign)
{
	for (int i = 0; i < COUNTERS && sharing; i++) {
		uint64_t now;

		CHECK(kumi_dsm_statistics(counters[i], &now));
		counts[i] = sign > 0 ? counts[i] + now : counts[i] - now;
	}
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void start_clock(void)
{
	if (joined)
		CHECK(kumi_barrier());
	count(-1);
	started = now();
}

double stop_clock(void)
{
	double seconds = now() - started;

	count(+1);
	return seconds;
}

void *private_memory(size_t bytes)
{
	void *memory = calloc(bytes > 0 ? bytes : 1, 1);

	if (memory == NULL) {
		fprintf(stderr, "no memory for %zu bytes\n", bytes);
		exit(1);
	}
	return memory;
}

void *shared_memory(size_t bytes, kumi_dsm_home home)
{
	void *memory;

	CHECK(kumi_dsm_allocate(bytes > 0 ? bytes : 1, home, &memory));
	return memory;
}

long first_of(long count, int ranks, int rank)
{
	return count * rank / ranks;
}

int owner_of(long count, int ranks, long item)
{
	return (int)(((item + 1) * ranks - 1) / count);
}

uint64_t mix(uint64_t number)
{
	/* Odd constants; shifts and products in turn let each bit of the
	 * argument change about half of the result's. */
	number += UINT64_C(0x9e3779b97f4a7c15);
	number = (number ^ (number >> 31)) * UINT64_C(0xd6e8feb86659fd93);
	number = (number ^ (number >> 29)) * UINT64_C(0xa0761d6478bd642f);
	return number ^ (number >> 32);
}

/* Stores `text` as the option's value; 0 if it is none. */
static int take(const struct option *option, const char *text)
{
	char *end = NULL;
	long value;

	for (long i = 0; option->words != NULL && option->words[i] != NULL; i++)
		if (text != NULL && strcmp(text, option->words[i]) == 0) {
			*option->value = i;
			return 1;
		}
	if (option->words != NULL || text == NULL || *text == '\0')
		return 0;
	value = strtol(text, &end, 10);
	if (*end != '\0' || value < option->least || value > option->most)
		return 0;
	*option->value = value;
	return 1;
}

/* The option that an argument names, and what stands behind its '='. */
static const struct option *find(const struct option *options, const char *text,
                                 const char **value)
{
	size_t length = strcspn(text, "=");

	*value = text[length] == '=' ? text + length + 1 : NULL;
	for (; options->name != NULL; options++)
		if (strncmp(text, "--", 2) == 0 &&
		    strlen(options->name) + 2 == length &&
		    strncmp(text + 2, options->name, length - 2) == 0)
			return options;
	return NULL;
}

static struct request parse(const struct example *example, int argc,
                            char **argv)
{
	struct request r = { .version = argc > 1 ? argv[1] : "" };

	if (strcmp(r.version, "sequential") == 0)
		r.run = example->sequential;
	else if (strcmp(r.version, "dsm") == 0)
		r.run = example->dsm;
	else if (strcmp(r.version, "putget") == 0)
		r.run = example->putget;
	r.shares = r.run != NULL && r.run == example->dsm;
	r.help = strcmp(r.version, "--help") == 0;
	if (r.run == NULL && !r.help)
		r.wrong = "the first argument names a version";
	for (int i = 2; i < argc && r.wrong == NULL && !r.help; i++) {
		const char *value;
		const struct option *option =
			find(example->options, argv[i], &value);

		if (strcmp(argv[i], "--help") == 0)
			r.help = 1;
		else if (strcmp(argv[i], "--statistics") == 0)
			r.statistics = 1;
		else if (option == NULL)
			r.wrong = "unknown option";
		else if (!take(option, value != NULL ? value : argv[++i]))
			r.wrong = option->meaning;
	}
	return r;
}

static int explain(const struct example *example, const struct request *r)
{
	FILE *out = r->help ? stdout : stderr;

	if (!r->help)
		fprintf(out, "dsm-%s: %s\n", example->name, r->wrong);
	fprintf(out, "dsm-%s: %s\nUsage: dsm-%s sequential [OPTION...]\n",
	        example->name, example->what, example->name);
	fprintf(out, "       kumi run -n RANKS dsm-%s dsm%s [OPTION...]\n",
	        example->name, example->putget != NULL ? "|putget" : "");
	for (const struct option *o = example->options; o->name != NULL; o++)
		fprintf(out, "  --%s  %s\n", o->name, o->meaning);
	fprintf(out,
	        "  --statistics  print what the shared memory did\n"
	        "Last line: name version size ranks seconds checked yes|no\n"
	        "Exit code: 0 checked, 1 not checked or failed, 64 usage.\n");
	fflush(out);
	return r->help ? 0 : EXIT_USAGE;
}

/* One line: the counters of all ranks together. */
static void show_statistics(void)
{
	CHECK(kumi_allreduce(counts, counts, COUNTERS, KUMI_U64, KUMI_SUM));
	if (kumi_rank() > 0)
		return;
	printf("statistics");
	for (int i = 0; i < COUNTERS; i++)
		printf("%s %s %llu", i > 0 ? "," : "", counters[i],
		       (unsigned long long)counts[i]);
	printf("\n");
}

static int run(const struct example *example, const struct request *r)
{
	struct outcome all;
	int ranks = 1, me = 0;

	if (r->shares)
		CHECK(kumi_dsm_start());
	sharing = r->shares;
	all = r->run();
	/* All ranks end the shared memory together, so none still reads it. */
	if (r->shares)
		CHECK(kumi_dsm_end());
	sharing = 0;
	if (joined) {
		ranks = kumi_size();
		me = kumi_rank();
		CHECK(kumi_allreduce(&all.seconds, &all.seconds, 1, KUMI_F64,
		                     KUMI_MAX));
		CHECK(kumi_allreduce(&all.right, &all.right, 1, KUMI_I32,
		                     KUMI_MIN));
		if (r->statistics)
			show_statistics();
	}
	if (me == 0)
		printf("%s %s %ld %d %.6f checked %s\n", example->name,
		       r->version, *example->size, ranks, all.seconds,
		       all.right ? "yes" : "no");
	fflush(stdout);
	return all.right ? 0 : 1;
}

int example_main(const struct example *example, int argc, char **argv)
{
	struct request r = parse(example, argc, argv);
	int code = kumi_init();
	/* Outside a job this process is all there is. */
	int alone = code == KUMI_ERR_NOT_LAUNCHED &&
	            (r.wrong != NULL || r.help || r.run == example->sequential);

	if (!alone)
		check_call(code, "kumi_init()");
	joined = !alone;
	if (joined && r.wrong == NULL && kumi_size() > 1 &&
	    r.run == example->sequential)
		r.wrong = "the sequential version is for one rank";
	if (r.help || r.wrong != NULL) {
		code = r.help ? 0 : EXIT_USAGE;
		if (!joined || kumi_rank() == 0)
			explain(example, &r);
	} else {
		code = run(example, &r);
	}
	/* A rank that exits with another code than 0 ends the whole job. */
	if (joined) {
		CHECK(kumi_barrier());
		CHECK(kumi_finalize());
	}
	return code;
}
