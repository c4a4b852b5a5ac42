/* The problem of the NAS kernel IS: its classes, keys and check values (NAS
 * report RNR-94-007, section 2.2.6; check values of the NAS Parallel
 * Benchmarks 3). */
#ifndef IS_KEYS_H
#define IS_KEYS_H

#include <stdint.h>

#define IS_ITERATIONS 10
#define IS_CHECKS 5

struct is_class {
	char name;
	int log2_keys;
	int log2_max_key;
	int log2_buckets;
	/* The key at place check_place[i] has rank check_rank[i], changed by
	 * iteration (see is_expected_rank()). */
	int64_t check_place[IS_CHECKS];
	int64_t check_rank[IS_CHECKS];
	int rising;     /* the first `rising` ranks go up, the others down */
	int bias;       /* added to the iteration */
	int bias_down;  /* whether the bias holds for the falling ranks too */
};

/* The class, or NULL if there is none of that name. */
const struct is_class *is_class_find(char name);

/* Keys first .. first+count-1 of the sequence. */
void is_keys_make(const struct is_class *class, int64_t first, int64_t count,
                  int32_t *keys);

/* The rank that check i must find in an iteration (1 .. IS_ITERATIONS). */
int64_t is_expected_rank(const struct is_class *class, int check,
                         int iteration);

/* below[k] becomes the number of keys that are less than low + k, for
 * 0 <= k <= span; the keys are in low .. low+span-1. */
void is_count_below(const int32_t *keys, int64_t count, int32_t low,
                    int32_t span, int32_t *below);

#endif
