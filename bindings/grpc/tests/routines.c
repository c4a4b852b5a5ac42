/* What the tests' server offers; described in routines.idl. */
#include <complex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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

/* Every scalar type there is, added up as a double. */
double addall(int8_t a, int16_t b, int32_t c, int64_t d, uint8_t e, uint16_t f, uint32_t g, uint64_t h, float i, double j)
{
    return (double)a + b + c + (double)d + e + f + g + (double)h + i + j;
}

/* Each type of the results is another. */
void spread(double value, int8_t *a, int16_t *b, int32_t *c, int64_t *d, uint8_t *e, uint16_t *f, uint32_t *g, uint64_t *h,
            float *i, double *j)
{
    *a = (int8_t)value;
    *b = (int16_t)value;
    *c = (int32_t)value;
    *d = (int64_t)value;
    *e = (uint8_t)value;
    *f = (uint16_t)value;
    *g = (uint32_t)value;
    *h = (uint64_t)value;
    *i = (float)value;
    *j = value;
}

void count(int *number, int by)
{
    *number += by;
}

void conjugate(int n, double complex *z)
{
    for (int i = 0; i < n; i++) {
        z[i] = conj(z[i]);
    }
}

/* Every second element. */
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

/* By columns: element i, j is a(1 + i, 1 + j). */
void columns_(const int *m, const int *n, double *a)
{
    for (int j = 0; j < *n; j++) {
        for (int i = 0; i < *m; i++) {
            a[i + j * *m] += 100 * (i + 1) + (j + 1);
        }
    }
}

void judge(int status, double *seen, int *info)
{
    seen[0] = status;
    *info = status;
}

void noop(void)
{
}

void crash(void)
{
    abort();
}

void nap(int ms, int *slept)
{
    usleep(1000 * (useconds_t)ms);
    *slept = ms;
}

void integrate(int n, void (*f)(double, double *), double *sum)
{
    *sum = 0;
    for (int i = 0; i < n; i++) {
        double y = 0;
        f((i + 0.5) / n, &y);
        *sum += y / n;
    }
}

/* Asks for work until there is no more. */
void worker(int number, void (*next)(int, int *), int64_t *rounds)
{
    int more = 0;
    *rounds = 0;
    do {
        next(number, &more);
        *rounds += 1;
    } while (more);
}

void visit(int n, void (*f)(int, const char *, double *, float, int64_t *, char *), double *x, int64_t *total, char *said)
{
    *total = 40;
    f(n, "text", x, 2.5F, total, said);
}

void capitals(const char *from, const char *to, const char *both)
{
    FILE *in = fopen(from, "rb");
    FILE *out = fopen(to, "wb");
    for (int c = getc(in); c != EOF; c = getc(in)) {
        putc(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c, out);
    }
    fclose(in);
    fclose(out);
    out = fopen(both, "ab");
    fputs(" end", out);
    fclose(out);
}

/* Prints numbered lines of 8 bytes, in turns to both outputs. */
void say(int lines, int fails)
{
    for (int i = 0; i < lines; i++) {
        FILE *out = i % 2 == 0 ? stdout : stderr;
        fprintf(out, "%07d\n", i);
        fflush(out);
    }
    if (fails) {
        abort();
    }
}

void fill(int n, int ms, double x, double *y)
{
    usleep((useconds_t)ms * 1000);
    for (int i = 0; i < n; i++) {
        y[i] = x;
    }
}

/* Notes in PATH.begun that it runs, and the name of its server, and runs until there is PATH. */
void gate(const char *path, const double *x, double *y)
{
    char begun[4096];
    const char *server = getenv("TEST_SERVER");
    snprintf(begun, sizeof begun, "%s.begun", path);
    FILE *file = fopen(begun, "ab");
    if (file == NULL || fprintf(file, "%s\n", server == NULL ? "unnamed" : server) < 0 || fclose(file) != 0) {
        abort();
    }
    while (access(path, F_OK) != 0) {
        usleep(1000);
    }
    y[0] = x[0] + 1;
}

/* What the environment says of the call: the seconds that are left (-1: no limit), and its place in a trace. */
void left(double *seconds)
{
    const char *deadline = getenv("KUMI_CALL_DEADLINE");
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *seconds = -1;
    if (deadline != NULL && *deadline != 0) {
        *seconds = 1e-9 * strtod(deadline, NULL) - ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    }
}

/* How many threads a library would start here. */
void threads(int *count)
{
    const char *found = getenv("OMP_NUM_THREADS");
    *count = found == NULL ? 0 : atoi(found);
}

void traced(char *parent)
{
    const char *found = getenv("TRACEPARENT");
    strcpy(parent, found == NULL ? "unset" : found);
}
