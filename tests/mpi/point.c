/* Messages between two ranks: wildcards, order, communicators, messages to oneself. */
#include "check.h"

#define MOST_MESSAGES 200

/* Every rank sends to one; that one takes from anybody, and sees each sender's messages in order. */
static void any_source(int root)
{
    enum { EACH = 100 };
    uint64_t random = random_of(rank, root);
    MPI_Request requests[EACH];
    int messages[EACH][2];
    for (int i = 0; i < EACH; i++) {
        messages[i][0] = rank;
        messages[i][1] = i;
        MPI_Isend(messages[i], 2, MPI_INT, root, random_below(&random, 4), MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == root) {
        int *next = calloc((size_t)ranks, sizeof *next);
        CHECK(next != NULL, "there is no memory");
        for (int i = 0; i < EACH * ranks; i++) {
            int got[2];
            MPI_Status status;
            MPI_Recv(got, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            CHECK(status.MPI_SOURCE == got[0], "the status names source %d, the message %d", status.MPI_SOURCE, got[0]);
            CHECK(got[1] == next[got[0]], "message %d of rank %d came instead of %d", got[1], got[0], next[got[0]]);
            next[got[0]]++;
        }
        free(next);
    }
    MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
}

/* A message to be sent, and whether a receive has it already. */
struct message {
    int tag, communicator, length, taken;
};

/* What a rank sends to its right neighbour in a round: both know it. */
static int sequence(int sender, int round, struct message *messages)
{
    uint64_t random = random_of(sender, round);
    int count = 1 + random_below(&random, MOST_MESSAGES);
    for (int i = 0; i < count; i++) {
        int length = random_below(&random, 20) == 0 ? random_below(&random, 100000) : random_below(&random, 300);
        messages[i] = (struct message){random_below(&random, 3), random_below(&random, 2), length, 0};
    }
    return count;
}

/* The first message that a receive may take: that one it must take, whenever it was posted. */
static int first(struct message *messages, int count, int tag, int communicator)
{
    for (int i = 0; i < count; i++) {
        struct message *m = &messages[i];
        if (!m->taken && m->communicator == communicator && (tag == MPI_ANY_TAG || m->tag == tag)) {
            m->taken = 1;
            return i;
        }
    }
    fail("the test itself is wrong: no message has tag %d", tag);
}

/* Receives with tags and with wildcards. Posted before or after the messages come, they take the same ones. */
static void matching(int round, int posted_first)
{
    static struct message out[MOST_MESSAGES], in[MOST_MESSAGES];
    static MPI_Request sends[MOST_MESSAGES], receives[MOST_MESSAGES];
    char *sent[MOST_MESSAGES], *received[MOST_MESSAGES];
    int expected[MOST_MESSAGES];
    MPI_Comm communicators[2] = {MPI_COMM_WORLD};
    MPI_Comm_dup(MPI_COMM_WORLD, &communicators[1]);
    int outgoing = sequence(rank, round, out), incoming = sequence(left, round, in);
    uint64_t random = random_of(rank + 1000, round);
    for (int pass = 0; pass < 2; pass++) {
        if (pass == posted_first)
            for (int i = 0; i < outgoing; i++) {
                sent[i] = memory((size_t)out[i].length);
                fill(sent[i], (size_t)out[i].length, (uint64_t)(rank * 1000 + i));
                MPI_Isend(sent[i], out[i].length, MPI_BYTE, right, out[i].tag, communicators[out[i].communicator],
                          &sends[i]);
            }
        else
            for (int i = 0; i < incoming; i++) {
                int wanted = random_below(&random, incoming);
                while (in[wanted].taken)
                    wanted = (wanted + 1) % incoming;
                int tag = random_below(&random, 2) ? MPI_ANY_TAG : in[wanted].tag;
                int source = random_below(&random, 2) ? MPI_ANY_SOURCE : left, c = in[wanted].communicator;
                expected[i] = first(in, incoming, tag, c);
                received[i] = memory(100000);
                MPI_Irecv(received[i], 100000, MPI_BYTE, source, tag, communicators[c], &receives[i]);
            }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < incoming; i++) {
        const struct message *m = &in[expected[i]];
        MPI_Status status;
        MPI_Wait(&receives[i], &status);
        check_status(&status, left, m->tag, m->length, "receive in order");
        check_content(received[i], (size_t)m->length, (uint64_t)(left * 1000 + expected[i]), "receive in order");
        free(received[i]);
    }
    MPI_Waitall(outgoing, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < outgoing; i++)
        free(sent[i]);
    MPI_Comm_free(&communicators[1]);
}

/* Messages to oneself: received before, after, in another order, and at once. */
static void to_oneself(void)
{
    static char out[100001], in[100001];
    for (int length = 0; length <= 100000; length = length * 10 + 1) {
        MPI_Request requests[2];
        MPI_Status status;
        fill(out, (size_t)length, (uint64_t)length);
        MPI_Irecv(in, length, MPI_BYTE, rank, 5, MPI_COMM_WORLD, &requests[0]);
        MPI_Send(out, length, MPI_BYTE, rank, 5, MPI_COMM_WORLD);
        MPI_Wait(&requests[0], &status);
        check_status(&status, rank, 5, length, "to oneself, receive first");
        check_content(in, (size_t)length, (uint64_t)length, "to oneself, receive first");
        MPI_Isend(out, length, MPI_BYTE, rank, 6, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, 0, MPI_BYTE, rank, 7, MPI_COMM_WORLD, &requests[1]);
        MPI_Recv(in, 0, MPI_BYTE, rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(in, length, MPI_BYTE, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &status);
        check_status(&status, rank, 6, length, "to oneself, send first");
        check_content(in, (size_t)length, (uint64_t)length, "to oneself, send first");
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Sendrecv(out, length, MPI_BYTE, rank, 8, in, length, MPI_BYTE, rank, 8, MPI_COMM_WORLD, &status);
        check_status(&status, rank, 8, length, "to oneself, at once");
    }
}

/* Around the ring, in a buffer of its own and in the same one. */
static void ring(void)
{
    static char out[70000], in[70000];
    for (int length = 1; length < 70000; length = length * 3 + 1) {
        MPI_Status status;
        fill(out, (size_t)length, (uint64_t)rank);
        MPI_Sendrecv(out, length, MPI_BYTE, right, 1, in, length, MPI_BYTE, left, 1, MPI_COMM_WORLD, &status);
        check_status(&status, left, 1, length, "sendrecv");
        check_content(in, (size_t)length, (uint64_t)left, "sendrecv");
        MPI_Sendrecv_replace(out, length, MPI_BYTE, right, 2, left, 2, MPI_COMM_WORLD, &status);
        check_content(out, (size_t)length, (uint64_t)left, "sendrecv_replace");
    }
}

static void nobody(void)
{
    char byte = 'a';
    MPI_Status status;
    MPI_Request request;
    MPI_Send(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD);
    MPI_Recv(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status);
    check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "from nobody");
    MPI_Irecv(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "from nobody, nonblocking");
    CHECK(byte == 'a', "a receive from nobody has changed its buffer");
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        for (int root = 0; root < ranks; root++)
            any_source(root);
        passed("any source, each sender's messages in order");
        for (int i = 0; i < 4; i++)
            matching(4 * round + i, i % 2);
        passed("tags and wildcards take the first message that fits");
        to_oneself();
        passed("messages to oneself");
        ring();
        passed("send and receive at once");
        nobody();
        passed("messages to and from nobody");
    }
    return finish();
}
