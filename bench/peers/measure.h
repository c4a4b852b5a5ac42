/* What the ping-pong peers share: batches of round trips, their median, and pinning. */
#ifndef KUMI_BENCH_MEASURE_H
#define KUMI_BENCH_MEASURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Round trips between two looks at the clock: its cost is spread over them. */
#define BATCH 200
/* Batches before those that count. */
#define WARM_UP 20
/* A peer that hangs ends by itself after this many seconds. */
#define PATIENCE_S 60

static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static inline void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Pins this process to one processor; a negative number leaves it free. */
static inline void pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        fail("sched_setaffinity");
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the values, which it sorts. */
static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

/* Prints the median half round trip over the batches, in nanoseconds: the only line on stdout. */
static inline void report(double *half_ns, int batches)
{
    printf("half_round_trip_ns %.1f\n", median(half_ns, batches));
}

/* Reads a whole number that must be between low and high. */
static inline int number(const char *text, int low, int high)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < low || value > high) {
        fprintf(stderr, "not a number from %d to %d: %s\n", low, high, text);
        exit(2);
    }
    return (int)value;
}

#endif
