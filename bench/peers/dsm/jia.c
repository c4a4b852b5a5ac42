/* The calls of kumi.h and kumi_dsm.h that examples/dsm make, by M-JIAJIA.  Its start hands arguments of programs to its
 * slaves in a way of its own, so here the program gets them from the variable PROGRAM_ARGUMENTS. */
#include "jia.h"
#include "nowindows.h"

#include <unistd.h>

#define PAGE 4096
#define WORDS 16 /* of a reduction */

int program_main(int argc, char **argv);

static uint64_t *slots; /* a page for each host */

static size_t up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

int main(int argc, char **argv)
{
	static char *words[32];
	char *list = getenv("PROGRAM_ARGUMENTS");
	int count = 1;

	words[0] = argv[0];
	if (list == NULL)
		exit(64);
	for (char *word = strtok(strdup(list), " "); word != NULL && count < 31; word = strtok(NULL, " "))
		words[count++] = word;
	jia_init(argc, argv);
	slots = (uint64_t *)jia_alloc3((int)(jiahosts * PAGE), PAGE, 0);
	jia_barrier();
	return program_main(count, words);
}

int kumi_init(void)
{
	return KUMI_OK;
}

int kumi_finalize(void)
{
	fflush(stdout);
	jia_exit();
	return KUMI_OK;
}

int kumi_rank(void)
{
	return jiapid;
}

int kumi_size(void)
{
	return jiahosts;
}

int kumi_barrier(void)
{
	jia_barrier();
	return KUMI_OK;
}

static void fold(void *to, const void *from, kumi_type type, kumi_op op)
{
	if (type == KUMI_F64) {
		double a = *(double *)to, b = *(const double *)from;

		*(double *)to = op == KUMI_SUM ? a + b : op == KUMI_MAX ? (a > b ? a : b) : a < b ? a : b;
	} else if (type == KUMI_I32) {
		int32_t a = *(int32_t *)to, b = *(const int32_t *)from;

		*(int32_t *)to = op == KUMI_SUM ? a + b : op == KUMI_MAX ? (a > b ? a : b) : a < b ? a : b;
	} else {
		uint64_t a = *(uint64_t *)to, b = *(const uint64_t *)from;

		*(uint64_t *)to = op == KUMI_SUM ? a + b : op == KUMI_MAX ? (a > b ? a : b) : a < b ? a : b;
	}
}

int kumi_allreduce(const void *send, void *recv, size_t count, kumi_type type, kumi_op op)
{
	size_t size = type == KUMI_I32 ? 4 : 8;

	if (count > WORDS)
		return -1;
	memcpy(slots + jiapid * (PAGE / 8), send, count * size);
	jia_barrier();
	memcpy(recv, slots, count * size);
	for (int host = 1; host < jiahosts; host++)
		for (size_t i = 0; i < count; i++)
			fold((char *)recv + i * size, (char *)(slots + host * (PAGE / 8)) + i * size, type, op);
	jia_barrier();
	return KUMI_OK;
}

int kumi_dsm_start(void)
{
	return KUMI_OK;
}

int kumi_dsm_end(void)
{
	jia_barrier();
	return KUMI_OK;
}

/* It has no first touch: what our programs touch first is a part of equal length of each rank, within a page. */
int kumi_dsm_allocate(size_t bytes, kumi_dsm_home home, void **address)
{
	size_t total = up(bytes, PAGE), block = up(total / (size_t)jiahosts + 1, PAGE);
	int first = 0;

	if (home.kind == KUMI_DSM_AT)
		block = total, first = home.rank;
	if (home.kind == KUMI_DSM_ROUND_ROBIN)
		block = PAGE * home.block_pages, first = home.rank;
	*address = (void *)jia_alloc3((int)total, (int)block, first);
	return KUMI_OK;
}

int kumi_dsm_lock(uint32_t lock)
{
	jia_lock((int)(lock % Maxlocks));
	return KUMI_OK;
}

int kumi_dsm_unlock(uint32_t lock)
{
	jia_unlock((int)(lock % Maxlocks));
	return KUMI_OK;
}

int kumi_dsm_barrier(void)
{
	jia_barrier();
	return KUMI_OK;
}
