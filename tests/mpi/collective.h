/* What the programs of collectives share: each call blocking or not, on several communicators. */
#ifndef KUMI_TESTS_MPI_COLLECTIVE_H
#define KUMI_TESTS_MPI_COLLECTIVE_H

#include "check.h"

/* The communicator under test, and this process's place in it. */
static MPI_Comm comm;
static int me, size;
/* Whether calls start an operation and wait for it, instead of blocking. */
static int nonblocking;

/* Waits for a request, every other time by asking. */
UNUSED static void complete(MPI_Request *request)
{
    static int time;
    int done = 0;
    if (time++ % 2 == 0)
        MPI_Wait(request, MPI_STATUS_IGNORE);
    else
        while (!done)
            MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

/* CALL(Bcast, bcast, ...) is MPI_Bcast(...), or MPI_Ibcast(...) and its completion. */
#define CALL(blocking, starting, ...)                                                                                  \
    do {                                                                                                               \
        if (nonblocking) {                                                                                             \
            MPI_Request request_;                                                                                      \
            MPI_I##starting(__VA_ARGS__, &request_);                                                                   \
            complete(&request_);                                                                                       \
        } else {                                                                                                       \
            MPI_##blocking(__VA_ARGS__);                                                                               \
        }                                                                                                              \
    } while (0)

/* Element `index` of what a process gives. */
static inline int value(int process, int index)
{
    return (process * 7919 + index * 31 + index / 256) % 10007;
}

UNUSED static int *values(int process, int from, int count)
{
    int *data = memory((size_t)count * sizeof *data);
    for (int i = 0; i < count; i++)
        data[i] = value(process, from + i);
    return data;
}

UNUSED static int *zeros(int count)
{
    int *data = memory((size_t)(count + 1) * sizeof *data);
    memset(data, 0, (size_t)(count + 1) * sizeof *data);
    data[count] = 0x5a5a;
    return data;
}

UNUSED static void check_values(const int *data, int process, int from, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        CHECK(data[i] == value(process, from + i), "%s: element %d of %d from process %d of %d is %d, not %d", what, i,
              count, process, size, data[i], value(process, from + i));
}

UNUSED static void check_end(const int *data, int count, const char *what)
{
    CHECK(data[count] == 0x5a5a, "%s has written behind its %d elements", what, count);
}

#define LENGTHS 7
static const int lengths[LENGTHS] = {0, 1, 3, 17, 257, 4099, 33333};

/* Runs `body` on a communicator: of all ranks, of all in reverse order, or of the odd and of the even ones. */
UNUSED static void on_communicator(int kind, void (*body)(int), int length)
{
    if (kind == 0)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    else
        MPI_Comm_split(MPI_COMM_WORLD, kind == 1 ? 0 : rank % 2, kind == 1 ? -rank : rank, &comm);
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    body(length);
    MPI_Comm_free(&comm);
}

/* A collective's check, for messages of `length` elements. */
struct collective {
    const char *name;
    void (*body)(int length);
};

/* All checks, blocking and not, at all lengths; the kinds of communicators take turns. */
UNUSED static void check_all(const struct collective *all, size_t count)
{
    CHECK(ranks <= 64, "at most 64 ranks");
    for (int round = 0; round < test.rounds; round++)
        for (nonblocking = 0; nonblocking < 2; nonblocking++)
            for (size_t i = 0; i < count; i++) {
                char name[64];
                for (int length = 0; length < LENGTHS; length++)
                    on_communicator((length + round) % 3, all[i].body, lengths[length]);
                snprintf(name, sizeof name, "%s%s", all[i].name, nonblocking ? ", nonblocking" : "");
                passed(name);
            }
}

#endif
