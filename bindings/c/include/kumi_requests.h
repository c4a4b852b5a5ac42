/* kumi_requests.h: operations that go on after their call has returned.
 *
 * Part of kumi.h, which includes it: programs include kumi.h. */

#ifndef KUMI_REQUESTS_H
#define KUMI_REQUESTS_H

#include "kumi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------
 * Requests: operations under way
 * ------------------------------------------------------------------------ */

/* A function that begins with kumi_window_i or kumi_message_i starts an
 * operation and returns at once, whatever its target does; kumi_groups.h has
 * such functions for collective operations.  The operation is then a request,
 * which ends by itself: a thread of the library serves it while the program
 * computes.  (What found no room on its way to a rank of this node goes on in
 * this rank's next call.)  Thousands may be under way.  To one rank,
 * requests and other calls take effect in the order in which they were started;
 * a get may also see what this rank puts there before the get has ended.  A slow
 * rank delays only its own.
 *
 * Memory.  A buffer given to such a function is lent until the request has
 * ended: until a function below says so, or kumi_request_release() has
 * returned.  Meanwhile it must stay where it is.  The program does not change
 * what is sent, and does not use what is received.
 *
 * Handles.  A request is a number that is no other's.  When a function below
 * tells the end of a request, the variable becomes KUMI_REQUEST_NONE.  A copy
 * of the number is refused from then on (REQUEST), as is a number of an earlier
 * kumi_init() (FOREIGN). */
typedef uint64_t kumi_request;

/* No request.  Lists may have it in any place; it is passed over. */
#define KUMI_REQUEST_NONE 0

/* How a request has ended. */
typedef struct kumi_result {
	int error;      /* KUMI_OK, or why it failed: a kumi_error */
	int cancelled;  /* 1 if kumi_request_cancel() has stopped it, else 0 */
	int source;     /* receive: rank that sent the message, else -1 */
	int tag;        /* receive: its tag, else -1 */
	size_t length;  /* receive: its whole length in bytes, else 0 */
	uint64_t value; /* atomic operation: the value before, else 0 */
	uint64_t word;  /* the word of the kumi_report, else 0 */
} kumi_result;

/* Ends of requests in the order in which they happen. */
typedef struct kumi_queue kumi_queue;

/* Where the end of a request is told in place of its handle: `completion` rises
 * by 1, or `queue` gets an entry with `word`.  One of the two is NULL.  The
 * handle is then good only for kumi_request_cancel() and
 * kumi_request_release(), until the request has ended. */
typedef struct kumi_report {
	kumi_completion *completion;
	kumi_queue *queue;
	uint64_t word;
} kumi_report;

/* Atomic operations, for kumi_window_iatomic(). */
typedef enum kumi_atomic {
	KUMI_FETCH_ADD = 1,
	KUMI_FETCH_AND = 2,
	KUMI_FETCH_OR = 3,
	KUMI_FETCH_XOR = 4,
	KUMI_SWAP = 5,
	KUMI_COMPARE_SWAP = 6
} kumi_atomic;

/* When a put has ended, for kumi_window_iput(). */
#define KUMI_PUT_SENT 0   /* its data may change */
#define KUMI_PUT_PLACED 1 /* it is in place, or was refused: the error says so */

/* Starts kumi_window_put_with(): `notify` is a counter or KUMI_NO_NOTIFY,
 * `put_end` is KUMI_PUT_SENT or KUMI_PUT_PLACED.  `report` (or NULL) says where
 * the end is told.  *request is the handle; with a report it may be NULL.
 * Errors: those of kumi_window_put(); NOTIFY, COMPLETION, QUEUE; LENGTH if
 * `put_end` is none; MEMORY if there are 2^24 requests. */
int kumi_window_iput(kumi_window *window, int to, size_t offset,
                     const void *data, size_t length, int notify, int put_end,
                     const kumi_report *report, kumi_request *request);

/* Starts kumi_window_get().
 * Errors: WINDOW, RANK, NULL, LENGTH, BOUNDS, RIGHT, COMPLETION, QUEUE, MEMORY;
 * BOUNDS, RIGHT and WINDOW may be the request's instead. */
int kumi_window_iget(kumi_window *window, int from, size_t offset,
                     size_t length, void *buffer, const kumi_report *report,
                     kumi_request *request);

/* Starts an atomic operation on the 8 bytes at `offset` of rank `to`'s piece.
 * KUMI_COMPARE_SWAP stores `value` if the old value is `operand`; the others
 * take `operand` and ignore `value`.  The value before is in the result.
 * Errors: WINDOW, RANK, NULL, OPERATION, ALIGNMENT, BOUNDS, RIGHT, COMPLETION,
 * QUEUE, MEMORY; ALIGNMENT, BOUNDS, RIGHT and WINDOW may be the request's
 * instead. */
int kumi_window_iatomic(kumi_window *window, int to, size_t offset,
                        kumi_atomic operation, uint64_t operand, uint64_t value,
                        const kumi_report *report, kumi_request *request);

/* The same on 4 bytes.
 * Errors: those of kumi_window_iatomic(). */
int kumi_window_iatomic_u32(kumi_window *window, int to, size_t offset,
                            kumi_atomic operation, uint32_t operand,
                            uint32_t value, const kumi_report *report,
                            kumi_request *request);

/* Starts kumi_message_send().  It ends when `data` may change.
 * Errors: RANK, TAG, NULL, LENGTH, MEMORY, COMPLETION, QUEUE. */
int kumi_message_isend(int to, int tag, const void *data, size_t length,
                       const kumi_report *report, kumi_request *request);

/* Starts kumi_message_recv().  Of receives that a message fits, the one that was
 * started first gets it.  A message longer than `capacity` is TRUNCATED, the
 * error of the request; its result has the length needed.
 * Errors: RANK, TAG, NULL, LENGTH, MEMORY, COMPLETION, QUEUE. */
int kumi_message_irecv(int from, int tag, void *buffer, size_t capacity,
                       const kumi_report *report, kumi_request *request);

/* ------------------------------------------------------------------------
 * Ends of requests
 * ------------------------------------------------------------------------ */

/* Functions that tell the end of requests return the error of the request, or
 * of the first one that failed; the results have those of all.  REQUEST,
 * FOREIGN and LISTED (a request twice in a list) say that a handle is wrong:
 * then nothing was waited for, and all requests are as before.  `result` and
 * `results` may be NULL; `results` has `count` places. */

/* *done becomes 1 if the request has ended, else 0; does not wait.
 * Errors: REQUEST, FOREIGN, NULL, HANDLER, DAMAGED; if *done is 1, those of the
 * request. */
int kumi_request_test(kumi_request *request, int *done, kumi_result *result);

/* Waits until the request has ended.
 * Errors: REQUEST, FOREIGN, NULL, HANDLER, DAMAGED, those of the request. */
int kumi_request_wait(kumi_request *request, kumi_result *result);

/* Waits until all requests of a list have ended.  results[i] is that of
 * requests[i]; for KUMI_REQUEST_NONE it says that all is well.
 * Errors: those of kumi_request_wait(); LISTED. */
int kumi_request_wait_all(kumi_request *requests, size_t count,
                          kumi_result *results);

/* Waits until one of a list has ended: that in place *index.
 * Errors: those of kumi_request_wait_all(); REQUEST also if there is none in the
 * list. */
int kumi_request_wait_any(kumi_request *requests, size_t count, size_t *index,
                          kumi_result *result);

/* Waits until one or more of a list have ended.  *ended is how many, indices[i]
 * are their places and results[i] their results, 0 <= i < *ended.  `indices` has
 * `count` places.
 * Errors: those of kumi_request_wait_any(). */
int kumi_request_wait_some(kumi_request *requests, size_t count, size_t *ended,
                           size_t *indices, kumi_result *results);

/* The same without waiting: *done becomes 1 if all have ended; 0 if not, then
 * nothing else is written and no request is taken away.
 * Errors: those of kumi_request_wait_all(). */
int kumi_request_test_all(kumi_request *requests, size_t count, int *done,
                          kumi_result *results);

/* The same without waiting: *done becomes 1 if one has ended, else 0.
 * Errors: those of kumi_request_wait_any(). */
int kumi_request_test_any(kumi_request *requests, size_t count, int *done,
                          size_t *index, kumi_result *result);

/* The same without waiting: *ended may be 0.
 * Errors: those of kumi_request_wait_some(). */
int kumi_request_test_some(kumi_request *requests, size_t count, size_t *ended,
                           size_t *indices, kumi_result *results);

/* Stops a receive without a message yet, or an operation of which nothing has
 * left: *cancelled (or NULL) becomes 1 and the request ends with
 * result->cancelled 1.  Otherwise it becomes 0 and the request goes on.  Either
 * way its end is still to be waited for.
 * Errors: REQUEST, FOREIGN. */
int kumi_request_cancel(kumi_request request, int *cancelled);

/* Gives the buffer back at once, whatever state the request is in, and forgets
 * the request; *request becomes KUMI_REQUEST_NONE.  Does not wait.  What is not
 * sent yet is copied and sent; the answer of a get is dropped; the message of a
 * receive stays for the next one.
 * Errors: REQUEST, FOREIGN, NULL, MEMORY. */
int kumi_request_release(kumi_request *request);

/* *count becomes the number of requests that are under way, or whose end was not
 * told yet.
 * Errors: NULL. */
int kumi_request_count(size_t *count);

/* ------------------------------------------------------------------------
 * Queues of ends
 * ------------------------------------------------------------------------ */

/* Makes an empty queue; free it with kumi_queue_free().
 * Errors: NULL, MEMORY. */
int kumi_queue_create(kumi_queue **queue);

/* Frees a queue.  Requests that would be told by it go on, and nobody hears of
 * their ends: keep their buffers until a kumi_flush(), or release them before.
 * NULL does nothing.
 * Errors: QUEUE if it is not a queue or was freed already. */
int kumi_queue_free(kumi_queue *queue);

/* Takes the oldest entry: *found becomes 1, or 0 if there is none.
 * Errors: QUEUE, NULL, HANDLER, DAMAGED; if *found is 1, those of the
 * request. */
int kumi_queue_poll(kumi_queue *queue, int *found, kumi_result *result);

/* Takes the oldest entry, and waits for one.
 * Errors: QUEUE, HANDLER, DAMAGED, those of the request; REQUEST if none is
 * under way that the queue would tell of. */
int kumi_queue_wait(kumi_queue *queue, kumi_result *result);

/* ------------------------------------------------------------------------
 * Messages: claims
 * ------------------------------------------------------------------------ */

/* A message that is set aside for its claimer: no receive and no probe finds it.
 * So its length is known before the buffer is made, and nobody else can take it
 * meanwhile. */
typedef struct kumi_claim kumi_claim;

/* Like kumi_message_probe(), but waits for a message.  It stays to be received.
 * Errors: RANK, TAG, NULL, IO, HANDLER, DAMAGED. */
int kumi_message_await(int from, int tag, kumi_status *status);

/* Like kumi_message_probe(), and claims the message: if *found becomes 1, *claim
 * is a handle, to be given to kumi_claim_recv() or kumi_claim_free().
 * Errors: those of kumi_message_probe(); MEMORY. */
int kumi_message_claim(int from, int tag, int *found, kumi_claim **claim,
                       kumi_status *status);

/* Receives a claimed message and frees the claim, also if it is TRUNCATED.
 * Errors: CLAIM, TRUNCATED, NULL, LENGTH, IO, HANDLER, DAMAGED. */
int kumi_claim_recv(kumi_claim *claim, void *buffer, size_t capacity,
                    kumi_status *status);

/* Frees a claim; the message is in its place again, for the next receive.  NULL
 * does nothing.
 * Errors: CLAIM. */
int kumi_claim_free(kumi_claim *claim);

#ifdef __cplusplus
}
#endif

#endif /* KUMI_REQUESTS_H */
