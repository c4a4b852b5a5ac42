/* Calls of all kinds, and what is said of those that cannot be. */
#include <complex.h>
#include <signal.h>
#include <string.h>

#include "expect.h"
#include "server.h"

static const double A[4] = {1, 2, 3, 4};
static const double B[4] = {5, 6, 7, 8};
static const double AB[4] = {19, 22, 43, 50};

static void outside(void)
{
    grpc_function_handle_t handle = {0};
    grpc_sessionid_t session = 0;
    GIVES(GRPC_NOT_INITIALIZED, grpc_finalize());
    GIVES(GRPC_NOT_INITIALIZED, grpc_function_handle_default(&handle, "noop"));
    GIVES(GRPC_NOT_INITIALIZED, grpc_function_handle_init(&handle, "127.0.0.1:1", "noop"));
    GIVES(GRPC_NOT_INITIALIZED, grpc_function_handle_destruct(&handle));
    GIVES(GRPC_NOT_INITIALIZED, grpc_call(&handle));
    GIVES(GRPC_NOT_INITIALIZED, grpc_call_async(&handle, &session));
    GIVES(GRPC_NOT_INITIALIZED, grpc_probe(1));
    GIVES(GRPC_NOT_INITIALIZED, grpc_probe_or(&session, 1, &session));
    GIVES(GRPC_NOT_INITIALIZED, grpc_cancel(1));
    GIVES(GRPC_NOT_INITIALIZED, grpc_cancel_all());
    GIVES(GRPC_NOT_INITIALIZED, grpc_wait(1));
    GIVES(GRPC_NOT_INITIALIZED, grpc_wait_and(&session, 1));
    GIVES(GRPC_NOT_INITIALIZED, grpc_wait_or(&session, 1, &session));
    GIVES(GRPC_NOT_INITIALIZED, grpc_wait_all());
    GIVES(GRPC_NOT_INITIALIZED, grpc_wait_any(&session));
    GIVES(GRPC_NOT_INITIALIZED, grpc_get_error(1));
    GIVES(GRPC_NOT_INITIALIZED, grpc_get_failed_sessionid(&session));
    EXPECT(grpc_last_error_get_np() == GRPC_NOT_INITIALIZED);
}

static void products(void)
{
    grpc_function_handle_t handle;
    grpc_function_handle_t *found = NULL;
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    double c[4] = {0};
    int n = 2;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&handle, "dmmul"));
    GIVES(GRPC_NO_ERROR, grpc_call(&handle, 2, A, B, c));
    EXPECT(memcmp(c, AB, sizeof c) == 0);
    memset(c, 0, sizeof c);
    GIVES(GRPC_NO_ERROR, grpc_call_async(&handle, &session, 2, A, B, c));
    EXPECT(session > 0);
    GIVES(GRPC_NO_ERROR, grpc_get_error(session));
    GIVES(GRPC_NO_ERROR, grpc_get_handle(&found, session));
    EXPECT(found == &handle);
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    EXPECT(memcmp(c, AB, sizeof c) == 0);
    GIVES(GRPC_NO_ERROR, grpc_get_error(session));
    GIVES(GRPC_NO_ERROR, grpc_probe(session));
    /* The three dialects of stacks. */
    grpc_arg_stack_t *stack = grpc_arg_stack_new(4);
    double *out = c;
    EXPECT(grpc_arg_stack_push_arg(stack, &n) == 0 && grpc_stack_push(stack, (void *)A) == 0);
    EXPECT(pushArg(stack, (void *)B) == 0 && pushArg(stack, out) == 0 && pushArg(stack, out) == -1);
    memset(c, 0, sizeof c);
    GIVES(GRPC_NO_ERROR, grpc_call_arg_stack(&handle, stack));
    EXPECT(memcmp(c, AB, sizeof c) == 0);
    memset(c, 0, sizeof c);
    session = grpc_call_argstack_async(&handle, stack);
    EXPECT(session > 0);
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    EXPECT(memcmp(c, AB, sizeof c) == 0);
    EXPECT(popArg(stack) == out && grpc_stack_pop(stack) == (void *)B);
    EXPECT(grpc_arg_stack_pop_arg(stack) == (void *)A && popArg(stack) == &n && popArg(stack) == NULL);
    EXPECT(destructArgStack(stack) == 0);
    stack = grpc_stack_create(0);
    EXPECT(grpc_call_argstack(&handle, stack) == GRPC_INVALID_ARGUMENT_NP);
    EXPECT(grpc_call_arg_stack_async(&handle, stack) == GRPC_SESSIONID_VOID);
    EXPECT(grpc_last_error_get_np() == GRPC_INVALID_ARGUMENT_NP);
    EXPECT(grpc_stack_destruct(stack) == 0 && grpc_arg_stack_destruct(newArgStack(1)) == 0);
    EXPECT(grpc_arg_stack_new(-1) == NULL && destructArgStack(NULL) == -1 && popArg(NULL) == NULL);
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&handle));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_destruct(&handle));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&handle, 2, A, B, c));
}

int main(void)
{
    struct server server;
    outside();
    server_start(&server, 2, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_ALREADY_INITIALIZED, grpc_initialize(NULL));
    products();
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    GIVES(GRPC_NOT_INITIALIZED, grpc_finalize());
    server_end(&server, SIGTERM);
    return 0;
}
