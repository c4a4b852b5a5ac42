/*
 * kumi_parmacs.h - what the macros of kumi.m4 stand for: processes that CREATE
 *                  starts, on ranks of a job.
 *
 * `kumi run -n P` starts P ranks.  All run main() up to MAIN_INITENV.  Rank 0 goes
 * on; the others wait there.  CREATE gives the next of them the function and rank
 * 0's static data, as fork() would.  MAIN_END ends all.
 *
 * What a created process has of rank 0: memory of G_MALLOC, shared and at the same
 * address, and a copy of all static data of the program (initialised or not).  It
 * does not have memory of malloc() from before, files that were opened before,
 * and variables of main().
 *
 * Static data may hold addresses of the program, so the program must be linked
 * with -no-pie.  Variables of shared libraries (stdout, optarg, environ) stay each
 * rank's own.
 *
 * The shared memory has 1 GiB, unless KUMI_DSM_BYTES is set, and lies below 2 GiB
 * then: such programs may keep addresses in numbers of 32 bits.
 *
 * Locks and pauses order memory as in a release consistent machine:
 * KUMI_DSM_PROTOCOL=lazy unless set.  Waiting in a loop for a variable to change,
 * without a macro, does not end.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_PARMACS_H
#define KUMI_PARMACS_H

#include <kumi_dsm.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sources take it as given. */
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif

typedef int kumi_parmacs_barrier_variable;
typedef uint32_t kumi_parmacs_number_variable;

/* A loop whose subscripts processes take one by one. */
typedef struct kumi_parmacs_subscripts {
	uint32_t lock;
	long next;
} kumi_parmacs_subscripts;

void kumi_parmacs_begin(void);
void kumi_parmacs_end(void);
void kumi_parmacs_create(void (*function)(void));
void kumi_parmacs_join(void);
void *kumi_parmacs_allocate(size_t bytes);
void kumi_parmacs_barrier(long processes);
uint32_t kumi_parmacs_number(void);
void kumi_parmacs_lock(uint32_t lock);
void kumi_parmacs_unlock(uint32_t lock);
void kumi_parmacs_subscripts_begin(kumi_parmacs_subscripts *loop);
long kumi_parmacs_next_subscript(kumi_parmacs_subscripts *loop, long last,
                                 long processes);
void kumi_parmacs_set(uint32_t pause);
void kumi_parmacs_clear(uint32_t pause);
void kumi_parmacs_wait(uint32_t pause);
unsigned long kumi_parmacs_microseconds(void);

#ifdef __cplusplus
}
#endif

#ifdef KUMI_PARMACS_MAIN
#include <kumi_parmacs_main.h>
#endif

#endif /* KUMI_PARMACS_H */
