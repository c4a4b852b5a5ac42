/*
 * kumi_parmacs_main.h - the functions of kumi_parmacs.h; MAIN_ENV puts them into
 *                       the source that has main().
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_PARMACS_MAIN_H
#define KUMI_PARMACS_MAIN_H

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

/* Bounds of the static data, by the linker: data, then zeros. */
extern char __data_start[], _end[];
/* The program's own dynamic section; none in a static program. */
extern ElfW(Dyn) _DYNAMIC[] __attribute__((weak));
enum {
	/* Blocks of the pool go to the ranks in turn; pages move to who writes. */
	KUMI_PARMACS_BLOCK_PAGES = 16,
	KUMI_PARMACS_PAGE = 4096,
	KUMI_PARMACS_LINE = 64,
	/* The lock of the pool, and where the program's locks begin. */
	KUMI_PARMACS_POOL_LOCK = 0,
	KUMI_PARMACS_FIRST_NUMBER = 1,
	/* Conditions of processes: begun, ended; far from the program's pauses. */
	KUMI_PARMACS_BEGUN = 1 << 30,
	KUMI_PARMACS_ENDED = 1 << 29,
	KUMI_PARMACS_TAG = 1346458195
};

/* In shared memory: the first of the pool. */
struct kumi_parmacs_pool {
	size_t used;
	size_t bytes;
	uint32_t next_number;
};

/* What a process that waits for CREATE is sent. */
struct kumi_parmacs_order {
	void (*function)(void); /* none: end */
	char *data;
	size_t bytes;
	void (*program)(void); /* a function of the program, to compare where it is */
	uint32_t number;
};

/* This rank's own, which the copy of rank 0's static data must not change. */
static struct {
	struct kumi_parmacs_pool *pool;
	int rank, ranks;
	int created; /* processes that run, at rank 0 */
	uint32_t orders;
} kumi_parmacs;

static void kumi_parmacs_fail(const char *what, int error)
{
	fprintf(stderr, "kumi.m4: %s: %s\n", what,
	        error ? kumi_error_detail() : "see kumi_parmacs.h");
	exit(1);
}

static void kumi_parmacs_need(const char *what, int error)
{
	if (error != KUMI_OK)
		kumi_parmacs_fail(what, error);
}

/* ------------------------------------------------------------------------
 * The static data
 * ------------------------------------------------------------------------ */

/* Relocations that copy a variable of a shared library into the program. */
#if defined(__x86_64__)
#define KUMI_PARMACS_COPY R_X86_64_COPY
#elif defined(__aarch64__)
#define KUMI_PARMACS_COPY R_AARCH64_COPY
#elif defined(__riscv)
#define KUMI_PARMACS_COPY R_RISCV_COPY
#else
#error "kumi_parmacs_main.h: add this processor's R_..._COPY"
#endif

struct kumi_parmacs_kept {
	char *place;
	char *copy;
	size_t bytes;
	struct kumi_parmacs_kept *next;
};

static struct kumi_parmacs_kept *kumi_parmacs_keep(
        char *place, size_t bytes, struct kumi_parmacs_kept *next)
{
	struct kumi_parmacs_kept *kept = malloc(sizeof *kept + bytes);

	if (kept == NULL)
		kumi_parmacs_fail("CREATE finds no memory", 0);
	kept->place = place;
	kept->copy = (char *)(kept + 1);
	kept->bytes = bytes;
	kept->next = next;
	memcpy(kept->copy, place, bytes);
	return kept;
}

/* Copies of what stays this rank's own. */
static struct kumi_parmacs_kept *kumi_parmacs_keep_own(void)
{
	struct kumi_parmacs_kept *kept = kumi_parmacs_keep(
	        (char *)&kumi_parmacs, sizeof kumi_parmacs, NULL);
	const ElfW(Rela) *relocations = NULL;
	const ElfW(Sym) *symbols = NULL;
	const ElfW(Dyn) *entry;
	size_t bytes = 0, i;

	for (entry = _DYNAMIC; entry != NULL && entry->d_tag != DT_NULL;
	     entry++) {
		if (entry->d_tag == DT_RELA)
			relocations = (const void *)entry->d_un.d_ptr;
		if (entry->d_tag == DT_RELASZ)
			bytes = entry->d_un.d_val;
		if (entry->d_tag == DT_SYMTAB)
			symbols = (const void *)entry->d_un.d_ptr;
	}
	for (i = 0; i < bytes / sizeof *relocations; i++) {
		const ElfW(Rela) *one = &relocations[i];

		if (ELF64_R_TYPE(one->r_info) == KUMI_PARMACS_COPY)
			kept = kumi_parmacs_keep(
			        (char *)one->r_offset,
			        symbols[ELF64_R_SYM(one->r_info)].st_size, kept);
	}
	return kept;
}

static void kumi_parmacs_give_back(struct kumi_parmacs_kept *kept)
{
	while (kept != NULL) {
		struct kumi_parmacs_kept *next = kept->next;

		memcpy(kept->place, kept->copy, kept->bytes);
		free(kept);
		kept = next;
	}
}

/* Receives rank 0's static data. */
static void kumi_parmacs_take_data(const struct kumi_parmacs_order *order)
{
	struct kumi_parmacs_kept *own;
	char *data;

	if (order->program != kumi_parmacs_begin || order->data != __data_start ||
	    order->bytes != (size_t)(_end - __data_start))
		kumi_parmacs_fail("ranks have the program at different addresses; "
		                  "link it with -no-pie, and the same for all",
		                  0);
	/* By way of other memory: the library's functions have static data in
	 * their own files, but this call's arguments must stay what they are. */
	data = malloc(order->bytes);
	if (data == NULL)
		kumi_parmacs_fail("CREATE finds no memory", 0);
	kumi_parmacs_need("CREATE", kumi_message_recv(0, KUMI_PARMACS_TAG, data,
	                                              order->bytes, NULL));
	own = kumi_parmacs_keep_own();
	memcpy(__data_start, data, (size_t)(_end - __data_start));
	kumi_parmacs_give_back(own);
	free(data);
}

/* ------------------------------------------------------------------------
 * Processes
 * ------------------------------------------------------------------------ */

/* A rank that is not 0, from MAIN_INITENV on: does what it is told to. */
static void kumi_parmacs_serve(void)
{
	struct kumi_parmacs_order order;
	uint32_t number;

	for (;;) {
		kumi_parmacs_need("MAIN_INITENV",
		                  kumi_message_recv(0, KUMI_PARMACS_TAG, &order,
		                                    sizeof order, NULL));
		if (order.function == NULL)
			break;
		number = order.number;
		kumi_parmacs_take_data(&order);
		kumi_parmacs_need("CREATE",
		                  kumi_dsm_wait_condition(KUMI_PARMACS_BEGUN |
		                                          number));
		order.function();
		fflush(stdout);
		kumi_parmacs_need("the end of a process",
		                  kumi_dsm_set_condition(KUMI_PARMACS_ENDED |
		                                         number));
	}
	kumi_parmacs_need("MAIN_END", kumi_finalize());
	exit(0);
}

/* The largest pool that there can be: memory comes with use. */
static void kumi_parmacs_make_pool(void)
{
	size_t bytes = (size_t)1 << 46;
	void *start = NULL;
	int error = KUMI_ERR_EXHAUSTED;

	while (error == KUMI_ERR_EXHAUSTED && bytes > KUMI_PARMACS_PAGE) {
		bytes /= 2;
		error = kumi_dsm_allocate(
		        bytes,
		        kumi_dsm_round_robin(KUMI_PARMACS_BLOCK_PAGES, 0),
		        &start);
	}
	kumi_parmacs_need("MAIN_INITENV", error);
	kumi_parmacs.pool = start;
	if (kumi_parmacs.rank == 0) {
		kumi_parmacs.pool->used = KUMI_PARMACS_PAGE;
		kumi_parmacs.pool->bytes = bytes;
		kumi_parmacs.pool->next_number = KUMI_PARMACS_FIRST_NUMBER;
	}
}

/* A program that ends well without MAIN_END. */
static void kumi_parmacs_at_exit(int status, void *argument)
{
	(void)argument;
	if (status == 0)
		kumi_parmacs_end();
}

extern int on_exit(void (*function)(int, void *), void *argument);

void kumi_parmacs_begin(void)
{
	setenv("KUMI_DSM_PROTOCOL", "lazy", 0);
	/* So much lies below 2 GiB: sources of the time of 32-bit machines
	 * compute with addresses as numbers. */
	setenv("KUMI_DSM_BYTES", "1G", 0);
	kumi_parmacs_need("MAIN_INITENV", kumi_init());
	kumi_parmacs_need("MAIN_INITENV", kumi_dsm_start());
	kumi_parmacs.rank = kumi_rank();
	kumi_parmacs.ranks = kumi_size();
	kumi_parmacs_make_pool();
	kumi_parmacs_need("MAIN_INITENV", kumi_dsm_barrier());
	if (kumi_parmacs.rank != 0)
		kumi_parmacs_serve();
	on_exit(kumi_parmacs_at_exit, NULL);
}

void kumi_parmacs_create(void (*function)(void))
{
	struct kumi_parmacs_order order;
	int rank = kumi_parmacs.created + 1;

	if (kumi_parmacs.rank != 0)
		kumi_parmacs_fail("CREATE is for the first process", 0);
	if (rank >= kumi_parmacs.ranks)
		kumi_parmacs_fail("CREATE finds no further rank; start the program "
		                  "by `kumi run -n P` with as many ranks as "
		                  "processes",
		                  0);
	memset(&order, 0, sizeof order);
	order.function = function;
	order.data = __data_start;
	order.bytes = (size_t)(_end - __data_start);
	order.program = kumi_parmacs_begin;
	order.number = kumi_parmacs.orders++;
	kumi_parmacs.created = rank;
	kumi_parmacs_need("CREATE", kumi_message_send(rank, KUMI_PARMACS_TAG,
	                                              &order, sizeof order));
	kumi_parmacs_need("CREATE", kumi_message_send(rank, KUMI_PARMACS_TAG,
	                                              __data_start, order.bytes));
	kumi_parmacs_need("CREATE", kumi_dsm_set_condition(KUMI_PARMACS_BEGUN |
	                                                   order.number));
}

void kumi_parmacs_join(void)
{
	uint32_t at = kumi_parmacs.orders - (uint32_t)kumi_parmacs.created;

	for (; at != kumi_parmacs.orders; at++)
		kumi_parmacs_need("WAIT_FOR_END",
		                  kumi_dsm_wait_condition(KUMI_PARMACS_ENDED |
		                                          at));
	kumi_parmacs.created = 0;
}

void kumi_parmacs_end(void)
{
	struct kumi_parmacs_order order;
	int rank;

	if (kumi_parmacs.pool == NULL || kumi_parmacs.rank != 0)
		return;
	kumi_parmacs_join();
	memset(&order, 0, sizeof order);
	for (rank = 1; rank < kumi_parmacs.ranks; rank++)
		kumi_parmacs_need("MAIN_END",
		                  kumi_message_send(rank, KUMI_PARMACS_TAG,
		                                    &order, sizeof order));
	kumi_parmacs.pool = NULL;
	kumi_parmacs_need("MAIN_END", kumi_finalize());
}

/* ------------------------------------------------------------------------
 * Memory, locks, barriers, pauses
 * ------------------------------------------------------------------------ */

void *kumi_parmacs_allocate(size_t bytes)
{
	struct kumi_parmacs_pool *pool = kumi_parmacs.pool;
	/* What is large has pages of its own. */
	size_t unit = bytes >= KUMI_PARMACS_PAGE ? KUMI_PARMACS_PAGE :
	                                           KUMI_PARMACS_LINE;
	size_t start;

	if (pool == NULL)
		kumi_parmacs_fail("G_MALLOC comes before MAIN_INITENV", 0);
	kumi_parmacs_lock(KUMI_PARMACS_POOL_LOCK);
	start = (pool->used + unit - 1) / unit * unit;
	if (start > pool->bytes || bytes > pool->bytes - start) {
		fprintf(stderr, "kumi.m4: G_MALLOC of %zu bytes: shared memory is "
		                "used up; raise KUMI_DSM_BYTES\n", bytes);
		exit(1);
	}
	pool->used = start + bytes;
	kumi_parmacs_unlock(KUMI_PARMACS_POOL_LOCK);
	return (char *)pool + start;
}

uint32_t kumi_parmacs_number(void)
{
	uint32_t number;

	if (kumi_parmacs.pool == NULL)
		kumi_parmacs_fail("LOCKINIT comes before MAIN_INITENV", 0);
	kumi_parmacs_lock(KUMI_PARMACS_POOL_LOCK);
	number = kumi_parmacs.pool->next_number++;
	kumi_parmacs_unlock(KUMI_PARMACS_POOL_LOCK);
	return number;
}

void kumi_parmacs_barrier(long processes)
{
	if (processes != -1 && processes != kumi_parmacs.ranks) {
		fprintf(stderr, "kumi.m4: BARRIER of %ld processes in a job of %d "
		                "ranks; both must be the same\n",
		        processes, kumi_parmacs.ranks);
		exit(1);
	}
	kumi_parmacs_need("BARRIER", kumi_dsm_barrier());
}

void kumi_parmacs_lock(uint32_t lock)
{
	kumi_parmacs_need("LOCK", kumi_dsm_lock(lock));
}

void kumi_parmacs_unlock(uint32_t lock)
{
	kumi_parmacs_need("UNLOCK", kumi_dsm_unlock(lock));
}

void kumi_parmacs_subscripts_begin(kumi_parmacs_subscripts *loop)
{
	loop->lock = kumi_parmacs_number();
	loop->next = 0;
}

/* -1, for all at once, when there are no more; the loop begins anew then. */
long kumi_parmacs_next_subscript(kumi_parmacs_subscripts *loop, long last,
                                 long processes)
{
	long subscript = -1;

	kumi_parmacs_lock(loop->lock);
	if (loop->next <= last)
		subscript = loop->next++;
	kumi_parmacs_unlock(loop->lock);
	if (subscript == -1) {
		kumi_parmacs_barrier(processes);
		if (kumi_parmacs.rank == 0)
			loop->next = 0;
		kumi_parmacs_barrier(processes);
	}
	return subscript;
}

void kumi_parmacs_set(uint32_t pause)
{
	kumi_parmacs_need("SETPAUSE", kumi_dsm_set_condition(pause));
}

void kumi_parmacs_clear(uint32_t pause)
{
	kumi_parmacs_need("CLEARPAUSE", kumi_dsm_reset_condition(pause));
}

void kumi_parmacs_wait(uint32_t pause)
{
	kumi_parmacs_need("WAITPAUSE", kumi_dsm_wait_condition(pause));
}

unsigned long kumi_parmacs_microseconds(void)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	return (unsigned long)now.tv_sec * 1000000 + (unsigned long)now.tv_usec;
}

#endif /* KUMI_PARMACS_MAIN_H */
