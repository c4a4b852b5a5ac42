/* The smallest program: every rank prints its number, in order. */
#include <stdio.h>

#include <kumi.h>

int main(void)
{
	int code = kumi_init();
	int turn = 0;

	if (code != KUMI_OK) {
		fprintf(stderr, "hello: %s\n", kumi_error_string(code));
		return 1;
	}
	/* Rank r waits for a message of rank r - 1 before it prints. */
	if (kumi_rank() > 0)
		code = kumi_message_recv(kumi_rank() - 1, 0, &turn, sizeof turn, NULL);
	printf("hello from rank %d of %d on node %d, turn %d\n", kumi_rank(),
	       kumi_size(), kumi_node(), turn);
	fflush(stdout);
	turn++;
	if (code == KUMI_OK && kumi_rank() + 1 < kumi_size())
		code = kumi_message_send(kumi_rank() + 1, 0, &turn, sizeof turn);
	if (code != KUMI_OK)
		fprintf(stderr, "hello: %s\n", kumi_error_string(code));
	kumi_finalize();
	return code == KUMI_OK ? 0 : 1;
}
