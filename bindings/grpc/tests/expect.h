/* What the tests of C have in common. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

/* Makes a handle through a metaserver. A server may register after it has said where it listens. */
static inline grpc_function_handle_t handle_at_meta(const char *routine)
{
    grpc_function_handle_t handle;
    for (int i = 0; i < 600 && grpc_function_handle_default(&handle, routine) != GRPC_NO_ERROR; i++) {
        usleep(100000);
    }
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&handle, routine));
    return handle;
}

#endif
