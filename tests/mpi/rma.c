/* One-sided operations between fences, and between the groups of those who expose and those who access. */
#include "onesided.h"

#define LENGTHS 6
static const int lengths[LENGTHS] = {1, 2, 17, 1000, 10000, 300000};
#define MOST 300000

static int64_t out[MOST], in[MOST];

static void put_and_get(int round)
{
    int64_t *base;
    MPI_Win window = window_of(MOST, &base);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
    for (int i = 0; i < LENGTHS; i++) {
        fill_numbers(out, lengths[i], rank, round + i);
        MPI_Put(out, lengths[i], MPI_INT64_T, right, 0, lengths[i], MPI_INT64_T, window);
        MPI_Win_fence(0, window);
        check_numbers(base, lengths[i], left, round + i, "put");
        MPI_Win_fence(0, window);
        memset(in, 0, sizeof in);
        MPI_Get(in, lengths[i], MPI_INT64_T, right, 0, lengths[i], MPI_INT64_T, window);
        MPI_Win_fence(0, window);
        check_numbers(in, lengths[i], rank, round + i, "get");
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
    MPI_Win_free(&window);
}

/* Every rank writes its column into everybody's matrix, itself included. */
static void everybody(int round)
{
    enum { ROWS = 100 };
    int64_t *base;
    MPI_Win window = window_of(ROWS * ranks, &base);
    MPI_Datatype column;
    MPI_Type_vector(ROWS, 1, ranks, MPI_INT64_T, &column);
    MPI_Type_commit(&column);
    fill_numbers(out, ROWS, rank, round);
    MPI_Win_fence(0, window);
    for (int target = 0; target < ranks; target++)
        MPI_Put(out, ROWS, MPI_INT64_T, target, rank, 1, column, window);
    MPI_Win_fence(0, window);
    for (int row = 0; row < ROWS; row++)
        for (int from = 0; from < ranks; from++)
            check_number(base[row * ranks + from], number_of(from, round, row), "column put into a matrix");
    MPI_Win_fence(0, window);
    memset(in, 0, sizeof in);
    MPI_Get(in, ROWS, MPI_INT64_T, right, right, 1, column, window);
    MPI_Win_fence(0, window);
    check_numbers(in, ROWS, right, round, "column got from a matrix");
    MPI_Type_free(&column);
    MPI_Win_free(&window);
}

/* All ranks add to all, at once, and the sums are exact. */
static void accumulate(int length)
{
    int64_t *base;
    MPI_Win window = window_of(length, &base);
    for (int i = 0; i < length; i++)
        out[i] = rank + i;
    MPI_Win_fence(0, window);
    for (int target = 0; target < ranks; target++)
        for (int time = 0; time < 3; time++)
            MPI_Accumulate(out, length, MPI_INT64_T, target, 0, length, MPI_INT64_T, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < length; i++)
        check_number(base[i], 3 * ((int64_t)ranks * (ranks - 1) / 2 + (int64_t)i * ranks), "sums of accumulates");
    MPI_Win_fence(0, window);
    for (int target = 0; target < ranks; target++)
        MPI_Accumulate(out, length, MPI_INT64_T, target, 0, length, MPI_INT64_T, MPI_MAX, window);
    MPI_Win_fence(0, window);
    memset(in, 0, sizeof in);
    for (int i = 0; i < length; i++)
        out[i] = -1;
    MPI_Get_accumulate(out, length, MPI_INT64_T, in, length, MPI_INT64_T, right, 0, length, MPI_INT64_T, MPI_REPLACE,
                       window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < length; i++) {
        int64_t before = 3 * ((int64_t)ranks * (ranks - 1) / 2 + (int64_t)i * ranks), greatest = ranks - 1 + i;
        check_number(in[i], before > greatest ? before : greatest, "get_accumulate, what was there");
        check_number(base[i], -1, "get_accumulate, what is there");
    }
    MPI_Win_free(&window);
}

/* Smaller types, and floating-point numbers. */
static void kinds(void)
{
    enum { COUNT = 100 };
    static int32_t small[COUNT], values[COUNT];
    static double numbers[COUNT], doubles[COUNT];
    MPI_Win window, second;
    memset(values, 0, sizeof values);
    memset(doubles, 0, sizeof doubles);
    MPI_Win_create(values, sizeof values, sizeof *values, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_create(doubles, sizeof doubles, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &second);
    for (int i = 0; i < COUNT; i++) {
        small[i] = 1 << (rank % 20);
        numbers[i] = rank + 0.5;
    }
    MPI_Win_fence(0, window);
    MPI_Win_fence(0, second);
    for (int target = 0; target < ranks; target++) {
        MPI_Accumulate(small, COUNT, MPI_INT32_T, target, 0, COUNT, MPI_INT32_T, MPI_BOR, window);
        MPI_Accumulate(numbers, COUNT, MPI_DOUBLE, target, 0, COUNT, MPI_DOUBLE, MPI_SUM, second);
    }
    MPI_Win_fence(0, window);
    MPI_Win_fence(0, second);
    for (int i = 0; i < COUNT; i++) {
        CHECK(values[i] == (1 << (ranks < 20 ? ranks : 20)) - 1, "bits of all ranks are %x", (unsigned)values[i]);
        CHECK(doubles[i] == ranks * (ranks - 1) / 2 + 0.5 * ranks, "the sum of doubles is %g", doubles[i]);
    }
    MPI_Win_free(&window);
    MPI_Win_free(&second);
}

/* Each rank exposes its window to its left neighbour and accesses the right one's. */
static void exposed(int round)
{
    int64_t *base;
    MPI_Win window = window_of(1000, &base);
    MPI_Group world, sources, targets;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &left, &sources);
    MPI_Group_incl(world, 1, &right, &targets);
    for (int time = 0; time < 20; time++) {
        int done = 0;
        fill_numbers(out, 1000, rank, round + time);
        MPI_Win_post(sources, 0, window);
        MPI_Win_start(targets, 0, window);
        MPI_Put(out, 1000, MPI_INT64_T, right, 0, 1000, MPI_INT64_T, window);
        MPI_Win_complete(window);
        if (time % 2 == 0)
            MPI_Win_wait(window);
        else
            while (!done)
                MPI_Win_test(window, &done);
        check_numbers(base, 1000, left, round + time, "put between post and wait");
    }
    MPI_Group_free(&world);
    MPI_Group_free(&sources);
    MPI_Group_free(&targets);
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        put_and_get(round);
        passed("put and get between fences");
        everybody(round);
        passed("columns of everybody in everybody's matrix");
        for (int i = 0; i < LENGTHS - 1; i++)
            accumulate(lengths[i]);
        passed("accumulate and get_accumulate");
        kinds();
        passed("accumulate of other types");
        exposed(round);
        passed("post, start, complete, wait");
    }
    return finish();
}
