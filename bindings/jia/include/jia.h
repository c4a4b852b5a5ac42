/*
 * jia.h - the interface of JIAJIA, on Kumi's shared memory.
 *
 * Programs for JIAJIA compile unchanged and link with -ljia (`pkg-config
 * --cflags --libs jia`).  `kumi run -n N PROGRAM` starts their processes; there
 * are no .jiahosts and .jiaconf.  A host is a rank of the job.
 *
 * A function that fails says why on stderr and ends the job: a lock is given back
 * that is not held, hosts allocate differently or are in different barriers, the
 * memory is used up (KUMI_DSM_BYTES), there is no such host.
 *
 * Sizes of allocations are rounded up to pages (KUMI_DSM_PAGE, 4,096 bytes if not
 * set).  Memory is the same address at all hosts, and zeros at first.
 *
 * Differences from JIAJIA:
 * - Sizes may be larger than an int.
 * - Locks and conditions may have any number that is not negative.
 * - A lock makes visible what was written under it, as in JIAJIA, or everything
 *   before it, with KUMI_DSM_PROTOCOL=lazy.  Conditions also make visible what
 *   the host that sets them has written since the last barrier.
 * - jia_clock() is a double, as in later versions; it is in seconds.
 * - Statistics are those of Kumi; jia_startstat() and jia_stopstat() only tell
 *   the time.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef JIA_PUBLIC
#define JIA_PUBLIC

#include <stdarg.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This host, from jia_init() on: 0 .. jiahosts-1. */
extern int jia_pid;
#define jiapid jia_pid

/* The number of hosts. */
extern int hostc;
#define jiahosts hostc

/* ------------------------------------------------------------------------
 * Begin and end
 * ------------------------------------------------------------------------ */

/* Joins the job and makes the shared memory.  All hosts. */
void jia_init(int argc, char **argv);

/* Waits for all hosts and ends the shared memory.  The process ends with exit code
 * 0 then, unless jia_error() is called: main() may return nothing.  A program that
 * ends with 0 without it does the same. */
void jia_exit(void);

/* Ends the job, after jia_error() has said why. */
void jia_fail(void);

/* Prints a text, as printf() does, to stderr, and ends the job. */
__attribute__((__unused__, __format__(__printf__, 1, 2))) static void
jia_error(const char *text, ...)
{
	va_list values;

	fflush(stdout);
	fprintf(stderr, "host %d: ", jia_pid);
	va_start(values, text);
	vfprintf(stderr, text, values);
	va_end(values);
	fputc('\n', stderr);
	jia_fail();
}
#define jia_errexit jia_error

/* ------------------------------------------------------------------------
 * Allocation: all hosts call these with the same arguments in the same order
 * ------------------------------------------------------------------------ */

/* Blocks of `block` bytes (rounded up to pages) at the hosts in turn, from
 * `starthost` on, `size` bytes together. */
unsigned long jia_alloc3(unsigned long size, unsigned long block,
                         int starthost);

/* In round i, each host in turn gets blocks[i] bytes (rounded up to pages), from
 * `starthost` on, until `size` bytes are given.  After `n` rounds the last block
 * repeats. */
unsigned long jia_alloc4(unsigned long size, const int *blocks, int n,
                         int starthost);

/* blocks[i] bytes (rounded up to pages) at host i, n <= jiahosts.  What is left
 * of `size` is at the last of them. */
unsigned long jia_alloc_array(unsigned long size, const int *blocks, int n);

/* All at host `proc`. */
unsigned long jia_alloc2p(unsigned long size, int proc);

/* As jia_alloc3(size, block, 0). */
unsigned long jia_alloc2(unsigned long size, unsigned long block);

/* All at host 0. */
unsigned long jia_alloc1(unsigned long size);

/* All at one host: the next one at each call, from host 0 on. */
unsigned long jia_alloc(unsigned long size);

/* All at one host by chance, the same at all callers. */
unsigned long jia_alloc_random(unsigned long size);

/* Does nothing but check the address: memory stays until jia_exit(). */
void jia_free(void *start);

/* ------------------------------------------------------------------------
 * Locks, barriers, conditions
 * ------------------------------------------------------------------------ */

void jia_lock(int lockid);
void jia_unlock(int lockid);

/* Waits for all hosts; all that was written before is visible. */
void jia_barrier(void);

/* Waits for all hosts, without effect on memory. */
void jia_wait(void);

/* Sets a condition, resets it, waits until it is set. */
void jia_setcv(int cv);
void jia_resetcv(int cv);
void jia_waitcv(int cv);

/* ------------------------------------------------------------------------
 * Messages.  Buffers may be shared memory.
 * ------------------------------------------------------------------------ */

/* Sends `len` bytes to host `to`; tags are 0 or greater. */
void jia_send(char *buf, int len, int to, int tag);

/* Receives at most `len` bytes from host `from` (-1: any) with tag `tag` (-1:
 * any); returns how many. */
int jia_recv(char *buf, int len, int from, int tag);

/* Copies `len` bytes of host `root` to all. */
void jia_bcast(char *buf, int len, int root);

/* rcv[i] at host `root` becomes the combination of snd[i] of all hosts. */
void jia_reduce(char *snd, char *rcv, int cnt, int op, int root);

#define JIA_SUM_INT 0
#define JIA_MAX_INT 1
#define JIA_MIN_INT 2
#define JIA_SUM_FLOAT 10
#define JIA_MAX_FLOAT 11
#define JIA_MIN_FLOAT 12
#define JIA_SUM_DOUBLE 20
#define JIA_MAX_DOUBLE 21
#define JIA_MIN_DOUBLE 22

/* ------------------------------------------------------------------------
 * Settings, loops, clock
 * ------------------------------------------------------------------------ */

#ifndef ON
#define OFF 0
#define ON 1
#endif

/* Options of jia_config().  LOADBAL is heeded.  The others are optimisations that
 * Kumi does by itself: homes move to the node that writes (KUMI_DSM_HOMES), and
 * pages that were written are found without comparing all. */
#define HMIG 0
#define ADWD 1
#define BROADCAST 2
#define BCAST BROADCAST
#define LOADBAL 3
#define WVEC 4

void jia_config(int option, int value);

/* Replaces the first and the last number of a loop by those of this host's part.
 * With LOADBAL on, parts are as jia_loadcheck() has found hosts to be fast. */
void jia_divtask(int *begin, int *end);

/* All hosts, after a loop of jia_divtask(): compares how fast they were. */
void jia_loadcheck(void);

/* Seconds since jia_init(), or since the first of these calls. */
double jia_clock(void);

/* The same in microseconds; begins anew after 71 minutes. */
unsigned int jia_startstat(void);
unsigned int jia_stopstat(void);

/* Notes of writes, which JIAJIA needs where pages are not watched. */
#define jia_wtnt(address, length)
#define jia_wtntw(address)
#define jia_wtntd(address)

/* ------------------------------------------------------------------------
 * Macros of the Argonne package, as JIAJIA's programs use them.  kumi.m4 is for
 * sources that are to be expanded by m4.
 * ------------------------------------------------------------------------ */

extern int jia_lock_index;
#define Maxlocks 64

#define LOCKDEC(lock) int lock;
#define LOCKINIT(lock) (lock) = jia_lock_index++ % Maxlocks;
#define LOCK(lock) jia_lock(lock);
#define UNLOCK(lock) jia_unlock(lock);

#define ALOCKDEC(locks, count) int locks[count];
#define ALOCKINIT(locks, count)                                               \
	{                                                                     \
		int jia_next;                                                 \
		for (jia_next = 0; jia_next < (count); jia_next++)            \
			(locks)[jia_next] = jia_lock_index++ % Maxlocks;      \
	}
#define ALOCK(locks, number) jia_lock((locks)[number]);
#define AULOCK(locks, number) jia_unlock((locks)[number]);

#define BARDEC(barrier) int barrier;
#define BARINIT(barrier)
#define BARRIER(barrier, processes) jia_barrier();

#define PAUSEDEC(pause) int pause;
#define PAUSEINIT(pause)
#define GSDEC(subscript) int subscript;
#define GSINIT(subscript)

#define MAIN_ENV
#define EXTERN_ENV
#define MAIN_INITENV(memory, pages)
#define MAIN_END
#define WAIT_FOR_END(processes) jia_barrier();

#define G_MALLOC(bytes) jia_alloc1(bytes);
#define G2_MALLOC(bytes, processes)                                           \
	jia_alloc3((bytes), (bytes) / jiahosts, 0);

#define CLOCK(time) (time) = jia_clock();

#ifdef __cplusplus
}
#endif

#endif /* JIA_PUBLIC */
