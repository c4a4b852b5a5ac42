/* A collective of all MPI ranks, again and again:   mpicollective NAME SIZE BATCHES LENGTH
 * NAME is allreduce, broadcast, allgather or alltoall; SIZE is the bytes of a rank's vector, or of its block for
 * each rank of the last two. */
#include "measure.h"
#include <mpi.h>
#include <string.h>

#define MOST_BYTES (1 << 24)

static void once(const char *name, void *send, void *recv, int size)
{
    if (strcmp(name, "allreduce") == 0)
        MPI_Allreduce(send, recv, size / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(name, "broadcast") == 0)
        MPI_Bcast(send, size / 8, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    else if (strcmp(name, "allgather") == 0)
        MPI_Allgather(send, size / 8, MPI_DOUBLE, recv, size / 8, MPI_DOUBLE, MPI_COMM_WORLD);
    else
        MPI_Alltoall(send, size / 8, MPI_DOUBLE, recv, size / 8, MPI_DOUBLE, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    if (argc != 5) {
        fprintf(stderr, "usage: mpicollective NAME SIZE BATCHES LENGTH\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    alarm(PATIENCE_S);
    int size = number(argv[2], 8, MOST_BYTES), batches = number(argv[3], 1, 1000000);
    int length = number(argv[4], 1, 1000000);
    void *send = calloc((size_t)ranks, (size_t)size), *recv = calloc((size_t)ranks, (size_t)size);
    double *each = calloc((size_t)batches, sizeof *each);
    if (send == NULL || recv == NULL || each == NULL)
        fail("memory");
    for (int batch = -2; batch < batches; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now_ns();
        for (int i = 0; i < length; i++)
            once(argv[1], send, recv, size);
        MPI_Barrier(MPI_COMM_WORLD);
        if (batch >= 0)
            each[batch] = (now_ns() - begin) / (1e3 * length);
    }
    if (rank == 0)
        printf("microseconds %.2f\n", median(each, batches));
    MPI_Finalize();
    return 0;
}
