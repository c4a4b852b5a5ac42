/*
 * Two MPI ranks, messages of several sizes up to 4 MB:   mpisizes [MOST]
 *
 * A line for each size: "SIZE latency US bandwidth MB/S bidirectional MB/S rate MESSAGES/S". Latency is half a
 * round trip. The others have 64 messages under way, fewer long ones; the receiver answers each such window.
 */
#include "two_ranks.h"
#include <string.h>

#define MOST_BYTES (4 << 20)
#define WINDOW 64
/* Long messages are fewer: so many bytes under way. */
#define MOST_UNDER_WAY (16 << 20)
#define BATCHES 7
/* A batch takes about so long. */
#define BATCH_NS 30e6
#define MOST_TIMES 50000

static char *out, *in;

static void round_trip(int rank, int size, int window)
{
    (void)window;
    if (rank == 0)
        MPI_Send(out, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(in, size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(out, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static void one_way(int rank, int size, int window)
{
    MPI_Request requests[WINDOW];
    for (int i = 0; i < window; i++) {
        size_t place = (size_t)i * (size_t)size;
        if (rank == 0)
            MPI_Isend(out + place, size, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(in + place, size, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
}

static void both_ways(int rank, int size, int window)
{
    MPI_Request requests[2 * WINDOW];
    for (int i = 0; i < window; i++)
        MPI_Irecv(in + (size_t)i * (size_t)size, size, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < window; i++)
        MPI_Isend(out + (size_t)i * (size_t)size, size, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD, &requests[window + i]);
    MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE);
}

/* Median nanoseconds of one turn. Rank 0 says how many turns a batch has. */
static double measure(void (*turn)(int, int, int), int rank, int size, int window)
{
    double each[BATCHES];
    int times = 3;
    for (int batch = -2; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now_ns();
        for (int i = 0; i < times; i++)
            turn(rank, size, window);
        double took = (now_ns() - begin) / times;
        if (batch >= 0) {
            each[batch] = took;
            continue;
        }
        double wanted = BATCH_NS / took;
        times = wanted < 1 ? 1 : wanted > MOST_TIMES ? MOST_TIMES : (int)wanted;
        MPI_Bcast(&times, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    return median(each, BATCHES);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 8, 64, 512, 4096, 32768, 262144, 1048576, 4194304};
    int rank = two_ranks(&argc, &argv), most = argc > 1 ? number(argv[1], 1, MOST_BYTES) : MOST_BYTES;
    out = malloc(MOST_UNDER_WAY);
    in = malloc(MOST_UNDER_WAY);
    if (out == NULL || in == NULL)
        fail("memory");
    memset(out, 1, MOST_UNDER_WAY);
    memset(in, 1, MOST_UNDER_WAY);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= most; i++) {
        int size = sizes[i], window = MOST_UNDER_WAY / size < WINDOW ? MOST_UNDER_WAY / size : WINDOW;
        double latency = measure(round_trip, rank, size, 1) / 2e3;
        double one = measure(one_way, rank, size, window) / window, both = measure(both_ways, rank, size, window) / window;
        if (rank == 0)
            printf("%d latency %.3f bandwidth %.3f bidirectional %.3f rate %.0f\n", size, latency, 1e3 * size / one,
                   2e3 * size / both, 1e9 / one);
    }
    MPI_Finalize();
    return 0;
}
