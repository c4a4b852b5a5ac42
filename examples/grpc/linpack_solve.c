#include "linpack_solve.h"

#include <math.h>
#include <stddef.h>

/* The row with the largest element of a column, at or below the diagonal. */
static int pivot_of(int n, const double *a, int column)
{
    int best = column;
    for (int row = column + 1; row < n; row++) {
        if (fabs(a[(size_t)row * n + column]) > fabs(a[(size_t)best * n + column])) {
            best = row;
        }
    }
    return best;
}

static void exchange(int count, double *one, double *other)
{
    for (int i = 0; i < count; i++) {
        double kept = one[i];
        one[i] = other[i];
        other[i] = kept;
    }
}

void linpack(int n, double *a, double *b, int *pivots, int *info)
{
    for (int k = 0; k < n; k++) {
        int pivot = pivot_of(n, a, k);
        double *top = a + (size_t)k * n;
        pivots[k] = pivot + 1;
        if (a[(size_t)pivot * n + k] == 0) {
            *info = k + 1;
            return;
        }
        if (pivot != k) {
            exchange(n, top, a + (size_t)pivot * n);
            exchange(1, b + k, b + pivot);
        }
        for (int i = k + 1; i < n; i++) {
            double *restrict row = a + (size_t)i * n;
            double factor = row[k] / top[k];
            row[k] = factor;
            for (int j = k + 1; j < n; j++) {
                row[j] -= factor * top[j];
            }
            b[i] -= factor * b[k];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        const double *row = a + (size_t)i * n;
        for (int j = i + 1; j < n; j++) {
            b[i] -= row[j] * b[j];
        }
        b[i] /= row[i];
    }
    *info = 0;
}

void noop(void)
{
}
