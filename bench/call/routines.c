/* Routines without any work: only the call costs time. */
#include <unistd.h>

void noop(void)
{
}

/* An array arrives; the answer is one number. */
void sink(long n, const double *a, double *first)
{
    *first = n > 0 ? a[0] : 0;
}

/* An array goes back. */
void source(long n, double *a)
{
    if (n > 0)
        a[0] = 1;
}
