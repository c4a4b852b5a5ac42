/*
 * Long messages come while a rank computes and calls nothing of MPI: the library, or what carries its messages,
 * must go on by itself. MPI does not promise it. Needs two ranks and a --folder that both see.
 */
#include "check.h"
#include <time.h>
#include <unistd.h>

#define LENGTH (32 << 20)
/* Only what does not go on by itself takes so long. */
#define PATIENCE_S 60

static char sign[4096];

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Computes until the other rank has left a sign in the folder: that it is through with its call. */
static void compute_until_sign(const char *what)
{
    volatile double x = 1;
    double begin = seconds();
    while (access(sign, F_OK) != 0) {
        for (int i = 0; i < 1000000; i++)
            x = x * 0.999999 + 1e-6;
        CHECK(seconds() - begin < PATIENCE_S, "%s", what);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    unlink(sign);
}

static void give_sign(void)
{
    FILE *file = fopen(sign, "w");
    CHECK(file != NULL, "%s cannot be written", sign);
    fclose(file);
    MPI_Barrier(MPI_COMM_WORLD);
}

/*
 * Rank 1 computes after it has posted its receive; rank 0 gives a sign when its send is over. The message is too long to be kept
 * anywhere, so then it has been received. (A synchronous send would not do: libraries end it by a message of the receiver's own,
 * which comes with that one's next call. The same is true of locks of windows.)
 */
static void receiver_computes(char *data)
{
    MPI_Request request;
    if (rank == 1) {
        MPI_Irecv(data, LENGTH, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        compute_until_sign("no message comes while the receiver computes");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_content(data, LENGTH, 1, "the receiver computes");
    } else {
        fill(data, LENGTH, 1);
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(data, LENGTH, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        give_sign();
    }
}

/* Rank 0 computes after it has started its send; rank 1 gives a sign when it has the message. */
static void sender_computes(char *data)
{
    MPI_Request request;
    if (rank == 0) {
        fill(data, LENGTH, 2);
        MPI_Isend(data, LENGTH, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &request);
        compute_until_sign("no message goes while the sender computes");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(data, LENGTH, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_content(data, LENGTH, 2, "the sender computes");
        give_sign();
    }
}

int main(int argc, char **argv)
{
    start(argc, argv);
    CHECK(ranks == 2, "two ranks are needed");
    snprintf(sign, sizeof sign, "%s/kumi-test-sign-%llu", test.folder, (unsigned long long)test.seed);
    char *data = memory(LENGTH);
    for (int round = 0; round < test.rounds; round++) {
        receiver_computes(data);
        passed("a message comes while the receiver computes");
        sender_computes(data);
        passed("a message goes while the sender computes");
    }
    free(data);
    return finish();
}
