/* Messages of all sizes around the powers of two, up to --most bytes, around the ring. */
#include "check.h"

static char *out, *in;

static void exchange(size_t length, int how)
{
    MPI_Request requests[2];
    MPI_Status status;
    fill(out, length, length + (uint64_t)rank);
    memset(in, 0, length);
    in[length] = 'x';
    if (how == 0) {
        MPI_Irecv(in, (int)length, MPI_BYTE, left, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, (int)length, MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Wait(&requests[0], &status);
    } else {
        /* Here the message comes before its receive. */
        MPI_Isend(out, (int)length, MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Probe(left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(in, (int)length + 1, MPI_BYTE, left, 1, MPI_COMM_WORLD, &status);
    }
    check_status(&status, left, 1, (int)length, "size");
    check_content(in, length, length + (uint64_t)left, "size");
    CHECK(in[length] == 'x', "a message of %zu bytes has written one more", length);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    CHECK(test.most < 1 << 30, "--most is at most a gigabyte");
    size_t most = (size_t)test.most;
    out = memory(most + 2);
    in = memory(most + 3);
    for (int round = 0; round < test.rounds; round++) {
        char name[64];
        for (int how = 0; how < 2; how++)
            exchange(0, how);
        passed("0 bytes");
        for (size_t power = 1; power <= most; power *= 2) {
            for (size_t length = power - 1; length <= power + 1; length++)
                for (int how = 0; how < 2; how++)
                    exchange(length, how);
            snprintf(name, sizeof name, "%zu bytes, and one less and more", power);
            passed(name);
        }
    }
    free(out);
    free(in);
    return finish();
}
