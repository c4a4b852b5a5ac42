/* Shared memory in a job of one rank: a user's program. Exit code 0 if all is as
 * documented. */
#define _GNU_SOURCE
#include <kumi_dsm.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

_Static_assert(sizeof(kumi_dsm_home) == RUST_HOME_SIZE, "size");
_Static_assert(offsetof(kumi_dsm_home, block_pages) == RUST_HOME_PAGES, "block");
_Static_assert(offsetof(kumi_dsm_home, rank) == RUST_HOME_RANK, "rank");

enum { PAGE = 4096, PAGES = 16, THREADS = 4, ROUNDS = 200 };

static unsigned char *bytes;
static long *counter;

static void without_memory(void)
{
	void *start = NULL;
	uint64_t value = 7;

	EXPECT(kumi_dsm_start() == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_init_threads(KUMI_THREAD_MULTIPLE) == KUMI_OK);
	EXPECT(kumi_dsm_allocate(1, kumi_dsm_blocks(), &start) ==
	       KUMI_ERR_NOT_SHARED);
	EXPECT(kumi_dsm_lock(1) == KUMI_ERR_NOT_SHARED);
	EXPECT(kumi_dsm_barrier() == KUMI_ERR_NOT_SHARED);
	EXPECT(kumi_dsm_bring(&value, 8) == KUMI_ERR_NOT_SHARED);
	EXPECT(kumi_dsm_statistics("faults", &value) == KUMI_ERR_NOT_SHARED);
	EXPECT(kumi_dsm_end() == KUMI_ERR_NOT_SHARED);
	EXPECT(start == NULL && value == 7);
}

static void settings(const char *mechanism)
{
	setenv("KUMI_DSM_PAGE", "5000", 1);
	EXPECT(kumi_dsm_start() == KUMI_ERR_MEMORY);
	setenv("KUMI_DSM_PAGE", "4096", 1);
	setenv("KUMI_DSM_BYTES", "many", 1);
	EXPECT(kumi_dsm_start() == KUMI_ERR_SETTING);
	EXPECT(strstr(kumi_error_detail(), "KUMI_DSM_BYTES") != NULL);
	setenv("KUMI_DSM_BYTES", "16M", 1);
	if (*mechanism)
		setenv("KUMI_DSM_FAULTS", mechanism, 1);
	EXPECT(kumi_dsm_start() == KUMI_OK);
	EXPECT(kumi_dsm_start() == KUMI_ERR_SHARED_ALREADY);
}

static void allocations(void)
{
	void *start = NULL;
	kumi_dsm_home wrong = kumi_dsm_blocks();

	wrong.kind = 9;
	EXPECT(kumi_dsm_allocate(1, wrong, &start) == KUMI_ERR_TYPE);
	EXPECT(kumi_dsm_allocate(1, kumi_dsm_updated(wrong), &start) ==
	       KUMI_ERR_TYPE);
	EXPECT(kumi_dsm_allocate(1, kumi_dsm_at(1), &start) == KUMI_ERR_RANK);
	EXPECT(kumi_dsm_allocate(1, kumi_dsm_at(-1), &start) == KUMI_ERR_RANK);
	EXPECT(kumi_dsm_allocate(1, kumi_dsm_round_robin(0, 0), &start) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_dsm_allocate(1, kumi_dsm_round_robin(1, 1), &start) ==
	       KUMI_ERR_RANK);
	EXPECT(kumi_dsm_allocate(1, kumi_dsm_blocks(), NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_dsm_allocate((size_t)17 << 20, kumi_dsm_blocks(), &start) ==
	       KUMI_ERR_EXHAUSTED);
	EXPECT(strstr(kumi_error_detail(), "KUMI_DSM_BYTES") != NULL);
	EXPECT(start == NULL);
	EXPECT(kumi_dsm_allocate(PAGES * PAGE, kumi_dsm_first_touch(), &start) ==
	       KUMI_OK);
	bytes = start;
	EXPECT(kumi_dsm_updated(kumi_dsm_at(0)).kind ==
	       (KUMI_DSM_AT | KUMI_DSM_UPDATED));
	EXPECT(kumi_dsm_allocate(8, kumi_dsm_updated(kumi_dsm_at(0)), &start) ==
	       KUMI_OK);
	counter = start;
	EXPECT((unsigned char *)start == bytes + PAGES * PAGE);
	for (int at = 0; at < PAGES * PAGE; at += 100)
		EXPECT(bytes[at] == 0);
}

static void synchronisation(void)
{
	EXPECT(kumi_dsm_unlock(3) == KUMI_ERR_NOT_HELD);
	EXPECT(kumi_dsm_lock(3) == KUMI_OK);
	EXPECT(kumi_dsm_lock(3) == KUMI_ERR_HELD_ALREADY);
	bytes[5] = 6;
	EXPECT(kumi_dsm_unlock(3) == KUMI_OK);
	EXPECT(kumi_dsm_unlock(3) == KUMI_ERR_NOT_HELD);
	EXPECT(kumi_dsm_barrier() == KUMI_OK);
	EXPECT(kumi_dsm_wait() == KUMI_OK);
	EXPECT(kumi_dsm_set_condition(9) == KUMI_OK);
	EXPECT(kumi_dsm_wait_condition(9) == KUMI_OK);
	EXPECT(kumi_dsm_reset_condition(9) == KUMI_OK);
	EXPECT(bytes[5] == 6);
}

static void buffers(void)
{
	static const char *counters[] = {"faults", "copies",     "fetches",
	                                 "pages",  "diffs",      "diff_bytes",
	                                 "locks",  "barriers",   "stale",
	                                 "homed",  "packets"};
	uint64_t value = 0;
	kumi_window *window = NULL;
	int ends[2];

	EXPECT(kumi_message_send(0, 1, bytes, 8) == KUMI_ERR_SHARED_BUFFER);
	EXPECT(kumi_window_register(bytes, PAGE, KUMI_RIGHT_ALL, &window) ==
	       KUMI_ERR_SHARED_BUFFER);
	EXPECT(kumi_broadcast(0, bytes, 1, KUMI_U64) == KUMI_ERR_SHARED_BUFFER);
	EXPECT(kumi_dsm_bring(bytes + 100, 9 * PAGE) == KUMI_OK);
	EXPECT(kumi_dsm_bring(bytes, 0) == KUMI_OK);
	EXPECT(kumi_dsm_bring(&value, 8) == KUMI_ERR_OUTSIDE);
	EXPECT(kumi_dsm_bring(bytes, 8 << 20) == KUMI_ERR_OUTSIDE);
	EXPECT(kumi_dsm_statistics("faults", &value) == KUMI_OK && value > 0);
	EXPECT(kumi_dsm_statistics("fault", &value) == KUMI_ERR_COUNTER);
	for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
		EXPECT(kumi_dsm_statistics(counters[i], &value) == KUMI_OK);
	/* What was brought is there for a call that nobody has changed. */
	EXPECT(pipe(ends) == 0);
	EXPECT(write(ends[1], "shared", 6) == 6);
	EXPECT(read(ends[0], bytes + 11 * PAGE - 3, 6) == 6);
	EXPECT(memcmp(bytes + 11 * PAGE - 3, "shared", 6) == 0);
	close(ends[0]);
	close(ends[1]);
}

static void *count(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (kumi_dsm_lock(4) != KUMI_OK)
			return argument;
		++*counter;
		if (kumi_dsm_unlock(4) != KUMI_OK)
			return argument;
	}
	return NULL;
}

static void threads(void)
{
	pthread_t all[THREADS];
	void *wrong = NULL;

	for (int i = 0; i < THREADS; i++)
		EXPECT(pthread_create(&all[i], NULL, count, counter) == 0);
	for (int i = 0; i < THREADS; i++) {
		EXPECT(pthread_join(all[i], &wrong) == 0);
		EXPECT(wrong == NULL);
	}
	EXPECT(*counter == THREADS * ROUNDS);
}

static void child(void)
{
	int status = -1;
	pid_t process = fork();

	if (process == 0)
		_exit(kumi_dsm_lock(1) == KUMI_ERR_FORKED ? 17 : 1);
	EXPECT(waitpid(process, &status, 0) == process);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 17);
}

int main(int argc, char **argv)
{
	without_memory();
	settings(argc > 1 ? argv[1] : "");
	if (failures)
		return 1;
	allocations();
	synchronisation();
	buffers();
	threads();
	child();
	EXPECT(kumi_dsm_end() == KUMI_OK);
	EXPECT(kumi_dsm_lock(1) == KUMI_ERR_NOT_SHARED);
	/* A second memory, which the library ends. */
	EXPECT(kumi_dsm_start() == KUMI_OK);
	EXPECT(kumi_finalize() == KUMI_OK);
	return failures != 0;
}
