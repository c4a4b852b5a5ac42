/*
 * kumi_dsm.h - memory that all ranks of a job see, on however many nodes.
 *
 * A program includes this header, links with -lkumi, calls kumi_init() and then
 * kumi_dsm_start().  kumi.h has the conventions.
 *
 * What a rank writes is visible to others after both have synchronised: after a
 * barrier, or after one has given a lock back and the other has taken it.  A
 * program in which nobody reads or writes a byte while another rank writes it,
 * unless ordered so, behaves as threads on one machine do.  Locks make visible
 * what was written under that lock (KUMI_DSM_PROTOCOL=lazy: all that was
 * written before).  Pointers into the memory mean the same at all ranks.
 *
 * An access outside of what was allocated ends the process by SIGSEGV, after a
 * line on stderr.  A child made by fork() has none of this memory.
 *
 * System calls.  read(), pread(), readv(), recv(), recvfrom(), recvmsg(), fread()
 * and their counterparts that write take shared memory as a buffer.  For other
 * system calls, kumi_dsm_bring() makes it usable.
 *
 * Settings come from the environment, the same at all ranks: KUMI_DSM_BYTES,
 * KUMI_DSM_PAGE, KUMI_DSM_FAULTS, KUMI_DSM_PROTOCOL, KUMI_DSM_HOMES and
 * KUMI_DSM_TWINS.
 *
 * Errors.  Every function but those that make a kumi_dsm_home can fail with
 * NOT_SHARED, those that communicate with FAULT and IO.  After MISMATCH,
 * ALLOCATIONS, FAULT and IO the memory is of no use any more: end the job.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_DSM_H
#define KUMI_DSM_H

#include "kumi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------
 * Begin and end
 * ------------------------------------------------------------------------ */

/* Collective.  Makes the memory, empty.
 * Errors: SHARED_ALREADY, SETTING (a variable with a value that cannot be; this
 * rank has not taken part then), MEMORY, OTHER (another rank has failed). */
int kumi_dsm_start(void);

/* Collective.  Ends the memory: nobody uses its addresses any more.
 * kumi_finalize() does it, too.
 * Errors: BUSY (other threads are in functions of it). */
int kumi_dsm_end(void);

/* ------------------------------------------------------------------------
 * Allocation
 * ------------------------------------------------------------------------ */

/* Where pages have their homes.  A rank reads and writes pages with their home
 * on its own node without messages.  Pages that one node only writes move there,
 * unless KUMI_DSM_HOMES=stay. */
typedef struct kumi_dsm_home {
	int kind;             /* KUMI_DSM_..., | KUMI_DSM_UPDATED */
	uint32_t block_pages; /* KUMI_DSM_ROUND_ROBIN: pages of a block */
	int rank;             /* the rank, or the first one */
} kumi_dsm_home;

#define KUMI_DSM_BLOCKS 0      /* each rank has one part, all alike long */
#define KUMI_DSM_ROUND_ROBIN 1 /* blocks go to the ranks in turn */
#define KUMI_DSM_AT 2          /* all at one rank */
#define KUMI_DSM_FIRST_TOUCH 3 /* the rank that touches a page first */
#define KUMI_DSM_UPDATED 256   /* see kumi_dsm_updated */

kumi_dsm_home kumi_dsm_blocks(void);
kumi_dsm_home kumi_dsm_round_robin(uint32_t block_pages, int first_rank);
kumi_dsm_home kumi_dsm_at(int rank);
kumi_dsm_home kumi_dsm_first_touch(void);

/* The same homes for memory that few ranks write and many read soon after.
 * Others do not drop their copies of a page when somebody writes it: the
 * writer's next unlock, barrier or condition waits until all copies have what
 * changed.  The pages never move. */
kumi_dsm_home kumi_dsm_updated(kumi_dsm_home home);

/* All ranks call this with the same arguments in the same order; it does not
 * wait.  Allocates `bytes` bytes of zeros at the begin of a page.  *address
 * becomes their first address, the same at all ranks.  They stay until the end
 * of the memory.
 * Errors: EXHAUSTED, RANK, LENGTH (blocks of no pages), TYPE (no such kind),
 * NULL. */
int kumi_dsm_allocate(size_t bytes, kumi_dsm_home home, void **address);

/* ------------------------------------------------------------------------
 * Locks, barriers, conditions
 * ------------------------------------------------------------------------ */

/* Takes lock `lock`; any number is one.  Waits until no other thread of any rank
 * holds it.
 * Errors: HELD_ALREADY, IO. */
int kumi_dsm_lock(uint32_t lock);

/* Gives lock `lock` back, in the thread that took it.
 * Errors: NOT_HELD, BUSY (another thread of this rank is in a barrier at which
 * pages may move; what this thread wrote is lost, and the memory can only end),
 * IO. */
int kumi_dsm_unlock(uint32_t lock);

/* Collective; one thread of each rank calls it.  Returns when all ranks have
 * called it.  Everything written before is visible then.
 * Errors: MISMATCH (another rank calls kumi_dsm_wait()), ALLOCATIONS, BUSY
 * (another thread of this rank is in a barrier), IO. */
int kumi_dsm_barrier(void);

/* As kumi_dsm_barrier(), without effect on memory.
 * Errors: those of kumi_dsm_barrier(). */
int kumi_dsm_wait(void);

/* Sets condition `condition`; any number is one.  What this rank has written
 * since the last barrier is visible to those who wait for it.
 * Errors: BUSY (see kumi_dsm_unlock()), IO. */
int kumi_dsm_set_condition(uint32_t condition);

/* Resets a condition.
 * Errors: IO. */
int kumi_dsm_reset_condition(uint32_t condition);

/* Waits until a condition is set; returns at once if it is.
 * Errors: IO. */
int kumi_dsm_wait_condition(uint32_t condition);

/* ------------------------------------------------------------------------
 * System calls, counters
 * ------------------------------------------------------------------------ */

/* Makes the pages of `bytes` bytes at `start` usable by system calls that read or
 * write them.  That lasts until this rank's next lock, barrier or condition, in
 * whichever thread.
 * Errors: OUTSIDE (of what was allocated), IO. */
int kumi_dsm_bring(const void *start, size_t bytes);

/* *value becomes a counter of this rank since kumi_dsm_start(): "faults",
 * "copies", "fetches", "pages", "diffs", "diff_bytes", "locks", "barriers", "stale"
 * or "homed"; `kumi stats` has the same of all ranks.  "packets" are those that
 * this rank has sent since kumi_init(), for shared memory or not.
 * Errors: COUNTER (there is none of that name), NULL. */
int kumi_dsm_statistics(const char *name, uint64_t *value);

#ifdef __cplusplus
}
#endif

#endif /* KUMI_DSM_H */
