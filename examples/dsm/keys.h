/* Keys for the sorting examples, and whether they were sorted. */
#ifndef DSM_KEYS_H
#define DSM_KEYS_H

#include <stdint.h>

/* No key is as large as this. */
#define KEY_NONE UINT32_MAX

/* Key number `i` before sorting; some keys come several times. */
uint32_t key(long i);

/* Whether these are keys 0 to `count` - 1 in order: none is smaller than the one
 * before, and sums that do not depend on the order are the same. */
int sorted(const uint32_t *keys, long count);

#endif
