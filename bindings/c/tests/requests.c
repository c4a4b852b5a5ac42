/* Requests, queues and claims: a user's program in a job of one rank.
 * RUST_RESULT_SIZE and the like come from the Rust side. Exit code 0 if all is as
 * documented. */
#include <kumi.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

_Static_assert(sizeof(kumi_result) == RUST_RESULT_SIZE, "kumi_result: size");
_Static_assert(offsetof(kumi_result, source) == RUST_RESULT_SOURCE, "source");
_Static_assert(offsetof(kumi_result, tag) == RUST_RESULT_TAG, "tag");
_Static_assert(offsetof(kumi_result, length) == RUST_RESULT_LENGTH, "length");
_Static_assert(offsetof(kumi_result, value) == RUST_RESULT_VALUE, "value");
_Static_assert(offsetof(kumi_result, word) == RUST_RESULT_WORD, "word");
_Static_assert(sizeof(kumi_report) == RUST_REPORT_SIZE, "kumi_report: size");
_Static_assert(offsetof(kumi_report, queue) == RUST_REPORT_QUEUE, "queue");
_Static_assert(offsetof(kumi_report, word) == RUST_REPORT_WORD, "word");

static void puts_gets_and_atomics(void)
{
	kumi_window *window = NULL;
	kumi_request request = KUMI_REQUEST_NONE, copy;
	kumi_result result;
	uint64_t number = 41, back = 0;
	uint32_t *halves;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	EXPECT(kumi_window_iput(window, 0, 8, &number, 8, 3, KUMI_PUT_PLACED,
	                        NULL, &request) == KUMI_OK);
	EXPECT(request != KUMI_REQUEST_NONE);
	copy = request;
	EXPECT(kumi_request_wait(&request, &result) == KUMI_OK);
	EXPECT(request == KUMI_REQUEST_NONE && result.error == KUMI_OK);
	EXPECT(result.source == -1 && result.tag == -1 && result.value == 0);
	EXPECT(kumi_window_wait_notify(window, 3, 1, NULL) == KUMI_OK);
	/* Waited for twice: by the variable, and by a copy. */
	EXPECT(kumi_request_wait(&request, NULL) == KUMI_ERR_REQUEST);
	EXPECT(kumi_request_wait(&copy, NULL) == KUMI_ERR_REQUEST);
	EXPECT(copy != KUMI_REQUEST_NONE);

	EXPECT(kumi_window_iatomic(window, 0, 8, KUMI_FETCH_ADD, 1, 9, NULL,
	                           &request) == KUMI_OK);
	EXPECT(kumi_request_wait(&request, &result) == KUMI_OK);
	EXPECT(result.value == 41);
	EXPECT(kumi_window_iatomic(window, 0, 8, KUMI_COMPARE_SWAP, 42, 7, NULL,
	                           &request) == KUMI_OK);
	EXPECT(kumi_request_wait(&request, &result) == KUMI_OK);
	EXPECT(result.value == 42);
	EXPECT(kumi_window_iget(window, 0, 8, 8, &back, NULL, &request) ==
	       KUMI_OK);
	EXPECT(kumi_request_wait(&request, NULL) == KUMI_OK && back == 7);
	EXPECT(kumi_window_iatomic_u32(window, 0, 20, KUMI_SWAP, 5, 0, NULL,
	                               &request) == KUMI_OK);
	EXPECT(kumi_request_wait(&request, &result) == KUMI_OK);
	halves = kumi_window_base(window);
	EXPECT(result.value == 0 && halves[5] == 5 && halves[4] == 0);

	/* What is wrong is told at once, or by the request. */
	EXPECT(kumi_window_iput(window, 0, 0, &number, 8, 64, KUMI_PUT_SENT,
	                        NULL, &request) == KUMI_ERR_NOTIFY);
	EXPECT(kumi_window_iput(window, 0, 0, &number, 8, KUMI_NO_NOTIFY, 2,
	                        NULL, &request) == KUMI_ERR_LENGTH);
	EXPECT(kumi_window_iput(window, 1, 0, &number, 8, KUMI_NO_NOTIFY,
	                        KUMI_PUT_SENT, NULL, &request) ==
	       KUMI_ERR_RANK);
	EXPECT(kumi_window_iput(NULL, 0, 0, &number, 8, KUMI_NO_NOTIFY,
	                        KUMI_PUT_SENT, NULL, &request) ==
	       KUMI_ERR_WINDOW);
	EXPECT(kumi_window_iput(window, 0, 0, NULL, 8, KUMI_NO_NOTIFY,
	                        KUMI_PUT_SENT, NULL, &request) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_window_iput(window, 0, 0, &number, 8, KUMI_NO_NOTIFY,
	                        KUMI_PUT_SENT, NULL, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_window_iatomic(window, 0, 8, (kumi_atomic)7, 1, 9, NULL,
	                           &request) == KUMI_ERR_OPERATION);
	EXPECT(request == KUMI_REQUEST_NONE);
	EXPECT(kumi_window_free(window) == KUMI_OK);
}

static void first_come_first_served(void)
{
	kumi_request request[5] = { 0 };
	kumi_result results[5];
	char text[] = "to myself", buffer[3][16] = { "" };
	size_t index = 9, ended = 0, indices[5], count = 9;
	int done = 9, cancelled = 9;

	for (int i = 0; i < 3; i++)
		EXPECT(kumi_message_irecv(KUMI_ANY_SOURCE, 5, buffer[i], 16,
		                          NULL, &request[i]) == KUMI_OK);
	EXPECT(kumi_request_count(&count) == KUMI_OK && count == 3);
	EXPECT(kumi_request_test(&request[0], &done, results) == KUMI_OK &&
	       done == 0 && request[0] != KUMI_REQUEST_NONE);
	EXPECT(kumi_request_test_all(request, 5, &done, results) == KUMI_OK &&
	       done == 0);
	EXPECT(kumi_request_test_any(request, 5, &done, &index, results) ==
	           KUMI_OK &&
	       done == 0 && index == 9);
	EXPECT(kumi_request_test_some(request, 5, &ended, indices, results) ==
	           KUMI_OK &&
	       ended == 0);
	EXPECT(kumi_message_isend(0, 5, text, sizeof text, NULL, &request[4]) ==
	       KUMI_OK);
	EXPECT(kumi_request_wait(&request[0], results) == KUMI_OK);
	EXPECT(results->source == 0 && results->tag == 5 &&
	       results->length == sizeof text && strcmp(buffer[0], text) == 0);
	EXPECT(kumi_request_wait(&request[4], NULL) == KUMI_OK);

	/* One of them is given up, the other gets the next message. */
	EXPECT(kumi_request_cancel(request[1], &cancelled) == KUMI_OK &&
	       cancelled == 1);
	EXPECT(kumi_message_send(0, 5, text, 3) == KUMI_OK);
	EXPECT(kumi_request_wait_all(request, 5, results) == KUMI_OK);
	EXPECT(results[1].cancelled == 1 && results[2].cancelled == 0);
	EXPECT(results[2].length == 3 && results[0].error == KUMI_OK);
	EXPECT(buffer[1][0] == '\0' && strncmp(buffer[2], text, 3) == 0);
	for (int i = 0; i < 5; i++)
		EXPECT(request[i] == KUMI_REQUEST_NONE);
}

static void any_and_some(void)
{
	kumi_request request[5] = { 0 };
	kumi_result results[5];
	char text[] = "to myself", buffer[5][16] = { "" };
	size_t index = 9, ended = 0, indices[5];
	int seen[5] = { 0 };

	for (int i = 0; i < 5; i++)
		EXPECT(kumi_message_irecv(0, i, buffer[i], 16, NULL,
		                          &request[i]) == KUMI_OK);
	EXPECT(kumi_message_send(0, 3, text, 1) == KUMI_OK);
	EXPECT(kumi_request_wait_any(request, 5, &index, results) == KUMI_OK &&
	       index == 3 && results->tag == 3 &&
	       request[3] == KUMI_REQUEST_NONE);
	for (int i = 0; i < 5; i++)
		if (i != 3)
			EXPECT(kumi_message_send(0, i, text, (size_t)i) ==
			       KUMI_OK);
	for (int rest = 4; rest > 0; rest -= (int)ended) {
		EXPECT(kumi_request_wait_some(request, 5, &ended, indices,
		                              results) == KUMI_OK &&
		       ended > 0);
		for (size_t i = 0; i < ended; i++) {
			EXPECT(results[i].tag == (int)indices[i]);
			EXPECT(results[i].length == indices[i]);
			seen[indices[i]]++;
		}
	}
	EXPECT(seen[0] == 1 && seen[1] == 1 && seen[2] == 1 && seen[4] == 1);
	EXPECT(kumi_request_wait_any(request, 5, &index, results) ==
	       KUMI_ERR_REQUEST);
	EXPECT(kumi_request_wait_all(request, 5, NULL) == KUMI_OK);
}

static void wrong_lists(void)
{
	kumi_request request[2] = { 0 }, spare;
	kumi_result results[2];
	char text[] = "to myself", buffer[16] = "";
	size_t index = 9;
	int done = 9;

	/* A wrong handle in a list: nothing was waited for. */
	EXPECT(kumi_message_irecv(0, 1, buffer, 16, NULL, &request[0]) ==
	       KUMI_OK);
	spare = request[0];
	request[1] = request[0];
	EXPECT(kumi_request_wait_all(request, 2, NULL) == KUMI_ERR_LISTED);
	request[1] = request[0] ^ ((uint64_t)1 << 30);
	EXPECT(kumi_request_wait_any(request, 2, &index, NULL) ==
	       KUMI_ERR_REQUEST);
	EXPECT(request[0] == spare);
	EXPECT(kumi_message_send(0, 1, text, 2) == KUMI_OK);
	EXPECT(kumi_request_test(&request[0], &done, results) == KUMI_OK);
	EXPECT(done == 1 && results->length == 2);

	/* Too long: the error is the request's. */
	EXPECT(kumi_message_irecv(0, 1, buffer, 2, NULL, &request[0]) ==
	       KUMI_OK);
	EXPECT(kumi_message_send(0, 1, text, 4) == KUMI_OK);
	EXPECT(kumi_request_wait(&request[0], results) == KUMI_ERR_TRUNCATED);
	EXPECT(results->error == KUMI_ERR_TRUNCATED && results->length == 4 &&
	       request[0] == KUMI_REQUEST_NONE);
}

static void buffers_come_back(void)
{
	kumi_request request = KUMI_REQUEST_NONE, spare;
	char *buffer = malloc(8), text[8] = "";
	kumi_status status;
	int cancelled = 9;

	EXPECT(kumi_message_irecv(0, 2, buffer, 8, NULL, &request) == KUMI_OK);
	spare = request;
	EXPECT(kumi_request_release(&request) == KUMI_OK);
	EXPECT(request == KUMI_REQUEST_NONE);
	free(buffer);
	EXPECT(kumi_request_release(&request) == KUMI_ERR_REQUEST);
	EXPECT(kumi_request_cancel(spare, &cancelled) == KUMI_ERR_REQUEST &&
	       cancelled == 9);
	/* The message is for the next receive. */
	EXPECT(kumi_message_send(0, 2, "later", 6) == KUMI_OK);
	EXPECT(kumi_message_recv(0, 2, text, 8, &status) == KUMI_OK);
	EXPECT(status.length == 6 && strcmp(text, "later") == 0);
}

/* A window is not freed below a request. */
static void windows_stay_below_requests(void)
{
	enum { COUNT = 3 };
	kumi_window *windows[COUNT] = { NULL };
	kumi_request request[COUNT] = { 0 };
	kumi_queue *queue = NULL;
	kumi_report report = { NULL, NULL, 0 };
	static uint64_t memory[8];
	char *base;

	EXPECT(kumi_window_create(64, &windows[0]) == KUMI_OK);
	EXPECT(kumi_window_create(64, &windows[1]) == KUMI_OK);
	EXPECT(kumi_window_register(memory, 64, KUMI_RIGHT_ALL, &windows[2]) ==
	       KUMI_OK);
	for (int i = 0; i < COUNT; i++) {
		base = kumi_window_base(windows[i]);
		EXPECT(kumi_message_irecv(0, i, base + 56, 8, NULL,
		                          &request[i]) == KUMI_OK);
	}
	for (int i = 0; i < COUNT; i++)
		EXPECT(kumi_window_free(windows[i]) == KUMI_ERR_LENT);
	/* It has ended, was released, or was cancelled. */
	EXPECT(kumi_message_send(0, 0, "message", 8) == KUMI_OK);
	EXPECT(kumi_window_free(windows[0]) == KUMI_OK);
	EXPECT(kumi_request_wait(&request[0], NULL) == KUMI_OK);
	EXPECT(kumi_request_release(&request[1]) == KUMI_OK);
	EXPECT(kumi_window_free(windows[1]) == KUMI_OK);
	EXPECT(kumi_request_cancel(request[2], NULL) == KUMI_OK);
	EXPECT(kumi_window_free(windows[2]) == KUMI_OK);
	EXPECT(kumi_request_wait(&request[2], NULL) == KUMI_OK);

	/* Memory beside it does not matter; nor does how the end is told. */
	EXPECT(kumi_queue_create(&queue) == KUMI_OK);
	report.queue = queue;
	EXPECT(kumi_window_register(memory + 2, 16, KUMI_RIGHT_ALL,
	                            &windows[0]) == KUMI_OK);
	EXPECT(kumi_message_irecv(0, 1, memory, 16, NULL, &request[0]) ==
	       KUMI_OK);
	EXPECT(kumi_message_irecv(0, 2, memory + 4, 32, &report, NULL) ==
	       KUMI_OK);
	EXPECT(kumi_window_free(windows[0]) == KUMI_OK);
	EXPECT(kumi_window_register(memory + 7, 8, KUMI_RIGHT_ALL,
	                            &windows[0]) == KUMI_OK);
	EXPECT(kumi_window_free(windows[0]) == KUMI_ERR_LENT);
	EXPECT(kumi_message_send(0, 2, NULL, 0) == KUMI_OK);
	EXPECT(kumi_window_free(windows[0]) == KUMI_OK);
	EXPECT(kumi_queue_wait(queue, NULL) == KUMI_OK);
	EXPECT(kumi_queue_free(queue) == KUMI_OK);
	EXPECT(kumi_request_release(&request[0]) == KUMI_OK);
}

static void reports(void)
{
	kumi_completion *completion = NULL;
	kumi_queue *queue = NULL;
	kumi_window *window = NULL;
	kumi_result result;
	kumi_report report = { NULL, NULL, 0 };
	char text[8] = "report", buffer[8] = "";
	int found = 9;
	unsigned words = 0;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	EXPECT(kumi_completion_create(&completion) == KUMI_OK);
	EXPECT(kumi_queue_create(&queue) == KUMI_OK);
	EXPECT(kumi_queue_poll(queue, &found, &result) == KUMI_OK &&
	       found == 0);
	/* Neither, and both. */
	EXPECT(kumi_message_isend(0, 1, text, 7, &report, NULL) ==
	       KUMI_ERR_QUEUE);
	report = (kumi_report){ completion, queue, 0 };
	EXPECT(kumi_message_isend(0, 1, text, 7, &report, NULL) ==
	       KUMI_ERR_QUEUE);
	report.queue = NULL;
	for (int i = 0; i < 4; i++)
		EXPECT(kumi_window_iput(window, 0, 8, text, 7, KUMI_NO_NOTIFY,
		                        KUMI_PUT_PLACED, &report,
		                        NULL) == KUMI_OK);
	EXPECT(kumi_completion_wait(completion, 4, NULL) == KUMI_OK);
	report = (kumi_report){ NULL, queue, 7 };
	EXPECT(kumi_message_irecv(0, 1, buffer, 8, &report, NULL) == KUMI_OK);
	report.word = 8;
	EXPECT(kumi_message_isend(0, 1, text, 7, &report, NULL) == KUMI_OK);
	report.word = UINT64_MAX;
	EXPECT(kumi_window_iatomic(window, 0, 0, KUMI_SWAP, 3, 0, &report,
	                           NULL) == KUMI_OK);
	for (int i = 0; i < 3; i++) {
		EXPECT(kumi_queue_wait(queue, &result) == KUMI_OK);
		words |= result.word == 7               ? 1U
		         : result.word == 8             ? 2U
		         : result.word == UINT64_MAX    ? 4U
		                                        : 8U;
		EXPECT(result.word != 7 || result.length == 7);
	}
	EXPECT(words == 7 && strcmp(buffer, text) == 0);
	EXPECT(kumi_queue_poll(queue, &found, NULL) == KUMI_OK && found == 0);
	EXPECT(kumi_queue_wait(queue, NULL) == KUMI_ERR_REQUEST);
	EXPECT(kumi_queue_free(queue) == KUMI_OK);
	EXPECT(kumi_queue_free(queue) == KUMI_ERR_QUEUE);
	EXPECT(kumi_queue_free(NULL) == KUMI_OK);
	EXPECT(kumi_message_isend(0, 1, text, 7, &report, NULL) ==
	       KUMI_ERR_QUEUE);
	EXPECT(kumi_completion_free(completion) == KUMI_OK);
	report = (kumi_report){ completion, NULL, 0 };
	EXPECT(kumi_message_isend(0, 1, text, 7, &report, NULL) ==
	       KUMI_ERR_COMPLETION);
	EXPECT(kumi_window_free(window) == KUMI_OK);
}

static void claims(void)
{
	kumi_claim *claim = NULL, *spare;
	kumi_status status = { 0, 0, 0 };
	char buffer[8] = "";
	int found = 9;

	EXPECT(kumi_message_claim(0, 4, &found, &claim, &status) == KUMI_OK);
	EXPECT(found == 0 && claim == NULL);
	EXPECT(kumi_message_send(0, 4, "mine", 5) == KUMI_OK);
	EXPECT(kumi_message_await(KUMI_ANY_SOURCE, 4, &status) == KUMI_OK);
	EXPECT(status.length == 5 && status.source == 0 && status.tag == 4);
	EXPECT(kumi_message_claim(0, KUMI_ANY_TAG, &found, &claim, &status) ==
	           KUMI_OK &&
	       found == 1 && status.tag == 4);
	EXPECT(kumi_message_probe(0, 4, &found, NULL) == KUMI_OK && found == 0);
	EXPECT(kumi_claim_free(claim) == KUMI_OK);
	EXPECT(kumi_claim_free(claim) == KUMI_ERR_CLAIM);
	EXPECT(kumi_message_probe(0, 4, &found, NULL) == KUMI_OK && found == 1);
	EXPECT(kumi_message_claim(0, 4, &found, &claim, NULL) == KUMI_OK &&
	       found == 1);
	spare = claim;
	EXPECT(kumi_claim_recv(claim, buffer, 8, &status) == KUMI_OK);
	EXPECT(status.length == 5 && strcmp(buffer, "mine") == 0);
	EXPECT(kumi_claim_recv(spare, buffer, 8, NULL) == KUMI_ERR_CLAIM);
	/* Too long: it is lost, and the claim too. */
	EXPECT(kumi_message_send(0, 4, "mine", 5) == KUMI_OK);
	EXPECT(kumi_message_claim(0, 4, &found, &claim, NULL) == KUMI_OK);
	EXPECT(kumi_claim_recv(claim, buffer, 2, &status) ==
	       KUMI_ERR_TRUNCATED);
	EXPECT(status.length == 5);
	EXPECT(kumi_claim_free(claim) == KUMI_ERR_CLAIM);
	EXPECT(kumi_message_probe(0, 4, &found, NULL) == KUMI_OK && found == 0);
}

/* Many at once, more than any buffer holds. */
static void thousands(void)
{
	enum { COUNT = 5000 };
	static kumi_request requests[2 * COUNT];
	static uint64_t sent[COUNT], received[COUNT];
	size_t count = 9;

	for (int i = 0; i < COUNT; i++) {
		sent[i] = (uint64_t)i * 7;
		EXPECT(kumi_message_irecv(0, i, &received[i], 8, NULL,
		                          &requests[i]) == KUMI_OK);
	}
	for (int i = COUNT; i-- > 0;)
		EXPECT(kumi_message_isend(0, i, &sent[i], 8, NULL,
		                          &requests[COUNT + i]) == KUMI_OK);
	EXPECT(kumi_request_wait_all(requests, 2 * COUNT, NULL) == KUMI_OK);
	EXPECT(memcmp(sent, received, sizeof sent) == 0);
	EXPECT(kumi_request_count(&count) == KUMI_OK && count == 0);
}

/* A request of an earlier job, and one that a job's end takes away. */
static void ends(void)
{
	kumi_request request = KUMI_REQUEST_NONE;
	static char buffer[8];

	EXPECT(kumi_message_irecv(0, 2, buffer, 8, NULL, &request) == KUMI_OK);
	EXPECT(kumi_finalize() == KUMI_OK);
	EXPECT(kumi_request_wait(&request, NULL) == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_init() == KUMI_OK);
	EXPECT(kumi_request_wait(&request, NULL) == KUMI_ERR_FOREIGN);
	EXPECT(kumi_finalize() == KUMI_OK);
}

int main(void)
{
	EXPECT(kumi_init() == KUMI_OK);
	puts_gets_and_atomics();
	first_come_first_served();
	any_and_some();
	wrong_lists();
	buffers_come_back();
	windows_stay_below_requests();
	reports();
	claims();
	thousands();
	ends();
	return failures > 0;
}
