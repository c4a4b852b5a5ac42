/* Requests: persistent ones, cancelled receives, and all ways to wait and to test. */
#include "check.h"

#define COUNT 12

/* Persistent sends and receives, started together and one by one, several times. */
static void persistent(int round)
{
    static char out[COUNT][20000], in[COUNT][20000];
    MPI_Request requests[2 * COUNT];
    for (int i = 0; i < COUNT; i++) {
        int length = i * 1700;
        MPI_Recv_init(in[i], length, MPI_BYTE, i % 2 ? left : MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &requests[i]);
        MPI_Send_init(out[i], length, MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[COUNT + i]);
    }
    for (int time = 0; time < 5; time++) {
        for (int i = 0; i < COUNT; i++)
            fill(out[i], sizeof out[i], (uint64_t)(rank * 100 + time + i + round));
        if (time % 2 == 0)
            MPI_Startall(2 * COUNT, requests);
        else
            for (int i = 2 * COUNT - 1; i >= 0; i--)
                MPI_Start(&requests[i]);
        MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < COUNT; i++)
            check_content(in[i], (size_t)(i * 1700), (uint64_t)(left * 100 + time + i + round), "persistent");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < 2 * COUNT; i++) {
        CHECK(requests[i] != MPI_REQUEST_NULL, "a persistent request has gone after its use");
        MPI_Request_free(&requests[i]);
    }
}

/* A cancelled receive takes nothing; the next one gets the message. */
static void cancel(void)
{
    MPI_Request receives[3];
    MPI_Status status;
    int value = rank, got = -1, cancelled;
    int unused[3];
    for (int i = 0; i < 3; i++)
        MPI_Irecv(&unused[i], 1, MPI_INT, i == 0 ? MPI_ANY_SOURCE : left, i == 2 ? MPI_ANY_TAG : 7, MPI_COMM_WORLD,
                  &receives[i]);
    for (int i = 0; i < 3; i++) {
        MPI_Cancel(&receives[i]);
        MPI_Wait(&receives[i], &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled, "receive %d, for which nothing was sent, is not cancelled", i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Sendrecv(&value, 1, MPI_INT, right, 7, &got, 1, MPI_INT, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == left, "after a cancelled receive %d came instead of %d", got, left);
}

/* A receive that already has its message cannot be cancelled: it ends as received. */
static void cancel_too_late(void)
{
    MPI_Request receive;
    MPI_Status status;
    int value = rank, got = -1, flag = 0, cancelled;
    MPI_Irecv(&got, 1, MPI_INT, left, 8, MPI_COMM_WORLD, &receive);
    MPI_Send(&value, 1, MPI_INT, right, 8, MPI_COMM_WORLD);
    while (!flag)
        MPI_Request_get_status(receive, &flag, MPI_STATUS_IGNORE);
    MPI_Cancel(&receive);
    MPI_Wait(&receive, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(!cancelled && got == left, "a receive that was over is cancelled, or has %d instead of %d", got, left);
}

static int in[COUNT];
static MPI_Request receives[COUNT], sends[COUNT];

/* Posts receives with tags 0 to COUNT - 1, and sends to them in an order of its own. */
static void post(uint64_t *random, int out[COUNT])
{
    int order[COUNT];
    for (int i = 0; i < COUNT; i++) {
        in[i] = -1;
        out[i] = rank * 100 + i;
        order[i] = i;
        MPI_Irecv(&in[i], 1, MPI_INT, left, i, MPI_COMM_WORLD, &receives[i]);
    }
    for (int i = COUNT - 1; i > 0; i--) {
        int j = random_below(random, i + 1), k = order[i];
        order[i] = order[j];
        order[j] = k;
    }
    for (int i = 0; i < COUNT; i++)
        MPI_Isend(&out[order[i]], 1, MPI_INT, right, order[i], MPI_COMM_WORLD, &sends[i]);
}

static void completed(int index, const MPI_Status *status, int *seen)
{
    CHECK(index >= 0 && index < COUNT, "a receive that was never posted is over: %d", index);
    CHECK(status->MPI_TAG == index && in[index] == left * 100 + index, "receive %d has %d with tag %d", index, in[index],
          status->MPI_TAG);
    (*seen)++;
}

enum how { WAIT_ANY, WAIT_SOME, TEST_ANY, TEST_SOME, TEST_ALL, HOWS };

/* One call of that kind; returns how many receives were over, which it checks. */
static void complete_some(enum how how, int *seen)
{
    int index[COUNT], count = 1, flag = 1;
    MPI_Status statuses[COUNT];
    if (how == WAIT_ANY)
        MPI_Waitany(COUNT, receives, index, statuses);
    else if (how == TEST_ANY)
        MPI_Testany(COUNT, receives, index, &flag, statuses);
    else if (how == WAIT_SOME)
        MPI_Waitsome(COUNT, receives, &count, index, statuses);
    else if (how == TEST_SOME)
        MPI_Testsome(COUNT, receives, &count, index, statuses);
    else
        MPI_Testall(COUNT, receives, &flag, statuses);
    if (how == TEST_ALL && flag)
        for (count = 0; count < COUNT; count++)
            index[count] = count;
    if (!flag)
        return;
    CHECK(count != MPI_UNDEFINED, "no request is left before all receives were over");
    for (int i = 0; i < count; i++)
        completed(index[i], &statuses[i], seen);
}

static void ways_to_wait(int round)
{
    uint64_t random = random_of(rank, round);
    int out[COUNT];
    for (enum how how = WAIT_ANY; how < HOWS; how++) {
        int seen = 0;
        post(&random, out);
        while (seen < COUNT)
            complete_some(how, &seen);
        for (int i = 0; i < COUNT; i++)
            CHECK(receives[i] == MPI_REQUEST_NULL, "the request of a receive that is over is not null");
        MPI_Waitall(COUNT, sends, MPI_STATUSES_IGNORE);
    }
}

/* A send whose request is given away comes nevertheless. */
static void freed(void)
{
    static int out;
    int got = -1;
    MPI_Request request;
    out = rank;
    MPI_Isend(&out, 1, MPI_INT, right, 9, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Recv(&got, 1, MPI_INT, left, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == left, "a send without request brought %d", got);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        persistent(round);
        passed("persistent requests");
        cancel();
        passed("cancelled receives take nothing");
        cancel_too_late();
        passed("a receive that is over is not cancelled");
        for (int i = 0; i < 5; i++)
            ways_to_wait(5 * round + i);
        passed("wait and test: any, some, all");
        freed();
        passed("sends without request");
    }
    return finish();
}
