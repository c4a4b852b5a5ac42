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

/* A handle of a routine. */
static grpc_function_handle_t handle_of(const char *name)
{
    grpc_function_handle_t handle;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&handle, name));
    return handle;
}

static void every_type(void)
{
    grpc_function_handle_t add = handle_of("addall");
    grpc_function_handle_t spread = handle_of("spread");
    double sum = 0;
    int8_t a = -1;
    int16_t b = -2;
    int32_t c = -3;
    int64_t d = -4;
    uint8_t e = 5;
    uint16_t f = 6;
    uint32_t g = 7;
    uint64_t h = 8;
    float i = 0.5F;
    double j = 0.25;
    void *all[] = {&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &sum};
    GIVES(GRPC_NO_ERROR, grpc_call(&add, a, b, c, d, e, f, g, h, i, j, &sum));
    EXPECT(sum == 16.75);
    GIVES(GRPC_NO_ERROR, grpc_call(&add, -128, -32768, INT32_MIN, -(INT64_C(1) << 40), 255, 65535, UINT32_MAX, UINT64_C(1) << 40,
                                   0.0F, 0.0, &sum));
    EXPECT(sum == -128.0 - 32768.0 - 2147483648.0 + 255 + 65535 + 4294967295.0);
    /* What is not wanted. */
    GIVES(GRPC_NO_ERROR, grpc_call(&add, a, b, c, d, e, f, g, h, i, j, NULL));
    /* The same from a stack, with addresses only. */
    grpc_arg_stack_t *stack = grpc_arg_stack_new(11);
    sum = 0;
    for (int k = 0; k < 11; k++) {
        EXPECT(grpc_arg_stack_push_arg(stack, all[k]) == 0);
    }
    GIVES(GRPC_NO_ERROR, grpc_call_arg_stack(&add, stack));
    EXPECT(sum == 16.75 && grpc_arg_stack_destruct(stack) == 0);
    GIVES(GRPC_NO_ERROR, grpc_call(&spread, 100.0, &a, &b, &c, &d, &e, &f, &g, &h, &i, &j));
    EXPECT(a == 100 && b == 100 && c == 100 && d == 100 && e == 100 && f == 100 && g == 100 && h == 100);
    EXPECT(i == 100 && j == 100);
    /* Out of range of the first; nothing is sent. */
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&add, 128, 0, 0, INT64_C(0), 0, 0, 0U, UINT64_C(0), 0.0F, 0.0, &sum));
    EXPECT(strstr(grpc_last_error_text_np(), "`a`") != NULL);
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&add));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&spread));
}

static void every_mode(void)
{
    grpc_function_handle_t count = handle_of("count");
    grpc_function_handle_t conjugate = handle_of("conjugate");
    grpc_function_handle_t negate = handle_of("negate");
    grpc_function_handle_t shout = handle_of("shout");
    double complex z[2] = {1 + 2 * I, -3 - 4 * I};
    int number = 40;
    int x[5] = {1, 2, 3, 4, 5};
    char answer[16];
    GIVES(GRPC_NO_ERROR, grpc_call(&count, &number, 2));
    EXPECT(number == 42);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&count, NULL, 2));
    GIVES(GRPC_NO_ERROR, grpc_call(&conjugate, 2, z));
    EXPECT(z[0] == 1 - 2 * I && z[1] == -3 + 4 * I);
    GIVES(GRPC_NO_ERROR, grpc_call(&conjugate, 0, NULL));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&conjugate, 1, NULL));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&conjugate, -1, z));
    GIVES(GRPC_NO_ERROR, grpc_call(&negate, 5, x));
    EXPECT(x[0] == -1 && x[1] == 2 && x[2] == -3 && x[3] == 4 && x[4] == -5);
    memset(answer, 'x', sizeof answer);
    GIVES(GRPC_NO_ERROR, grpc_call(&shout, "Grüße", answer));
    EXPECT(strcmp(answer, "Grüße!") == 0);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&shout, "\xff", answer));
    GIVES(GRPC_NO_ERROR, grpc_call(&shout, "", NULL));
    grpc_function_handle_t *all[] = {&count, &conjugate, &negate, &shout};
    for (int k = 0; k < 4; k++) {
        GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(all[k]));
    }
}

static void attributes(const char *server)
{
    grpc_handle_attr_t_np attributes;
    grpc_handle_attr_t_np read;
    grpc_function_handle_t handles[2];
    int order = GRPC_ORDER_C_NP;
    int time = 60000;
    void *value = NULL;
    double a[2][3] = {{0}};
    double plain[6] = {0};
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_initialize_np(&attributes));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_function_handle_init_with_attr_np(handles, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, "noop"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, "columns"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_HOSTNAME, server));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_ORDER_NP, &order));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_SESSION_TIMEOUT_MS_NP, &time));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_handle_attr_set_np(&attributes, (grpc_handle_attr_name_t_np)99, &time));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_ORDER_NP, &time));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_get_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, &value));
    EXPECT(strcmp(value, "columns") == 0);
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_release_np(value));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_array_init_with_attr_np(handles, 2, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&attributes));
    /* The routine has its array by columns; here it lies by rows. */
    GIVES(GRPC_NO_ERROR, grpc_call(&handles[1], 2, 3, a));
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 3; j++) {
            EXPECT(a[i][j] == 100 * (i + 1) + (j + 1));
        }
    }
    GIVES(GRPC_NO_ERROR, grpc_function_handle_get_attr_np(&handles[0], &read));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_get_np(&read, GRPC_HANDLE_ATTR_HOSTNAME, &value));
    EXPECT(strcmp(value, server) == 0);
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_release_np(value));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_get_np(&read, GRPC_HANDLE_ATTR_SESSION_TIMEOUT_MS_NP, &value));
    EXPECT(*(int *)value == time);
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_release_np(value));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&read));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_array_destruct_np(handles, 2));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&handles[0], 2, 3, a));
    /* Without the attribute it is as the routine has it. */
    GIVES(GRPC_NO_ERROR, grpc_function_handle_array_default_np(handles, 1, "columns"));
    GIVES(GRPC_NO_ERROR, grpc_call(&handles[0], 2, 3, plain));
    EXPECT(plain[0] == 101 && plain[1] == 201 && plain[2] == 102 && plain[5] == 203);
    GIVES(GRPC_NO_ERROR, grpc_function_handle_array_destruct_np(handles, 1));
}

/* More than one chunk, of which only every second element travels, and one that is turned. */
static void large(void)
{
    enum { M = 300, N = 701, COUNT = 700001 };
    grpc_function_handle_t negate = handle_of("negate");
    grpc_function_handle_t columns;
    grpc_handle_attr_t_np attributes;
    grpc_sessionid_t session = 0;
    int order = GRPC_ORDER_C_NP;
    int *x = malloc(sizeof(int) * COUNT);
    double *a = calloc((size_t)M * N, sizeof(double));
    EXPECT(x != NULL && a != NULL);
    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
    }
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_initialize_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, "columns"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_ORDER_NP, &order));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init_with_attr_np(&columns, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_call_async(&columns, &session, M, N, a));
    GIVES(GRPC_NO_ERROR, grpc_call(&negate, COUNT, x));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    for (int i = 0; i < COUNT; i++) {
        EXPECT(x[i] == (i % 2 == 0 ? -i : i));
    }
    for (int i = 0; i < M * N; i++) {
        EXPECT(a[i] == 100 * (i / N + 1) + (i % N + 1));
    }
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&negate));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&columns));
    free(x);
    free(a);
}

static void names(void)
{
    /* Of the standard's type. */
    char *name = grpc_error_string(GRPC_NO_ERROR);
    EXPECT(strcmp(name, "GRPC_NO_ERROR") == 0);
    EXPECT(strcmp(grpc_error_string(GRPC_ALREADY_INITIALIZED), "GRPC_ALREADY_INITIALIZED") == 0);
    EXPECT(strcmp(grpc_error_string(GRPC_TIMEOUT_NP), "GRPC_TIMEOUT_NP") == 0);
    EXPECT(strcmp(grpc_error_string(-1), "GRPC_UNKNOWN_ERROR_CODE") == 0);
    EXPECT(strcmp(grpc_error_string(1000), "GRPC_UNKNOWN_ERROR_CODE") == 0);
}

int main(void)
{
    struct server server;
    names();
    outside();
    server_start(&server, 2, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_ALREADY_INITIALIZED, grpc_initialize(NULL));
    products();
    every_type();
    every_mode();
    attributes(server.address);
    large();
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    GIVES(GRPC_NOT_INITIALIZED, grpc_finalize());
    server_end(&server, SIGTERM);
    return 0;
}
