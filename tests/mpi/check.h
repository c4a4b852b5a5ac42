/*
 * What the programs share: options, checks, random numbers, contents of messages.
 *
 * Rank 0 prints "ok NAME" for each check that all ranks have passed, and "passed COUNT checks of PROGRAM" at
 * the end. A rank that finds something wrong says it on standard error and ends the job with code 1.
 */
#ifndef KUMI_TESTS_MPI_CHECK_H
#define KUMI_TESTS_MPI_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED __attribute__((unused))

static int rank, ranks;
/* Neighbours in the ring of all ranks; this rank itself if it is alone. */
static int left, right;

static struct {
    const char *program;
    int rounds;
    uint64_t seed;
    /* Bytes of the longest message, where a program goes up to some length. */
    long most;
    /* Messages, where a program sends many. */
    int count;
    /* Also what needs several gigabytes. */
    int large;
    /* A folder that all ranks can write. */
    const char *folder;
    /* First word that is no option. */
    const char *word;
    int checks;
} test = {.rounds = 1, .seed = 1, .most = 16 << 20, .count = 10000, .folder = "."};

/* Says what is wrong and ends the job. */
static void fail(const char *sentence, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *sentence, ...)
{
    va_list arguments;
    char text[512];
    va_start(arguments, sentence);
    vsnprintf(text, sizeof text, sentence, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: rank %d of %d (seed %llu): %s\n", test.program, rank, ranks, (unsigned long long)test.seed,
            text);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail(__VA_ARGS__);                                                                                         \
    } while (0)

/* All ranks have come to the end of this check. */
UNUSED static void passed(const char *name)
{
    MPI_Barrier(MPI_COMM_WORLD);
    test.checks++;
    if (rank == 0) {
        printf("ok %s\n", name);
        fflush(stdout);
    }
}

UNUSED static long number(const char *option, const char *text)
{
    char *end = NULL;
    long value = text == NULL ? -1 : strtol(text, &end, 10);
    if (text == NULL || *text == '\0' || *end != '\0' || value < 0) {
        fprintf(stderr, "%s needs a whole number\n", option);
        exit(2);
    }
    return value;
}

UNUSED static void usage(void)
{
    fprintf(stderr, "usage: %s [--rounds N] [--seed N] [--most BYTES] [--count N] [--folder DIR] [--large] [WORD]\n", test.program);
    exit(2);
}

UNUSED static void options(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    test.program = slash == NULL ? argv[0] : slash + 1;
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(option, "--large") == 0) {
            test.large = 1;
        } else if (option[0] != '-') {
            test.word = option;
        } else {
            if (strcmp(option, "--rounds") == 0)
                test.rounds = (int)number(option, value);
            else if (strcmp(option, "--seed") == 0)
                test.seed = (uint64_t)number(option, value);
            else if (strcmp(option, "--most") == 0)
                test.most = number(option, value);
            else if (strcmp(option, "--count") == 0)
                test.count = (int)number(option, value);
            else if (strcmp(option, "--folder") == 0 && value != NULL)
                test.folder = value;
            else
                usage();
            i++;
        }
    }
}

/* Reads the options and starts MPI with at least this level of threads. */
UNUSED static void start_with(int argc, char **argv, int wanted)
{
    int given;
    options(argc, argv);
    MPI_Init_thread(&argc, &argv, wanted, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(given >= wanted, "the library gives thread level %d, not %d", given, wanted);
    left = (rank + ranks - 1) % ranks;
    right = (rank + 1) % ranks;
}

UNUSED static void start(int argc, char **argv)
{
    start_with(argc, argv, MPI_THREAD_SINGLE);
}

UNUSED static int finish(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("passed %d checks of %s\n", test.checks, test.program);
    MPI_Finalize();
    return 0;
}

UNUSED static void *memory(size_t bytes)
{
    void *memory = malloc(bytes == 0 ? 1 : bytes);
    CHECK(memory != NULL, "there are no %zu bytes of memory", bytes);
    return memory;
}

/* Whether the MPI library calls itself so, as "Open MPI v4.". */
UNUSED static int library_is(const char *name)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return strstr(version, name) != NULL;
}

/* Says what is not tested, since the library gets it wrong whatever carries its messages. */
UNUSED static void left_out(const char *what)
{
    if (rank == 0)
        printf("left out with this library: %s\n", what);
}

/* Random numbers (SplitMix64, Steele and others 2014). Equal seeds give the same numbers on all ranks. */
UNUSED static uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A state of its own for each pair of numbers. */
UNUSED static uint64_t random_of(int a, int b)
{
    uint64_t state = test.seed * 1000003u + (uint64_t)(uint32_t)a * 65537u + (uint64_t)(uint32_t)b;
    return random_next(&state);
}

UNUSED static int random_below(uint64_t *state, int limit)
{
    return (int)(random_next(state) % (uint64_t)limit);
}

/* The byte at a place of message `id`. */
static inline uint8_t content(uint64_t id, size_t place)
{
    return (uint8_t)(id * 31 + place * 7 + (place >> 8) * 13 + (place >> 16) * 101);
}

UNUSED static void fill(void *data, size_t bytes, uint64_t id)
{
    uint8_t *byte = data;
    for (size_t place = 0; place < bytes; place++)
        byte[place] = content(id, place);
}

UNUSED static void check_content(const void *data, size_t bytes, uint64_t id, const char *what)
{
    const uint8_t *byte = data;
    for (size_t place = 0; place < bytes; place++)
        CHECK(byte[place] == content(id, place), "%s: byte %zu of %zu of message %llu is %d, not %d", what, place, bytes,
              (unsigned long long)id, byte[place], content(id, place));
}

UNUSED static void check_status(const MPI_Status *status, int source, int tag, int count, const char *what)
{
    int got;
    MPI_Get_count(status, MPI_BYTE, &got);
    CHECK(status->MPI_SOURCE == source && status->MPI_TAG == tag && got == count,
          "%s: source %d, tag %d, %d bytes instead of source %d, tag %d, %d bytes", what, status->MPI_SOURCE,
          status->MPI_TAG, got, source, tag, count);
}

#endif
