/* kumi_onesided.h: one-sided operations beyond put and get, FIFOs and signals.
 *
 * Part of kumi.h, which includes it: programs include kumi.h. */

#ifndef KUMI_ONESIDED_H
#define KUMI_ONESIDED_H

#include "kumi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------
 * One-sided operations: more on windows
 * ------------------------------------------------------------------------ */

/* A put of more than 400 bytes, also by kumi_window_put(), may take several
 * packets.  BOUNDS is found before the first: it is done whole or not. */

/* Atomic operations on the uint64_t, with _u32 on the uint32_t, at `offset` (a
 * multiple of its size) of rank `to`'s piece.  Each is one step that no other
 * of the same width on the same bytes interrupts, on any rank.  The call waits
 * for it; *old (or NULL) is the value before.  The operations are:
 *   add           modulo 2^64 or 2^32 (see also kumi_window_fetch_add())
 *   and, or, xor  bit by bit
 *   swap          store `value`
 *   compare_swap  store `value` if the old value equals `expected`
 * Do not mix the widths on the same bytes: each operation is still one step,
 * but the order in which ranks see those of different width is not promised.
 * Errors: WINDOW, RANK, BOUNDS, ALIGNMENT, RIGHT: memory is untouched. */
int kumi_window_fetch_and(kumi_window *window, int to, size_t offset,
                          uint64_t operand, uint64_t *old);
int kumi_window_fetch_or(kumi_window *window, int to, size_t offset,
                         uint64_t operand, uint64_t *old);
int kumi_window_fetch_xor(kumi_window *window, int to, size_t offset,
                          uint64_t operand, uint64_t *old);
int kumi_window_swap(kumi_window *window, int to, size_t offset,
                     uint64_t value, uint64_t *old);
int kumi_window_compare_swap(kumi_window *window, int to, size_t offset,
                             uint64_t expected, uint64_t value, uint64_t *old);
int kumi_window_fetch_add_u32(kumi_window *window, int to, size_t offset,
                              uint32_t operand, uint32_t *old);
int kumi_window_fetch_and_u32(kumi_window *window, int to, size_t offset,
                              uint32_t operand, uint32_t *old);
int kumi_window_fetch_or_u32(kumi_window *window, int to, size_t offset,
                             uint32_t operand, uint32_t *old);
int kumi_window_fetch_xor_u32(kumi_window *window, int to, size_t offset,
                              uint32_t operand, uint32_t *old);
int kumi_window_swap_u32(kumi_window *window, int to, size_t offset,
                         uint32_t value, uint32_t *old);
int kumi_window_compare_swap_u32(kumi_window *window, int to, size_t offset,
                             uint32_t expected, uint32_t value, uint32_t *old);

/* A completion counts those puts of this rank that were given to it and are in
 * place at their targets.  It is an elastic memory barrier: code after a wait
 * for it runs after these puts, whatever their targets, and need not wait for
 * any others (kumi_flush() waits for all). */
typedef struct kumi_completion kumi_completion;

/* Makes a completion whose count is 0; free it with kumi_completion_free().
 * Errors: NULL. */
int kumi_completion_create(kumi_completion **completion);

/* Frees a completion; puts in flight are not undone.  NULL does nothing.
 * Errors: COMPLETION if it is not a completion or was freed already. */
int kumi_completion_free(kumi_completion *completion);

/* *count becomes the number of puts that are in place, without waiting.
 * Errors: COMPLETION, NULL; REFUSED if a target has refused a put since the
 * last report, once per target (a refused put never counts); HANDLER,
 * DAMAGED. */
int kumi_completion_done(kumi_completion *completion, uint64_t *count);

/* Waits until at least `at_least` puts are in place since the completion was
 * made; *count (or NULL) is their number.
 * Errors: those of kumi_completion_done(); LENGTH if there are fewer puts. */
int kumi_completion_wait(kumi_completion *completion, uint64_t at_least,
                         uint64_t *count);

/* Waits until all puts that were given the completion are in place.
 * Errors: those of kumi_completion_done(). */
int kumi_completion_wait_all(kumi_completion *completion);

/* Like kumi_window_put(); when all bytes are in place the target's counter
 * `notify` of this window (unless it is KUMI_NO_NOTIFY) and the caller's
 * `completion` (or NULL) go up by 1.
 * Errors: those of kumi_window_put(); NOTIFY, COMPLETION.  The completion, if
 * there is one, reports refusals of ranks that are reached by frames. */
int kumi_window_put_with(kumi_window *window, int to, size_t offset,
                         const void *data, size_t length, int notify,
                         kumi_completion *completion);

/* Copies `count` blocks of `block` bytes each, which lie one after the other
 * at `data`, to rank `to`'s piece: the first to `offset`, each next one
 * `stride` bytes (at least `block`) further on.  All or none is written.  The
 * rest is as for kumi_window_put_with().
 * Errors: those of kumi_window_put_with(); LENGTH if the blocks overlap. */
int kumi_window_put_strided(kumi_window *window, int to, size_t offset,
                            size_t stride, size_t block, size_t count,
                            const void *data, int notify,
                            kumi_completion *completion);

/* The reverse: copies `count` blocks of rank `from`'s piece to `buffer`, one
 * after the other, and waits for them.
 * Errors: those of kumi_window_get(); LENGTH if the blocks overlap. */
int kumi_window_get_strided(kumi_window *window, int from, size_t offset,
                            size_t stride, size_t block, size_t count,
                            void *buffer);

/* A piece of a window's memory: `length` bytes (or none) from `offset` on. */
typedef struct kumi_piece {
	size_t offset;
	size_t length;
} kumi_piece;

/* Memory of the caller: `length` bytes at `data`, which may be NULL if it is 0.
 * It is only read by functions that put and only written by those that get. */
typedef struct kumi_buffer {
	void *data;
	size_t length;
} kumi_buffer;

/* Copies the bytes at `data` to any number of places: `count` pieces of rank
 * `to`'s window, of any lengths, in any order, each filled before the next.
 * `data` has as many bytes as all pieces together.  All or none is written;
 * where pieces overlap, the last one's bytes remain.  Returns when `data` may
 * change.  Other ranks may see some pieces before others; a piece of eight
 * aligned bytes changes at once.  When all are in place the target's counter
 * `notify` of this window (unless it is KUMI_NO_NOTIFY) and the caller's
 * `completion` (or NULL) go up by 1.
 * Errors: WINDOW, RANK, NULL, LENGTH, NOTIFY, COMPLETION, BOUNDS for any of the
 * pieces, RIGHT if they are mapped; REFUSED (see kumi_window_put()).  The
 * completion, if there is one, reports refusals of ranks that are reached by
 * frames. */
int kumi_window_put_list(kumi_window *window, int to, const kumi_piece *pieces,
                         size_t count, const void *data, int notify,
                         kumi_completion *completion);

/* Like kumi_window_put_list(), from `buffer_count` buffers, which are taken one
 * after the other.  Ends of buffers and of pieces need not coincide.  (A piece of
 * eight bytes then changes at once if they come from one buffer.)
 * Errors: those of kumi_window_put_list(); LENGTH if the buffers together do
 * not have as many bytes as the pieces. */
int kumi_window_put_lists(kumi_window *window, int to, const kumi_piece *pieces,
                          size_t count, const kumi_buffer *buffers,
                          size_t buffer_count, int notify,
                          kumi_completion *completion);

/* The reverse: copies `count` pieces of rank `from`'s window to `buffer`, one
 * after the other, and waits for them.
 * Errors: WINDOW, RANK, NULL, LENGTH, BOUNDS for any of the pieces, RIGHT. */
int kumi_window_get_list(kumi_window *window, int from,
                         const kumi_piece *pieces, size_t count, void *buffer);

/* Like kumi_window_get_list(), into `buffer_count` buffers, which are filled one
 * after the other.
 * Errors: those of kumi_window_get_list(); LENGTH if the buffers together do
 * not have as many bytes as the pieces, or overlap. */
int kumi_window_get_lists(kumi_window *window, int from,
                          const kumi_piece *pieces, size_t count,
                          const kumi_buffer *buffers, size_t buffer_count);

/* Copies `length` bytes from `data` to `offset` of the pieces of `count` ranks,
 * and waits until all have them.  A rank that `ranks` names more than once is
 * written once; the caller may be among them.  The counter `notify` (unless it
 * is KUMI_NO_NOTIFY) of each rank that has all bytes goes up by 1.  Members
 * reached by frames forward the data along a tree: the caller sends it only
 * about log2(count) times.
 * Errors: WINDOW, RANK, NULL, LENGTH, NOTIFY, BOUNDS (for any of them), HANDLER,
 * DAMAGED: nothing is written anywhere.  RIGHT, WINDOW if a member refuses and
 * is untouched (kumi_error_detail() names it); others may have the data. */
int kumi_window_multicast(kumi_window *window, const int *ranks, size_t count,
                          size_t offset, const void *data, size_t length,
                          int notify);

/* ------------------------------------------------------------------------
 * FIFOs and signals: records appended to memory that the receiver chose
 * ------------------------------------------------------------------------ */

/* A FIFO is a queue of records in a window's memory on one rank, its owner.
 * The owner makes it and takes records out; every rank appends, addressing it
 * as (window, rank, offset).  Records of one sender stay in order, and none is
 * lost or overwritten: a sender waits while the FIFO is full, or its call says
 * so. */
typedef struct kumi_fifo kumi_fifo;

/* Bytes that a FIFO or signal port takes in the window beside its capacity,
 * and the alignment of its offset. */
#define KUMI_FIFO_OVERHEAD 256
#define KUMI_FIFO_ALIGNMENT 64

/* Makes a FIFO in this rank's piece of `window`, at `offset` (a multiple of
 * KUMI_FIFO_ALIGNMENT).  It takes KUMI_FIFO_OVERHEAD + `capacity` bytes, which
 * are overwritten now and belong to the FIFO until it is freed; `capacity` is
 * a multiple of 8, 16 .. 2^31.  A record takes 8 bytes and its length, padded
 * to a multiple of 8.  With every record this rank's counter `notify` of the
 * window goes up by 1; FIFOs may share one, to wait for any of them.  *fifo is
 * the handle; free it with kumi_fifo_free().  Not collective: tell the others
 * (for example by a barrier) before they append.
 * Errors: WINDOW, NULL, BOUNDS, NOTIFY, FIFO if offset or capacity are wrong or
 * the memory belongs to another FIFO. */
int kumi_fifo_create(kumi_window *window, size_t offset, size_t capacity,
                     unsigned notify, kumi_fifo **fifo);

/* Frees a FIFO, with the records in it.  Make sure first that no other rank
 * still appends; one that waits for room gets FIFO.  kumi_window_free() and
 * kumi_finalize() free the FIFOs that are left.  NULL does nothing.
 * Errors: FIFO if it is not a FIFO or was freed already. */
int kumi_fifo_free(kumi_fifo *fifo);

/* *bytes becomes the length of the longest record in this job, from and to all
 * ranks: at least 256; about 1,400 where the network carries packets of 1,500.
 * Errors: NULL. */
int kumi_fifo_max_record(size_t *bytes);

/* Appends the `length` bytes at `data` (0 .. kumi_fifo_max_record()) as one
 * record to the FIFO at `offset` of rank `to`'s piece.  Waits while it is full;
 * returns when the record is in it, after all earlier puts to `to`.
 * Errors: WINDOW, RANK, NULL, LENGTH if the record is too long for the job or
 * this FIFO, FIFO if there is none, FULL if it is this rank's own and full,
 * DAMAGED, HANDLER.  Nothing was appended then. */
int kumi_fifo_append(kumi_window *window, int to, size_t offset,
                     const void *data, size_t length);

/* Like kumi_fifo_append() without waiting for room: *appended becomes 1, or 0
 * if the FIFO is full and nothing was appended.
 * Errors: those of kumi_fifo_append() but FULL. */
int kumi_fifo_try_append(kumi_window *window, int to, size_t offset,
                         const void *data, size_t length, int *appended);

/* Takes the next record out of this rank's FIFO, and waits for it: copies it
 * to `buffer` of `capacity` bytes.  *length (or NULL) is its length, *source
 * (or NULL) the rank that appended it.
 * Errors: TRUNCATED if it is longer than `capacity`: it stays, and *length is
 * the length needed; FIFO, NULL, DAMAGED, HANDLER. */
int kumi_fifo_pop(kumi_fifo *fifo, void *buffer, size_t capacity,
                  size_t *length, int *source);

/* Like kumi_fifo_pop() without waiting: *found becomes 1, or 0 if there is no
 * record; then nothing else is written.
 * Errors: those of kumi_fifo_pop(). */
int kumi_fifo_try_pop(kumi_fifo *fifo, void *buffer, size_t capacity,
                      int *found, size_t *length, int *source);

/* A handler, called for each signal: `argument` is that of kumi_signal_handle(),
 * `data` the record, which is valid until the handler returns. */
typedef void (*kumi_signal_handler)(void *argument, int source,
                                    const void *data, size_t length);

/* Makes a signal port in this rank's piece of `window`: a FIFO, placed like one
 * (kumi_fifo_create()), whose records go to `handler`.  Handlers run on a
 * thread of the port, also while this rank computes or waits: one at a time in
 * the order of each sender, beside those of other ports.  A handler has all
 * rights of its process, but functions of this library fail in it with
 * WRONG_THREAD; it must return, not jump or throw.  After a panic of a handler
 * (in Rust), the next function whose errors name HANDLER does nothing and fails
 * with it; if the port's memory was written over, it fails with DAMAGED.
 * Errors: those of kumi_fifo_create(); NULL, IO. */
int kumi_signal_handle(kumi_window *window, size_t offset, size_t capacity,
                       kumi_signal_handler handler, void *argument);

/* Removes a signal port after waiting for a running handler; records not handled
 * yet are dropped.  kumi_window_free() and kumi_finalize() do it, too.
 * Errors: WINDOW, FIFO if there is no port at `offset`. */
int kumi_signal_remove(kumi_window *window, size_t offset);

/* Sends a signal: appends a record to the signal port at `offset` of rank
 * `to`'s piece, whose handler then runs there.  Waits while the port is full,
 * not for the handler.
 * Errors: those of kumi_fifo_append() but FULL. */
int kumi_signal_send(kumi_window *window, int to, size_t offset,
                     const void *data, size_t length);

/* Like kumi_signal_send() without waiting for room: *sent becomes 1, or 0 if
 * the port is full and nothing was sent.
 * Errors: those of kumi_signal_send(). */
int kumi_signal_try_send(kumi_window *window, int to, size_t offset,
                         const void *data, size_t length, int *sent);

/* Appends the `length` bytes at `data` (0 .. kumi_fifo_max_record()) as one
 * record to the FIFOs of `count` ranks at `offset` of their pieces, and waits
 * until all have it.  A rank that `ranks` names more than once gets it once; the
 * caller may be among them.  The record goes along a tree, as with
 * kumi_window_multicast().  A full FIFO delays the call, not the other members.
 * At each member the record comes after all earlier puts and appends there.
 * Errors: WINDOW, RANK, NULL, LENGTH if it is too long for the job, FULL if the
 * caller's own is among them and full, HANDLER, DAMAGED: nothing was appended
 * anywhere.
 * WINDOW, FIFO, LENGTH, DAMAGED if a member does not take it
 * (kumi_error_detail() names the first): all members that can take it have
 * it. */
int kumi_fifo_multicast(kumi_window *window, const int *ranks, size_t count,
                        size_t offset, const void *data, size_t length);

/* Like kumi_fifo_multicast() without waiting for room: appended[i] becomes 1, or
 * 0 if the FIFO of ranks[i] is full and nothing was appended there.
 * Errors: those of kumi_fifo_multicast() but FULL; then nothing is stored. */
int kumi_fifo_try_multicast(kumi_window *window, const int *ranks, size_t count,
                            size_t offset, const void *data, size_t length,
                            int *appended);

/* Sends a signal to the ports that `count` ranks have at `offset` of their
 * pieces, as kumi_fifo_multicast() appends to FIFOs.  Does not wait for handlers.
 * Errors: those of kumi_fifo_multicast() but FULL. */
int kumi_signal_multicast(kumi_window *window, const int *ranks, size_t count,
                          size_t offset, const void *data, size_t length);

/* Like kumi_signal_multicast() without waiting for room: sent[i] becomes 1, or 0
 * if the port of ranks[i] is full and nothing was sent there.
 * Errors: those of kumi_signal_multicast(); then nothing is stored. */
int kumi_signal_try_multicast(kumi_window *window, const int *ranks,
                              size_t count, size_t offset, const void *data,
                              size_t length, int *sent);

#ifdef __cplusplus
}
#endif

#endif /* KUMI_ONESIDED_H */
