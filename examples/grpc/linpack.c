/* Linpack on a server, as section 3 of the Ninf paper has it: systems of n equations whose matrices are sent, solved and checked, and
 * what that gives in operations and bytes per second: P = (2/3 n^3 + 2 n^2) / T over 8 n^2 + 20 n bytes.
 *
 *     kumi call serve --library ./liblinpack.so linpack.idl
 *     linpack [-c CLIENTS] [-r ROUNDS] [N...]
 *
 * CLIENTS calls are in flight at once. The server is that of KUMI_CALL_SERVER. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grpc.h"
#include "linpack_solve.h"

enum { MOST_CLIENTS = 64 };

static grpc_function_handle_t handle;

/* The system of one client. */
struct equations {
    double *a;
    double *b;
    int *pivots;
    int info;
};

static void refuse(const char *what)
{
    grpc_perror_np(what);
    exit(1);
}

static void *memory(size_t bytes)
{
    void *got = malloc(bytes);
    if (got == NULL) {
        fprintf(stderr, "linpack: there is no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return got;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Numbers from -1/2 to 1/2, the same in every run. */
static double number(unsigned long long *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (double)(*state >> 11) / 9007199254740992.0 - 0.5;
}

/* A system whose solution is all ones. */
static void make(struct equations *equations, int n, unsigned seed)
{
    unsigned long long state = seed + 1;
    for (int i = 0; i < n; i++) {
        equations->b[i] = 0;
        for (int j = 0; j < n; j++) {
            double value = number(&state);
            equations->a[(size_t)i * n + j] = value;
            equations->b[i] += value;
        }
    }
}

static int is_solved(const struct equations *equations, int n)
{
    for (int i = 0; i < n; i++) {
        /* Far more than rounding does to systems of this size, far less than any mistake. */
        if (!(fabs(equations->b[i] - 1) < 1e-6)) {
            fprintf(stderr, "linpack: x(%d) is %.17g, not 1\n", i + 1, equations->b[i]);
            return 0;
        }
    }
    return 1;
}

/* All systems at once; seconds. */
static double solve(struct equations *equations, int clients, int n)
{
    grpc_sessionid_t sessions[MOST_CLIENTS];
    double begin = now();
    for (int i = 0; i < clients; i++) {
        struct equations *one = &equations[i];
        if (grpc_call_async(&handle, &sessions[i], n, one->a, one->b, one->pivots, &one->info) != GRPC_NO_ERROR) {
            refuse("linpack");
        }
    }
    if (grpc_wait_and(sessions, (size_t)clients) != GRPC_NO_ERROR) {
        refuse("linpack");
    }
    return now() - begin;
}

/* The same here; seconds of one. */
static double solve_here(struct equations *equations, int n)
{
    double begin = now();
    linpack(n, equations->a, equations->b, equations->pivots, &equations->info);
    return now() - begin;
}

static void run(int n, int clients, int rounds)
{
    struct equations equations[MOST_CLIENTS];
    double operations = 2.0 / 3 * pow(n, 3) + 2 * pow(n, 2);
    double bytes = 8 * pow(n, 2) + 20.0 * n;
    double best = INFINITY;
    for (int i = 0; i < clients; i++) {
        equations[i].a = memory(sizeof(double) * (size_t)n * (size_t)n);
        equations[i].b = memory(sizeof(double) * (size_t)n);
        equations[i].pivots = memory(sizeof(int) * (size_t)n);
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < clients; i++) {
            make(&equations[i], n, (unsigned)(round * clients + i));
        }
        best = fmin(best, solve(equations, clients, n));
        for (int i = 0; i < clients; i++) {
            if (!is_solved(&equations[i], n)) {
                exit(1);
            }
        }
    }
    make(&equations[0], n, 0);
    double here = solve_here(&equations[0], n);
    if (!is_solved(&equations[0], n)) {
        exit(1);
    }
    printf("%6d %8d %10.1f %10.4f %12.1f %10.1f %12.1f\n", n, clients, clients * bytes / 1e6, best,
           clients * operations / best / 1e6, clients * bytes / best / 1e6, operations / here / 1e6);
    for (int i = 0; i < clients; i++) {
        free(equations[i].a);
        free(equations[i].b);
        free(equations[i].pivots);
    }
}

/* A number of an option or argument, from 1 to `most`. */
static int count(const char *text, int most)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (end == text || *end != 0 || value < 1 || value > most) {
        fprintf(stderr, "linpack: `%s` is no number from 1 to %d\n", text, most);
        exit(64);
    }
    return (int)value;
}

int main(int argc, char **argv)
{
    static const int usual[] = {600, 1000, 1400};
    int clients = 1;
    int rounds = 3;
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        if (strcmp(argv[at], "-c") == 0) {
            clients = count(argv[at + 1], MOST_CLIENTS);
        } else if (strcmp(argv[at], "-r") == 0) {
            rounds = count(argv[at + 1], 1000);
        } else {
            break;
        }
    }
    if (at < argc && argv[at][0] == '-') {
        fprintf(stderr, "usage: linpack [-c CLIENTS] [-r ROUNDS] [N...]\n");
        return 64;
    }
    if (grpc_initialize(NULL) != GRPC_NO_ERROR || grpc_function_handle_default(&handle, "linpack") != GRPC_NO_ERROR) {
        refuse("linpack");
    }
    printf("     n  clients         MB    seconds      Mflop/s       MB/s  here, Mflop/s\n");
    if (at == argc) {
        for (int i = 0; i < 3; i++) {
            run(usual[i], clients, rounds);
        }
    }
    for (; at < argc; at++) {
        run(count(argv[at], 20000), clients, rounds);
    }
    grpc_function_handle_destruct(&handle);
    return grpc_finalize() == GRPC_NO_ERROR ? 0 : 1;
}
