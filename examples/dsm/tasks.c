/* A queue of tasks in shared memory, for work that nobody knows beforehand: an
 * integral by pieces, where a piece that is not exact enough becomes two new
 * tasks.
 *
 * The queue has a lock.  A rank that finds it empty waits for a condition rather
 * than looking again and again.  The condition is set and reset under the lock
 * only.  Short pieces are done at once, since a visit to the queue takes longer
 * than they do.
 *
 * The function has peaks, whose integral is known.  Which pieces there are does
 * not depend on who does them, so their number is checked, too. */
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDTH 0.01       /* of a peak */
#define PRECISION 1e-9   /* of a piece, in relation to its length */
#define LONG 0.5         /* longer pieces are always split: peaks lie between */
#define SHORT 0.05       /* shorter ones are no tasks of their own */
#define CAPACITY 16384   /* tasks in the queue; it is taken from its end */

enum { QUEUE_LOCK, RESULT_LOCK };
enum { NEWS }; /* condition: something has changed for those who wait */

static long size = 4;

static const struct option options[] = {
	{ "size", &size, 1, 1000, NULL, "--size takes 1 to 1000 peaks" },
	{ 0 },
};

/* A piece of the integral. */
struct task {
	double from, to;
};

struct queue {
	long tasks;      /* that wait to be done */
	long unfinished; /* these, and those that ranks are doing */
	long waiting;    /* ranks that wait since NEWS was set last */
	struct task task[CAPACITY];
};

struct result {
	double integral;
	long pieces;
};

static double f(double x)
{
	double sum = 0.0;

	for (long i = 0; i < size; i++) {
		double apart = x - ((double)i + 0.3);

		sum += WIDTH / (apart * apart + WIDTH * WIDTH);
	}
	return sum;
}

static double known_integral(void)
{
	double sum = 0.0;

	for (long i = 0; i < size; i++)
		sum += atan(((double)size - (double)i - 0.3) / WIDTH) +
		       atan(((double)i + 0.3) / WIDTH);
	return sum;
}

static double simpson(double from, double to)
{
	return (to - from) / 6.0 * (f(from) + 4.0 * f(0.5 * (from + to)) +
	                            f(to));
}

/* Adds a piece to the result, and returns 0; or returns 1 if it must be two. */
static int split(const struct task *task, struct result *result)
{
	double middle = 0.5 * (task->from + task->to);
	double coarse = simpson(task->from, task->to);
	double fine = simpson(task->from, middle) + simpson(middle, task->to);

	result->pieces++;
	/* Simpson's rule with half the distance has a sixteenth of the error. */
	if (task->to - task->from > LONG ||
	    fabs(fine - coarse) > 15.0 * PRECISION * (task->to - task->from))
		return 1;
	result->integral += fine + (fine - coarse) / 15.0;
	return 0;
}

static void do_alone(struct task task, struct result *result)
{
	double middle = 0.5 * (task.from + task.to);

	if (split(&task, result)) {
		do_alone((struct task){ task.from, middle }, result);
		do_alone((struct task){ middle, task.to }, result);
	}
}

static int right_integral(const struct result *result)
{
	return fabs(result->integral - known_integral()) <=
	       1e-6 * (double)size;
}

static struct outcome sequential(void)
{
	struct result found = { 0 };
	struct outcome result;

	start_clock();
	do_alone((struct task){ 0.0, (double)size }, &found);
	result.seconds = stop_clock();
	result.right = right_integral(&found);
	return result;
}

/* The following four are called under the queue's lock. */

static void wake(struct queue *queue)
{
	if (queue->waiting == 0)
		return;
	queue->waiting = 0;
	CHECK(kumi_dsm_set_condition(NEWS));
}

static void add(struct queue *queue, double from, double to)
{
	if (queue->tasks == CAPACITY) {
		fprintf(stderr, "dsm-tasks: more than %d tasks wait\n",
		        CAPACITY);
		exit(1);
	}
	queue->task[queue->tasks++] = (struct task){ from, to };
	queue->unfinished++;
}

static void finish(struct queue *queue, const struct task *task, int splits)
{
	double middle = 0.5 * (task->from + task->to);

	if (splits) {
		add(queue, task->from, middle);
		add(queue, middle, task->to);
	}
	queue->unfinished--;
	if (splits || queue->unfinished == 0)
		wake(queue);
}

/* Takes a task, and leaves the lock to others while there is none.  Returns 0
 * when no task will ever come. */
static int take(struct queue *queue, struct task *task)
{
	while (queue->tasks == 0 && queue->unfinished > 0) {
		/* If another rank resets what was meant for this one, it waits
		 * as well, and both are woken together. */
		queue->waiting++;
		CHECK(kumi_dsm_reset_condition(NEWS));
		CHECK(kumi_dsm_unlock(QUEUE_LOCK));
		CHECK(kumi_dsm_wait_condition(NEWS));
		CHECK(kumi_dsm_lock(QUEUE_LOCK));
	}
	if (queue->tasks == 0)
		return 0;
	*task = queue->task[--queue->tasks];
	return 1;
}

/* Does a task; returns 1 if two new ones take its place. */
static int do_task(const struct task *task, struct result *result)
{
	if (task->to - task->from > SHORT)
		return split(task, result);
	do_alone(*task, result);
	return 0;
}

/* Does tasks until there are no more; returns what they gave. */
static struct result work(struct queue *queue)
{
	struct result found = { 0 };
	struct task task;

	CHECK(kumi_dsm_lock(QUEUE_LOCK));
	while (take(queue, &task)) {
		int splits;

		CHECK(kumi_dsm_unlock(QUEUE_LOCK));
		splits = do_task(&task, &found);
		/* One visit: the end of this task, and the next one. */
		CHECK(kumi_dsm_lock(QUEUE_LOCK));
		finish(queue, &task, splits);
	}
	CHECK(kumi_dsm_unlock(QUEUE_LOCK));
	return found;
}

static int right(const struct result *all)
{
	struct result expected = { 0 };

	do_alone((struct task){ 0.0, (double)size }, &expected);
	return right_integral(all) && all->pieces == expected.pieces;
}

static struct outcome dsm(void)
{
	int me = kumi_rank(), ranks = kumi_size();
	struct queue *queue = shared_memory(sizeof *queue,
	                                    kumi_dsm_at(QUEUE_LOCK));
	struct result *all = shared_memory(sizeof *all,
	                                   kumi_dsm_at(RESULT_LOCK % ranks));
	struct result found;
	struct outcome result = { .right = 1 };

	/* Before the barrier nobody else uses the queue, so this needs no
	 * lock. */
	if (me == 0)
		add(queue, 0.0, (double)size);
	CHECK(kumi_dsm_barrier());
	start_clock();
	found = work(queue);
	CHECK(kumi_dsm_lock(RESULT_LOCK));
	all->integral += found.integral;
	all->pieces += found.pieces;
	CHECK(kumi_dsm_unlock(RESULT_LOCK));
	CHECK(kumi_dsm_barrier());
	result.seconds = stop_clock();
	if (me == ranks - 1)
		result.right = right(all);
	return result;
}

int main(int argc, char **argv)
{
	static const struct example tasks = {
		"tasks", "integrates by a queue of tasks", options, &size,
		sequential, dsm, NULL,
	};

	return example_main(&tasks, argc, argv);
}
