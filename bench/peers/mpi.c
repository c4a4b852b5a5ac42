/* Ping-pong of two MPI ranks with blocking sends and receives:   mpi SIZE BATCHES */
#include "two_ranks.h"

#define MOST_BYTES (1 << 20)

int main(int argc, char **argv)
{
    static char data[MOST_BYTES];
    if (argc != 3) {
        fprintf(stderr, "usage: mpi SIZE BATCHES, as two ranks\n");
        return 2;
    }
    int size = number(argv[1], 1, MOST_BYTES), batches = number(argv[2], 1, 1000000);
    double *half_ns = calloc((size_t)batches, sizeof *half_ns);
    if (half_ns == NULL)
        fail("memory");
    int rank = two_ranks(&argc, &argv);
    for (int batch = -WARM_UP; batch < batches; batch++) {
        double begin = now_ns();
        for (int i = 0; i < BATCH; i++) {
            if (rank == 0) {
                MPI_Send(data, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
                MPI_Recv(data, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(data, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(data, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
            }
        }
        if (batch >= 0)
            half_ns[batch] = (now_ns() - begin) / (2.0 * BATCH);
    }
    if (rank == 0)
        report(half_ns, batches);
    MPI_Finalize();
    return 0;
}
