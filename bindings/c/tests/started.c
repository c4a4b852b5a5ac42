/* Collective operations as requests: a user's program in a job of one rank.
 * Exit code 0 if all is as documented. */
#include <kumi.h>

#include <stdio.h>
#include <string.h>

#include "expect.h"

/* Waits for what was started, with an end as documented. */
static void ends(kumi_request *request)
{
	kumi_result result;

	EXPECT(*request != KUMI_REQUEST_NONE);
	EXPECT(kumi_request_wait(request, &result) == KUMI_OK);
	EXPECT(result.error == KUMI_OK && result.source == -1 &&
	       result.length == 0 && *request == KUMI_REQUEST_NONE);
}

static void reductions(void)
{
	double send[2] = { 1.5, -2.5 }, recv[2] = { 0.0, 0.0 };
	size_t two = 2;
	kumi_request request = KUMI_REQUEST_NONE, copy;
	kumi_group *job = KUMI_JOB;

	EXPECT(kumi_group_ibarrier(job, NULL, &request) == KUMI_OK);
	ends(&request);
	EXPECT(kumi_group_ireduce(job, 0, send, recv, 2, KUMI_F64, KUMI_SUM, NULL,
	                          &request) == KUMI_OK);
	ends(&request);
	EXPECT(recv[0] == 1.5 && recv[1] == -2.5);
	/* In place, and waited for twice. */
	EXPECT(kumi_group_iallreduce(job, send, send, 2, KUMI_F64, KUMI_MAX,
	                             NULL, &request) == KUMI_OK);
	copy = request;
	ends(&request);
	EXPECT(kumi_request_wait(&request, NULL) == KUMI_ERR_REQUEST);
	EXPECT(kumi_request_wait(&copy, NULL) == KUMI_ERR_REQUEST);
	EXPECT(send[0] == 1.5 && send[1] == -2.5);
	recv[1] = 0.0;
	EXPECT(kumi_group_iscan(job, send, recv, 2, KUMI_F64, KUMI_SUM, NULL,
	                        &request) == KUMI_OK);
	ends(&request);
	EXPECT(recv[1] == -2.5);
	recv[1] = 7.0;
	EXPECT(kumi_group_iexclusive_scan(job, send, recv, 2, KUMI_F64, KUMI_SUM,
	                                  NULL, &request) == KUMI_OK);
	ends(&request);
	EXPECT(recv[1] == 7.0);
	EXPECT(kumi_group_ireduce_scatter(job, send, recv, 2, KUMI_F64, KUMI_MIN,
	                                  NULL, &request) == KUMI_OK);
	ends(&request);
	EXPECT(recv[1] == -2.5);
	recv[1] = 0.0;
	EXPECT(kumi_group_ireduce_scatterv(job, send, recv, &two, KUMI_F64,
	                                   KUMI_MIN, NULL, &request) == KUMI_OK);
	ends(&request);
	EXPECT(recv[1] == -2.5);
}

static void moves(void)
{
	int32_t send[3] = { 1, 2, 3 }, recv[3];
	size_t three = 3;
	kumi_request request = KUMI_REQUEST_NONE;
	kumi_group *job = KUMI_JOB;

#define MOVES(call)                                                            \
	do {                                                                   \
		memset(recv, 0, sizeof recv);                                  \
		EXPECT((call) == KUMI_OK);                                     \
		ends(&request);                                                \
		EXPECT(memcmp(send, recv, sizeof recv) == 0);                  \
	} while (0)
	MOVES(kumi_group_igather(job, 0, send, recv, 3, KUMI_I32, NULL, &request));
	MOVES(kumi_group_igatherv(job, 0, send, 3, recv, &three, KUMI_I32, NULL,
	                          &request));
	MOVES(kumi_group_iscatter(job, 0, send, recv, 3, KUMI_I32, NULL, &request));
	MOVES(kumi_group_iscatterv(job, 0, send, &three, recv, 3, KUMI_I32, NULL,
	                           &request));
	MOVES(kumi_group_iallgather(job, send, recv, 3, KUMI_I32, NULL, &request));
	MOVES(kumi_group_iallgatherv(job, send, recv, &three, KUMI_I32, NULL,
	                             &request));
	MOVES(kumi_group_ialltoall(job, send, recv, 3, KUMI_I32, NULL, &request));
	MOVES(kumi_group_ialltoallv(job, send, &three, recv, &three, KUMI_I32,
	                            NULL, &request));
	MOVES(kumi_igather(0, send, recv, 3, KUMI_I32, NULL, &request));
	MOVES(kumi_ialltoall(send, recv, 3, KUMI_I32, NULL, &request));
	MOVES(kumi_ialltoallv(send, &three, recv, &three, KUMI_I32, NULL,
	                      &request));
	MOVES(kumi_ireduce(0, send, recv, 3, KUMI_I32, KUMI_SUM, NULL, &request));
	MOVES(kumi_iallreduce(send, recv, 3, KUMI_I32, KUMI_SUM, NULL, &request));
	EXPECT(kumi_ibroadcast(0, send, 3, KUMI_I32, NULL, &request) == KUMI_OK);
	ends(&request);
	EXPECT(kumi_group_ibroadcast(job, 0, send, 3, KUMI_I32, NULL, &request) ==
	       KUMI_OK);
	ends(&request);
	EXPECT(send[0] == 1 && send[2] == 3);
	EXPECT(kumi_ibarrier(NULL, &request) == KUMI_OK);
	ends(&request);
}

/* What is wrong is told at once, and nothing was started. */
static void wrong(void)
{
	int32_t send[3] = { 1, 2, 3 }, recv[3];
	size_t two = 2, count = 9;
	kumi_request request = KUMI_REQUEST_NONE;
	kumi_report neither = { NULL, NULL, 0 };
	kumi_group *job = KUMI_JOB;

	EXPECT(kumi_group_ibarrier(NULL, NULL, &request) == KUMI_ERR_GROUP);
	EXPECT(kumi_group_ibarrier(job, NULL, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_group_ibarrier(job, &neither, NULL) == KUMI_ERR_QUEUE);
	EXPECT(kumi_group_ibroadcast(job, 1, send, 3, KUMI_I32, NULL, &request) ==
	       KUMI_ERR_RANK);
	EXPECT(kumi_ibroadcast(-1, send, 3, KUMI_I32, NULL, &request) ==
	       KUMI_ERR_RANK);
	EXPECT(kumi_group_ibroadcast(job, 0, NULL, 3, KUMI_I32, NULL, &request) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_group_ibroadcast(job, 0, send, 3, (kumi_type)0, NULL,
	                             &request) == KUMI_ERR_TYPE);
	EXPECT(kumi_group_iallgather(job, send, send + 1, 2, KUMI_I32, NULL,
	                             &request) == KUMI_ERR_LENGTH);
	EXPECT(kumi_group_iallgather(job, (char *)send + 1, recv, 2, KUMI_I32,
	                             NULL, &request) == KUMI_ERR_ALIGNMENT);
	EXPECT(kumi_group_iallgatherv(job, send, recv, NULL, KUMI_I32, NULL,
	                              &request) == KUMI_ERR_NULL);
	EXPECT(kumi_group_igatherv(job, 0, send, 3, recv, &two, KUMI_I32, NULL,
	                           &request) == KUMI_ERR_LENGTH);
	EXPECT(kumi_group_iallreduce(job, send, NULL, 3, KUMI_I32, KUMI_SUM, NULL,
	                             &request) == KUMI_ERR_NULL);
	EXPECT(kumi_group_iallreduce(job, send, recv, 3, KUMI_F32, KUMI_BITOR,
	                             NULL, &request) == KUMI_ERR_OPERATION);
	EXPECT(kumi_group_iallreduce(job, send, recv, 3, KUMI_I32, (kumi_op)99,
	                             NULL, &request) == KUMI_ERR_OPERATION);
	EXPECT(request == KUMI_REQUEST_NONE);
	EXPECT(kumi_request_count(&count) == KUMI_OK && count == 0);
}

/* Ends that are told otherwise, and memory of a window. */
static void reports(void)
{
	kumi_completion *completion = NULL;
	kumi_queue *queue = NULL;
	kumi_window *window = NULL;
	kumi_report report = { NULL, NULL, 5 };
	kumi_result result;
	int64_t *base;
	kumi_request request = KUMI_REQUEST_NONE;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	base = kumi_window_base(window);
	base[0] = 6;
	EXPECT(kumi_completion_create(&completion) == KUMI_OK);
	EXPECT(kumi_queue_create(&queue) == KUMI_OK);
	report.completion = completion;
	EXPECT(kumi_iallreduce(base, base + 1, 1, KUMI_I64, KUMI_SUM, &report,
	                       NULL) == KUMI_OK);
	EXPECT(kumi_completion_wait(completion, 1, NULL) == KUMI_OK);
	EXPECT(base[1] == 6);
	report = (kumi_report){ NULL, queue, 5 };
	EXPECT(kumi_group_iallgather(KUMI_JOB, base + 1, base + 2, 1, KUMI_I64,
	                             &report, NULL) == KUMI_OK);
	EXPECT(kumi_queue_wait(queue, &result) == KUMI_OK && result.word == 5);
	EXPECT(base[2] == 6);
	EXPECT(kumi_group_ireduce_scatter(KUMI_JOB, base, base + 3, 1, KUMI_I64,
	                                  KUMI_SUM, NULL, &request) == KUMI_OK);
	ends(&request);
	EXPECT(base[3] == 6);
	EXPECT(kumi_queue_free(queue) == KUMI_OK);
	EXPECT(kumi_completion_free(completion) == KUMI_OK);
	EXPECT(kumi_window_free(window) == KUMI_OK);
}

int main(void)
{
	kumi_request request = KUMI_REQUEST_NONE;

	EXPECT(kumi_ibarrier(NULL, &request) == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_init() == KUMI_OK);
	reductions();
	moves();
	wrong();
	reports();
	EXPECT(kumi_finalize() == KUMI_OK);
	return failures > 0;
}
