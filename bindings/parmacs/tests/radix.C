/* Radix sort: written to the published macros, with subscripts that processes take
 * one by one, pauses that carry a prefix sum from each process to the next, arrays
 * of locks, and CREATE of all at once. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

MAIN_ENV

enum { BITS = 4, RADIX = 1 << BITS, DIGITS = 5, MOST = 16, KEYS = 30000 };

struct prefix_node {
	int sums[RADIX];
	PAUSEDEC(done)
};

struct global_memory {
	int index;
	int turns[MOST];
	int counted[2];
	BARDEC(barrier)
	LOCKDEC(index_lock)
	ALOCKDEC(counters, 2)
	GSDEC(chunks)
} *global;

static struct prefix_node *nodes[MOST];
static int *key[2];
static struct {
	int *counts;
} gp[MOST];
int processors = 1;

static int digit(int value, int at)
{
	return value >> (at * BITS) & (RADIX - 1);
}

/* Where this process' keys of each digit begin. */
static void places(int me, int at, const int *from, int first, int last,
                   int *place)
{
	int *counts = gp[me].counts, below = 0;
	int total[RADIX] = {0};

	for (int d = 0; d < RADIX; d++)
		counts[d] = 0;
	for (int i = first; i < last; i++)
		counts[digit(from[i], at)]++;
	/* From process to process: keys of this digit at those before. */
	if (me > 0) {
		WAITPAUSE(nodes[me]->done)
		CLEARPAUSE(nodes[me]->done)
	}
	for (int d = 0; d < RADIX; d++)
		place[d] = me > 0 ? nodes[me]->sums[d] : 0;
	if (me + 1 < processors) {
		for (int d = 0; d < RADIX; d++)
			nodes[me + 1]->sums[d] = place[d] + counts[d];
		SETPAUSE(nodes[me + 1]->done)
	}
	BARRIER(global->barrier, processors)
	for (int p = 0; p < processors; p++)
		for (int d = 0; d < RADIX; d++)
			total[d] += gp[p].counts[d];
	for (int d = 0; d < RADIX; d++) {
		place[d] += below;
		below += total[d];
	}
}

static void sort(int me)
{
	int first = KEYS * me / processors, last = KEYS * (me + 1) / processors;
	int place[RADIX];

	for (int at = 0; at < DIGITS; at++) {
		int *from = key[at % 2], *to = key[1 - at % 2];

		places(me, at, from, first, last, place);
		for (int i = first; i < last; i++)
			to[place[digit(from[i], at)]++] = from[i];
		BARRIER(global->barrier, processors)
	}
}

void slave_sort(void)
{
	int me, chunk;

	LOCK(global->index_lock)
	me = global->index++;
	UNLOCK(global->index_lock)
	BARRIER(global->barrier, processors)
	for (int round = 0; round < 2; round++) {
		GETSUB(global->chunks, chunk, 99, processors)
		while (chunk >= 0) {
			for (int i = chunk * 300; i < (chunk + 1) * 300; i++)
				key[0][i] = (int)((unsigned)i * 7919u % 1000003u);
			global->turns[me]++;
			ALOCK(global->counters, round)
			global->counted[round]++;
			AULOCK(global->counters, round)
			GETSUB(global->chunks, chunk, 99, processors)
		}
	}
	sort(me);
}

int main(int argc, char *argv[])
{
	int option, right = 1, turns = 0;

	while ((option = getopt(argc, argv, "p:")) != -1)
		processors = atoi(optarg);
	MAIN_INITENV(,80000000)
	key[0] = (int *)G_MALLOC(KEYS * sizeof(int))
	key[1] = (int *)G_MALLOC(KEYS * sizeof(int))
	global = (struct global_memory *)G_MALLOC(sizeof(struct global_memory))
	for (int i = 0; i < processors; i++) {
		gp[i].counts = (int *)G_MALLOC(RADIX * sizeof(int))
		nodes[i] = (struct prefix_node *)G_MALLOC(
		        sizeof(struct prefix_node))
		PAUSEINIT(nodes[i]->done)
	}
	BARINIT(global->barrier, processors)
	LOCKINIT(global->index_lock)
	ALOCKINIT(global->counters, 2)
	GSINIT(global->chunks)
	CREATE(slave_sort, processors)
	WAIT_FOR_END(processors)
	for (int i = 1; i < KEYS; i++)
		right &= key[DIGITS % 2][i - 1] <= key[DIGITS % 2][i];
	for (int i = 0; i < processors; i++)
		turns += global->turns[i];
	printf("radix: %d turns, %d and %d counted, %s\n", turns,
	       global->counted[0], global->counted[1], right ? "right" : "wrong");
	/* Ends without MAIN_END. */
	return 0;
}
