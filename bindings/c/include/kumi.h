/*
 * kumi.h - message passing and memory-based communication between the ranks
 *          of one parallel job.
 *
 * A job is a set of processes ("ranks", numbered 0 .. size-1) that
 * `kumi run -n N PROGRAM` starts together.  A program includes this header and
 * links with -lkumi (`pkg-config --cflags --libs kumi`).
 *
 * CONVENTIONS
 *
 * Return values.  Every function that can fail returns KUMI_OK (0) or one of
 * the negative KUMI_ERR_ numbers; the few that return a quantity say so.
 * Nothing in this library ends the program.  kumi_error_string() explains a
 * number, kumi_error_detail() adds the particulars of the last failure.  When
 * a function fails, its output arguments are left as they were, except where
 * stated.
 *
 * Units.  Lengths, capacities and offsets are bytes; counts are elements of
 * the given kumi_type; times are seconds.
 *
 * Ownership.  Every buffer belongs to the caller.  A buffer given to a sending
 * function may be changed as soon as the function returns.  The library hands
 * out windows, FIFOs in them and completions, which the caller frees with
 * kumi_window_free(), kumi_fifo_free() and kumi_completion_free()
 * (kumi_finalize() frees the rest; so it is with groups), and constant strings,
 * which nobody frees.
 * A handle that was freed is refused from then on, whatever is made later.
 *
 * Errors.  The descriptions name them without KUMI_ERR_.  Every function but
 * kumi_init() and those that explain errors can fail with NOT_INITIALISED and
 * WRONG_THREAD, every function that communicates also with FAULT (a peer has
 * ended or sent nonsense) or IO, and all with FORKED and INTERNAL.
 *
 * A call affects other ranks only as its description says.  If a rank exits
 * with a code other than 0, or a signal kills it, the whole job ends.
 *
 * Shared memory (kumi_dsm.h) cannot be a buffer of other functions, nor a
 * window: they fail with SHARED_BUFFER.
 *
 * Pointers.  A data pointer may be NULL only when its length or count is 0.
 * Arrays of a kumi_type must be aligned for that type.  An output pointer must
 * not be NULL unless its description says "or NULL".
 *
 * Threads.  After kumi_init(), all functions but kumi_error_string(),
 * kumi_error_detail(), kumi_error_report() and kumi_version() must be called by
 * the thread that called it; others get KUMI_ERR_WRONG_THREAD.  After
 * kumi_init_threads(KUMI_THREAD_MULTIPLE) all threads may call them, at the same
 * time.  A call that waits holds up no other.  Nobody frees what another thread
 * uses, a request is waited for by one thread at a time, and collective
 * functions of one group are called by one thread after the other.
 *
 * Forks.  A child that a rank makes with fork() is no rank: all functions but
 * these four do nothing there and get KUMI_ERR_FORKED, kumi_init() and
 * kumi_finalize() too.  The child's end affects no rank.  Memory of windows is
 * shared with it.
 *
 * Collective functions.  kumi_window_create(), kumi_window_create_with(),
 * kumi_window_register(), kumi_barrier(), kumi_broadcast(), kumi_reduce(),
 * kumi_allreduce(), kumi_gather(), kumi_alltoall() and kumi_alltoallv() must
 * be called by all ranks, in the same order, with the same root, type,
 * operation and (where there is one count) count.  A rank that finds another
 * count gets LENGTH, one that finds another function or root DISAGREE; others
 * may then wait for it for ever.
 * One window may be created by some ranks and registered by others.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_H
#define KUMI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; kumi_version() tells that of the library. */
#define KUMI_VERSION_MAJOR 0
#define KUMI_VERSION_MINOR 1
#define KUMI_VERSION_PATCH 0

/* Wildcards for kumi_message_recv() and kumi_message_probe(). */
#define KUMI_ANY_SOURCE (-1)
#define KUMI_ANY_TAG (-1)

/* All ranks, for kumi_flush() and kumi_fence(). */
#define KUMI_ALL (-1)

/* Notification counters of a window: numbers 0 .. KUMI_NOTIFY_COUNT-1. */
#define KUMI_NOTIFY_COUNT 64

/* Rights to a piece of a window, for kumi_window_create_with() and
 * kumi_window_register(): a sum of them, or 0. */
#define KUMI_RIGHT_WRITE 1  /* puts, multicasts */
#define KUMI_RIGHT_READ 2   /* gets */
#define KUMI_RIGHT_ATOMIC 4 /* kumi_window_fetch_add() and its like */
#define KUMI_RIGHT_ALL 7

/* No notification, for kumi_window_put_with(), kumi_window_put_strided() and
 * kumi_window_multicast(). */
#define KUMI_NO_NOTIFY (-1)

/* ------------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------------ */

/* The numbers are part of the interface: none is ever used again for
 * something else, and new ones are added at the end. */
typedef enum kumi_error {
	KUMI_OK = 0,
	KUMI_ERR_NOT_INITIALISED = -1,     /* kumi_init() has not succeeded */
	KUMI_ERR_ALREADY_INITIALISED = -2, /* kumi_init() twice */
	KUMI_ERR_NOT_LAUNCHED = -3,        /* not started by `kumi run` */
	KUMI_ERR_WRONG_THREAD = -4,        /* not the thread of kumi_init() */
	KUMI_ERR_NULL = -5,                /* a pointer is NULL */
	KUMI_ERR_ALIGNMENT = -6,           /* a pointer or offset is misaligned */
	KUMI_ERR_RANK = -7,                /* no such rank in this job */
	KUMI_ERR_TAG = -8,                 /* tags are 0 .. INT_MAX */
	KUMI_ERR_LENGTH = -9,              /* a length or count is impossible */
	KUMI_ERR_BOUNDS = -10,             /* outside the target's window */
	KUMI_ERR_TRUNCATED = -11,          /* the message exceeds the buffer */
	KUMI_ERR_RIGHT = -12,              /* the window lacks that right */
	KUMI_ERR_WINDOW = -13,             /* no such window, or it was freed */
	KUMI_ERR_NOTIFY = -14,             /* not 0 .. KUMI_NOTIFY_COUNT-1 */
	KUMI_ERR_TYPE = -15,               /* not a kumi_type */
	KUMI_ERR_OPERATION = -16,          /* not a kumi_op, or not for the type */
	KUMI_ERR_MEMORY = -17,             /* out of memory */
	KUMI_ERR_IO = -18,                 /* the operating system refused */
	KUMI_ERR_INTERNAL = -19,           /* a defect in the library */
	KUMI_ERR_ATTACH = -20,             /* the job cannot be joined */
	KUMI_ERR_REFUSED = -21,            /* an earlier put was refused */
	KUMI_ERR_FAULT = -22,              /* communication broke */
	KUMI_ERR_OTHER = -23,              /* see kumi_error_detail() */
	KUMI_ERR_COMPLETION = -24,         /* no such completion, or freed */
	KUMI_ERR_FIFO = -40,               /* no such FIFO or signal port */
	KUMI_ERR_FULL = -41,               /* the own FIFO is full */
	KUMI_ERR_DAMAGED = -42,            /* a FIFO was written over */
	KUMI_ERR_HANDLER = -43,            /* a signal handler failed */
	KUMI_ERR_FORKED = -44,             /* in a child of the rank */
	KUMI_ERR_REQUEST = -45,            /* no such request, or over */
	KUMI_ERR_FOREIGN = -46,            /* a request of another job */
	KUMI_ERR_LISTED = -47,             /* a request twice in a list */
	KUMI_ERR_LENT = -48,               /* a request uses the buffer */
	KUMI_ERR_QUEUE = -49,              /* no such queue, or freed */
	KUMI_ERR_CLAIM = -50,              /* no such claim, or freed */
	KUMI_ERR_BUSY = -51,               /* other threads are in calls */
	KUMI_ERR_GROUP = -60,              /* no such group, or freed */
	KUMI_ERR_DISAGREE = -61,           /* members called different things */
	KUMI_ERR_NOT_SHARED = -70,         /* there is no shared memory */
	KUMI_ERR_SHARED_ALREADY = -71,     /* kumi_dsm_start() twice */
	KUMI_ERR_NOT_HELD = -72,           /* unlock without lock */
	KUMI_ERR_HELD_ALREADY = -73,       /* lock twice */
	KUMI_ERR_MISMATCH = -74,           /* ranks in different barriers */
	KUMI_ERR_ALLOCATIONS = -75,        /* ranks allocated differently */
	KUMI_ERR_EXHAUSTED = -76,          /* shared memory is used up */
	KUMI_ERR_OUTSIDE = -77,            /* outside of allocations */
	KUMI_ERR_SETTING = -78,            /* a wrong KUMI_DSM_ variable */
	KUMI_ERR_COUNTER = -79,            /* no counter of that name */
	KUMI_ERR_SHARED_BUFFER = -80       /* a buffer in shared memory */
} kumi_error;

/* The meaning of `error` (a kumi_error), in one sentence.  Never NULL; for any
 * other number the sentence says that it is unknown.  Works before kumi_init().
 * The string is constant: do not free it. */
const char *kumi_error_string(int error);

/* The particulars (numbers, names) of the last failure in the calling thread,
 * or "" if nothing failed yet.  Never NULL.  Valid until the next failing call
 * in this thread; do not free it. */
const char *kumi_error_detail(void);

/* For libraries on top of this one that refuse calls themselves.  Sets the text
 * of kumi_error_detail() in the calling thread to the `length` bytes at
 * `detail`, which need no zero at the end.  Works before kumi_init().  Returns
 * `error` unchanged. */
int kumi_error_report(int error, const char *detail, size_t length);

/* The library's version, "MAJOR.MINOR.PATCH".  Constant: do not free it. */
const char *kumi_version(void);

/* ------------------------------------------------------------------------
 * Start, end, and the rank's own numbers
 * ------------------------------------------------------------------------ */

/* Joins the job, using the environment that `kumi run` made.  Call it once,
 * before everything else.  Other ranks need not wait for it: messages that they
 * send to this rank before are kept.
 * Errors: NOT_LAUNCHED if this process was not started by `kumi run` (set
 * KUMI_SINGLETON=1 to run as a job of one rank without a cluster), ATTACH,
 * ALREADY_INITIALISED. */
int kumi_init(void);

/* Which threads may call the library, for kumi_init_threads(). */
#define KUMI_THREAD_SINGLE 0   /* the one that has called it */
#define KUMI_THREAD_MULTIPLE 1 /* all, at the same time */

/* Like kumi_init(), in its place; `level` is a KUMI_THREAD_ number.
 * Errors: those of kumi_init(); LENGTH if `level` is none. */
int kumi_init_threads(int level);

/* Leaves the job: frees the remaining windows and waits, for a bounded time,
 * until everything that this rank sent has been received.  Not collective: a
 * rank that must not leave before the others calls kumi_barrier() first.
 * Pointers from
 * kumi_window_base() are invalid afterwards.  Other ranks must not send to this
 * rank or use its windows any more.
 * Errors: FAULT if something was not received; HANDLER or DAMAGED for an error of
 * a signal port that no call has reported yet (see kumi_signal_handle()).  The
 * rank has left all the same.  NOT_INITIALISED, WRONG_THREAD (also in another
 * thread than that of kumi_init_threads()); BUSY if other threads are in calls:
 * the rank has not left. */
int kumi_finalize(void);

/* This rank's number, 0 .. kumi_size()-1, or a negative kumi_error. */
int kumi_rank(void);

/* The number of ranks in the job, at least 1, or a negative kumi_error. */
int kumi_size(void);

/* The number of the node (machine) this rank runs on, or a negative
 * kumi_error.  Nodes are numbered by the cluster, not by the job. */
int kumi_node(void);

/* The job's number as `kumi ps` shows it, or 0 before kumi_init().  (A job of
 * one rank without a cluster also has the number 0.) */
uint64_t kumi_job(void);

/* Seconds since some fixed moment in the past; it never runs backwards.
 * Clocks of different ranks are unrelated.  Before kumi_init() (or in another
 * thread) the result is negative. */
double kumi_time(void);

/* ------------------------------------------------------------------------
 * Information from the cluster's daemons, read without a system call
 * ------------------------------------------------------------------------ */

/* The number of nodes of the cluster, 0 where nothing is disclosed (a rank
 * without a daemon, a kernel before 5.1), or a negative kumi_error. */
int kumi_cluster_nodes(void);

/* State of node 0 .. kumi_cluster_nodes()-1, as it was kumi_node_age() seconds
 * ago:
 *   load     ranks of all jobs that compute or could, per processor; above 1,
 *            some wait for one
 *   memory   share of its memory in use, 0 to 1
 *   network  bytes a second that its network interfaces send and receive
 *   age      seconds since then; reports travel along the control tree and are
 *            some seconds old in a large cluster
 * Negative if there is no such node, it has not reported yet, or before
 * kumi_init(). */
double kumi_node_load(int node);
double kumi_node_memory(int node);
double kumi_node_network(int node);
double kumi_node_age(int node);

/* Whether rank `rank` of this job has a processor now, as far as this node
 * knows: 1 if it has, or nothing is disclosed; 0 if it is stopped or has left.
 * Ranks of one job are stopped and continued together.
 * Errors: RANK. */
int kumi_rank_runs(int rank);

/* ------------------------------------------------------------------------
 * Messages: reliable, in order between each pair of ranks
 * ------------------------------------------------------------------------ */

/* Description of a received message. */
typedef struct kumi_status {
	int source;    /* rank that sent it */
	int tag;       /* tag it was sent with */
	size_t length; /* its whole length in bytes */
} kumi_status;

/* Sends `length` bytes at `data` to rank `to` (which may be the caller) with
 * `tag`, 0 .. INT_MAX.  Returns when the data has been copied; it may still be
 * on its way (see kumi_flush()).  Waits only while the buffer for that rank is
 * full.  The other rank sees the message when it receives or probes.
 * Errors: RANK, TAG, NULL, LENGTH, MEMORY (a message to the own rank that is
 * too large to keep), REFUSED (see kumi_window_put()), FAULT, IO, HANDLER,
 * DAMAGED. */
int kumi_message_send(int to, int tag, const void *data, size_t length);

/* Waits for a message from rank `from` (or KUMI_ANY_SOURCE) with `tag` (or
 * KUMI_ANY_TAG) and copies it to `buffer` of `capacity` bytes.  Messages of
 * one rank with one tag are received in the order they were sent.  `status`
 * (or NULL) describes the message.
 * Errors: TRUNCATED if the message is longer than `capacity`: it is consumed,
 * the buffer's content is undefined and status->length is the length needed;
 * RANK, TAG, NULL, LENGTH, IO, HANDLER, DAMAGED. */
int kumi_message_recv(int from, int tag, void *buffer, size_t capacity,
                      kumi_status *status);

/* kumi_message_send() and kumi_message_recv() at once, without deadlock when
 * two ranks send to each other.  The two buffers must not overlap.
 * Errors: those of both. */
int kumi_message_sendrecv(int to, int send_tag, const void *data,
                          size_t length, int from, int recv_tag, void *buffer,
                          size_t capacity, kumi_status *status);

/* Looks, without waiting, whether kumi_message_recv(from, tag) would find a
 * message: *found becomes 1 or 0.  If 1, *status (or NULL) describes the
 * message, which stays to be received.
 * Errors: RANK, TAG, NULL, IO, HANDLER, DAMAGED. */
int kumi_message_probe(int from, int tag, int *found, kumi_status *status);

/* Lets the library work once, without waiting: it receives and sends everything
 * that is due.  Never needed for correctness: a thread serves a rank that
 * computes for long.
 * Errors: FAULT, IO, HANDLER, DAMAGED. */
int kumi_progress(void);

/* Waits until everything this rank has sent or put to rank `to` (or KUMI_ALL)
 * has been delivered: messages are in the receiver's memory, puts applied.
 * Two ranks may flush to each other before either receives.  Three or more may
 * flush in a circle only if each has room for its unreceived messages
 * (KUMI_UNEXPECTED_BYTES).
 * Errors: RANK, REFUSED (see kumi_window_put()), FAULT, IO, HANDLER, DAMAGED. */
int kumi_flush(int to);

/* Keeps the order of operations on windows at rank `to` (or at each rank, with
 * KUMI_ALL): those that this rank begins afterwards take effect there after
 * all that it began before.  Waits only where it must, and not for refusals:
 * cheaper than kumi_flush().  Operations at different ranks are not ordered.
 * Errors: RANK, FAULT, IO, HANDLER, DAMAGED. */
int kumi_fence(int to);

/* ------------------------------------------------------------------------
 * Windows: memory that other ranks reach without this rank's help
 * ------------------------------------------------------------------------ */

/* A window is one piece of memory per rank, made together, addressed by
 * (rank, offset in bytes).  Each rank's piece comes with KUMI_NOTIFY_COUNT
 * counters that count arrived puts.
 *
 * Reach.  This rank's piece, and those that kumi_window_create() made on this
 * node, are mapped: the caller does every operation there itself.  All other
 * pieces (those on other nodes, and memory that other ranks of this node have
 * registered) are reached by frames: the owner's library executes the operation,
 * or refuses it.
 *
 * Rights.  Ranks of a node have the memory of kumi_window_create() and
 * kumi_window_create_with() mapped to read and to write; their library keeps to
 * bounds and rights, which protects against mistakes, not against a program
 * that goes around the library.  No other rank maps registered memory: its
 * owner's library checks every operation, also of ranks on the same node.
 *
 * Order.  When a message is received or a notification seen, all earlier puts
 * of its sender to this rank are in place.  The order of different ranks' puts
 * is not promised.  Eight aligned bytes change at once; a larger put may be seen
 * half done. */
typedef struct kumi_window kumi_window;

/* Collective.  Makes a window whose piece on this rank has `bytes` bytes, all
 * zero; sizes may differ between ranks and may be 0.  *window is the handle,
 * valid in this rank only; free it with kumi_window_free().  When it returns,
 * every rank's piece can be used.
 * Errors: MEMORY at all ranks if one of them has no room for its piece or has
 * too many windows; NULL at a rank that has no room for the handle, and MEMORY
 * at the others. */
int kumi_window_create(size_t bytes, kumi_window **window);

/* Like kumi_window_create(); the other ranks have only `rights` to this rank's
 * piece.  (This rank's own pointer to it is not restricted, its operations
 * are.)
 * Errors: those of kumi_window_create(); RIGHT if `rights` is no sum of
 * KUMI_RIGHT_ numbers, and MEMORY at the others. */
int kumi_window_create_with(size_t bytes, unsigned rights,
                            kumi_window **window);

/* Collective, like kumi_window_create_with(); other ranks may call that at the
 * same time instead.  This rank's piece is the `bytes` bytes at `base`, any
 * memory of this process (heap, stack, a mapped file), as it is.  With
 * KUMI_RIGHT_ATOMIC, `base` is a multiple of 8; for FIFOs in it, of 64.  The
 * memory must stay until kumi_window_free() or kumi_finalize() has returned,
 * which do not change it.  Other ranks, also of the same node, reach it by
 * frames, which this rank's library serves while the program computes.
 * Errors: those of kumi_window_create_with(); MEMORY at all ranks if `base` is
 * NULL and `bytes` is not 0, or `base` is not aligned as said. */
int kumi_window_register(void *base, size_t bytes, unsigned rights,
                         kumi_window **window);

/* Frees this rank's piece and handle.  Make sure first (kumi_barrier()) that
 * no other rank still uses the piece: from now on it gets WINDOW, or REFUSED
 * for puts by frames.  NULL is allowed and does nothing.
 * Errors: WINDOW if it is not a window or was freed already; LENT if a request
 * that has not ended uses memory of the piece: wait for it or release it. */
int kumi_window_free(kumi_window *window);

/* The start of this rank's piece, aligned for every kumi_type, or NULL if
 * `window` is not a window.  Valid until the window is freed.  Others may
 * write to it at any time: read the data of a put only after its notification
 * (kumi_window_wait_notify()) or a barrier that followed a flush. */
void *kumi_window_base(kumi_window *window);

/* Copies `length` bytes from `data` to `offset` in rank `to`'s piece.  Returns
 * when the data has been copied away; kumi_flush() waits until it is in place.
 * Rank `to` sees the bytes change, whatever it does meanwhile.
 * Errors: WINDOW, RANK, NULL, BOUNDS, RIGHT, FAULT, IO; memory is untouched.
 * A rank that is reached by frames checks bounds and rights when the data
 * arrives: if it refuses, the next put or send to that rank, or kumi_flush(),
 * fails with REFUSED. */
int kumi_window_put(kumi_window *window, int to, size_t offset,
                    const void *data, size_t length);

/* Like kumi_window_put(); when all bytes are in place, the target's counter
 * `notify` of this window goes up by 1.
 * Errors: those of kumi_window_put(); NOTIFY. */
int kumi_window_put_notify(kumi_window *window, int to, size_t offset,
                           const void *data, size_t length, unsigned notify);

/* Copies `length` bytes at `offset` of rank `from`'s piece to `buffer`, and
 * waits for them.  All earlier puts of this rank to that one are in them.
 * Errors: WINDOW, RANK, NULL, BOUNDS, RIGHT, IO. */
int kumi_window_get(kumi_window *window, int from, size_t offset,
                    size_t length, void *buffer);

/* Adds `operand` (modulo 2^64) to the uint64_t at `offset` (a multiple of 8)
 * of rank `to`'s piece, as one step that no other fetch_add interrupts, and
 * waits; *old (or NULL) is the value before.  Rank `to` sees the sum.
 * Errors: WINDOW, RANK, BOUNDS, ALIGNMENT, RIGHT, IO. */
int kumi_window_fetch_add(kumi_window *window, int to, size_t offset,
                          uint64_t operand, uint64_t *old);

/* Stores the value of this rank's counter `notify` in *count, without waiting:
 * the number of notified puts applied since the window was made.
 * Errors: WINDOW, NOTIFY, NULL. */
int kumi_window_notified(kumi_window *window, unsigned notify,
                         uint64_t *count);

/* Waits until this rank's counter `notify` is at least `at_least`; *count (or
 * NULL) is its value then.  The counter is never reset: the n-th wait of a
 * program with one put per step waits for n.
 * Errors: WINDOW, NOTIFY, IO, HANDLER, DAMAGED. */
int kumi_window_wait_notify(kumi_window *window, unsigned notify,
                            uint64_t at_least, uint64_t *count);

/* ------------------------------------------------------------------------
 * Collective operations over all ranks (kumi_groups.h has them and more for
 * groups of ranks)
 * ------------------------------------------------------------------------ */

/* Element types.  0 is not a type, so that an unset variable is noticed. */
typedef enum kumi_type {
	KUMI_U8 = 1,
	KUMI_I8 = 2,
	KUMI_U16 = 3,
	KUMI_I16 = 4,
	KUMI_U32 = 5,
	KUMI_I32 = 6,
	KUMI_U64 = 7,
	KUMI_I64 = 8,
	KUMI_F32 = 9,
	KUMI_F64 = 10
} kumi_type;

/* Operations of reductions, element by element.  The bit operations are for
 * integers only.  Integer sums and products wrap around. */
typedef enum kumi_op {
	KUMI_SUM = 1,
	KUMI_PRODUCT = 2,
	KUMI_MIN = 3,
	KUMI_MAX = 4,
	KUMI_BITAND = 5,
	KUMI_BITOR = 6,
	KUMI_BITXOR = 7,
	KUMI_OP_USER = 0x40000000 /* and above: made by kumi_op_create() */
} kumi_op;

/* Returns when all ranks have called it.  It does not wait for puts: a rank
 * that wants its own to be in place afterwards calls kumi_flush() before.
 * Errors: FAULT, IO, HANDLER, DAMAGED. */
int kumi_barrier(void);

/* Copies `count` elements at `data` of rank `root` to `data` of all ranks.  A
 * rank returns when it has them and has passed them on.
 * Errors: RANK, NULL, ALIGNMENT, LENGTH (also if another rank's count differs),
 * TYPE, IO. */
int kumi_broadcast(int root, void *data, size_t count, kumi_type type);

/* recv[i] on rank `root` becomes the reduction by `op` of send[i] of all
 * ranks, 0 <= i < count.  On other ranks `recv` is ignored and may be NULL.
 * `send` and `recv` may be the same array.  The root returns when all ranks
 * have called it, others may return earlier.  The order in which elements are
 * combined is not promised: the last bits of floating-point sums may depend on
 * the number of ranks.
 * Errors: RANK, NULL, ALIGNMENT, LENGTH (also if another rank's count differs),
 * TYPE, OPERATION, MEMORY, IO. */
int kumi_reduce(int root, const void *send, void *recv, size_t count,
                kumi_type type, kumi_op op);

/* Like kumi_reduce(), with the result, the same bit by bit, in `recv` of every
 * rank.  `send` and `recv` may be the same array.  Returns when all ranks have
 * called it.
 * Errors: NULL, ALIGNMENT, LENGTH, TYPE, OPERATION, MEMORY, IO. */
int kumi_allreduce(const void *send, void *recv, size_t count, kumi_type type,
                   kumi_op op);

/* Collects `count` elements of `send` of every rank in `recv` of rank `root`,
 * which has kumi_size() * count elements: rank r's start at r * count.  On
 * other ranks `recv` is ignored and may be NULL.  The arrays must not overlap.
 * The root returns when all ranks have called it, others may return earlier.
 * Errors: RANK, NULL, ALIGNMENT, LENGTH, TYPE, IO. */
int kumi_gather(int root, const void *send, void *recv, size_t count,
                kumi_type type);

/* Block r (elements r * count_per_rank and on) of `send` goes to rank r, where
 * it arrives in the block of `recv` that has the sender's number.  Both arrays
 * have kumi_size() * count_per_rank elements and must not overlap.  Returns
 * when all ranks have called it.
 * Errors: NULL, ALIGNMENT, LENGTH, TYPE, IO. */
int kumi_alltoall(const void *send, void *recv, size_t count_per_rank,
                  kumi_type type);

/* Like kumi_alltoall() with blocks of different lengths: send_counts[r]
 * elements go to rank r, recv_counts[r] come from rank r and must equal its
 * send_counts for this rank.  Both count arrays have
 * kumi_size() entries; the blocks lie one after the other, without gaps.  The
 * arrays must not overlap.
 * Errors: NULL, ALIGNMENT, LENGTH (also if the counts of two ranks differ),
 * TYPE, IO. */
int kumi_alltoallv(const void *send, const size_t *send_counts, void *recv,
                   const size_t *recv_counts, kumi_type type);

#ifdef __cplusplus
}
#endif

#include "kumi_onesided.h"
#include "kumi_requests.h"
#include "kumi_groups.h"

#endif /* KUMI_H */
