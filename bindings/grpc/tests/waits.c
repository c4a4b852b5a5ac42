/* Each wait runs the functions of all sessions: with those of its own alone, none of these tests ends. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"
#include "server.h"

enum { WORKERS = 8, POINTS = 5, PATIENCE = 120 };

static grpc_function_handle_t integrate;
static grpc_function_handle_t count;
static grpc_function_handle_t worker;
static int points;

static void point(double x, double *y)
{
    (void)x;
    points++;
    *y = 1;
}

/* A session that has the only slot and needs its function, and one that waits for the slot. */
static void begin(grpc_sessionid_t *with_function, double *sum, grpc_sessionid_t *behind, int *number)
{
    points = 0;
    *sum = 0;
    *number = 1;
    GIVES(GRPC_NO_ERROR, grpc_call_async(&integrate, with_function, POINTS, point, sum));
    GIVES(GRPC_NO_ERROR, grpc_call_async(&count, behind, number, 2));
}

/* The session behind has ended, hence the one before it in the slot, too. */
static void both_ran(int number)
{
    EXPECT(points == POINTS && number == 3);
}

static void *wait_in_thread(void *session)
{
    GIVES(GRPC_NO_ERROR, grpc_wait(*(grpc_sessionid_t *)session));
    return NULL;
}

static void one_slot(void)
{
    grpc_sessionid_t ids[2];
    grpc_sessionid_t over = 0;
    pthread_t thread;
    double sum;
    int number;

    begin(&ids[1], &sum, &ids[0], &number);
    GIVES(GRPC_NO_ERROR, grpc_wait_and(ids, 2));
    both_ran(number);
    EXPECT(sum > 0.99 && sum < 1.01);

    begin(&ids[1], &sum, &ids[0], &number);
    GIVES(GRPC_NO_ERROR, grpc_wait(ids[0]));
    both_ran(number);
    GIVES(GRPC_NO_ERROR, grpc_wait(ids[1]));
    EXPECT(sum > 0.99 && sum < 1.01);

    begin(&ids[1], &sum, &ids[0], &number);
    GIVES(GRPC_NO_ERROR, grpc_wait_or(ids, 1, &over));
    EXPECT(over == ids[0]);
    both_ran(number);
    GIVES(GRPC_NO_ERROR, grpc_wait_all());

    /* A call that has no session waits, too. */
    begin(&ids[1], &sum, &ids[0], &number);
    GIVES(GRPC_NO_ERROR, grpc_call(&count, &number, 4));
    EXPECT(points == POINTS);
    GIVES(GRPC_NO_ERROR, grpc_wait_all());

    /* Also in a thread that has begun none of them. */
    begin(&ids[1], &sum, &ids[0], &number);
    EXPECT(pthread_create(&thread, NULL, wait_in_thread, &ids[0]) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    both_ran(number);
    GIVES(GRPC_NO_ERROR, grpc_wait_all());
}

static int asked[WORKERS];
static int distinct;
static time_t patience_ends;

/* Gives work until each worker has asked once. */
static void next(int number, int *more)
{
    EXPECT(number >= 0 && number < WORKERS);
    distinct += asked[number]++ == 0;
    *more = distinct < WORKERS && time(NULL) < patience_ends;
}

/* Workers that fetch their work are all at work at once. */
static void self_scheduling(int backwards)
{
    grpc_sessionid_t ids[WORKERS];
    int64_t rounds[WORKERS];
    memset(asked, 0, sizeof asked);
    distinct = 0;
    patience_ends = time(NULL) + PATIENCE / 2;
    for (int i = 0; i < WORKERS; i++) {
        GIVES(GRPC_NO_ERROR, grpc_call_async(&worker, &ids[backwards ? WORKERS - 1 - i : i], i, next, &rounds[i]));
    }
    GIVES(GRPC_NO_ERROR, backwards ? grpc_wait_and(ids, WORKERS) : grpc_wait_all());
    EXPECT(distinct == WORKERS && time(NULL) < patience_ends);
    for (int i = 0; i < WORKERS; i++) {
        EXPECT(rounds[i] == asked[i]);
    }
}

/* Numbers that are no sessions are refused, also beside others. */
static void no_sessions(void)
{
    const grpc_sessionid_t wrong[] = {GRPC_SESSIONID_VOID, 0, 1 << 30};
    grpc_sessionid_t ids[2];
    grpc_sessionid_t over = 0;
    int number = 1;
    for (int i = 0; i < 3; i++) {
        GIVES(GRPC_NO_ERROR, grpc_call_async(&count, &ids[0], &number, 1));
        ids[1] = wrong[i];
        GIVES(GRPC_INVALID_SESSION_ID, grpc_wait(wrong[i]));
        GIVES(GRPC_INVALID_SESSION_ID, grpc_probe(wrong[i]));
        GIVES(GRPC_INVALID_SESSION_ID, grpc_cancel(wrong[i]));
        GIVES(GRPC_INVALID_SESSION_ID, grpc_get_error(wrong[i]));
        GIVES(GRPC_INVALID_SESSION_ID, grpc_wait_and(ids, 2));
        GIVES(GRPC_INVALID_SESSION_ID, grpc_wait_or(ids, 2, &over));
        GIVES(GRPC_INVALID_SESSION_ID, grpc_probe_or(ids, 2, &over));
        /* It was not waited for by one of them. */
        GIVES(GRPC_NO_ERROR, grpc_wait_any(&over));
        EXPECT(over == ids[0]);
    }
}

static void with_slots(int slots, void (*test)(void))
{
    struct server server;
    server_start(&server, slots, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&integrate, "integrate"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&count, "count"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&worker, "worker"));
    test();
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&server, SIGTERM);
}

static void workers(void)
{
    self_scheduling(0);
    self_scheduling(1);
}

int main(void)
{
    /* A wait that hangs ends the test. */
    alarm(4 * PATIENCE);
    with_slots(1, no_sessions);
    with_slots(1, one_slot);
    with_slots(WORKERS, workers);
    return 0;
}
