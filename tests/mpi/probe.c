/* Looking before receiving: probe, iprobe, and the matched kinds whose message nobody else can take. */
#include "check.h"

#define LENGTHS 5
static const int lengths[LENGTHS] = {0, 1, 1000, 70000, 500000};
#define MOST 500000

static char out[MOST], in[MOST];

/* The neighbour's message is seen with its length, as often as one looks, and then received. */
static void probe(int length, int source, int tag)
{
    MPI_Request send;
    MPI_Status status;
    int seen = 0;
    fill(out, (size_t)length, (uint64_t)(rank + length));
    MPI_Isend(out, length, MPI_BYTE, right, 3, MPI_COMM_WORLD, &send);
    MPI_Probe(source, tag, MPI_COMM_WORLD, &status);
    check_status(&status, left, 3, length, "probe");
    while (!seen)
        MPI_Iprobe(source, tag, MPI_COMM_WORLD, &seen, &status);
    check_status(&status, left, 3, length, "iprobe");
    MPI_Recv(in, length, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
    check_content(in, (size_t)length, (uint64_t)(left + length), "after a probe");
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &seen, MPI_STATUS_IGNORE);
    CHECK(!seen, "iprobe still sees a message that was received");
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Two messages with the same tag: the first is matched, a later receive gets the second. */
static void matched(int length, int nonblocking)
{
    MPI_Request sends[2], receive;
    MPI_Message message;
    MPI_Status status;
    static char second[MOST];
    int seen = 0;
    fill(out, (size_t)length, (uint64_t)rank);
    fill(second, (size_t)length, (uint64_t)(rank + 100));
    MPI_Isend(out, length, MPI_BYTE, right, 4, MPI_COMM_WORLD, &sends[0]);
    MPI_Isend(second, length, MPI_BYTE, right, 4, MPI_COMM_WORLD, &sends[1]);
    if (nonblocking)
        while (!seen)
            MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &seen, &message, &status);
    else
        MPI_Mprobe(left, 4, MPI_COMM_WORLD, &message, &status);
    check_status(&status, left, 4, length, "mprobe");
    MPI_Recv(in, length, MPI_BYTE, left, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_content(in, (size_t)length, (uint64_t)(left + 100), "a receive beside a matched message");
    if (nonblocking) {
        MPI_Imrecv(in, length, MPI_BYTE, &message, &receive);
        MPI_Wait(&receive, &status);
    } else {
        MPI_Mrecv(in, length, MPI_BYTE, &message, &status);
    }
    check_status(&status, left, 4, length, "mrecv");
    check_content(in, (size_t)length, (uint64_t)left, "a matched message");
    CHECK(message == MPI_MESSAGE_NULL, "a received message is not null");
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Nothing was sent with this tag: looking finds nothing, and an empty probe ends at once. */
static void nothing(void)
{
    MPI_Request send;
    MPI_Message message;
    MPI_Status status;
    int seen = 1;
    MPI_Isend(out, 1, MPI_BYTE, right, 5, MPI_COMM_WORLD, &send);
    MPI_Probe(left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Iprobe(left, 6, MPI_COMM_WORLD, &seen, &status);
    CHECK(!seen, "iprobe sees a tag that nobody sent");
    MPI_Improbe(left, 6, MPI_COMM_WORLD, &seen, &message, &status);
    CHECK(!seen, "improbe sees a tag that nobody sent");
    MPI_Recv(in, 1, MPI_BYTE, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Mprobe(MPI_PROC_NULL, 5, MPI_COMM_WORLD, &message, &status);
    CHECK(message == MPI_MESSAGE_NO_PROC, "a probe of nobody gives a message");
    MPI_Mrecv(in, 1, MPI_BYTE, &message, &status);
    check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "mrecv from nobody");
}

/* Messages of random lengths from all ranks, each received after a probe that told its length. */
static void lengths_by_probe(int round)
{
    enum { EACH = 20 };
    MPI_Request requests[EACH * 16];
    int count = 0, places = ranks < 16 ? ranks : 16;
    static char sent[16][EACH][5000];
    for (int to = 0; to < places; to++) {
        uint64_t random = random_of(rank * 64 + to, round);
        for (int i = 0; i < EACH; i++) {
            int length = random_below(&random, 5000), peer = (rank + to) % ranks;
            fill(sent[to][i], (size_t)length, (uint64_t)(rank + length));
            MPI_Isend(sent[to][i], length, MPI_BYTE, peer, length, MPI_COMM_WORLD, &requests[count++]);
        }
    }
    for (int i = 0; i < EACH * places; i++) {
        MPI_Message message;
        MPI_Status status;
        int length;
        MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &length);
        CHECK(length == status.MPI_TAG, "a probe tells %d bytes of a message of %d", length, status.MPI_TAG);
        MPI_Mrecv(in, length, MPI_BYTE, &message, MPI_STATUS_IGNORE);
        check_content(in, (size_t)length, (uint64_t)(status.MPI_SOURCE + length), "length by probe");
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        for (int i = 0; i < LENGTHS; i++) {
            probe(lengths[i], left, 3);
            probe(lengths[i], MPI_ANY_SOURCE, MPI_ANY_TAG);
        }
        passed("probe and iprobe");
        for (int i = 0; i < LENGTHS; i++) {
            matched(lengths[i], 0);
            matched(lengths[i], 1);
        }
        passed("matched probe and receive");
        nothing();
        passed("probes that see nothing");
        lengths_by_probe(round);
        passed("lengths by matched probes of anybody");
    }
    return finish();
}
