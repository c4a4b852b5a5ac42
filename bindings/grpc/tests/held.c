/* Results that stay at the server, and are arguments of later calls. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "server.h"

static const double A[4] = {1, 2, 3, 4};
static const double B[4] = {5, 6, 7, 8};
static const double AB[4] = {19, 22, 43, 50};
static const double ABA[4] = {85, 126, 193, 286};

static grpc_function_handle_t dmmul;
static grpc_function_handle_t fill;

static grpc_held_array_t_np *created(void)
{
    grpc_held_array_t_np *array = NULL;
    GIVES(GRPC_NO_ERROR, grpc_held_array_create_np(&array));
    EXPECT(array != NULL);
    return array;
}

static void holds(const grpc_held_array_t_np *array, const double *numbers)
{
    double fetched[4] = {0};
    size_t bytes = 0;
    GIVES(GRPC_NO_ERROR, grpc_held_array_bytes_np(array, &bytes));
    EXPECT(bytes == sizeof fetched);
    GIVES(GRPC_NO_ERROR, grpc_held_array_fetch_np(array, fetched, bytes));
    EXPECT(memcmp(fetched, numbers, sizeof fetched) == 0);
}

/* That an error has this exact code, and a text that says this. */
static void said(grpc_error_t exact, const char *text)
{
    EXPECT(grpc_last_error_get_np() == exact && strstr(grpc_last_error_text_np(), text) != NULL);
}

/* A held array that was released is neither read nor written, as any argument. */
static void refused(grpc_held_array_t_np *gone)
{
    double c[4] = {0};
    int n = 2;
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, gone, B, c));
    said(GRPC_INVALID_ARGUMENT_NP, "`A` is no held array, or one that was released");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, A, B, gone));
    said(GRPC_INVALID_ARGUMENT_NP, "`C` is no held array, or one that was released");
    grpc_arg_stack_t *stack = grpc_arg_stack_new(4);
    EXPECT(grpc_arg_stack_push_arg(stack, &n) == 0 && grpc_arg_stack_push_arg(stack, (void *)A) == 0);
    EXPECT(grpc_arg_stack_push_arg(stack, (void *)B) == 0 && grpc_arg_stack_push_arg(stack, gone) == 0);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call_arg_stack(&dmmul, stack));
    EXPECT(grpc_arg_stack_destruct(stack) == 0);
    /* Nor is a part of it. */
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, (char *)gone + sizeof(double), B, c));
    /* Later ones have addresses of their own. */
    for (int i = 0; i < 100; i++) {
        grpc_held_array_t_np *later = created();
        EXPECT(later != gone);
        GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(later));
    }
}

/* That a routine takes this for none of its arguments. */
#define NO_MEMORY(text, routine, ...)                                                                                        \
    do {                                                                                                                     \
        grpc_function_handle_t handle;                                                                                       \
        GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&handle, routine));                                                \
        GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&handle, __VA_ARGS__));                                                    \
        said(GRPC_INVALID_ARGUMENT_NP, text);                                                                                \
        GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&handle));                                                        \
    } while (0)

/* Scalars, texts, files and functions are at no address of the library's. */
static void only_arrays(void)
{
    grpc_held_array_t_np *x = created();
    grpc_output_t_np *output = NULL;
    char answer[16];
    double c[4] = {0};
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, x));
    for (int turn = 0; turn < 2; turn++) {
        const char *why = turn == 0 ? "is no memory: a held array was given" : "is no held array, or one that was released";
        NO_MEMORY(why, "nap", 0, x);
        NO_MEMORY(why, "count", x, 1);
        NO_MEMORY(why, "shout", "a", x);
        NO_MEMORY(why, "shout", x, answer);
        NO_MEMORY(why, "capitals", x, "to", "both");
        NO_MEMORY(why, "integrate", 1, x, c);
        /* Scalars on a stack are addresses. */
        grpc_arg_stack_t *stack = grpc_arg_stack_new(4);
        EXPECT(grpc_arg_stack_push_arg(stack, x) == 0 && grpc_arg_stack_push_arg(stack, (void *)A) == 0);
        EXPECT(grpc_arg_stack_push_arg(stack, (void *)B) == 0 && grpc_arg_stack_push_arg(stack, c) == 0);
        GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call_arg_stack(&dmmul, stack));
        said(GRPC_INVALID_ARGUMENT_NP, why);
        EXPECT(grpc_arg_stack_destruct(stack) == 0);
        if (turn == 0) {
            holds(x, AB);
            GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_fetch_np(x, x, sizeof c));
            GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_put_np(x, &dmmul, x, sizeof c));
            GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
        }
    }
    GIVES(GRPC_NO_ERROR, grpc_output_create_np(&output));
    NO_MEMORY("is no held array", "nap", 0, output);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, A, B, output));
    GIVES(GRPC_NO_ERROR, grpc_output_destruct_np(output));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, A, B, output));
}

/* A child of fork() knows what its parent made as none of its own. */
static void after_fork(void)
{
    grpc_held_array_t_np *live = created();
    grpc_held_array_t_np *gone = created();
    int status = -1;
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, live));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(gone));
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
        GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&dmmul, "dmmul"));
        refused(live);
        refused(gone);
        GIVES(GRPC_NO_ERROR, grpc_finalize());
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    holds(live, AB);
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(live));
}

static void results_stay(void)
{
    grpc_held_array_t_np *ab = created();
    double c[4] = {0};
    int n = 2;
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, ab, B, c));
    said(GRPC_INVALID_ARGUMENT_NP, "`A` holds no array yet");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_fetch_np(ab, c, sizeof c));
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, ab));
    holds(ab, AB);
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, ab, A, c));
    EXPECT(memcmp(c, ABA, sizeof c) == 0);
    /* Read and made by one call, from a stack. */
    grpc_arg_stack_t *stack = grpc_arg_stack_new(4);
    EXPECT(grpc_arg_stack_push_arg(stack, &n) == 0 && grpc_arg_stack_push_arg(stack, ab) == 0);
    EXPECT(grpc_arg_stack_push_arg(stack, (void *)A) == 0 && grpc_arg_stack_push_arg(stack, ab) == 0);
    GIVES(GRPC_NO_ERROR, grpc_call_arg_stack(&dmmul, stack));
    holds(ab, ABA);
    EXPECT(grpc_arg_stack_destruct(stack) == 0);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_fetch_np(ab, c, sizeof c - 1));
    said(GRPC_INVALID_ARGUMENT_NP, "has 32 bytes, there is room for 31");
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_held_array_fetch_np(ab, NULL, sizeof c));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(ab));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_release_np(ab));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_fetch_np(ab, c, sizeof c));
    refused(ab);
    /* An array without elements. */
    grpc_held_array_t_np *empty = created();
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 0, A, B, empty));
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 0, empty, empty, c));
    GIVES(GRPC_NO_ERROR, grpc_held_array_fetch_np(empty, NULL, 0));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(empty));
}

static void arrays_are_sent(void)
{
    grpc_held_array_t_np *a = created();
    double c[4] = {0};
    GIVES(GRPC_NO_ERROR, grpc_held_array_put_np(a, &dmmul, A, sizeof A));
    holds(a, A);
    for (int i = 0; i < 2; i++) {
        GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, a, B, c));
        EXPECT(memcmp(c, AB, sizeof c) == 0);
    }
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 3, a, a, c));
    said(GRPC_INVALID_ARGUMENT_NP, "`A` has 32 bytes, the routine wants 72");
    GIVES(GRPC_NO_ERROR, grpc_held_array_put_np(a, &dmmul, B, sizeof B));
    holds(a, B);
    GIVES(GRPC_NO_ERROR, grpc_held_array_put_np(a, &dmmul, NULL, 0));
    GIVES(GRPC_NO_ERROR, grpc_held_array_fetch_np(a, NULL, 0));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_held_array_put_np(a, &dmmul, NULL, 1));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_held_array_put_np(a, NULL, A, sizeof A));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(a));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_put_np(a, &dmmul, A, sizeof A));
}

static void sessions(void)
{
    grpc_held_array_t_np *x = created();
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    grpc_sessionid_t other = GRPC_SESSIONID_VOID;
    double c[4] = {0};
    GIVES(GRPC_NO_ERROR, grpc_call_async(&dmmul, &session, 2, A, B, x));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, A, B, x));
    said(GRPC_INVALID_ARGUMENT_NP, "already the result of a call that is not over");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, x, B, c));
    said(GRPC_INVALID_ARGUMENT_NP, "whose end was not reported");
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    holds(x, AB);
    /* A call goes on with what it was given. */
    GIVES(GRPC_NO_ERROR, grpc_call_async(&dmmul, &session, 2, x, A, c));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    EXPECT(memcmp(c, ABA, sizeof c) == 0);
    /* A session that was cancelled leaves what was there. */
    x = created();
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, x));
    GIVES(GRPC_NO_ERROR, grpc_call_async(&fill, &session, 4, 60000, 1.0, x));
    GIVES(GRPC_NO_ERROR, grpc_cancel(session));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(session));
    holds(x, AB);
    /* Released while it is made: it is gone with the session's end. */
    GIVES(GRPC_NO_ERROR, grpc_call_async(&fill, &other, 4, 1, 1.0, x));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_wait(other));
}

static void what_does_not_fit(void)
{
    grpc_function_handle_t negate;
    grpc_function_handle_t conjugate;
    grpc_function_handle_t columns;
    grpc_held_array_t_np *x = created();
    double c[9] = {0};
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&negate, "negate"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&conjugate, "conjugate"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&columns, "columns"));
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, x));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 3, x, x, c));
    said(GRPC_INVALID_ARGUMENT_NP, "`A` has 32 bytes, the routine wants 72");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&conjugate, 2, x));
    said(GRPC_INVALID_ARGUMENT_NP, "has elements of double, the routine wants dcomplex");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&columns, 2, 2, x));
    said(GRPC_INVALID_ARGUMENT_NP, "another memory order");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&negate, 4, x));
    said(GRPC_INVALID_ARGUMENT_NP, "travels in pieces");
    /* What failed took nothing. */
    holds(x, AB);
    GIVES(GRPC_NO_ERROR, grpc_call(&fill, 4, 0, 2.5, x));
    holds(x, (const double[4]){2.5, 2.5, 2.5, 2.5});
    /* A column has no order. */
    GIVES(GRPC_NO_ERROR, grpc_call(&columns, 4, 1, x));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&negate));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&conjugate));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&columns));
}

static void by_status(void)
{
    grpc_function_handle_t judge;
    grpc_held_array_t_np *seen = created();
    double number = 0;
    int info = 0;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&judge, "judge"));
    /* The results of a routine that says that it failed are in place. */
    GIVES(GRPC_SESSION_FAILED, grpc_call(&judge, 3, seen, &info));
    EXPECT(grpc_last_error_get_np() == GRPC_STATUS_NP && info == 3);
    GIVES(GRPC_NO_ERROR, grpc_held_array_fetch_np(seen, &number, sizeof number));
    EXPECT(number == 3);
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(seen));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&judge));
}

static void other_servers(void)
{
    struct server other;
    grpc_function_handle_t there;
    grpc_held_array_t_np *x = created();
    double c[4] = {0};
    server_start(&other, 2, 64, "127.0.0.1:0");
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&there, other.address, "dmmul"));
    GIVES(GRPC_NO_ERROR, grpc_call(&there, 2, A, B, x));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, x, B, c));
    said(GRPC_INVALID_ARGUMENT_NP, "at the server of another connection");
    /* A result here takes its place. */
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, x));
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, x, A, c));
    EXPECT(memcmp(c, ABA, sizeof c) == 0);
    GIVES(GRPC_NO_ERROR, grpc_call(&there, 2, A, B, x));
    server_end(&other, SIGTERM);
    /* At the latest the next use of the connection notices that it is lost. */
    EXPECT(grpc_held_array_fetch_np(x, c, sizeof c) != GRPC_NO_ERROR);
    GIVES(GRPC_RPC_REFUSED, grpc_held_array_fetch_np(x, c, sizeof c));
    said(GRPC_HELD_LOST_NP, "its connection was lost");
    GIVES(GRPC_RPC_REFUSED, grpc_call(&dmmul, 2, x, A, c));
    said(GRPC_HELD_LOST_NP, "its connection was lost");
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&there));
}

static void objects(void)
{
    grpc_object_handle_t_np counter;
    grpc_held_array_t_np *y = created();
    double c[4] = {0};
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, y));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_default_np(&counter, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&counter, "keep", 2, y));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&counter, "times", 2, (double[2]){1, 10}, y));
    GIVES(GRPC_NO_ERROR, grpc_held_array_fetch_np(y, c, 2 * sizeof *c));
    EXPECT(c[0] == 19 + 220 && c[1] == 43 + 500);
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(y));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&counter));
}

int main(void)
{
    struct server server;
    grpc_held_array_t_np *kept = NULL;
    double c[4] = {0};
    server_start(&server, 2, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NOT_INITIALIZED, grpc_held_array_create_np(&kept));
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_held_array_create_np(NULL));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&dmmul, "dmmul"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&fill, "fill"));
    results_stay();
    only_arrays();
    after_fork();
    arrays_are_sent();
    sessions();
    what_does_not_fit();
    by_status();
    objects();
    other_servers();
    /* The end of the library releases all of them. */
    kept = created();
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, kept));
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_fetch_np(kept, c, sizeof c));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&dmmul, "dmmul"));
    refused(kept);
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&server, SIGTERM);
    return 0;
}
