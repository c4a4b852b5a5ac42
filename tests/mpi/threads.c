/* Four threads of each rank at once, with MPI_THREAD_MULTIPLE. */
#include "check.h"
#include <pthread.h>

#define THREADS 4
#define EACH 300

static MPI_Comm own[THREADS];

static int length_of(int sender, int thread, int index)
{
    uint64_t random = random_of(sender * THREADS + thread, index);
    return random_below(&random, random_below(&random, 20) == 0 ? 100000 : 2000);
}

/* Each thread exchanges with the same thread of the neighbours, by tags of its own. */
static void *own_tags(void *argument)
{
    int thread = *(int *)argument;
    char *out = memory(100000), *in = memory(100000);
    for (int i = 0; i < EACH; i++) {
        MPI_Request requests[2];
        MPI_Status status;
        int length = length_of(rank, thread, i), expected = length_of(left, thread, i), done = 0;
        fill(out, (size_t)length, (uint64_t)(rank + thread + i));
        MPI_Irecv(in, 100000, MPI_BYTE, i % 3 ? left : MPI_ANY_SOURCE, thread, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, length, MPI_BYTE, right, thread, MPI_COMM_WORLD, &requests[1]);
        if (i % 2 == 0)
            MPI_Wait(&requests[0], &status);
        else
            while (!done)
                MPI_Test(&requests[0], &done, &status);
        check_status(&status, left, thread, expected, "thread with tags of its own");
        check_content(in, (size_t)expected, (uint64_t)(left + thread + i), "thread with tags of its own");
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    }
    free(out);
    free(in);
    return NULL;
}

/* Each thread has collectives in a communicator of its own. */
static void *own_communicator(void *argument)
{
    int thread = *(int *)argument, sum;
    for (int i = 0; i < EACH / 3; i++) {
        int value = rank * 10 + thread + i, expected = 0;
        for (int process = 0; process < ranks; process++)
            expected += process * 10 + thread + i;
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, own[thread]);
        CHECK(sum == expected, "thread %d: the sum is %d, not %d", thread, sum, expected);
    }
    return NULL;
}

static long received;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* All threads take from the same tag; matched probes keep length and message together. */
static void *shared_tag(void *argument)
{
    char *in = memory(100000);
    int thread = *(int *)argument;
    MPI_Request requests[EACH];
    static char sent[THREADS][EACH][2000];
    for (int i = 0; i < EACH; i++) {
        int length = 1 + length_of(rank, thread, i) % 1999;
        fill(sent[thread][i], (size_t)length, (uint64_t)length);
        MPI_Isend(sent[thread][i], length, MPI_BYTE, right, 99, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < EACH; i++) {
        MPI_Message message;
        MPI_Status status;
        int length;
        MPI_Mprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &length);
        MPI_Mrecv(in, length, MPI_BYTE, &message, &status);
        check_content(in, (size_t)length, (uint64_t)length, "threads with one tag");
        pthread_mutex_lock(&lock);
        received += length;
        pthread_mutex_unlock(&lock);
    }
    MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
    free(in);
    return NULL;
}

static void in_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, body, &numbers[i]) == 0, "a thread cannot be started");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    start_with(argc, argv, MPI_THREAD_MULTIPLE);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own[i]);
    for (int round = 0; round < test.rounds; round++) {
        long expected = 0;
        in_threads(own_tags);
        passed("threads with tags of their own");
        in_threads(own_communicator);
        passed("threads with communicators of their own");
        received = 0;
        in_threads(shared_tag);
        for (int thread = 0; thread < THREADS; thread++)
            for (int i = 0; i < EACH; i++)
                expected += 1 + length_of(left, thread, i) % 1999;
        CHECK(received == expected, "the threads have received %ld bytes, not %ld", received, expected);
        passed("threads with one tag");
    }
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&own[i]);
    return finish();
}
