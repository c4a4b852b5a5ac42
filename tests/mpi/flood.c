/* Everybody sends to everybody at once, much and in random order. */
#include "check.h"

#define MANY 200
#define MOST 300000

static int length_of(int from, int to, int round, int index)
{
    uint64_t random = random_of(from * 64 + to, round * MANY + index);
    int kind = random_below(&random, 10);
    return random_below(&random, kind == 0 ? MOST : kind < 4 ? 5000 : 100);
}

/* Whom this rank exchanges with: at most three others, itself if alone. */
static int peers(int list[3], int direction)
{
    int count = 0;
    for (int step = 1; step < ranks && count < 3; step *= 2)
        list[count++] = (rank + (direction > 0 ? step : ranks - step)) % ranks;
    if (count == 0)
        list[count++] = rank;
    return count;
}

/* All receives and sends are posted in a random order, and all waited for together. */
static void nonblocking(int round)
{
    int to[3], from[3], count = peers(to, 1), all = 2 * count * MANY;
    peers(from, -1);
    MPI_Request *requests = memory((size_t)all * sizeof *requests);
    char **data = memory((size_t)all * sizeof *data);
    int *order = memory((size_t)all * sizeof *order);
    uint64_t random = random_of(rank, round);
    int next_in[3] = {0}, next_out[3] = {0}, *index = memory((size_t)all * sizeof *index);
    for (int i = 0; i < all; i++)
        order[i] = i % (2 * count);
    for (int i = all - 1; i > 0; i--) {
        int j = random_below(&random, i + 1), k = order[i];
        order[i] = order[j];
        order[j] = k;
    }
    for (int i = 0; i < all; i++) {
        int peer = order[i] / 2, sends = order[i] % 2;
        index[i] = sends ? next_out[peer]++ : next_in[peer]++;
        int length = sends ? length_of(rank, to[peer], round, index[i]) : length_of(from[peer], rank, round, index[i]);
        data[i] = memory((size_t)length);
        if (sends) {
            fill(data[i], (size_t)length, (uint64_t)(rank * 1000 + index[i]));
            MPI_Isend(data[i], length, MPI_BYTE, to[peer], peer, MPI_COMM_WORLD, &requests[i]);
        } else {
            MPI_Irecv(data[i], length, MPI_BYTE, from[peer], peer, MPI_COMM_WORLD, &requests[i]);
        }
    }
    MPI_Waitall(all, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < all; i++) {
        int peer = order[i] / 2;
        if (order[i] % 2 == 0)
            check_content(data[i], (size_t)length_of(from[peer], rank, round, index[i]),
                          (uint64_t)(from[peer] * 1000 + index[i]), "flood");
        free(data[i]);
    }
    free(requests);
    free(data);
    free(order);
    free(index);
}

/* Long messages both ways between pairs, with small ones in between that must not be overtaken. */
static void both_ways(int round)
{
    enum { LENGTH = 2000003 };
    int partner = rank ^ 1;
    if (partner >= ranks)
        return;
    char *out = memory(LENGTH), *in = memory(LENGTH);
    for (int i = 0; i < 10; i++) {
        int small = i, got = -1, length = i % 2 ? LENGTH : LENGTH / 100;
        MPI_Request requests[4];
        fill(out, (size_t)length, (uint64_t)(rank + i + round));
        MPI_Irecv(in, length, MPI_BYTE, partner, 7, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&got, 1, MPI_INT, partner, 7, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(out, length, MPI_BYTE, partner, 7, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(&small, 1, MPI_INT, partner, 7, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        check_content(in, (size_t)length, (uint64_t)(partner + i + round), "both ways");
        CHECK(got == i, "the small message behind a long one has %d, not %d", got, i);
    }
    free(out);
    free(in);
}

/* Windows of small blocking sends, all to one rank, which answers each window. */
static void many_to_one(void)
{
    enum { WINDOW = 1000 };
    int value = 0, got;
    for (int window = 0; window < 5; window++)
        if (rank == 0) {
            for (int i = 0; i < WINDOW * (ranks - 1); i++)
                MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int other = 1; other < ranks; other++)
                MPI_Send(&value, 1, MPI_INT, other, 9, MPI_COMM_WORLD);
        } else {
            for (int i = 0; i < WINDOW; i++)
                MPI_Send(&i, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
            MPI_Recv(&got, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        nonblocking(round);
        passed("floods in all directions");
        both_ways(round);
        passed("long messages both ways, small ones behind them");
        many_to_one();
        passed("small messages of all to one");
    }
    return finish();
}
