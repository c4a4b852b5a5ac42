/* Shared memory in a job of several ranks: a user's program.  Usage:
 * dsm-ranks [mismatch | allocations] */
#include <kumi_dsm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition)                                                       \
	do {                                                                  \
		if (!(condition)) {                                           \
			fprintf(stderr, "rank %d line %d: %s (%s)\n",         \
			        kumi_rank(), __LINE__, #condition,            \
			        kumi_error_detail());                         \
			exit(1);                                              \
		}                                                             \
	} while (0)

enum { COUNT = 20000, ROUNDS = 50 };

/* A list in shared memory, whose pointers all ranks follow. */
struct element {
	struct element *next;
	long value;
};

static void *get(size_t bytes, kumi_dsm_home home)
{
	void *start = NULL;

	NEED(kumi_dsm_allocate(bytes, home, &start) == KUMI_OK);
	return start;
}

static void barriers(int rank, int ranks, kumi_dsm_home home)
{
	int *array = get(COUNT * sizeof *array, home);

	for (int round = 1; round <= 5; round++) {
		for (int i = (rank + round) % ranks; i < COUNT; i += ranks)
			array[i] = i * round;
		NEED(kumi_dsm_barrier() == KUMI_OK);
		for (int i = 0; i < COUNT; i++)
			NEED(array[i] == i * round);
		NEED(kumi_dsm_barrier() == KUMI_OK);
	}
}

static void locks(int ranks)
{
	struct element **head = get(sizeof *head, kumi_dsm_at(ranks - 1));
	struct element *mine = get(sizeof *mine * (size_t)(ROUNDS * ranks),
	                           kumi_dsm_blocks());
	struct element *at;
	long sum = 0;

	mine += kumi_rank() * ROUNDS;
	for (int i = 0; i < ROUNDS; i++) {
		NEED(kumi_dsm_lock(5) == KUMI_OK);
		mine[i].value = 1 + kumi_rank();
		mine[i].next = *head;
		*head = &mine[i];
		NEED(kumi_dsm_unlock(5) == KUMI_OK);
	}
	NEED(kumi_dsm_barrier() == KUMI_OK);
	for (at = *head; at != NULL; at = at->next)
		sum += at->value;
	NEED(sum == (long)ROUNDS * ranks * (ranks + 1) / 2);
	NEED(kumi_dsm_barrier() == KUMI_OK);
}

static void conditions(int rank, int ranks)
{
	long *cells = get(4096 * (size_t)ranks, kumi_dsm_round_robin(1, 0));

	if (rank > 0) {
		NEED(kumi_dsm_wait_condition((uint32_t)rank) == KUMI_OK);
		NEED(cells[512 * (rank - 1)] == rank - 1 + 100);
	}
	cells[512 * rank] = rank + 100;
	NEED(kumi_dsm_set_condition((uint32_t)rank + 1) == KUMI_OK);
	NEED(kumi_dsm_wait() == KUMI_OK);
}

/* Ranks that do different things: the error's number, and the text that says who. */
static int differ(int rank, const char *how)
{
	int code;

	if (strcmp(how, "mismatch") == 0) {
		code = rank == 0 ? kumi_dsm_wait() : kumi_dsm_barrier();
		/* Who notices it may not be who waits for ever. */
	} else {
		void *start;

		/* A rank may hear of the others before it allocates itself. */
		code = kumi_dsm_allocate(rank == 1 ? 8192 : 4096,
		                         kumi_dsm_blocks(), &start);
		if (code == KUMI_OK)
			code = kumi_dsm_barrier();
	}
	fprintf(stderr, "%d %s\n", code, kumi_error_detail());
	return code == KUMI_OK ? 0 : 3;
}

int main(int argc, char **argv)
{
	uint64_t faults = 0, locked = 0;

	NEED(kumi_init() == KUMI_OK);
	NEED(kumi_dsm_start() == KUMI_OK);
	if (argc > 1)
		return differ(kumi_rank(), argv[1]);
	barriers(kumi_rank(), kumi_size(), kumi_dsm_blocks());
	barriers(kumi_rank(), kumi_size(), kumi_dsm_first_touch());
	barriers(kumi_rank(), kumi_size(), kumi_dsm_round_robin(2, 1));
	barriers(kumi_rank(), kumi_size(), kumi_dsm_updated(kumi_dsm_blocks()));
	locks(kumi_size());
	conditions(kumi_rank(), kumi_size());
	NEED(kumi_dsm_statistics("faults", &faults) == KUMI_OK && faults > 0);
	NEED(kumi_dsm_statistics("locks", &locked) == KUMI_OK);
	NEED(locked == ROUNDS);
	printf("rank %d of %d\n", kumi_rank(), kumi_size());
	NEED(kumi_finalize() == KUMI_OK);
	return 0;
}
