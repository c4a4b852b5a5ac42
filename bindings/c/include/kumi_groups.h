/*
 * kumi_groups.h - groups of ranks, collective operations on them, and the
 *                 program's own operations.  Part of kumi.h, which includes it
 *                 and has the conventions.
 *
 * All members of a group call its functions in the same order, with the same
 * root, type, operation and (where there is one count) count.  Groups that
 * share members never mix, in whatever order their functions are called.
 *
 * Every function here that communicates can fail with GROUP (no group, or it
 * was freed), DISAGREE (another member called another function, or with
 * another root: the job is to be ended), FAULT and IO.  Those that start a
 * request fail with GROUP, and the others are the request's.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_GROUPS_H
#define KUMI_GROUPS_H

#ifndef KUMI_H
#error "include <kumi.h>, which includes this header"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------
 * Groups
 * ------------------------------------------------------------------------ */

/* Some ranks of the job in an order, its members, numbered 0 .. members-1.
 * A handle is valid in this rank only. */
typedef struct kumi_group kumi_group;

/* The group of all ranks, whose members have the numbers of the ranks.  It is
 * there from kumi_init() to kumi_finalize() and is not freed. */
#define KUMI_JOB ((kumi_group *)1)

/* No colour, for kumi_group_split(). */
#define KUMI_NO_COLOUR (-1)

/* Collective in `group`.  Makes a group of the members that give the same
 * `colour` (0 .. INT_MAX), ordered by `key` and then by their numbers in
 * `group`.  *made is its handle, to be freed by kumi_group_free(); NULL for
 * KUMI_NO_COLOUR.
 * Errors: NULL, MEMORY, LENGTH (another negative colour) at a rank that has
 * not taken part then; GROUP if there are too many groups. */
int kumi_group_split(kumi_group *group, int colour, int64_t key,
                     kumi_group **made);

/* Collective in `group`.  Makes a group of the `count` members of it whose
 * numbers are in `members`, in this order.  All members of `group` give the
 * same list; *made becomes NULL at those that are not in it.
 * Errors: NULL, MEMORY at a rank that has not taken part then.  GROUP at all
 * members if the lists differ, name a member twice or one that there is not,
 * or there are too many groups. */
int kumi_group_subset(kumi_group *group, const int *members, size_t count,
                      kumi_group **made);

/* Collective in `group`.  Makes a group with the same members, for a library
 * whose calls are not to mix with the program's.
 * Errors: NULL, MEMORY at a rank that has not taken part then; GROUP. */
int kumi_group_duplicate(kumi_group *group, kumi_group **made);

/* Frees this rank's handle; not collective.  NULL is allowed and does nothing.
 * Errors: GROUP. */
int kumi_group_free(kumi_group *group);

/* This rank's number in the group, or a negative kumi_error. */
int kumi_group_member(kumi_group *group);

/* The number of members, at least 1, or a negative kumi_error. */
int kumi_group_members(kumi_group *group);

/* The rank in the job of member `member`, or a negative kumi_error: RANK if
 * there is no such member. */
int kumi_group_rank(kumi_group *group, int member);

/* *member becomes the number of rank `job_rank` in the group, or -1 if it is no
 * member.
 * Errors: GROUP, RANK, NULL. */
int kumi_group_find(kumi_group *group, int job_rank, int *member);

/* ------------------------------------------------------------------------
 * Operations of the program's own
 * ------------------------------------------------------------------------ */

/* Combines `count` elements at `other` into those at `into`, element by
 * element; both are of `type`.  `into` has what comes first in the order of
 * members.  `context` is that of kumi_op_create().  It must return (no
 * longjmp(), no C++ exception), and functions of this library that it calls
 * fail with WRONG_THREAD.  For a request it is called on any thread of the
 * program that is in a call of the library, or on one of the library's own, at
 * any time until the request has ended.  Other threads' calls wait meanwhile, so
 * it must not wait for a thread that may be in one. */
typedef void (*kumi_combine)(void *into, const void *other, size_t count,
                             kumi_type type, void *context);

/* Makes an operation for all functions that take a kumi_op; `combine` is
 * associative.  With `commutative` 0, members' elements are combined in the
 * order of members, which is slower for much data.  *op is its number, valid
 * in this rank only, until kumi_op_free() or kumi_finalize().
 * Errors: NULL, MEMORY. */
int kumi_op_create(kumi_combine combine, void *context, int commutative,
                   kumi_op *op);

/* Frees an operation of kumi_op_create().  Requests that have it go on to call
 * its function.
 * Errors: OPERATION. */
int kumi_op_free(kumi_op op);

/* ------------------------------------------------------------------------
 * Collective operations of groups
 * ------------------------------------------------------------------------ */

/* Like kumi_barrier(), among the members of a group.
 * Errors: those of kumi_barrier(); GROUP, DISAGREE. */
int kumi_group_barrier(kumi_group *group);

/* Like kumi_broadcast(), kumi_reduce() and kumi_allreduce(), among the members
 * of a group; `root` is a member's number.
 * Errors: those of kumi_reduce(); GROUP, DISAGREE. */
int kumi_group_broadcast(kumi_group *group, int root, void *data, size_t count,
                         kumi_type type);
int kumi_group_reduce(kumi_group *group, int root, const void *send, void *recv,
                      size_t count, kumi_type type, kumi_op op);
int kumi_group_allreduce(kumi_group *group, const void *send, void *recv,
                         size_t count, kumi_type type, kumi_op op);

/* recv[i] becomes the reduction by `op` of send[i] of the members up to this
 * one, 0 <= i < count.  `send` and `recv` may be the same array.
 * Errors: those of kumi_allreduce(). */
int kumi_group_scan(kumi_group *group, const void *send, void *recv,
                    size_t count, kumi_type type, kumi_op op);

/* Like kumi_group_scan(), of the members before this one.  Member 0's `recv` is
 * left as it was.
 * Errors: those of kumi_allreduce(). */
int kumi_group_exclusive_scan(kumi_group *group, const void *send, void *recv,
                              size_t count, kumi_type type, kumi_op op);

/* Collects `count` elements of `send` of every member in `recv` of member
 * `root`, in the order of members.  On others `recv` is ignored and may be
 * NULL.  The arrays must not overlap.
 * Errors: those of kumi_gather(). */
int kumi_group_gather(kumi_group *group, int root, const void *send, void *recv,
                      size_t count, kumi_type type);

/* Like kumi_group_gather() with blocks of different lengths: this member sends
 * `count` elements.  At the root counts[m] is the count of member m; on others
 * `counts` is ignored and may be NULL.
 * Errors: those of kumi_gather(). */
int kumi_group_gatherv(kumi_group *group, int root, const void *send,
                       size_t count, void *recv, const size_t *counts,
                       kumi_type type);

/* Deals out `send` of member `root`, which has `count` elements for every
 * member, in the order of members: each gets its own in `recv`.  On others
 * `send` is ignored and may be NULL.  The arrays must not overlap.
 * Errors: those of kumi_gather(). */
int kumi_group_scatter(kumi_group *group, int root, const void *send,
                       void *recv, size_t count, kumi_type type);

/* Like kumi_group_scatter() with blocks of different lengths: this member
 * receives `count` elements.  At the root counts[m] is the count of member m;
 * on others `counts` is ignored and may be NULL.
 * Errors: those of kumi_gather(). */
int kumi_group_scatterv(kumi_group *group, int root, const void *send,
                        const size_t *counts, void *recv, size_t count,
                        kumi_type type);

/* Like kumi_group_gather(), with the result in `recv` of every member.
 * Errors: those of kumi_alltoall(). */
int kumi_group_allgather(kumi_group *group, const void *send, void *recv,
                         size_t count, kumi_type type);

/* Like kumi_group_allgather() with blocks of different lengths: member m sends
 * counts[m] elements.  All members give the same counts.
 * Errors: those of kumi_alltoall(). */
int kumi_group_allgatherv(kumi_group *group, const void *send, void *recv,
                          const size_t *counts, kumi_type type);

/* Like kumi_alltoall() and kumi_alltoallv(), among the members of a group.
 * Errors: those of kumi_alltoall(); GROUP, DISAGREE. */
int kumi_group_alltoall(kumi_group *group, const void *send, void *recv,
                        size_t count_per_member, kumi_type type);
int kumi_group_alltoallv(kumi_group *group, const void *send,
                         const size_t *send_counts, void *recv,
                         const size_t *recv_counts, kumi_type type);

/* Reduces `send`, which has `count` elements for every member, by `op` over all
 * members, and deals the result out: each gets its `count` elements in `recv`.
 * The arrays must not overlap.
 * Errors: those of kumi_allreduce(). */
int kumi_group_reduce_scatter(kumi_group *group, const void *send, void *recv,
                              size_t count, kumi_type type, kumi_op op);

/* Like kumi_group_reduce_scatter() with blocks of different lengths: member m
 * gets counts[m] elements.  All members give the same counts.
 * Errors: those of kumi_allreduce(). */
int kumi_group_reduce_scatterv(kumi_group *group, const void *send, void *recv,
                               const size_t *counts, kumi_type type,
                               kumi_op op);

/* ------------------------------------------------------------------------
 * Collective operations as requests
 * ------------------------------------------------------------------------ */

/* Functions with an `i` before the verb start the operation of the same name
 * and return at once, whatever other members do: kumi_requests.h says what
 * holds for requests.  `report` and `request` are as for kumi_window_iput().  The
 * operation goes on while the program computes, and ends when this member's
 * part is over.
 *
 * Members start them in the same order as all other collective operations of
 * the group; those that one member starts, the others start, too.  They may end
 * in any order.  Up to 128 of a group are under way at a time.  The group may
 * be freed meanwhile.  The arrays are lent until the end, counts only until
 * the function returns.
 *
 * A request that is released takes part no more, and other members may wait for
 * it for ever.  Its number is not used again: 127 calls later the group takes no
 * more requests (MEMORY).  One that has begun cannot be cancelled.
 *
 * What can be seen at once is the function's error, and nothing was started
 * then: the arguments', COMPLETION, QUEUE, HANDLER, FAULT and IO if the channel
 * had failed before, and MEMORY if there are too many under way.  LENGTH if
 * another member's count differs, DISAGREE, and later FAULT and IO are the
 * request's. */

/* Starts kumi_group_barrier(): it ends when all members have started theirs.
 * Errors: GROUP, NULL, COMPLETION, QUEUE, MEMORY; DISAGREE is the request's. */
int kumi_group_ibarrier(kumi_group *group, const kumi_report *report,
                        kumi_request *request);

/* Starts kumi_group_broadcast().
 * Errors: those of kumi_group_ibarrier() and kumi_group_broadcast(). */
int kumi_group_ibroadcast(kumi_group *group, int root, void *data, size_t count,
                          kumi_type type, const kumi_report *report,
                          kumi_request *request);

/* Starts kumi_group_reduce().
 * Errors: those of kumi_group_ibarrier() and kumi_group_reduce(). */
int kumi_group_ireduce(kumi_group *group, int root, const void *send,
                       void *recv, size_t count, kumi_type type, kumi_op op,
                       const kumi_report *report, kumi_request *request);

/* Starts kumi_group_allreduce().
 * Errors: those of kumi_group_ibarrier() and kumi_group_allreduce(). */
int kumi_group_iallreduce(kumi_group *group, const void *send, void *recv,
                          size_t count, kumi_type type, kumi_op op,
                          const kumi_report *report, kumi_request *request);

/* Starts kumi_group_scan().
 * Errors: those of kumi_group_ibarrier() and kumi_group_scan(). */
int kumi_group_iscan(kumi_group *group, const void *send, void *recv,
                     size_t count, kumi_type type, kumi_op op,
                     const kumi_report *report, kumi_request *request);

/* Starts kumi_group_exclusive_scan().
 * Errors: those of kumi_group_ibarrier() and kumi_group_exclusive_scan(). */
int kumi_group_iexclusive_scan(kumi_group *group, const void *send, void *recv,
                               size_t count, kumi_type type, kumi_op op,
                               const kumi_report *report,
                               kumi_request *request);

/* Starts kumi_group_gather() or kumi_group_gatherv().
 * Errors: those of kumi_group_ibarrier() and kumi_group_gather(). */
int kumi_group_igather(kumi_group *group, int root, const void *send,
                       void *recv, size_t count, kumi_type type,
                       const kumi_report *report, kumi_request *request);
int kumi_group_igatherv(kumi_group *group, int root, const void *send,
                        size_t count, void *recv, const size_t *counts,
                        kumi_type type, const kumi_report *report,
                        kumi_request *request);

/* Starts kumi_group_scatter() or kumi_group_scatterv().
 * Errors: those of kumi_group_ibarrier() and kumi_group_scatter(). */
int kumi_group_iscatter(kumi_group *group, int root, const void *send,
                        void *recv, size_t count, kumi_type type,
                        const kumi_report *report, kumi_request *request);
int kumi_group_iscatterv(kumi_group *group, int root, const void *send,
                         const size_t *counts, void *recv, size_t count,
                         kumi_type type, const kumi_report *report,
                         kumi_request *request);

/* Starts kumi_group_allgather() or kumi_group_allgatherv().
 * Errors: those of kumi_group_ibarrier() and kumi_group_allgather(). */
int kumi_group_iallgather(kumi_group *group, const void *send, void *recv,
                          size_t count, kumi_type type,
                          const kumi_report *report, kumi_request *request);
int kumi_group_iallgatherv(kumi_group *group, const void *send, void *recv,
                           const size_t *counts, kumi_type type,
                           const kumi_report *report, kumi_request *request);

/* Starts kumi_group_alltoall() or kumi_group_alltoallv().
 * Errors: those of kumi_group_ibarrier() and kumi_group_alltoall(). */
int kumi_group_ialltoall(kumi_group *group, const void *send, void *recv,
                         size_t count_per_member, kumi_type type,
                         const kumi_report *report, kumi_request *request);
int kumi_group_ialltoallv(kumi_group *group, const void *send,
                          const size_t *send_counts, void *recv,
                          const size_t *recv_counts, kumi_type type,
                          const kumi_report *report, kumi_request *request);

/* Starts kumi_group_reduce_scatter() or kumi_group_reduce_scatterv().
 * Errors: those of kumi_group_ibarrier() and kumi_group_reduce_scatter(). */
int kumi_group_ireduce_scatter(kumi_group *group, const void *send, void *recv,
                               size_t count, kumi_type type, kumi_op op,
                               const kumi_report *report,
                               kumi_request *request);
int kumi_group_ireduce_scatterv(kumi_group *group, const void *send, void *recv,
                                const size_t *counts, kumi_type type,
                                kumi_op op, const kumi_report *report,
                                kumi_request *request);

/* The same among all ranks: each is the function for groups with KUMI_JOB.
 * Errors: those of kumi_group_ibarrier() and of the function it starts. */
int kumi_ibarrier(const kumi_report *report, kumi_request *request);
int kumi_ibroadcast(int root, void *data, size_t count, kumi_type type,
                    const kumi_report *report, kumi_request *request);
int kumi_ireduce(int root, const void *send, void *recv, size_t count,
                 kumi_type type, kumi_op op, const kumi_report *report,
                 kumi_request *request);
int kumi_iallreduce(const void *send, void *recv, size_t count, kumi_type type,
                    kumi_op op, const kumi_report *report,
                    kumi_request *request);
int kumi_igather(int root, const void *send, void *recv, size_t count,
                 kumi_type type, const kumi_report *report,
                 kumi_request *request);
int kumi_ialltoall(const void *send, void *recv, size_t count_per_rank,
                   kumi_type type, const kumi_report *report,
                   kumi_request *request);
int kumi_ialltoallv(const void *send, const size_t *send_counts, void *recv,
                    const size_t *recv_counts, kumi_type type,
                    const kumi_report *report, kumi_request *request);

#ifdef __cplusplus
}
#endif

#endif /* KUMI_GROUPS_H */
