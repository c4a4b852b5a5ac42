/* What the tests of kumi.h have in common; a test is one file. */
#include <stdio.h>

static int failures;

#define EXPECT(condition)                                                     \
	do {                                                                  \
		if (!(condition)) {                                           \
			failures++;                                           \
			fprintf(stderr, "line %d: %s (%s)\n", __LINE__,       \
			        #condition, kumi_error_detail());             \
		}                                                             \
	} while (0)
