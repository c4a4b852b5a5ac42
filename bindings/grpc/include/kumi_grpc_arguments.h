/* Calls with typed arguments, so that types, sizes and shapes are checked before anything is sent. kumi_grpc.hpp and the
 * Fortran module kumi_grpc use them. Programs in C use grpc.h. */
#ifndef KUMI_GRPC_ARGUMENTS_H
#define KUMI_GRPC_ARGUMENTS_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* the parameter's default; for a result: it is not wanted */
    KUMI_GRPC_DEFAULT = 0,
    KUMI_GRPC_NUMBER = 1,
    KUMI_GRPC_ARRAY = 2,
    /* `count` bytes of UTF-8, or the path of a file; for a result: room for this many bytes, with a zero at the end */
    KUMI_GRPC_TEXT = 3,
    /* the same with blanks up to the end instead of a zero */
    KUMI_GRPC_BLANKS = 4,
    /* a C function at `data`; unless `count` is 0 it gets `taker` before its arguments */
    KUMI_GRPC_FUNCTION = 5,
    /* an array of mode `in`, which need not outlive the function */
    KUMI_GRPC_ARRAY_COPY = 6,
    /* the grpc_held_array_t_np at `data`; in a transaction the grpc_intermediate_t_np */
    KUMI_GRPC_HELD = 7
};

/* Types of numbers and elements. */
enum {
    KUMI_GRPC_INT8 = 0,
    KUMI_GRPC_INT16 = 1,
    KUMI_GRPC_INT32 = 2,
    KUMI_GRPC_INT64 = 3,
    KUMI_GRPC_UINT8 = 4,
    KUMI_GRPC_UINT16 = 5,
    KUMI_GRPC_UINT32 = 6,
    KUMI_GRPC_UINT64 = 7,
    KUMI_GRPC_FLOAT = 8,
    KUMI_GRPC_DOUBLE = 9,
    KUMI_GRPC_FLOAT_COMPLEX = 10,
    KUMI_GRPC_DOUBLE_COMPLEX = 11
};

/* Added to the type of a callback's argument: the address of one or several values. */
enum { KUMI_GRPC_ADDRESS = 64 };

typedef struct kumi_grpc_argument {
    int what;
    int element;
    /* not 0: results may be written there */
    int writable;
    /* GRPC_ORDER_C_NP or GRPC_ORDER_FORTRAN_NP; ignored without dimensions */
    int order;
    /* the call borrows it as described in grpc.h; numbers and texts of mode `in`, and
     * KUMI_GRPC_ARRAY_COPY, only until the function returns */
    void *data;
    /* elements of an array, bytes of a text */
    uint64_t count;
    /* the array's dimensions, until the function returns; 0: as many elements as the routine wants, in its order. For a
     * callback the types of its arguments (texts: addresses of bytes), which are compared with its declaration; NULL: no
     * comparison. */
    const uint64_t *dims;
    uint64_t dimensions;
    /* not NULL: this function gets a returned text, with `taker`, from the thread that sees the end of the call */
    void (*take)(void *taker, const char *text, size_t length);
    void *taker;
    /* Calls of a transaction only: the variable of the program whose value or copy this is, with its bytes; NULL: none. A call is
     * refused if an earlier one of its transaction gives what is there. Of a returned text: the variable that gets it. */
    const void *source;
    uint64_t source_bytes;
} kumi_grpc_argument;

/* Calls and waits (is_session 0) or begins a session. `attributes` may be NULL. Errors: those of grpc_call(). */
grpc_error_t kumi_grpc_call_arguments(grpc_function_handle_t *handle, const kumi_grpc_argument *arguments, size_t count,
                                      int is_session, grpc_sessionid_t *session, const grpc_session_attr_t_np *attributes);

/* The same for a method. Errors: those of grpc_invoke_np(). */
grpc_error_t kumi_grpc_invoke_arguments(grpc_object_handle_t_np *handle, const char *method, const kumi_grpc_argument *arguments,
                                        size_t count, int is_session, grpc_sessionid_t *session,
                                        const grpc_session_attr_t_np *attributes);

/* Records a call of a transaction; its end compares types, sizes and shapes, before anything is sent. Of the attributes, which may be NULL, it takes the time limit only, and refuses others. Errors: those
 * of grpc_transaction_call_np(). */
grpc_error_t kumi_grpc_transaction_call_arguments(grpc_transaction_t_np *transaction, int *call, grpc_function_handle_t *handle,
                                                  const kumi_grpc_argument *arguments, size_t count,
                                                  const grpc_session_attr_t_np *attributes);

/* Waits until one of the sessions is over, and gives the first such session of the array. Unlike grpc_wait_or() it does not
 * report the end, and waits for no session whose end was reported. Errors: INVALID_SESSION_ID. */
grpc_error_t kumi_grpc_wait_over(const grpc_sessionid_t *sessions, size_t count, grpc_sessionid_t *session);

#ifdef __cplusplus
}
#endif

#endif
