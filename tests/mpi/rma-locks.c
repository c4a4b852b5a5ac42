/* One-sided operations under locks, shared and exclusive, with flushes, and atomic ones. */
#include "onesided.h"

#define TIMES 100

/* A counter that nobody may change between its reading and its writing. */
static void exclusive(void)
{
    int64_t *base, value;
    MPI_Win window = window_of(1, &base);
    for (int i = 0; i < TIMES; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
        MPI_Win_flush(0, window);
        value++;
        MPI_Put(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
    MPI_Win_unlock(0, window);
    check_number(value, (int64_t)TIMES * ranks, "a counter under an exclusive lock");
    MPI_Win_free(&window);
}

/* Everybody takes numbers from a counter of each rank: each number once, and all of them. */
static void fetch_and_op(void)
{
    int64_t *base, one = 1, got, none = 0, last;
    MPI_Win window = window_of(1, &base);
    char *taken = memory((size_t)(TIMES * ranks)), *all = memory((size_t)(TIMES * ranks));
    for (int target = 0; target < ranks; target++) {
        memset(taken, 0, (size_t)(TIMES * ranks));
        last = -1;
        MPI_Win_lock_all(0, window);
        for (int i = 0; i < TIMES; i++) {
            MPI_Fetch_and_op(&one, &got, MPI_INT64_T, target, 0, MPI_SUM, window);
            MPI_Win_flush(target, window);
            CHECK(got > last && got < (int64_t)TIMES * ranks, "fetch_and_op gives %lld after %lld", (long long)got,
                  (long long)last);
            taken[got] = 1;
            last = got;
        }
        MPI_Win_unlock_all(window);
        MPI_Allreduce(taken, all, TIMES * ranks, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < TIMES * ranks; i++)
            CHECK(all[i] == 1, "number %d was given %d times", i, all[i]);
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window);
        MPI_Fetch_and_op(&none, &got, MPI_INT64_T, target, 0, MPI_NO_OP, window);
        MPI_Win_unlock(target, window);
        check_number(got, (int64_t)TIMES * ranks, "an atomic read");
    }
    free(taken);
    free(all);
    MPI_Win_free(&window);
}

/* A lock of one's own by compare-and-swap guards a counter that is read and written without atomic operations. */
static void compare_and_swap(void)
{
    int64_t *base, mine = rank + 1, unlocked = 0, was, value;
    MPI_Win window = window_of(2, &base);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < TIMES / 4; i++) {
        do {
            MPI_Compare_and_swap(&mine, &unlocked, &was, MPI_INT64_T, 0, 0, window);
            MPI_Win_flush(0, window);
            CHECK(was >= 0 && was <= ranks && was != mine, "the lock is held by %lld", (long long)was);
        } while (was != unlocked);
        MPI_Get(&value, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, window);
        MPI_Win_flush(0, window);
        value++;
        MPI_Put(&value, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, window);
        MPI_Win_flush(0, window);
        MPI_Compare_and_swap(&unlocked, &mine, &was, MPI_INT64_T, 0, 0, window);
        MPI_Win_flush(0, window);
        check_number(was, mine, "the lock when it is given back");
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&value, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, window);
    MPI_Win_unlock(0, window);
    check_number(value, (int64_t)(TIMES / 4) * ranks, "a counter under a lock of one's own");
    MPI_Win_free(&window);
}

/* Puts that are flushed are there; others' reads after a message see them. */
static void flushed(int round)
{
    enum { COUNT = 5000 };
    static int64_t out[COUNT], in[COUNT];
    int64_t *base;
    MPI_Win window = window_of(COUNT, &base);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    for (int time = 0; time < 10; time++) {
        fill_numbers(out, COUNT, rank, round + time);
        MPI_Put(out, COUNT, MPI_INT64_T, right, 0, COUNT, MPI_INT64_T, window);
        /* After a local flush the buffer may change; what was put may not. */
        MPI_Win_flush_local(right, window);
        memset(out, 0, sizeof out);
        MPI_Win_flush(right, window);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, right, 1, NULL, 0, MPI_BYTE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Win_sync(window);
        check_numbers(base, COUNT, left, round + time, "a put that was flushed");
        MPI_Get(in, COUNT, MPI_INT64_T, rank, 0, COUNT, MPI_INT64_T, window);
        MPI_Win_flush_all(window);
        check_numbers(in, COUNT, left, round + time, "a get from oneself");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

/* Operations with requests of their own, completed in another order. */
static void requests(int round)
{
    enum { MANY = 8, COUNT = 300 };
    static int64_t out[MANY][COUNT], in[MANY][COUNT], sums[MANY][COUNT];
    int64_t *base;
    MPI_Request all[MANY];
    MPI_Win window = window_of(MANY * COUNT, &base);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < MANY; i++) {
        fill_numbers(out[i], COUNT, rank, round + i);
        MPI_Rput(out[i], COUNT, MPI_INT64_T, right, i * COUNT, COUNT, MPI_INT64_T, window, &all[i]);
    }
    for (int i = MANY - 1; i >= 0; i--)
        MPI_Wait(&all[i], MPI_STATUS_IGNORE);
    MPI_Win_flush_all(window);
    for (int i = 0; i < MANY; i++)
        MPI_Rget(in[i], COUNT, MPI_INT64_T, right, i * COUNT, COUNT, MPI_INT64_T, window, &all[i]);
    MPI_Waitall(MANY, all, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        check_numbers(in[i], COUNT, rank, round + i, "rget after rput");
    for (int i = 0; i < MANY; i++)
        MPI_Rget_accumulate(out[i], COUNT, MPI_INT64_T, sums[i], COUNT, MPI_INT64_T, right, i * COUNT, COUNT,
                            MPI_INT64_T, MPI_SUM, window, &all[i]);
    MPI_Waitall(MANY, all, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        check_numbers(sums[i], COUNT, rank, round + i, "rget_accumulate, what was there");
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int i = 0; i < MANY * COUNT; i++)
        check_number(base[i], 2 * number_of(left, round + i / COUNT, i % COUNT), "rget_accumulate, what is there");
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
}

/* The target computes no message and calls nothing: it waits at a barrier only after the others are done. */
static void passive_target(void)
{
    int64_t *base, value = 0, one = 1;
    MPI_Win window = window_of(1, &base);
    if (rank != 0) {
        for (int i = 0; i < TIMES; i++) {
            MPI_Win_lock(i % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, window);
            MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window);
            MPI_Win_unlock(0, window);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
    MPI_Win_unlock(0, window);
    check_number(value, (int64_t)TIMES * (ranks - 1), "accumulates under both kinds of locks");
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        exclusive();
        passed("exclusive locks");
        fetch_and_op();
        passed("fetch_and_op");
        compare_and_swap();
        passed("compare_and_swap");
        flushed(round);
        passed("lock_all and flush");
        requests(round);
        passed("operations with requests");
        passive_target();
        passed("a target that takes no part");
    }
    return finish();
}
