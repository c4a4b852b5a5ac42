#include "is_keys.h"

#include <stddef.h>
#include <string.h>

#include "npb.h"

static const struct is_class classes[] = {
	{ 'S', 16, 11, 9,
	  { 48427, 17148, 23627, 62548, 4431 },
	  { 0, 18, 346, 64917, 65463 }, 3, 0, 0 },
	{ 'W', 20, 16, 10,
	  { 357773, 934767, 875723, 898999, 404505 },
	  { 1249, 11698, 1039987, 1043896, 1048018 }, 2, -2, 0 },
	{ 'A', 23, 19, 10,
	  { 2112377, 662041, 5336171, 3642833, 4250760 },
	  { 104, 17523, 123928, 8288932, 8388264 }, 3, -1, 1 },
};

const struct is_class *is_class_find(char name)
{
	for (unsigned i = 0; i < sizeof classes / sizeof classes[0]; i++)
		if (classes[i].name == name)
			return &classes[i];
	return NULL;
}

void is_keys_make(const struct is_class *class, int64_t first, int64_t count,
                  int32_t *keys)
{
	uint64_t state = npb_skip(NPB_SEED, 4 * (uint64_t)first);
	double quarter = (double)(1 << class->log2_max_key) / 4.0;

	for (int64_t i = 0; i < count; i++) {
		double sum = npb_random(&state);

		sum += npb_random(&state);
		sum += npb_random(&state);
		sum += npb_random(&state);
		keys[i] = (int32_t)(quarter * sum);
	}
}

int64_t is_expected_rank(const struct is_class *class, int check,
                         int iteration)
{
	if (check < class->rising)
		return class->check_rank[check] + iteration + class->bias;
	return class->check_rank[check] -
	       (iteration + (class->bias_down ? class->bias : 0));
}

void is_count_below(const int32_t *keys, int64_t count, int32_t low,
                    int32_t span, int32_t *below)
{
	memset(below, 0, ((size_t)span + 1) * sizeof *below);
	for (int64_t i = 0; i < count; i++)
		below[keys[i] - low + 1]++;
	for (int32_t k = 0; k < span; k++)
		below[k + 1] += below[k];
}
