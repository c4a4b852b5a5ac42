/* What the programs of one-sided operations share: windows of numbers that are not yet what is expected. */
#ifndef KUMI_TESTS_MPI_ONESIDED_H
#define KUMI_TESTS_MPI_ONESIDED_H

#include "check.h"

/* Element `index` of what a rank writes or holds in a round. */
static inline int64_t number_of(int process, int round, int index)
{
    return (int64_t)process * 1000003 + round * 7919 + index;
}

/* A window of `count` numbers on each rank, all 0. */
UNUSED static MPI_Win window_of(int count, int64_t **memory_of_it)
{
    MPI_Win window;
    MPI_Win_allocate((MPI_Aint)((size_t)count * sizeof(int64_t)), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD,
                     memory_of_it, &window);
    memset(*memory_of_it, 0, (size_t)count * sizeof(int64_t));
    MPI_Barrier(MPI_COMM_WORLD);
    return window;
}

UNUSED static void fill_numbers(int64_t *data, int count, int process, int round)
{
    for (int i = 0; i < count; i++)
        data[i] = number_of(process, round, i);
}

UNUSED static void check_numbers(const int64_t *data, int count, int process, int round, const char *what)
{
    for (int i = 0; i < count; i++)
        CHECK(data[i] == number_of(process, round, i), "%s: element %d of %d is %lld, not %lld", what, i, count,
              (long long)data[i], (long long)number_of(process, round, i));
}

UNUSED static void check_number(int64_t is, int64_t wanted, const char *what)
{
    CHECK(is == wanted, "%s: %lld instead of %lld", what, (long long)is, (long long)wanted);
}

#endif
