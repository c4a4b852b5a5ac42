/* Groups and their collectives against kumi_groups.h, in a job of one rank.
 * Exit code 0 if all is as documented. (Results of several ranks are tested on a
 * cluster and in runtime/mem.) */
#include <kumi.h>

#include <stdio.h>
#include <string.h>

#include "expect.h"

static void handles(void)
{
	kumi_group *half = NULL, *none = KUMI_JOB, *copy = NULL, *odd = NULL;
	int member = 7, self = 0;
	int wrong[] = { 0, 0 };

	EXPECT(kumi_group_member(KUMI_JOB) == 0 && kumi_group_members(KUMI_JOB) == 1);
	EXPECT(kumi_group_split(KUMI_JOB, 3, -1, &half) == KUMI_OK && half != NULL);
	EXPECT(kumi_group_split(half, KUMI_NO_COLOUR, 0, &none) == KUMI_OK);
	EXPECT(none == NULL);
	EXPECT(kumi_group_split(half, -2, 0, &none) == KUMI_ERR_LENGTH);
	EXPECT(kumi_group_split(half, 0, 0, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_group_subset(half, &self, 1, &odd) == KUMI_OK && odd != NULL);
	EXPECT(kumi_group_subset(half, wrong, 2, &none) == KUMI_ERR_GROUP);
	EXPECT(kumi_group_subset(half, NULL, 0, &none) == KUMI_OK && none == NULL);
	EXPECT(kumi_group_duplicate(odd, &copy) == KUMI_OK && copy != odd);
	EXPECT(kumi_group_rank(copy, 0) == 0);
	EXPECT(kumi_group_rank(copy, 1) == KUMI_ERR_RANK);
	EXPECT(kumi_group_rank(copy, -1) == KUMI_ERR_RANK);
	EXPECT(kumi_group_find(copy, 0, &member) == KUMI_OK && member == 0);
	EXPECT(kumi_group_find(copy, 1, &member) == KUMI_ERR_RANK);
	EXPECT(kumi_group_find(copy, 0, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_group_free(odd) == KUMI_OK);
	EXPECT(kumi_group_free(odd) == KUMI_ERR_GROUP);
	EXPECT(kumi_group_barrier(odd) == KUMI_ERR_GROUP);
	EXPECT(kumi_group_barrier(NULL) == KUMI_ERR_GROUP);
	EXPECT(kumi_group_members(odd) == KUMI_ERR_GROUP);
	EXPECT(kumi_group_free(NULL) == KUMI_OK);
	EXPECT(kumi_group_free(KUMI_JOB) == KUMI_ERR_GROUP);
	EXPECT(kumi_group_barrier(copy) == KUMI_OK);
	EXPECT(kumi_group_free(half) == KUMI_OK);
	/* The copy is left to kumi_finalize(). */
}

static void moves(void)
{
	int32_t send[3] = { 1, 2, 3 }, recv[3] = { 0, 0, 0 }, both[6] = { 0 };
	size_t three = 3, two = 2;
	kumi_group *job = KUMI_JOB;

	EXPECT(kumi_group_broadcast(job, 0, send, 3, KUMI_I32) == KUMI_OK);
	EXPECT(kumi_group_broadcast(job, 1, send, 3, KUMI_I32) == KUMI_ERR_RANK);
	EXPECT(kumi_group_gather(job, 0, send, recv, 3, KUMI_I32) == KUMI_OK);
	EXPECT(memcmp(send, recv, sizeof send) == 0);
	recv[0] = 0;
	EXPECT(kumi_group_gatherv(job, 0, send, 3, recv, &three, KUMI_I32) == KUMI_OK);
	EXPECT(recv[0] == 1);
	EXPECT(kumi_group_gatherv(job, 0, send, 3, recv, &two, KUMI_I32) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_group_gatherv(job, 0, send, 3, recv, NULL, KUMI_I32) ==
	       KUMI_ERR_NULL);
	recv[1] = 0;
	EXPECT(kumi_group_scatter(job, 0, send, recv, 3, KUMI_I32) == KUMI_OK);
	EXPECT(recv[1] == 2);
	recv[1] = 0;
	EXPECT(kumi_group_scatterv(job, 0, send, &three, recv, 3, KUMI_I32) == KUMI_OK);
	EXPECT(recv[1] == 2);
	recv[2] = 0;
	EXPECT(kumi_group_allgather(job, send, recv, 3, KUMI_I32) == KUMI_OK);
	EXPECT(recv[2] == 3);
	recv[2] = 0;
	EXPECT(kumi_group_allgatherv(job, send, recv, &three, KUMI_I32) == KUMI_OK);
	EXPECT(recv[2] == 3);
	EXPECT(kumi_group_allgather(job, both, both + 2, 3, KUMI_I32) ==
	       KUMI_ERR_LENGTH);
	recv[2] = 0;
	EXPECT(kumi_group_alltoall(job, send, recv, 3, KUMI_I32) == KUMI_OK);
	EXPECT(recv[2] == 3);
	recv[2] = 0;
	EXPECT(kumi_group_alltoallv(job, send, &three, recv, &three, KUMI_I32) ==
	       KUMI_OK);
	EXPECT(recv[2] == 3);
	EXPECT(kumi_group_alltoallv(job, send, &three, recv, NULL, KUMI_I32) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_group_allgather(job, send, recv, 3, (kumi_type)99) ==
	       KUMI_ERR_TYPE);
}

static void reductions(void)
{
	double send[2] = { 1.5, -2.5 }, recv[2] = { 0.0, 0.0 };
	size_t two = 2;
	kumi_group *job = KUMI_JOB;

	EXPECT(kumi_group_reduce(job, 0, send, recv, 2, KUMI_F64, KUMI_SUM) == KUMI_OK);
	EXPECT(recv[1] == -2.5);
	recv[1] = 0.0;
	EXPECT(kumi_group_allreduce(job, send, recv, 2, KUMI_F64, KUMI_SUM) == KUMI_OK);
	EXPECT(recv[1] == -2.5);
	recv[1] = 0.0;
	EXPECT(kumi_group_scan(job, send, recv, 2, KUMI_F64, KUMI_MAX) == KUMI_OK);
	EXPECT(recv[1] == -2.5);
	recv[1] = 7.0;
	EXPECT(kumi_group_exclusive_scan(job, send, recv, 2, KUMI_F64, KUMI_MAX) ==
	       KUMI_OK);
	EXPECT(recv[1] == 7.0);
	EXPECT(kumi_group_reduce_scatter(job, send, recv, 2, KUMI_F64, KUMI_MIN) ==
	       KUMI_OK);
	EXPECT(recv[1] == -2.5);
	recv[1] = 0.0;
	EXPECT(kumi_group_reduce_scatterv(job, send, recv, &two, KUMI_F64,
	                                  KUMI_MIN) == KUMI_OK);
	EXPECT(recv[1] == -2.5);
	EXPECT(kumi_group_scan(job, send, recv, 2, KUMI_F64, KUMI_BITAND) ==
	       KUMI_ERR_OPERATION);
}

static void longest(void *into, const void *other, size_t count, kumi_type type,
                    void *context)
{
	(void)into, (void)other, (void)count, (void)type;
	++*(int *)context;
}

static void operations(void)
{
	int calls = 0;
	uint64_t value = 9, result = 0;
	kumi_op op = KUMI_SUM, other = KUMI_SUM;

	EXPECT(kumi_op_create(NULL, NULL, 1, &op) == KUMI_ERR_NULL);
	EXPECT(kumi_op_create(longest, &calls, 1, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_op_create(longest, &calls, 0, &op) == KUMI_OK);
	EXPECT(kumi_op_create(longest, &calls, 1, &other) == KUMI_OK);
	EXPECT(op >= KUMI_OP_USER && other != op);
	EXPECT(kumi_allreduce(&value, &result, 1, KUMI_U64, op) == KUMI_OK);
	EXPECT(result == 9 && calls == 0);
	EXPECT(kumi_op_free(op) == KUMI_OK);
	EXPECT(kumi_op_free(op) == KUMI_ERR_OPERATION);
	EXPECT(kumi_op_free(KUMI_SUM) == KUMI_ERR_OPERATION);
	EXPECT(kumi_allreduce(&value, &result, 1, KUMI_U64, op) ==
	       KUMI_ERR_OPERATION);
	EXPECT(kumi_group_scan(KUMI_JOB, &value, &result, 1, KUMI_U64, other) ==
	       KUMI_OK);
}

int main(void)
{
	kumi_group *group = NULL;

	EXPECT(kumi_group_members(KUMI_JOB) == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_group_split(KUMI_JOB, 0, 0, &group) == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_init() == KUMI_OK);
	handles();
	moves();
	reductions();
	operations();
	EXPECT(kumi_group_split(KUMI_JOB, 0, 0, &group) == KUMI_OK);
	EXPECT(kumi_finalize() == KUMI_OK);
	EXPECT(kumi_group_barrier(group) == KUMI_ERR_NOT_INITIALISED);
	return failures;
}
