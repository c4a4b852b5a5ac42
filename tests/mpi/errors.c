/* Mistakes that MPI defines an error for: they are told, and what comes after them works. */
#include "check.h"

static void class_is(int code, int wanted, const char *what)
{
    int class;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    CHECK(class == wanted, "%s gives error class %d (%s), not %d", what, class, text, wanted);
}

/* The neighbour sends more than the receive has place for: nothing is written behind its place. */
static void truncation(int length, int place, int posted_first)
{
    char *out = memory((size_t)length), *in = memory((size_t)place + 16), what[80];
    MPI_Request send, receive;
    snprintf(what, sizeof what, "a receive of %d bytes, posted %s a message of %d,", place,
             posted_first ? "before" : "after", length);
    fill(out, (size_t)length, (uint64_t)rank);
    memset(in, 'x', (size_t)place + 16);
    if (posted_first)
        MPI_Irecv(in, place, MPI_BYTE, left, 1, MPI_COMM_WORLD, &receive);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(out, length, MPI_BYTE, right, 1, MPI_COMM_WORLD, &send);
    if (!posted_first) {
        MPI_Probe(left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        class_is(MPI_Recv(in, place, MPI_BYTE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE,
                 what);
    } else {
        class_is(MPI_Wait(&receive, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE, what);
    }
    for (int i = 0; i < 16; i++)
        CHECK(in[place + i] == 'x', "%s has written byte %d behind its place", what, i);
    CHECK(MPI_Wait(&send, MPI_STATUS_IGNORE) == MPI_SUCCESS, "a send fails because its receive is too short");
    free(out);
    free(in);
}

/* Of two receives one is too short: each has its own error. */
static void in_status(void)
{
    char out[2][100], in[2][100];
    MPI_Request sends[2], receives[2];
    MPI_Status statuses[2];
    for (int i = 0; i < 2; i++)
        MPI_Irecv(in[i], i == 0 ? 10 : 100, MPI_BYTE, left, i, MPI_COMM_WORLD, &receives[i]);
    for (int i = 0; i < 2; i++) {
        fill(out[i], 100, (uint64_t)(rank + i));
        MPI_Isend(out[i], 100, MPI_BYTE, right, i, MPI_COMM_WORLD, &sends[i]);
    }
    int code = MPI_Waitall(2, receives, statuses);
    class_is(code, MPI_ERR_IN_STATUS, "a list with a receive that is too short");
    class_is(statuses[0].MPI_ERROR, MPI_ERR_TRUNCATE, "the short receive of a list");
    /* The library may have stopped at the error: then the other is still under way. */
    if (statuses[1].MPI_ERROR == MPI_ERR_PENDING)
        CHECK(MPI_Wait(&receives[1], MPI_STATUS_IGNORE) == MPI_SUCCESS, "the right receive of a list fails");
    check_content(in[1], 100, (uint64_t)(left + 1), "the right receive of a list");
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
}

static void arguments(void)
{
    int value = 0, comparison;
    class_is(MPI_Send(&value, 1, MPI_INT, ranks, 0, MPI_COMM_WORLD), MPI_ERR_RANK, "a send to a rank that is not there");
    class_is(MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_COUNT, "a negative count");
    class_is(MPI_Send(&value, 1, MPI_INT, 0, -5, MPI_COMM_WORLD), MPI_ERR_TAG, "a negative tag");
    class_is(MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE, "no type");
    class_is(MPI_Bcast(&value, 1, MPI_INT, ranks, MPI_COMM_WORLD), MPI_ERR_ROOT, "a root that is not there");
    class_is(MPI_Comm_compare(MPI_COMM_NULL, MPI_COMM_WORLD, &comparison), MPI_ERR_COMM, "no communicator");
}

static void afterwards(void)
{
    int value = rank, sum;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks * (ranks - 1) / 2, "the sum after errors is %d", sum);
}

int main(int argc, char **argv)
{
    static const int lengths[] = {2, 100, 5000, 70000, 3000000};
    start(argc, argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int round = 0; round < test.rounds; round++) {
        for (int i = 0; i < 5; i++)
            for (int posted_first = 0; posted_first < 2; posted_first++) {
                truncation(lengths[i], lengths[i] - 1, posted_first);
                truncation(lengths[i], lengths[i] / 2, posted_first);
                truncation(lengths[i], 0, posted_first);
            }
        passed("messages longer than the receive");
        in_status();
        passed("an error in a list of requests");
        arguments();
        passed("wrong arguments");
        afterwards();
        passed("all works after errors");
    }
    return finish();
}
