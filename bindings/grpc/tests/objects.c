/* Objects of classes: their state, their ends, and what is said of those that cannot be. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "server.h"

/* Until a condition holds, for a minute at most. */
#define EVENTUALLY(condition)                                                                                                \
    do {                                                                                                                     \
        int tries = 0;                                                                                                       \
        while (!(condition)) {                                                                                               \
            EXPECT(tries++ < 6000 && #condition);                                                                            \
            usleep(10000);                                                                                                   \
        }                                                                                                                    \
    } while (0)

static int said(const char *text)
{
    return strstr(grpc_last_error_text_np(), text) != NULL;
}

/* Those that were let go give their places back when the server has seen it. */
static grpc_object_handle_t_np object_of(const char *class_name)
{
    grpc_object_handle_t_np object;
    EVENTUALLY(grpc_object_handle_default_np(&object, class_name) == GRPC_NO_ERROR);
    return object;
}

static int64_t total(grpc_object_handle_t_np *object)
{
    int64_t sum = -1;
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(object, "total", &sum));
    return sum;
}

static int process(grpc_object_handle_t_np *object)
{
    int number = 0;
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(object, "pid", &number));
    EXPECT(number > 0);
    return number;
}

static int is_gone(int number)
{
    return kill(number, 0) == -1 && errno == ESRCH;
}

/* What the method `later` waits for. */
static const char *gate(void)
{
    static char path[PATH_MAX];
    static int count;
    char name[64];
    snprintf(name, sizeof name, "kumi-grpc-gate-%ld-%d", (long)getpid(), count++);
    temporary(path, sizeof path, name);
    return path;
}

/* The file by which `later` says that it runs. */
static const char *begun(const char *path)
{
    static char file[PATH_MAX + 8];
    snprintf(file, sizeof file, "%s.begun", path);
    return file;
}

static void until_begun(const char *path)
{
    EVENTUALLY(access(begun(path), F_OK) == 0);
    EXPECT(unlink(begun(path)) == 0);
}

static void open_gate(const char *path)
{
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    EXPECT(file >= 0 && close(file) == 0);
}

static void outside(void)
{
    grpc_object_handle_t_np object = {0};
    grpc_object_handle_t_np *found = NULL;
    grpc_handle_attr_t_np attributes;
    grpc_session_attr_t_np times;
    grpc_sessionid_t session = 0;
    GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_default_np(&object, "counter"));
    GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_init_np(&object, "127.0.0.1:1", "counter"));
    GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_array_default_np(&object, 1, NULL));
    GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_init_with_attr_np(&object, NULL));
    GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_destruct_np(&object));
    GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_is_ready_np(&object));
    GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_get_attr_np(&object, &attributes));
    GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_get_from_session_np(&found, 1));
    GIVES(GRPC_NOT_INITIALIZED, grpc_session_attr_initialize_with_object_handle_np(&object, &times));
    GIVES(GRPC_NOT_INITIALIZED, grpc_invoke_np(&object, "total"));
    GIVES(GRPC_NOT_INITIALIZED, grpc_invoke_async_np(&object, "total", &session));
    GIVES(GRPC_NOT_INITIALIZED, grpc_invoke_arg_stack_np(&object, "total", NULL));
    GIVES(GRPC_NOT_INITIALIZED, grpc_invoke_arg_stack_async_np(&object, "total", &session, NULL));
}

/* Each object has its own state, and runs what it is given in that order. */
static void states(void)
{
    grpc_object_handle_t_np one = object_of("counter");
    grpc_object_handle_t_np two;
    grpc_object_handle_t_np *found = NULL;
    grpc_function_handle_t *routine = NULL;
    grpc_sessionid_t sessions[16];
    double matrix[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    double x[3] = {1, 0, 2};
    double y[3] = {0};
    int64_t sums[8] = {0};
    int numbers[2];
    GIVES(GRPC_NO_ERROR, grpc_object_handle_default_np(&two, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&one, "add", 40));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&two, "add", -1));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&one, "add", 2));
    EXPECT(total(&one) == 42 && total(&two) == -1);
    for (int i = 0; i < 8; i++) {
        GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&two, "add", &sessions[2 * i], i + 1));
        GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&two, "total", &sessions[2 * i + 1], &sums[i]));
    }
    GIVES(GRPC_NO_ERROR, grpc_object_handle_get_from_session_np(&found, sessions[0]));
    EXPECT(found == &two);
    GIVES(GRPC_INVALID_SESSION_ID, grpc_get_handle(&routine, sessions[0]));
    EXPECT(said("grpc_object_handle_get_from_session_np"));
    GIVES(GRPC_NO_ERROR, grpc_wait_and(sessions, 16));
    for (int i = 0; i < 8; i++) {
        EXPECT(sums[i] == (i + 1) * (i + 2) / 2 - 1);
    }
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&one, "keep", 3, matrix));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&one, "times", 3, x, y));
    EXPECT(y[0] == 7 && y[1] == 16 && y[2] == 25);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_is_ready_np(&one));
    numbers[0] = process(&one);
    numbers[1] = process(&two);
    EXPECT(numbers[0] != numbers[1] && !is_gone(numbers[0]));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&one));
    EVENTUALLY(is_gone(numbers[0]));
    EXPECT(total(&two) == 35 && !is_gone(numbers[1]));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&two));
    EVENTUALLY(is_gone(numbers[1]));
}

static void more(int64_t sum, int64_t *more)
{
    *more = sum + 1;
}

static void fails(int64_t sum, int64_t *more)
{
    *more = sum;
    grpc_callback_failed_np("not today");
}

static void stacks_and_functions(void)
{
    grpc_object_handle_t_np object = object_of("counter");
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    grpc_arg_stack_t *stack = grpc_arg_stack_new(2);
    int x = 20;
    int64_t sum = 0;
    EXPECT(grpc_arg_stack_push_arg(stack, &x) == 0);
    GIVES(GRPC_NO_ERROR, grpc_invoke_arg_stack_np(&object, "add", stack));
    GIVES(GRPC_NO_ERROR, grpc_invoke_arg_stack_async_np(&object, "add", &session, stack));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    EXPECT(total(&object) == 40);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_invoke_arg_stack_np(&object, "keep", stack));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_invoke_arg_stack_np(&object, "add", NULL));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_invoke_arg_stack_async_np(&object, "add", NULL, stack));
    EXPECT(grpc_arg_stack_destruct(stack) == 0);
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&object, "ask", more, &sum));
    EXPECT(sum == 81);
    GIVES(GRPC_SESSION_FAILED, grpc_invoke_np(&object, "ask", fails, &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_CALLBACK_FAILED_NP && said("not today"));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
}

/* There are 4 places at the server: all of an array are made, or none. */
static void arrays(const char *server)
{
    grpc_object_handle_t_np objects[5];
    grpc_object_handle_t_np twice[2];
    int numbers[4];
    EVENTUALLY(grpc_object_handle_array_default_np(objects, 4, "counter") == GRPC_NO_ERROR);
    for (int i = 0; i < 4; i++) {
        GIVES(GRPC_NO_ERROR, grpc_invoke_np(&objects[i], "add", i));
        numbers[i] = process(&objects[i]);
    }
    for (int i = 0; i < 4; i++) {
        EXPECT(total(&objects[i]) == i);
    }
    GIVES(GRPC_RPC_REFUSED, grpc_object_handle_init_np(&objects[4], server, "counter"));
    EXPECT(grpc_last_error_get_np() == GRPC_BUSY_NP && said("4 objects"));
    /* One that is no handle, and one twice: none is destructed. */
    memset(&objects[4], 0, sizeof objects[4]);
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_array_destruct_np(objects, 5));
    twice[0] = twice[1] = objects[0];
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_array_destruct_np(twice, 2));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_array_destruct_np(NULL, 2));
    EXPECT(total(&objects[0]) == 0);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_array_destruct_np(objects, 4));
    for (int i = 0; i < 4; i++) {
        EVENTUALLY(is_gone(numbers[i]));
        GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_invoke_np(&objects[i], "add", i));
    }
    /* More than there may be; those that were made go, and nothing is written. */
    memset(objects, 0, sizeof objects);
    GIVES(GRPC_RPC_REFUSED, grpc_object_handle_array_init_np(objects, 5, server, "counter"));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_is_ready_np(&objects[0]));
    EVENTUALLY(grpc_object_handle_array_init_np(objects, 4, server, "counter") == GRPC_NO_ERROR);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_array_destruct_np(objects, 4));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_array_default_np(objects, 0, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_array_destruct_np(objects, 0));
    /* What comes after has room. */
    EVENTUALLY(grpc_object_handle_array_default_np(objects, 4, "other") == GRPC_NO_ERROR);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_array_destruct_np(objects, 4));
    EVENTUALLY(grpc_object_handle_array_default_np(objects, 4, "other") == GRPC_NO_ERROR);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_array_destruct_np(objects, 4));
}

static void attributes(const char *server)
{
    grpc_object_handle_t_np objects[2];
    grpc_handle_attr_t_np attributes;
    grpc_handle_attr_t_np read;
    grpc_session_attr_t_np times;
    grpc_sessionid_t session = 0;
    grpc_arg_stack_t *stack = grpc_arg_stack_new(1);
    double by_columns[4] = {1, 3, 2, 4};
    double x[2] = {10, 1};
    double y[2] = {0};
    int minute = 60000;
    int one = 1;
    int order = GRPC_ORDER_FORTRAN_NP;
    void *value = NULL;
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_initialize_np(&attributes));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_object_handle_init_with_attr_np(&objects[0], &attributes));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_object_handle_init_with_attr_np(&objects[0], NULL));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_HOSTNAME, server));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_SESSION_TIMEOUT_MS_NP, &minute));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_ORDER_NP, &order));
    EVENTUALLY(grpc_object_handle_array_init_with_attr_np(objects, 2, &attributes) == GRPC_NO_ERROR);
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&objects[1], "keep", 2, by_columns));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&objects[1], "times", 2, x, y));
    EXPECT(y[0] == 12 && y[1] == 34);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_get_attr_np(&objects[0], &read));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_get_np(&read, GRPC_HANDLE_ATTR_FUNCNAME, &value));
    EXPECT(strcmp(value, "counter") == 0);
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_release_np(value));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&read));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_object_handle_get_attr_np(&objects[0], NULL));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_with_object_handle_np(&objects[0], &times));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_get_np(&times, GRPC_SESSION_ATTR_SESSION_TIMEOUT_MS_NP, &value));
    EXPECT(*(int *)value == minute);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_release_np(value));
    GIVES(GRPC_NO_ERROR, grpc_invoke_with_attr_np(&objects[0], "add", &times, 1));
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_with_attr_np(&objects[0], "add", &session, &times, 2));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    EXPECT(grpc_arg_stack_push_arg(stack, &one) == 0);
    GIVES(GRPC_NO_ERROR, grpc_invoke_arg_stack_with_attr_np(&objects[0], "add", &times, stack));
    GIVES(GRPC_NO_ERROR, grpc_invoke_arg_stack_async_with_attr_np(&objects[0], "add", &session, &times, stack));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    EXPECT(total(&objects[0]) == 5);
    /* The order is that of the calls on it. */
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&times, GRPC_SESSION_ATTR_PRIORITY_NP, &one));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_invoke_with_attr_np(&objects[0], "add", &times, 1));
    EXPECT(said("priority"));
    EXPECT(total(&objects[0]) == 5);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_destruct_np(&times));
    EXPECT(grpc_arg_stack_destruct(stack) == 0);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_array_destruct_np(objects, 2));
}

/* What cannot be is said, and changes nothing. */
static void mistakes(void)
{
    grpc_object_handle_t_np none = {0};
    grpc_object_handle_t_np object = object_of("counter");
    grpc_object_handle_t_np *found = NULL;
    grpc_function_handle_t noop;
    grpc_function_handle_t total_of;
    grpc_sessionid_t session = 0;
    int64_t sum = 0;
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_object_handle_default_np(&none, "conter"));
    EXPECT(said("counter"));
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_object_handle_default_np(&none, "noop"));
    EXPECT(said("no class"));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_object_handle_default_np(&none, NULL));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_default_np(NULL, "counter"));
    GIVES(GRPC_SERVER_NOT_FOUND, grpc_object_handle_init_np(&none, "127.0.0.1:1", "counter"));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_destruct_np(&none));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_destruct_np(NULL));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_invoke_np(&none, "total", &sum));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_invoke_np(NULL, "total", &sum));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_is_ready_np(NULL));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_invoke_np(&object, NULL, &sum));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_invoke_async_np(&object, "total", NULL, &sum));
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_invoke_np(&object, "totl", &sum));
    EXPECT(said("counter.total"));
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_invoke_np(&object, "other.pid", &sum));
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_invoke_np(&object, "", &sum));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_invoke_np(&object, "times", -1, NULL, NULL));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_object_handle_get_from_session_np(&found, 12345));
    /* Handles of functions are none of objects, and methods no routines. */
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&noop, "noop"));
    memcpy(&none, &noop, sizeof none);
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_invoke_np(&none, "total", &sum));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_destruct_np(&none));
    GIVES(GRPC_NO_ERROR, grpc_call_async(&noop, &session));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_object_handle_get_from_session_np(&found, session));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&total_of, "counter.total"));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&total_of, &sum));
    EXPECT(said("object of `counter`"));
    EXPECT(total(&object) == 0);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_destruct_np(&object));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_invoke_np(&object, "total", &sum));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_is_ready_np(&object));
}

/* What ends the process of an object ends it: what waits has not run, and what comes later neither. */
static void crashes(void)
{
    grpc_object_handle_t_np object = object_of("counter");
    grpc_object_handle_t_np second = object_of("counter");
    grpc_sessionid_t sessions[3];
    const char *path = gate();
    int64_t sum = -1;
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "later", &sessions[0], path, 1));
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "crash", &sessions[1]));
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "total", &sessions[2], &sum));
    until_begun(path);
    open_gate(path);
    GIVES(GRPC_NO_ERROR, grpc_wait(sessions[0]));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(sessions[1]));
    GIVES(GRPC_CRASHED_NP, grpc_get_error_np(sessions[1]));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(sessions[2]));
    GIVES(GRPC_OBJECT_LOST_NP, grpc_get_error_np(sessions[2]));
    GIVES(GRPC_RPC_REFUSED, grpc_get_error(sessions[2]));
    EXPECT(sum == -1);
    GIVES(GRPC_RPC_REFUSED, grpc_invoke_np(&object, "total", &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_OBJECT_LOST_NP);
    EVENTUALLY(grpc_object_handle_is_ready_np(&object) == GRPC_OBJECT_LOST_NP);
    GIVES(GRPC_RPC_REFUSED, grpc_invoke_async_np(&object, "total", &sessions[0], &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_OBJECT_LOST_NP && said("make another"));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_is_ready_np(&second));
    EXPECT(total(&second) == 0);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&second));
    EXPECT(unlink(path) == 0);
}

/* A call that is cancelled while it waits has not run; one that runs ends its object, as one that is too late does. */
static void cancels(void)
{
    grpc_object_handle_t_np object = object_of("counter");
    grpc_session_attr_t_np times;
    grpc_sessionid_t sessions[3];
    const char *path = gate();
    int milliseconds = 50;
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "later", &sessions[0], path, 1));
    until_begun(path);
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "add", &sessions[1], 10));
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "add", &sessions[2], 100));
    GIVES(GRPC_NOT_COMPLETED, grpc_probe(sessions[2]));
    GIVES(GRPC_NO_ERROR, grpc_cancel(sessions[1]));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(sessions[1]));
    /* A cancelled session ends here at once. The server has read it when it answers what follows on the connection. */
    grpc_object_handle_t_np other = object_of("counter");
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&other));
    open_gate(path);
    GIVES(GRPC_NO_ERROR, grpc_wait_all());
    EXPECT(total(&object) == 101);
    EXPECT(unlink(path) == 0);
    path = gate();
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "later", &sessions[0], path, 1));
    until_begun(path);
    GIVES(GRPC_NO_ERROR, grpc_cancel(sessions[0]));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(sessions[0]));
    EVENTUALLY(grpc_object_handle_is_ready_np(&object) == GRPC_OBJECT_LOST_NP);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
    object = object_of("counter");
    path = gate();
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_with_object_handle_np(&object, &times));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&times, GRPC_SESSION_ATTR_SESSION_TIMEOUT_MS_NP, &milliseconds));
    GIVES(GRPC_TIMEOUT_NP, grpc_invoke_with_attr_np(&object, "later", &times, path, 1));
    EVENTUALLY(grpc_object_handle_is_ready_np(&object) == GRPC_OBJECT_LOST_NP);
    EXPECT(unlink(begun(path)) == 0 || errno == ENOENT);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_destruct_np(&times));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
}

/* An object goes with the last session on it, not before. */
static void lasts(void)
{
    grpc_object_handle_t_np object = object_of("counter");
    grpc_sessionid_t sessions[2];
    const char *path = gate();
    int64_t sum = 0;
    int number = process(&object);
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "later", &sessions[0], path, 7));
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "total", &sessions[1], &sum));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
    until_begun(path);
    EXPECT(!is_gone(number));
    open_gate(path);
    GIVES(GRPC_NO_ERROR, grpc_wait_and(sessions, 2));
    EXPECT(sum == 7);
    EVENTUALLY(is_gone(number));
    EXPECT(unlink(path) == 0);
}

/* In a child the parent's objects are none; they stay the parent's. */
static void forks(void)
{
    grpc_object_handle_t_np object = object_of("counter");
    grpc_object_handle_t_np own;
    int status = -1;
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&object, "add", 3));
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        GIVES(GRPC_NOT_INITIALIZED, grpc_invoke_np(&object, "add", 4));
        EXPECT(said("forked"));
        GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_is_ready_np(&object));
        GIVES(GRPC_NOT_INITIALIZED, grpc_object_handle_destruct_np(&object));
        GIVES(GRPC_NOT_INITIALIZED, grpc_finalize());
        GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
        GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_invoke_np(&object, "add", 4));
        own = object_of("counter");
        GIVES(GRPC_NO_ERROR, grpc_invoke_np(&own, "add", 50));
        EXPECT(total(&own) == 50);
        GIVES(GRPC_NO_ERROR, grpc_finalize());
        exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(total(&object) == 3);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
}

/* Objects go with their server, and with the end of the library. */
static void ends(struct server *server)
{
    grpc_object_handle_t_np object = object_of("counter");
    grpc_sessionid_t session = 0;
    const char *path = gate();
    char address[64];
    int64_t sum = 0;
    int number = 0;
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "later", &session, path, 1));
    until_begun(path);
    server_end(server, SIGKILL);
    GIVES(GRPC_SESSION_FAILED, grpc_wait(session));
    GIVES(GRPC_COMMUNICATION_FAILED, grpc_get_error(session));
    GIVES(GRPC_RPC_REFUSED, grpc_invoke_np(&object, "total", &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_OBJECT_LOST_NP);
    GIVES(GRPC_OBJECT_LOST_NP, grpc_object_handle_is_ready_np(&object));
    snprintf(address, sizeof address, "%s", server->address);
    server_start(server, 2, 64, address);
    /* It is none of the server that came. */
    GIVES(GRPC_RPC_REFUSED, grpc_invoke_np(&object, "total", &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_OBJECT_LOST_NP);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
    object = object_of("counter");
    EXPECT(total(&object) == 0);
    /* One that goes while nobody calls. */
    server_end(server, SIGTERM);
    GIVES(GRPC_RPC_REFUSED, grpc_invoke_np(&object, "total", &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_OBJECT_LOST_NP);
    server_start(server, 2, 64, address);
    object = object_of("counter");
    number = process(&object);
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "later", &session, path, 1));
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    EVENTUALLY(is_gone(number));
    EXPECT(unlink(begun(path)) == 0 || errno == ENOENT);
    GIVES(GRPC_NOT_INITIALIZED, grpc_invoke_np(&object, "total", &sum));
}

int main(void)
{
    struct server server;
    outside();
    server_start(&server, 2, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    states();
    stacks_and_functions();
    arrays(server.address);
    attributes(server.address);
    mistakes();
    crashes();
    cancels();
    lasts();
    forks();
    ends(&server);
    server_end(&server, SIGTERM);
    return 0;
}
