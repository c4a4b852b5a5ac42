/* Routines for the tests. */
#include "gate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void dmmul(int n, const double *a, const double *b, double *c)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++) {
                sum += a[i * n + k] * b[k * n + j];
            }
            c[i * n + j] = sum;
        }
    }
}

/* Fortran: everything by address, by columns; y = y + first column of a, info = n. */
void addcol_(const int *n, const int *m, const double *a, double *y, int *info)
{
    for (int i = 0; i < *n; i++) {
        y[i] += a[i];
    }
    *info = *m > 99 ? *m : 0;
}

double total(int n, const float *x, float scale)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
    }
    return sum * scale;
}

/* Every second element is sent and comes back. */
void negate(int n, int *x)
{
    for (int i = 0; i < n; i++) {
        x[i] = -x[i];
    }
}

void shout(const char *text, char *answer)
{
    strcpy(answer, text);
    strcat(answer, "!");
}

void noop(void)
{
}

void crash(void)
{
    abort();
}

void leave(int code)
{
    _exit(code);
}

void nap(int ms, int *pid)
{
    *pid = getpid();
    usleep(ms * 1000);
}

int use(long bytes)
{
    char *memory = malloc(bytes);
    if (memory == NULL) {
        return 1;
    }
    memset(memory, 1, bytes);
    free(memory);
    return 0;
}

/* y = x everywhere, behind a gate. */
void flood(int n, const char *path, double x, double *y)
{
    gate(path);
    for (int i = 0; i < n; i++) {
        y[i] = x;
    }
}

/* y = x, element by element, behind a gate. */
void pass(int n, const char *path, const double *x, double *y)
{
    gate(path);
    memcpy(y, x, n * sizeof *x);
}

/* y = x everywhere, after a while. */
void fill(int n, int ms, double x, double *y)
{
    usleep(ms * 1000);
    for (int i = 0; i < n; i++) {
        y[i] = x;
    }
}

/* y = y + x, element by element; fails if asked to. */
void add(int n, const double *x, double *y, int *info)
{
    for (int i = 0; i < n; i++) {
        y[i] += x[i];
    }
    *info = n > 0 && x[0] < 0 ? 1 : 0;
}

/* Lives on where nobody can reach it. */
void deaf(void)
{
    for (int file = 3; file < 1024; file++) {
        close(file);
    }
    sleep(600);
}

/* Forks a process that has all descriptors of this one. */
void brood(int leaves, int *pid)
{
    /* Not at once to where both would write: the arguments are shared memory. */
    int child = fork();
    if (child == 0) {
        sleep(600);
        _exit(0);
    }
    *pid = child;
    if (leaves) {
        _exit(3);
    }
}

/* Leaves its result as it is. */
void keep(int n, double *x)
{
    (void)n;
    (void)x;
}
