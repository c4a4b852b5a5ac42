/* Routines that tell what they have, and in which order they run. */
#include "gate.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *variable) {
    const char *text = getenv(variable);
    return text == NULL ? -1 : atoi(text);
}

/* The threads that libraries are to use, by the variables that they read. */
void threads(int *omp, int *openblas, int *mkl) {
    *omp = number("OMP_NUM_THREADS");
    *openblas = number("OPENBLAS_NUM_THREADS");
    *mkl = number("MKL_NUM_THREADS");
}

/* Appends a line to a file, once the gate is open. */
int note(const char *path, const char *until, const char *text) {
    if (*until != '\0') gate(until);
    int to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (to < 0) return errno;
    ssize_t length = (ssize_t)strlen(text);
    int failed = write(to, text, strlen(text)) == length && write(to, "\n", 1) == 1 ? 0 : errno;
    close(to);
    return failed;
}

/* Looks whether another is in the same folder meanwhile: 1 if there is one. */
int alone(const char *path) {
    int mark = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (mark < 0) return 1;
    close(mark);
    usleep(20000);
    return unlink(path) < 0;
}

static int kept = 0;

/* An object: it remembers that it is the same, and tells its threads. */
void object_threads(int *omp, int *calls) {
    *omp = number("OMP_NUM_THREADS");
    *calls = ++kept;
}
