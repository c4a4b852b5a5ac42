/* Writes where nothing was allocated: a user's program that ends badly. */
#include <kumi_dsm.h>

int main(void)
{
	void *start = NULL;

	if (kumi_init() != KUMI_OK || kumi_dsm_start() != KUMI_OK)
		return 0;
	if (kumi_dsm_allocate(1, kumi_dsm_blocks(), &start) != KUMI_OK)
		return 0;
	((volatile char *)start)[70000] = 1;
	return 0;
}
