/* Programs whose ranks wait for each other for ever, one of each kind.
 *   kumi run -n 2 deadlock-c KIND;  kumi debug waits JOB says why. */
#include <stdio.h>
#include <string.h>

#include <kumi_dsm.h>

enum { TAG = 7 };

/* Each rank receives from its neighbour before it sends. */
static int crossed(void)
{
	int code = kumi_message_recv((kumi_rank() + 1) % kumi_size(), TAG, NULL, 0, NULL);

	if (code != KUMI_OK)
		return code;
	return kumi_message_send((kumi_rank() + 1) % kumi_size(), TAG, NULL, 0);
}

/* Rank 1 ends, and rank 0 waits for its message. */
static int left(void)
{
	return kumi_rank() == 0 ? kumi_message_recv(1, TAG, NULL, 0, NULL) : KUMI_OK;
}

/* Rank 1 does not come to the barrier. */
static int barrier(void)
{
	return kumi_rank() == 1 ? kumi_message_recv(0, TAG, NULL, 0, NULL) : kumi_barrier();
}

/* Rank 1 never writes what rank 0 waits for. */
static int notification(void)
{
	kumi_window *window = NULL;
	int code = kumi_window_create(8, &window);

	if (code != KUMI_OK)
		return code;
	if (kumi_rank() == 0)
		return kumi_window_wait_notify(window, 3, 1, NULL);
	return kumi_message_recv(0, TAG, NULL, 0, NULL);
}

/* Two ranks take two locks of shared memory, each the other one first. */
static int locks(void)
{
	uint32_t mine = (uint32_t)kumi_rank();
	int code = kumi_dsm_start();

	if (code == KUMI_OK)
		code = kumi_dsm_lock(mine);
	if (code == KUMI_OK)
		code = kumi_dsm_wait();
	if (code == KUMI_OK)
		code = kumi_dsm_lock((mine + 1) % (uint32_t)kumi_size());
	return code;
}

static const struct {
	const char *name;
	int (*run)(void);
} kinds[] = {
	{"crossed", crossed}, {"left", left}, {"barrier", barrier}, {"notification", notification}, {"locks", locks},
};

int main(int argc, char **argv)
{
	size_t kind = 0, count = sizeof kinds / sizeof kinds[0];
	int code;

	while (kind < count && (argc != 2 || strcmp(argv[1], kinds[kind].name) != 0))
		kind++;
	if (kind == count) {
		fputs("usage: deadlock-c crossed|left|barrier|notification|locks\n", stderr);
		return 64;
	}
	code = kumi_init();
	if (code == KUMI_OK)
		code = kinds[kind].run();
	if (code != KUMI_OK)
		fprintf(stderr, "deadlock-c: %s\n", kumi_error_string(code));
	kumi_finalize();
	return code == KUMI_OK ? 0 : 1;
}
