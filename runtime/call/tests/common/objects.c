/* A class whose state is that of this library: each object is a process of its own. */
#include "gate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char written[256];
static double sum;

void log_pid(int *pid)
{
    *pid = getpid();
}

/* Appends a text, after there is a file of that path; no path: at once. */
void log_write(const char *path, const char *text)
{
    if (path[0]) {
        gate(path);
    }
    strncat(written, text, sizeof written - strlen(written) - 1);
}

void log_read(char *text)
{
    strcpy(text, written);
}

/* The sum of all numbers so far. */
void log_add(int n, const double *x, double *total)
{
    for (int i = 0; i < n; i++) {
        sum += x[i];
    }
    *total = sum;
}

/* Adds what a function says of the sum so far. */
void log_ask(void (*f)(double so_far, double *more), double *total)
{
    double more = 0;
    f(sum, &more);
    sum += more;
    *total = sum;
}

/* How many bytes a file has, and a copy of it. */
void log_file(const char *from, const char *to, int *bytes)
{
    FILE *in = fopen(from, "rb");
    FILE *out = fopen(to, "wb");
    int c;
    *bytes = 0;
    while ((c = getc(in)) != EOF) {
        putc(c, out);
        ++*bytes;
    }
    fclose(in);
    fclose(out);
}

void log_crash(void)
{
    abort();
}
