/*
 * Small MPI messages a second from rank 0 to rank 1: windows of non-blocking sends in flight, each
 * window answered by one message, as the usual message-rate tests do:   mpirate SIZE BATCHES WINDOW
 */
#include "two_ranks.h"

#define MOST_BYTES 65536
#define MOST_WINDOW 4096
/* Windows between two looks at the clock. */
#define WINDOWS 20

/* One window; rank 1 receives it and answers. */
static void window(char *data, int size, int length, int rank, MPI_Request *requests)
{
    char answer[4] = "got";
    for (int i = 0; i < length; i++) {
        char *place = data + (size_t)i * (size_t)size;
        if (rank == 0)
            MPI_Isend(place, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(place, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(length, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(answer, sizeof answer, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(answer, sizeof answer, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: mpirate SIZE BATCHES WINDOW, as two ranks\n");
        return 2;
    }
    int size = number(argv[1], 1, MOST_BYTES), batches = number(argv[2], 1, 1000000);
    int length = number(argv[3], 1, MOST_WINDOW);
    char *data = calloc((size_t)length, (size_t)size);
    MPI_Request *requests = calloc((size_t)length, sizeof *requests);
    double *rates = calloc((size_t)batches, sizeof *rates);
    if (data == NULL || requests == NULL || rates == NULL)
        fail("memory");
    int rank = two_ranks(&argc, &argv);
    for (int batch = -WARM_UP; batch < batches; batch++) {
        double begin = now_ns();
        for (int i = 0; i < WINDOWS; i++)
            window(data, size, length, rank, requests);
        if (batch >= 0)
            rates[batch] = 1e9 * (double)length * WINDOWS / (now_ns() - begin);
    }
    if (rank == 0)
        printf("messages_per_second %.0f\n", median(rates, batches));
    MPI_Finalize();
    return 0;
}
