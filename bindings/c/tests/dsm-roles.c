/* What ranks with shared memory do in the tests of whole jobs: dsm-roles holder|reader|threads|notice [NUMBER].
 *
 *   holder   rank 1 keeps lock 3 for ever, the others wait for it; all print "rank process"
 *   reader   rank 0 writes NUMBER MiB, the last rank reads them all
 *   threads  NUMBER threads of each rank count under locks and read what the other rank wrote
 *   notice   starts and ends; a filter refuses userfaultfd() first, as containers have them */
#include <kumi.h>
#include <kumi_dsm.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 64
#define ROUNDS 50

#define CHECK(call) check((call), #call)

static void check(int code, const char *call)
{
	if (code == KUMI_OK)
		return;
	fprintf(stderr, "%s: %d %s\n", call, code, kumi_error_detail());
	exit(1);
}

static void holder(void)
{
	if (kumi_rank() == 1)
		CHECK(kumi_dsm_lock(3));
	CHECK(kumi_dsm_wait());
	printf("%d %d\n", kumi_rank(), (int)getpid());
	fflush(stdout);
	if (kumi_rank() == 1)
		for (;;)
			pause();
	CHECK(kumi_dsm_lock(3));
	printf("rank %d has the lock\n", kumi_rank());
}

static void reader(size_t bytes)
{
	unsigned long sum = 0;
	unsigned char *all;

	CHECK(kumi_dsm_allocate(bytes, kumi_dsm_at(0), (void **)&all));
	if (kumi_rank() == 0)
		memset(all, 1, bytes);
	CHECK(kumi_dsm_barrier());
	if (kumi_rank() == kumi_size() - 1)
		for (size_t i = 0; i < bytes; i += PAGE)
			sum += all[i];
	CHECK(kumi_dsm_barrier());
	if (kumi_rank() == kumi_size() - 1)
		printf("%lu pages\n", sum);
}

/* Memory of all ranks. */
static struct shared {
	long counts[2]; /* under locks 0 and 1 */
	char gap[PAGE - 2 * sizeof(long)];
	long written[2][PAGES][PAGE / sizeof(long)];
} *shared;

struct thread {
	long number, threads, wrong;
};

/* Reads what the other rank wrote, each thread beginning elsewhere, and counts. */
static void *work(void *argument)
{
	struct thread *me = argument;
	int other = 1 - kumi_rank();

	for (long i = 0; i < PAGES; i++) {
		long page = (i + me->number * PAGES / me->threads) % PAGES;

		me->wrong += shared->written[other][page][me->number] != page + other;
	}
	for (long i = 0; i < ROUNDS; i++) {
		uint32_t lock = (uint32_t)(i + me->number) % 2;

		CHECK(kumi_dsm_lock(lock));
		shared->counts[lock]++;
		CHECK(kumi_dsm_unlock(lock));
	}
	return NULL;
}

static void threads(long number)
{
	pthread_t *all = calloc((size_t)number, sizeof *all);
	struct thread *arguments = calloc((size_t)number, sizeof *arguments);
	long wrong = 0;

	CHECK(kumi_dsm_allocate(sizeof *shared, kumi_dsm_round_robin(1, 0), (void **)&shared));
	for (long page = 0; page < PAGES; page++)
		for (long i = 0; i < number; i++)
			shared->written[kumi_rank()][page][i] = page + kumi_rank();
	CHECK(kumi_dsm_barrier());
	for (long i = 0; i < number; i++) {
		arguments[i] = (struct thread){ i, number, 0 };
		if (pthread_create(&all[i], NULL, work, &arguments[i]) != 0)
			exit(1);
	}
	for (long i = 0; i < number; i++) {
		pthread_join(all[i], NULL);
		wrong += arguments[i].wrong;
	}
	CHECK(kumi_dsm_barrier());
	printf("rank %d: %ld wrong, %ld counted\n", kumi_rank(), wrong, shared->counts[0] + shared->counts[1]);
}

/* From here on userfaultfd() fails with EPERM. */
static void refuse_userfaultfd(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		perror("a filter of system calls");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	long number = argc > 2 ? atol(argv[2]) : 0;

	if (strcmp(role, "notice") == 0)
		refuse_userfaultfd();
	CHECK(kumi_init_threads(KUMI_THREAD_MULTIPLE));
	CHECK(kumi_dsm_start());
	if (strcmp(role, "holder") == 0)
		holder();
	else if (strcmp(role, "reader") == 0)
		reader((size_t)number << 20);
	else if (strcmp(role, "threads") == 0)
		threads(number);
	else if (strcmp(role, "notice") != 0)
		return 64;
	CHECK(kumi_finalize());
	return 0;
}
