/* All of jia.h, by the rules of JIAJIA's manual: a program for JIAJIA. Usage:
 * jia-unit [unlock | mismatch | allocations | memory | host | error | return] */
#include <jia.h>

#include <stdlib.h>
#include <string.h>

extern int jia_pid;

#define NEED(condition)                                                       \
	do {                                                                  \
		if (!(condition))                                             \
			jia_error("line %d: %s", __LINE__, #condition);       \
	} while (0)

enum { N = 9000, ROUNDS = 40 };

static void allocation(void)
{
	int blocks[2] = {4096, 5000}, parts[1] = {100};
	unsigned long last = jia_alloc3(1, 1, 0), next;
	unsigned long all[] = {
	        jia_alloc3(3 * 4096, 4096, jiahosts - 1),
	        jia_alloc4(9 * 4096, blocks, 2, jiahosts - 1),
	        jia_alloc_array(5 * 4096, parts, 1),
	        jia_alloc2p(4097, jiahosts - 1),
	        jia_alloc2(100000, 10000),
	        jia_alloc1(1),
	        jia_alloc(1),
	        jia_alloc_random(1),
	};
	unsigned long pages[] = {1, 3, 9, 5, 2, 25, 1, 1};

	/* One after the other, without gaps, so lists of blocks are whole. */
	for (int i = 0; i < 8; i++) {
		next = last + 4096 * pages[i];
		NEED(all[i] == next);
		last = next;
	}
	jia_barrier();
	for (unsigned long at = all[0] + (unsigned long)jiapid; at < last;
	     at += (unsigned long)jiahosts)
		*(char *)at = (char)(at % 101);
	jia_barrier();
	for (unsigned long at = all[0]; at < last; at++)
		NEED(*(char *)at == (char)(at % 101));
	jia_free((void *)all[0]);
	jia_barrier();
}

static void locks(void)
{
	long *sum = (long *)jia_alloc(sizeof *sum);
	ALOCKDEC(many, 3)
	LOCKDEC(one)

	LOCKINIT(one)
	ALOCKINIT(many, 3)
	NEED(many[2] == one + 3);
	jia_barrier();
	for (int i = 0; i < ROUNDS; i++) {
		jia_lock(one);
		*sum += 1;
		jia_unlock(one);
		ALOCK(many, 1)
		sum[1] += 2;
		AULOCK(many, 1)
	}
	jia_barrier();
	NEED(sum[0] == (long)ROUNDS * jiahosts);
	NEED(sum[1] == 2L * ROUNDS * jiahosts);
}

static void conditions(void)
{
	int *cell = (int *)jia_alloc2p(4096, 0);

	jia_wait();
	if (jiapid == 0) {
		*cell = 17;
		jia_setcv(3);
	} else {
		jia_waitcv(3);
		NEED(*cell == 17);
	}
	jia_barrier();
	if (jiapid == 0)
		jia_resetcv(3);
	jia_barrier();
}

static void messages(void)
{
	/* In shared memory, of which pages are elsewhere. */
	int *shared = (int *)jia_alloc3(jiahosts * 8192, 4096, 1 % jiahosts);
	int *mine = shared + 2048 * jiapid;
	int next = (jiapid + 1) % jiahosts, before = (jiapid + jiahosts - 1) % jiahosts;
	double number = jiapid + 0.5, sum = 0;
	int greatest = 0, own = 100 - jiapid;
	char text[16] = "";

	jia_barrier();
	for (int i = 0; i < 1000; i++)
		mine[i] = jiapid * 1000 + i;
	jia_send((char *)mine, 4000, next, 5);
	NEED(jia_recv((char *)(mine + 1024), 4096, before, 5) == 4000);
	for (int i = 0; i < 1000; i++)
		NEED(mine[1024 + i] == before * 1000 + i);
	jia_send("any", 4, next, 6);
	NEED(jia_recv(text, 16, -1, -1) == 4 && strcmp(text, "any") == 0);
	if (jiapid == jiahosts - 1)
		strcpy(text, "from the last");
	jia_bcast(text, 16, jiahosts - 1);
	NEED(strcmp(text, "from the last") == 0);
	jia_reduce((char *)&number, (char *)&sum, 1, JIA_SUM_DOUBLE, 0);
	NEED(jiapid != 0 || sum == jiahosts * jiahosts / 2.0);
	jia_reduce((char *)&own, (char *)&greatest, 1, JIA_MAX_INT, jiahosts - 1);
	NEED(greatest == (jiapid == jiahosts - 1 ? 100 : 0));
}

static void loops(void)
{
	int *done = (int *)jia_alloc3(N * sizeof(int), 4096, 0);

	jia_barrier();
	jia_config(HMIG, ON);
	jia_config(WVEC, OFF);
	jia_config(LOADBAL, ON);
	for (int round = 0; round < 3; round++) {
		int begin = 0, end = N - 1;

		jia_divtask(&begin, &end);
		for (int i = begin; i <= end; i++)
			done[i] += 1;
		jia_loadcheck();
		jia_barrier();
	}
	for (int i = 0; i < N; i++)
		NEED(done[i] == 3);
	jia_barrier();
}

static void wrong(const char *how)
{
	if (strcmp(how, "unlock") == 0)
		jia_unlock(4);
	if (strcmp(how, "allocations") == 0)
		jia_alloc(jiapid == 1 ? 5000 : 100);
	if (strcmp(how, "mismatch") == 0 && jiapid == 1)
		jia_wait();
	if (strcmp(how, "memory") == 0)
		jia_alloc(1UL << 50);
	if (strcmp(how, "host") == 0)
		jia_alloc2p(1, jiahosts);
	if (strcmp(how, "error") == 0 && jiapid == jiahosts - 1)
		jia_error("%s %d", "the end", 7);
	jia_barrier();
}

int main(int argc, char **argv)
{
	double begin;

	CLOCK(begin)
	jia_init(argc, argv);
	NEED(jia_pid == jiapid && jiapid < jiahosts);
	if (argc > 1) {
		wrong(argv[1]);
		/* Without jia_exit(). */
		return 0;
	}
	allocation();
	locks();
	conditions();
	messages();
	loops();
	NEED(jia_clock() > begin);
	NEED(jia_startstat() <= jia_stopstat());
	printf("host %d of %d\n", jiapid, jiahosts);
	jia_exit();
	/* What a main() of no type returns may be anything. */
	return 77;
}
