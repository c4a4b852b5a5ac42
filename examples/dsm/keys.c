#include "keys.h"

#include "common.h"

uint32_t key(long i)
{
	uint32_t bits = (uint32_t)(mix((uint64_t)i) >> 32);

	/* Every eighth key is one of few. */
	return bits % 8 == 0 ? bits % 1000 : bits % KEY_NONE;
}

int sorted(const uint32_t *keys, long count)
{
	uint64_t sum = 0, expected = 0;
	int good = 1;

	for (long i = 0; i < count; i++) {
		good &= i == 0 || keys[i - 1] <= keys[i];
		/* Mixed, so that two wrong keys do not make up for each other. */
		sum += mix(keys[i]);
		expected += mix(key(i));
	}
	return good && sum == expected;
}
