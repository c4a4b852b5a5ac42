/* Routines that call functions of their client. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void integrate(int n, void (*f)(double x, double *y), double *sum)
{
    *sum = 0;
    for (int i = 0; i < n; i++) {
        double y = 0;
        f((i + 0.5) / n, &y);
        *sum += y / n;
    }
}

/* As Fortran passes arguments. */
void fintegrate_(const int *n, void (*f)(const double *x, double *y), double *sum)
{
    *sum = 0;
    for (int i = 0; i < *n; i++) {
        double x = (i + 0.5) / *n, y = 0;
        f(&x, &y);
        *sum += y / *n;
    }
}

typedef void visitor(int k, const double *a, double *b, int *every, const char *name, char *said,
                     signed char small);

/* The function gets n doubles and n pairs; of `every` each second travels. */
void visit(int n, visitor *f, double *x, char *said)
{
    double *pairs = malloc(2 * n * sizeof *pairs);
    int *every = malloc(n * sizeof *every);
    for (int i = 0; i < n; i++) {
        pairs[2 * i] = i;
        pairs[2 * i + 1] = -i;
        every[i] = 100 + i;
    }
    f(n, x, pairs, every, "ninf", said, -7);
    for (int i = 0; i < n; i++) {
        x[i] = pairs[2 * i] + pairs[2 * i + 1] + every[i];
    }
    free(pairs);
    free(every);
}

/* A density of states with very uneven work: asks for the next piece until there is none. */
void states(int n, void (*next)(int *first, int *count), double *density)
{
    memset(density, 0, n * sizeof *density);
    for (;;) {
        int first, count;
        next(&first, &count);
        if (count == 0) {
            return;
        }
        for (int i = first; i < first + count; i++) {
            double sum = 0;
            for (int k = 0; k <= i * i; k++) {
                sum += 1.0 / (1 + k);
            }
            density[i] = sum;
        }
    }
}

struct work {
    int n, thread;
    void (*tick)(int thread, int i, int *back);
    int sum;
};

static void *ticks(void *argument)
{
    struct work *work = argument;
    for (int i = 0; i < work->n; i++) {
        int back = 0;
        work->tick(work->thread, i, &back);
        work->sum += back;
    }
    return NULL;
}

/* Calls from two threads at once. */
void threads(int n, void (*tick)(int thread, int i, int *back), int *sum)
{
    struct work work[2] = {{n, 0, tick, 0}, {n, 1, tick, 0}};
    pthread_t other;
    pthread_create(&other, NULL, ticks, &work[1]);
    ticks(&work[0]);
    pthread_join(other, NULL);
    *sum = work[0].sum + work[1].sum;
}

/* Gives what it is told to: no array, or one of a size that cannot be. */
void give(int n, int null, void (*take)(int n, const double *a))
{
    static double a[16];
    take(n, null ? NULL : a);
}

void crashes(void (*f)(void))
{
    f();
    abort();
}

static void (*kept)(void);

static void *calls_kept(void *argument)
{
    (void)argument;
    for (;;) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        kept();
    }
    return NULL;
}

/* Leaves a thread that calls the function after the routine's end. */
void leaves_thread(void (*f)(void))
{
    pthread_t thread;
    kept = f;
    pthread_create(&thread, NULL, calls_kept, NULL);
}

void plain(int n, int *twice)
{
    *twice = 2 * n;
}

/* Files: the second is the first in capitals; the length of what was read comes back. */
void capitals(const char *from, const char *to, long *length)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    int letter;
    *length = 0;
    while ((letter = getc(in)) != EOF) {
        putc(letter >= 'a' && letter <= 'z' ? letter - 32 : letter, out);
        ++*length;
    }
    fclose(in);
    fclose(out);
}

/* A Fortran routine gets the length of the name behind the arguments. */
void append_(const char *path, const int *digit, size_t length)
{
    char name[4096] = {0};
    memcpy(name, path, length);
    FILE *file = fopen(name, "ab");
    fprintf(file, "%d", *digit);
    fclose(file);
}

/* What is no file: 0 a link to somewhere else, 1 nothing, 2 a pipe, 3 more than there may be; 4 a crash. 6 a file of
 * somebody else's, named in the file itself, under a second name; 7 a folder of many. */
void mischief(int what, const char *to)
{
    FILE *file;
    char name[4096] = "";
    if (what == 6) {
        file = fopen(to, "rb");
        fgets(name, sizeof name, file);
        fclose(file);
    }
    if (what < 3 || what > 5) {
        unlink(to);
    }
    switch (what) {
    case 0:
        symlink("/etc/passwd", to);
        break;
    case 2:
        mkfifo(to, 0600);
        break;
    case 3:
        file = fopen(to, "wb");
        fseek(file, 1 << 21, SEEK_SET);
        putc(1, file);
        fclose(file);
        break;
    case 4:
        abort();
    case 6:
        link(name, to);
        break;
    case 7:
        for (int at = 0; at < 1000; at++) {
            mkdir(to, 0700);
            chdir(to);
            to = "file";
        }
        chdir("/");
        break;
    }
}

/* Whether a path can be reached (0), read (4) or written (2), by a call that has a file. */
int reaches(const char *path, int how, const char *with)
{
    return access(with, R_OK) == 0 && access(path, how) == 0;
}

void rests(int ms, const char *from, const char *to)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}
