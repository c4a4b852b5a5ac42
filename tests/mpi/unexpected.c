/* Many messages that nobody has asked for yet. Ranks go in pairs: even ones send, odd ones receive. */
#include "check.h"

/* What the receiver may need for --count of them, in kilobytes: 5 KB for each of the 100,000 messages of the longest run. */
#define MOST_MEMORY (512 << 10)

/* The most memory that this process had, in kilobytes. */
static long memory_used(void)
{
    char line[256];
    long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL, "/proc/self/status cannot be read");
    while (fgets(line, sizeof line, file) != NULL)
        sscanf(line, "VmHWM: %ld kB", &kilobytes);
    fclose(file);
    return kilobytes;
}

static int greatest_tag(void)
{
    int *value, there;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &there);
    return there ? *value : 32767;
}

static uint64_t value_of(int sender, int index)
{
    return random_of(sender, index);
}

/* All messages are under way before the first receive, which asks for the last one. */
static void reverse(int count, int partner)
{
    uint64_t *values = memory((size_t)count * sizeof *values);
    MPI_Request *requests = memory((size_t)count * sizeof *requests);
    if (rank % 2 == 0) {
        for (int i = 0; i < count; i++) {
            values[i] = value_of(rank, i);
            MPI_Isend(&values[i], 1, MPI_UINT64_T, partner, i, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    } else {
        for (int i = count - 1; i >= 0; i--) {
            MPI_Recv(&values[i], 1, MPI_UINT64_T, partner, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(values[i] == value_of(partner, i), "message %d of %d has a wrong value", i, count);
        }
    }
    free(values);
    free(requests);
}

/* A receiver that is busy with another rank while messages come: it must take them in order later. */
static void in_order(int count, int partner)
{
    MPI_Request *requests = memory((size_t)count * sizeof *requests);
    int *values = memory((size_t)count * sizeof *values);
    if (rank % 2 == 0) {
        for (int i = 0; i < count; i++) {
            values[i] = i;
            MPI_Isend(&values[i], 1, MPI_INT, partner, 1, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Send(NULL, 0, MPI_BYTE, partner, 2, MPI_COMM_WORLD);
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, partner, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++) {
            int got;
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(got == i, "message %d came instead of %d", got, i);
        }
    }
    free(requests);
    free(values);
}

/* Long ones, the last first. */
static void long_ones(int partner)
{
    enum { MANY = 32, LENGTH = 1 << 20 };
    MPI_Request requests[MANY];
    char *data = memory((size_t)MANY * LENGTH);
    for (int i = 0; i < MANY; i++) {
        char *place = data + (size_t)i * LENGTH;
        if (rank % 2 == 0) {
            fill(place, LENGTH, (uint64_t)(rank * MANY + i));
            MPI_Isend(place, LENGTH, MPI_BYTE, partner, i, MPI_COMM_WORLD, &requests[i]);
        }
    }
    if (rank % 2 == 0)
        MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    else
        for (int i = MANY - 1; i >= 0; i--) {
            MPI_Recv(data, LENGTH, MPI_BYTE, partner, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_content(data, LENGTH, (uint64_t)(partner * MANY + i), "long unexpected message");
        }
    free(data);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    int partner = rank ^ 1, count = greatest_tag() < test.count ? greatest_tag() : test.count;
    long before = memory_used();
    for (int round = 0; round < test.rounds; round++) {
        if (partner < ranks)
            reverse(count, partner);
        passed("small messages received in reverse order");
        if (partner < ranks)
            in_order(count, partner);
        passed("small messages received in order from anybody");
        if (partner < ranks)
            long_ones(partner);
        passed("long messages received in reverse order");
    }
    long used = memory_used() - before;
    CHECK(used < MOST_MEMORY, "%d unexpected messages took %ld MB", count, used >> 10);
    passed("memory is bounded");
    return finish();
}
