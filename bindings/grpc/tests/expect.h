/* What the tests of C have in common. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#include "grpc.h"

#define EXPECT(condition)                                                                                                    \
    do {                                                                                                                     \
        if (!(condition)) {                                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                         \
            grpc_perror_np("the last error");                                                                               \
            exit(1);                                                                                                         \
        }                                                                                                                    \
    } while (0)

/* That a call gives this code. */
#define GIVES(code, call)                                                                                                    \
    do {                                                                                                                     \
        int got = (call);                                                                                                    \
        if (got != (code)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s gives %s, not %s\n", __FILE__, __LINE__, #call, grpc_error_string(got), #code);      \
            grpc_perror_np("the last error");                                                                               \
            exit(1);                                                                                                         \
        }                                                                                                                    \
    } while (0)

#endif
