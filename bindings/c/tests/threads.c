/* Several threads in one job of one rank: a user's program. Exit code 0 if all is
 * as documented. */
#include <kumi.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "expect.h"

enum { THREADS = 4, ROUNDS = 300 };

static kumi_window *window;
static kumi_fifo *fifo;
static int wrong[THREADS];

/* Each its own tag; all the same counter. */
static void *work(void *argument)
{
	int me = *(int *)argument;
	uint64_t old = 0, sent, received = 0;
	kumi_request requests[2];
	kumi_status status;

	for (int i = 0; i < ROUNDS; i++) {
		sent = (uint64_t)(1000 * me + i);
		wrong[me] += kumi_window_fetch_add(window, 0, 0, 1, &old) !=
		             KUMI_OK;
		wrong[me] += kumi_message_irecv(0, me, &received, 8, NULL,
		                                &requests[0]) != KUMI_OK;
		wrong[me] += kumi_message_isend(0, me, &sent, 8, NULL,
		                                &requests[1]) != KUMI_OK;
		wrong[me] += kumi_request_wait_all(requests, 2, NULL) != KUMI_OK;
		wrong[me] += received != sent;
		wrong[me] += kumi_message_send(0, me, &sent, 8) != KUMI_OK;
		wrong[me] += kumi_message_recv(0, me, &received, 8, &status) !=
		             KUMI_OK;
		wrong[me] += received != sent || status.tag != me;
		wrong[me] += kumi_window_put(window, 0, 8 + 8 * (size_t)me,
		                             &sent, 8) != KUMI_OK;
	}
	/* The job belongs to the main thread. */
	wrong[me] += kumi_finalize() != KUMI_ERR_WRONG_THREAD;
	wrong[me] += kumi_init() != KUMI_ERR_ALREADY_INITIALISED;
	wrong[me] += kumi_fifo_append(window, 0, 64, &sent, 8) != KUMI_OK;
	return NULL;
}

/* Waits until the main thread sends something. */
static void *wait_for_main(void *argument)
{
	int *got = argument;

	*got = kumi_message_recv(0, 77, NULL, 0, NULL) == KUMI_OK;
	return NULL;
}

static void *refused(void *argument)
{
	int *code = argument;

	*code = kumi_progress();
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS], waiter;
	int numbers[THREADS], got = 0, code = 0, found = 0;
	uint64_t value = 0;

	EXPECT(kumi_init_threads(2) == KUMI_ERR_LENGTH);
	EXPECT(kumi_init_threads(KUMI_THREAD_MULTIPLE) == KUMI_OK);
	EXPECT(kumi_window_create(1024, &window) == KUMI_OK);
	EXPECT(kumi_fifo_create(window, 64, 256, 1, &fifo) == KUMI_OK);
	EXPECT(pthread_create(&waiter, NULL, wait_for_main, &got) == 0);
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		EXPECT(pthread_create(&threads[i], NULL, work, &numbers[i]) ==
		       0);
	}
	for (int i = 0; i < THREADS; i++) {
		EXPECT(pthread_join(threads[i], NULL) == 0);
		EXPECT(wrong[i] == 0);
		EXPECT(kumi_window_get(window, 0, 8 + 8 * (size_t)i, 8,
		                       &value) == KUMI_OK);
		EXPECT(value == (uint64_t)(1000 * i + ROUNDS - 1));
		EXPECT(kumi_fifo_try_pop(fifo, &value, 8, &found, NULL, NULL) ==
		           KUMI_OK &&
		       found == 1);
	}
	EXPECT(kumi_window_get(window, 0, 0, 8, &value) == KUMI_OK);
	EXPECT(value == THREADS * ROUNDS);
	EXPECT(kumi_message_send(0, 77, NULL, 0) == KUMI_OK);
	EXPECT(pthread_join(waiter, NULL) == 0 && got == 1);
	EXPECT(kumi_finalize() == KUMI_OK);

	/* Without the wish other threads are refused. */
	EXPECT(kumi_init_threads(KUMI_THREAD_SINGLE) == KUMI_OK);
	EXPECT(pthread_create(&waiter, NULL, refused, &code) == 0);
	EXPECT(pthread_join(waiter, NULL) == 0);
	EXPECT(code == KUMI_ERR_WRONG_THREAD);
	EXPECT(kumi_finalize() == KUMI_OK);
	return failures > 0;
}
