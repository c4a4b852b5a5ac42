/* Kinds of windows: created over memory, with memory attached later, shared by the ranks of a node; several at once. */
#include "onesided.h"

#define COUNT 1000

/* Memory is attached and detached; its address goes to the neighbour. */
static void dynamic(int round)
{
    static int64_t out[COUNT], in[COUNT];
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int time = 0; time < 5; time++) {
        int64_t *own = memory((size_t)COUNT * sizeof *own);
        MPI_Aint address, remote;
        fill_numbers(own, COUNT, rank, round + time);
        MPI_Win_attach(window, own, (MPI_Aint)(COUNT * sizeof *own));
        MPI_Get_address(own, &address);
        MPI_Sendrecv(&address, 1, MPI_AINT, left, 1, &remote, 1, MPI_AINT, right, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, window);
        MPI_Get(in, COUNT, MPI_INT64_T, right, remote, COUNT, MPI_INT64_T, window);
        MPI_Win_flush(right, window);
        check_numbers(in, COUNT, right, round + time, "get from attached memory");
        fill_numbers(out, COUNT, rank + 100, round + time);
        MPI_Put(out, COUNT, MPI_INT64_T, right, remote, COUNT, MPI_INT64_T, window);
        MPI_Win_unlock(right, window);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
        check_numbers(own, COUNT, left + 100, round + time, "put into attached memory");
        MPI_Win_unlock(rank, window);
        MPI_Win_detach(window, own);
        free(own);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);
}

/* The ranks of a node see each other's part by loads and stores. */
static void shared(int round)
{
    MPI_Comm node;
    MPI_Win window;
    int64_t *own;
    int me, size;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &me);
    MPI_Comm_size(node, &size);
    MPI_Win_allocate_shared((MPI_Aint)((size_t)COUNT * sizeof *own), sizeof *own, MPI_INFO_NULL, node, &own, &window);
    MPI_Win_lock_all(0, window);
    fill_numbers(own, COUNT, me, round);
    MPI_Win_sync(window);
    MPI_Barrier(node);
    MPI_Win_sync(window);
    for (int other = 0; other < size; other++) {
        MPI_Aint bytes;
        int unit;
        int64_t *theirs;
        MPI_Win_shared_query(window, other, &bytes, &unit, &theirs);
        CHECK(bytes == (MPI_Aint)(COUNT * sizeof *own) && unit == sizeof *own, "part %d has %ld bytes", other, (long)bytes);
        check_numbers(theirs, COUNT, other, round, "shared window");
    }
    MPI_Barrier(node);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&node);
}

/* Windows of different sizes and units over the program's own memory; some ranks give nothing. */
static void created(int round)
{
    static int64_t own[COUNT];
    int count = rank % 3 == 1 ? 0 : COUNT - rank, theirs = right % 3 == 1 ? 0 : COUNT - right;
    int64_t value = number_of(rank, round, 0);
    MPI_Win window;
    memset(own, 0, sizeof own);
    MPI_Win_create(count == 0 ? NULL : own, (MPI_Aint)((size_t)count * sizeof *own), rank % 2 ? 1 : sizeof *own,
                   MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    if (theirs > 0) {
        MPI_Aint unit = right % 2 ? 1 : sizeof *own;
        MPI_Put(&value, 1, MPI_INT64_T, right, (theirs - 1) * (MPI_Aint)sizeof *own / unit, 1, MPI_INT64_T, window);
    }
    MPI_Win_fence(0, window);
    if (count > 0)
        check_number(own[count - 1], number_of(left, round, 0), "the last element of a window");
    for (int i = 0; i < count - 1; i++)
        check_number(own[i], 0, "an element to which nobody has put");
    MPI_Win_free(&window);
}

/* Several windows at once keep apart. */
static void several(int round)
{
    enum { MANY = 10 };
    MPI_Win windows[MANY];
    int64_t *base[MANY], values[MANY];
    for (int i = 0; i < MANY; i++)
        windows[i] = window_of(i + 1, &base[i]);
    for (int i = 0; i < MANY; i++)
        MPI_Win_fence(0, windows[i]);
    for (int i = 0; i < MANY; i++) {
        values[i] = number_of(rank, round, i);
        MPI_Put(&values[i], 1, MPI_INT64_T, right, i, 1, MPI_INT64_T, windows[i]);
    }
    for (int i = MANY - 1; i >= 0; i--)
        MPI_Win_fence(0, windows[i]);
    for (int i = 0; i < MANY; i++) {
        check_number(base[i][i], number_of(left, round, i), "one of several windows");
        MPI_Win_free(&windows[i]);
    }
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        created(round);
        passed("windows over own memory");
        several(round);
        passed("several windows");
        dynamic(round);
        passed("memory attached and detached");
        shared(round);
        passed("shared windows");
    }
    return finish();
}
