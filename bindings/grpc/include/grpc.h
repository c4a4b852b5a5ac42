/* Calls of routines on servers: the GridRPC interface (GFD-R.052), with the extensions of Ninf-G (`_np`) that have a
 * meaning here. Link with -lkumi_grpc (`pkg-config --cflags --libs kumi-grpc`).
 *
 *     grpc_function_handle_t handle;
 *     if (grpc_initialize(NULL) == GRPC_NO_ERROR &&
 *         grpc_function_handle_default(&handle, "dmmul") == GRPC_NO_ERROR) {
 *         if (grpc_call(&handle, n, a, b, c) != GRPC_NO_ERROR)
 *             grpc_perror_np("dmmul");
 *         grpc_function_handle_destruct(&handle);
 *     }
 *     grpc_finalize();
 *
 * Arguments. A call takes one argument for each parameter of the server's description, in its order. Parameters of mode
 * `work` are left out.
 *   - Scalars of mode `in` are passed by value, as the C type of the description: `int64_t` for `int64` and `long`, so a
 *     plain `int` must be cast. C promotes smaller integers and `float` as usual.
 *   - Other scalars are passed by address. NULL means that the result is not wanted.
 *   - Arrays are passed by address, in the full size and the order of the description, even where only a section is sent.
 *     GRPC_HANDLE_ATTR_ORDER_NP changes the order.
 *   - Texts of mode `in` are UTF-8 and end with a zero. Other texts need a buffer of the size in the description.
 *   - Files are passed as the text of a path. Input is read before the call begins. Output appears, whole, when the call has
 *     succeeded. A file of mode `inout` is both.
 *   - Functions are passed as pointers to functions that return nothing. Their arguments are those of the declaration: scalars
 *     of mode `in` by value, all else by address, as in a C routine.
 *   - A held array (grpc_held_array_create_np) is passed instead of an array: it does not travel.
 * On an argument stack everything is passed by address, also scalars of mode `in`.
 * C cannot check the types of arguments behind `...`, nor the sizes of arrays: the program trusts the server's description.
 * The library checks ranges of numbers and sizes of calls before it sends anything.
 *
 * Memory. The call borrows its arguments until it is over: until grpc_call returns, or until a function of this header reports
 * the end or the cancellation of the session.
 *   - Input arrays may be changed when grpc_call_async has returned; through a metaserver, when the session is over.
 *   - Outputs must not be read, changed or freed before the session is over.
 *   - A handle must stay at its address until it is destructed; grpc_get_handle returns that address.
 *   - The library keeps nothing else that it was passed.
 *
 * Threads. Any thread may call any function at any time. The last error and the failed sessions belong to the calling thread.
 * Handles and sessions belong to the process. In a child made by fork() all functions return GRPC_NOT_INITIALIZED until it
 * calls grpc_initialize itself. That is safe if no other thread used the library during the fork.
 *
 * Callbacks run in any thread that waits or calls, whichever session it waits for, or that probes their session; without such
 * a thread the routine waits. Callbacks of one session run one after the other. A callback may make calls, but must not wait
 * for its own session, nor for one whose callback waits. longjmp and exceptions must not leave a callback.
 *
 * Sessions. A session ends by itself or by grpc_cancel, and a wait reports its end. After that grpc_wait and grpc_probe give the
 * same answer again; grpc_wait_or, grpc_wait_any, grpc_wait_all and grpc_probe_or skip the session. The library remembers the
 * outcome of the last 4096 sessions. */
#ifndef KUMI_GRPC_H
#define KUMI_GRPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A routine at a server. The contents are private; copies stand for the same handle. */
typedef struct grpc_function_handle_s {
    uint64_t gfh_number;
} grpc_function_handle_t;

/* A call that has begun; a number above 0. */
typedef int grpc_sessionid_t;
#define GRPC_SESSIONID_VOID (-1)

/* An object of a class at a server. The contents are private; copies stand for the same handle. */
typedef struct grpc_object_handle_s_np {
    uint64_t goh_number;
} grpc_object_handle_t_np;

/* An array at a server, and a receiver of what routines print. The library makes them, and knows them by their addresses. */
typedef struct grpc_held_array_s_np grpc_held_array_t_np;
typedef struct grpc_output_s_np grpc_output_t_np;

typedef int grpc_error_t;

/* Standard functions return codes 0 to 16, 32, 33 and 34. grpc_last_error_get_np() and grpc_get_error_np() also return the
 * others, which give the exact reason why a call was refused or failed. */
enum {
    GRPC_NO_ERROR = 0,
    /* grpc_initialize has not succeeded */
    GRPC_NOT_INITIALIZED = 1,
    GRPC_CONFIGFILE_NOT_FOUND = 2,
    /* grpc_last_error_text_np() names the line */
    GRPC_CONFIGFILE_ERROR = 3,
    /* no server can be reached */
    GRPC_SERVER_NOT_FOUND = 4,
    /* the server has no such routine; grpc_last_error_text_np() names the nearest */
    GRPC_FUNCTION_NOT_FOUND = 5,
    GRPC_INVALID_FUNCTION_HANDLE = 6,
    GRPC_INVALID_SESSION_ID = 7,
    /* the server refused the call: it is busy, denies access, lacks memory for the call, or lacks the library */
    GRPC_RPC_REFUSED = 8,
    /* the connection is lost; the call may have run. The next call connects again. */
    GRPC_COMMUNICATION_FAILED = 9,
    /* the call failed: the routine crashed, or says by its status that it failed */
    GRPC_SESSION_FAILED = 10,
    GRPC_NOT_COMPLETED = 11,
    GRPC_NONE_COMPLETED = 12,
    /* any other error, for example NULL where a pointer is needed */
    GRPC_OTHER_ERROR_CODE = 13,
    /* grpc_error_string() returns the name of this code for unknown numbers */
    GRPC_UNKNOWN_ERROR_CODE = 14,
    GRPC_ALREADY_INITIALIZED = 15,
    GRPC_LAST_ERROR_CODE = 16,

    /* the call exceeded its time limit */
    GRPC_TIMEOUT_NP = 32,
    GRPC_CANCELED_NP = 33,
    /* the arguments do not fit the description; nothing was sent */
    GRPC_INVALID_ARGUMENT_NP = 34,

    /* GRPC_SESSION_FAILED: the routine crashed */
    GRPC_CRASHED_NP = 35,
    /* GRPC_SESSION_FAILED: the routine returned a failure status; the arrays and the status are in place */
    GRPC_STATUS_NP = 36,
    /* GRPC_RPC_REFUSED: the server's queue of waiting calls is full */
    GRPC_BUSY_NP = 37,
    /* GRPC_RPC_REFUSED: the call needs more memory than the server allows, or asks for more memory or threads than it gives */
    GRPC_TOO_LARGE_NP = 38,
    /* GRPC_RPC_REFUSED: the server denies this client access */
    GRPC_NOT_PERMITTED_NP = 39,
    /* GRPC_RPC_REFUSED: the routine's library or symbol is missing */
    GRPC_NOT_RUNNABLE_NP = 40,
    /* GRPC_SESSION_FAILED: a function that the routine called failed, see grpc_callback_failed_np() */
    GRPC_CALLBACK_FAILED_NP = 41,
    /* GRPC_SESSION_FAILED: a file cannot be read or written. grpc_last_error_text_np() names it, and says whether it is here or
     * at the server. */
    GRPC_FILE_NP = 42,
    /* GRPC_SESSION_FAILED: a Python routine raised an exception; grpc_last_error_text_np() describes it */
    GRPC_RAISED_NP = 43,
    /* GRPC_RPC_REFUSED: the token has expired */
    GRPC_EXPIRED_NP = 44,
    /* The object no longer exists, and the method has not run: GRPC_RPC_REFUSED, or GRPC_SESSION_FAILED from a wait. */
    GRPC_OBJECT_LOST_NP = 45,
    /* The server does not hold an array any more that the call, or a fetch, wants: GRPC_RPC_REFUSED. GRPC_SESSION_FAILED: from a wait,
     * or if that server went while the call may have run. */
    GRPC_HELD_LOST_NP = 46,
    /* The server has no room to hold an array: GRPC_RPC_REFUSED, or GRPC_SESSION_FAILED from a wait. */
    GRPC_HELD_FULL_NP = 47,
    /* GRPC_SESSION_FAILED: this call of a transaction did not run, because a call failed that makes what it reads, or because the
     * transaction was refused as a whole */
    GRPC_NOT_RUN_NP = 48,
    /* GRPC_INVALID_ARGUMENT_NP: this is no transaction, it was destructed, or it is over */
    GRPC_INVALID_TRANSACTION_NP = 49
};
/* British spelling of the same code. */
#define GRPC_CANCELLED_NP GRPC_CANCELED_NP

/* ---- Start and end ---- */

/* Reads the configuration; does not connect yet. NULL: the environment variable KUMI_CALL_SERVER lists the servers, separated
 * by commas; its default is 127.0.0.1:7070. An address may be that of a metaserver, which chooses a server for each call. The
 * file has lines `key = value`; `#` begins a comment:
 *     servers = HOST:PORT, unix:PATH      servers of handles that name none; the first that has the routine is used
 *     token_file = PATH                   file with the user's token; relative to the folder of the configuration
 *     ca = PATH                           certificates of the authorities of tls:// servers; default: the file that
 *                                         KUMI_CALL_CA names, or the system's authorities
 *     timeout = SECONDS                   time limit of a call; default: the server's own limit
 *     connect_timeout = SECONDS           time limit of connecting; default: 10
 *     file_bytes = BYTES                  largest file that may come back; default: KUMI_CALL_FILE_BYTES, or 16 GiB
 * Errors: ALREADY_INITIALIZED, CONFIGFILE_NOT_FOUND, CONFIGFILE_ERROR (also for wrong values in the environment). */
grpc_error_t grpc_initialize(const char *config_file);

/* Cancels all sessions and closes all connections; all handles and sessions become invalid.
 * Errors: NOT_INITIALIZED, as for all functions below. */
grpc_error_t grpc_finalize(void);

/* ---- Function handles ---- */

/* Makes a handle of a routine at the first configured server that has it. Connects, and fetches the description.
 * Errors: SERVER_NOT_FOUND, FUNCTION_NOT_FOUND, RPC_REFUSED. */
grpc_error_t grpc_function_handle_default(grpc_function_handle_t *handle, const char *func_name);

/* Makes a handle of a routine at a server, `HOST:PORT` or `unix:PATH`. NULL: as grpc_function_handle_default(). Same errors. */
grpc_error_t grpc_function_handle_init(grpc_function_handle_t *handle, const char *server_name, const char *func_name);

/* Frees a handle; its sessions go on. Errors: INVALID_FUNCTION_HANDLE. */
grpc_error_t grpc_function_handle_destruct(grpc_function_handle_t *handle);

/* Gives the address of the handle with which a session was begun. Errors: INVALID_SESSION_ID, also for calls on objects. */
grpc_error_t grpc_get_handle(grpc_function_handle_t **handle, grpc_sessionid_t session);

/* The same for an array of handles of one routine. */
grpc_error_t grpc_function_handle_array_default_np(grpc_function_handle_t *handles, size_t count, const char *func_name);
grpc_error_t grpc_function_handle_array_init_np(grpc_function_handle_t *handles, size_t count, const char *server_name,
                                                const char *func_name);
grpc_error_t grpc_function_handle_array_destruct_np(grpc_function_handle_t *handles, size_t count);

/* ---- Calls ---- */

/* Calls a routine and waits. Errors: INVALID_FUNCTION_HANDLE, INVALID_ARGUMENT_NP, FUNCTION_NOT_FOUND, RPC_REFUSED, COMMUNICATION_FAILED,
 * SESSION_FAILED, TIMEOUT_NP, OTHER_ERROR_CODE. */
grpc_error_t grpc_call(grpc_function_handle_t *handle, ...);

/* Begins a session; returns when the arguments are sent. Errors: those of grpc_call(). */
grpc_error_t grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session, ...);

/* For callbacks: marks the callback as failed. The call fails when the callback returns. NULL: no reason is given. */
grpc_error_t grpc_callback_failed_np(const char *why);

/* Gives the seconds that are left of the call for which this thread runs a callback, or this process a routine: 0 when they are
 * over, HUGE_VAL without a limit. Calls that are made there end within that time. Errors: INVALID_ARGUMENT_NP: `seconds` is NULL;
 * CONFIGFILE_ERROR: KUMI_CALL_DEADLINE has an invalid setting. */
grpc_error_t grpc_remaining_np(double *seconds);

/* Sets in which trace the calls are that this thread begins from now on: `traceparent` of W3C Trace Context, which OpenTelemetry
 * gives. NULL: the TRACEPARENT with which the program was started; a routine has that of its call there. Errors: INVALID_ARGUMENT_NP. */
grpc_error_t grpc_traceparent_set_np(const char *traceparent);

/* Copies what was set so for this thread, with a zero at its end; an empty text: nothing. `size` bytes are there, of which it needs
 * GRPC_TRACEPARENT_SIZE_NP. Errors: INVALID_ARGUMENT_NP. */
#define GRPC_TRACEPARENT_SIZE_NP 56
grpc_error_t grpc_traceparent_get_np(char *traceparent, size_t size);

/* ---- Sessions ---- */

/* NO_ERROR: the session is over, successfully or not, and its results are in place. NOT_COMPLETED: it is under way. */
grpc_error_t grpc_probe(grpc_sessionid_t session);

/* Gives the first session of the array that is over; otherwise NONE_COMPLETED and GRPC_SESSIONID_VOID.
 * Errors: INVALID_SESSION_ID, also for GRPC_SESSIONID_VOID in the array. */
grpc_error_t grpc_probe_or(const grpc_sessionid_t *sessions, size_t count, grpc_sessionid_t *session);

/* Cancels a session. Afterwards nothing is written to its arrays. A wait returns SESSION_FAILED, and grpc_get_error() then
 * CANCELED_NP, unless the session was over before. If another thread waits for the session, this holds when that wait returns. Errors: INVALID_SESSION_ID. */
grpc_error_t grpc_cancel(grpc_sessionid_t session);

/* Cancels all sessions that are under way. */
grpc_error_t grpc_cancel_all(void);

/* Waits for a session. Errors: INVALID_SESSION_ID; SESSION_FAILED when it failed, was cancelled or took too long. Then
 * grpc_get_error() says how it ended, and grpc_last_error_get_np() gives the exact code. */
grpc_error_t grpc_wait(grpc_sessionid_t session);

/* Waits for all of them. Errors: INVALID_SESSION_ID; SESSION_FAILED when one failed, see grpc_get_failed_sessionid(). */
grpc_error_t grpc_wait_and(const grpc_sessionid_t *sessions, size_t count);

/* Waits until one of the sessions is over, and gives the first such session of the array. GRPC_SESSIONID_VOID: a wait has
 * reported all of them already. Errors: those of grpc_wait(). */
grpc_error_t grpc_wait_or(const grpc_sessionid_t *sessions, size_t count, grpc_sessionid_t *session);

/* The same for all sessions that no wait has reported yet, the oldest first. */
grpc_error_t grpc_wait_all(void);
grpc_error_t grpc_wait_any(grpc_sessionid_t *session);

/* ---- Errors ---- */

/* Returns the name of a code, a constant text. */
char *grpc_error_string(grpc_error_t error);

/* Returns how a session ended, and makes it this thread's last error. NO_ERROR while it is under way. Errors:
 * INVALID_SESSION_ID. */
grpc_error_t grpc_get_error(grpc_sessionid_t session);
/* The same with the exact codes. */
grpc_error_t grpc_get_error_np(grpc_sessionid_t session);

/* Gives the next session that failed in this thread's last wait; GRPC_SESSIONID_VOID: there are no more. */
grpc_error_t grpc_get_failed_sessionid(grpc_sessionid_t *session);

/* Return the exact code and the text of this thread's last error. The text stays until the next error. */
grpc_error_t grpc_last_error_get_np(void);
const char *grpc_last_error_text_np(void);

/* Prints both to standard error; `text` and a colon come first, unless it is NULL. */
grpc_error_t grpc_perror_np(const char *text);

/* ---- Argument stacks, with three sets of equivalent names ----
 * Push the addresses of all arguments in their order, also those of scalars of mode `in`. A stack has room for `most`.
 *   - Functions of stacks return 0, or -1 (NULL) after an error.
 *   - Calls return an error. Calls that begin a session return the session, or GRPC_SESSIONID_VOID after an error; then
 *     grpc_last_error_get_np() gives the code.
 *   - A stack may be reused or freed when the call has returned. The arguments themselves stay borrowed. */

typedef struct grpc_arg_stack_s grpc_arg_stack_t;

grpc_arg_stack_t *grpc_arg_stack_new(int most);
int grpc_arg_stack_push_arg(grpc_arg_stack_t *stack, void *address);
/* Removes and returns the argument that was pushed last; NULL: the stack is empty. */
void *grpc_arg_stack_pop_arg(grpc_arg_stack_t *stack);
int grpc_arg_stack_destruct(grpc_arg_stack_t *stack);
int grpc_call_arg_stack(grpc_function_handle_t *handle, grpc_arg_stack_t *stack);
grpc_sessionid_t grpc_call_arg_stack_async(grpc_function_handle_t *handle, grpc_arg_stack_t *stack);

grpc_arg_stack_t *grpc_stack_create(int most);
int grpc_stack_push(grpc_arg_stack_t *stack, void *address);
void *grpc_stack_pop(grpc_arg_stack_t *stack);
int grpc_stack_destruct(grpc_arg_stack_t *stack);
int grpc_call_argstack(grpc_function_handle_t *handle, grpc_arg_stack_t *stack);
grpc_sessionid_t grpc_call_argstack_async(grpc_function_handle_t *handle, grpc_arg_stack_t *stack);

grpc_arg_stack_t *newArgStack(int most);
int pushArg(grpc_arg_stack_t *stack, void *address);
void *popArg(grpc_arg_stack_t *stack);
int destructArgStack(grpc_arg_stack_t *stack);

/* ---- Attributes of handles ---- */

typedef enum grpc_handle_attr_name_e_np {
    /* const char *: the server; default: as grpc_function_handle_default() */
    GRPC_HANDLE_ATTR_HOSTNAME = 0,
    /* const char *: the routine, or the class of an object */
    GRPC_HANDLE_ATTR_FUNCNAME = 4,
    /* int *: time limit of a call in milliseconds; 0: that of the configuration */
    GRPC_HANDLE_ATTR_SESSION_TIMEOUT_MS_NP = 32,
    /* int *: the memory order of the program's arrays, see below */
    GRPC_HANDLE_ATTR_ORDER_NP = 33,
    /* int *: threads for which calls ask, or for which an object is made; 0: as many as the server gives */
    GRPC_HANDLE_ATTR_THREADS_NP = 34,
    /* uint64_t *: bytes of memory for the routine and all that it starts, likewise. RPC_REFUSED with the exact code TOO_LARGE_NP: the
     * server does not give that much of either, or its version gives none. */
    GRPC_HANDLE_ATTR_MEMORY_NP = 35
} grpc_handle_attr_name_t_np;

enum {
    /* the order of the description; nothing is copied */
    GRPC_ORDER_ROUTINE_NP = 0,
    /* row by row: the last index varies fastest */
    GRPC_ORDER_C_NP = 1,
    /* column by column: the first index varies fastest */
    GRPC_ORDER_FORTRAN_NP = 2
};

/* The contents are private. */
typedef struct grpc_handle_attr_s_np {
    char *gha_server;
    char *gha_routine;
    int gha_timeout_ms;
    int gha_order;
    int gha_threads;
    uint64_t gha_memory;
} grpc_handle_attr_t_np;

grpc_error_t grpc_handle_attr_initialize_np(grpc_handle_attr_t_np *attributes);
grpc_error_t grpc_handle_attr_destruct_np(grpc_handle_attr_t_np *attributes);
/* The value is copied. Errors: INVALID_ARGUMENT_NP: there is no such attribute. */
grpc_error_t grpc_handle_attr_set_np(grpc_handle_attr_t_np *attributes, grpc_handle_attr_name_t_np name, const void *value);
/* Gives a copy of the value, or NULL if there is none. Free it with grpc_handle_attr_release_np(). */
grpc_error_t grpc_handle_attr_get_np(grpc_handle_attr_t_np *attributes, grpc_handle_attr_name_t_np name, void **value);
grpc_error_t grpc_handle_attr_release_np(void *value);

/* Errors: those of grpc_function_handle_default(); INVALID_ARGUMENT_NP: the attributes name no routine. */
grpc_error_t grpc_function_handle_init_with_attr_np(grpc_function_handle_t *handle, const grpc_handle_attr_t_np *attributes);
grpc_error_t grpc_function_handle_array_init_with_attr_np(grpc_function_handle_t *handles, size_t count,
                                                          const grpc_handle_attr_t_np *attributes);
/* Gives the attributes of a handle. Free them with grpc_handle_attr_destruct_np(). */
grpc_error_t grpc_function_handle_get_attr_np(const grpc_function_handle_t *handle, grpc_handle_attr_t_np *attributes);

/* ---- Attributes of sessions ---- */

typedef enum grpc_session_attr_name_e_np {
    /* int *: time limit of the call in seconds; 0: that of the handle */
    GRPC_SESSION_ATTR_SESSION_TIMEOUT = 1,
    /* int *: the same in milliseconds */
    GRPC_SESSION_ATTR_SESSION_TIMEOUT_MS_NP = 32,
    /* int *: priority among the user's calls that wait at a metaserver: 0 to 9, 9 comes first. A server accepts only 0. */
    GRPC_SESSION_ATTR_PRIORITY_NP = 33,
    /* int *: threads for which the call asks; 0: those of the handle. Calls on an object have those of the object: others are
     * INVALID_ARGUMENT_NP. */
    GRPC_SESSION_ATTR_THREADS_NP = 34,
    /* uint64_t *: bytes of memory, likewise */
    GRPC_SESSION_ATTR_MEMORY_NP = 35
} grpc_session_attr_name_t_np;

typedef struct grpc_session_attr_s_np {
    int gsa_timeout_ms;
    int gsa_priority;
    int gsa_threads;
    uint64_t gsa_memory;
} grpc_session_attr_t_np;

/* These functions work as those of handle attributes do. */
grpc_error_t grpc_session_attr_initialize_np(const grpc_function_handle_t *handle, grpc_session_attr_t_np *attributes);
grpc_error_t grpc_session_attr_destruct_np(grpc_session_attr_t_np *attributes);
grpc_error_t grpc_session_attr_set_np(grpc_session_attr_t_np *attributes, grpc_session_attr_name_t_np name, const void *value);
grpc_error_t grpc_session_attr_get_np(grpc_session_attr_t_np *attributes, grpc_session_attr_name_t_np name, void **value);
grpc_error_t grpc_session_attr_release_np(void *value);

/* Calls with attributes. The library does not keep the attributes. */
grpc_error_t grpc_call_with_attr_np(grpc_function_handle_t *handle, const grpc_session_attr_t_np *attributes, ...);
grpc_error_t grpc_call_async_with_attr_np(grpc_function_handle_t *handle, grpc_sessionid_t *session,
                                          const grpc_session_attr_t_np *attributes, ...);
int grpc_call_arg_stack_with_attr_np(grpc_function_handle_t *handle, const grpc_session_attr_t_np *attributes,
                                     grpc_arg_stack_t *stack);
grpc_sessionid_t grpc_call_arg_stack_async_with_attr_np(grpc_function_handle_t *handle,
                                                        const grpc_session_attr_t_np *attributes, grpc_arg_stack_t *stack);

/* ---- What routines print ----
 * Calls with a handle that has a receiver give it what their routine has printed, to standard output and standard error, in its
 * order. It is there when the end of the call is reported, also of one that failed. Several handles and calls may have one receiver.
 * A server passes on the first MiB of a call, and servers of earlier versions nothing.
 *         grpc_output_create_np(&output);
 *         grpc_function_handle_output_np(&handle, output);
 *         grpc_call(&handle, n);
 *         grpc_output_take_np(output, &bytes, &length, NULL);
 * Errors of all functions here: INVALID_ARGUMENT_NP: this is no receiver. */

/* Makes a receiver. grpc_finalize() frees those that were not destructed. */
grpc_error_t grpc_output_create_np(grpc_output_t_np **output);

/* Calls with this handle that begin from now on give this receiver what they print; NULL: nobody gets it. Calls under way keep
 * theirs. Errors: also INVALID_FUNCTION_HANDLE. */
grpc_error_t grpc_function_handle_output_np(const grpc_function_handle_t *handle, grpc_output_t_np *output);
grpc_error_t grpc_object_handle_output_np(const grpc_object_handle_t_np *handle, grpc_output_t_np *output);

/* Takes what has come since the receiver was asked last: its address, with a zero behind it, and its length without that. It stays
 * there until the next call of this function for the receiver, or its destruction. A receiver keeps at most 4 MiB. is_cut, which may be
 * NULL, gets 1 if something is missing, otherwise 0. */
grpc_error_t grpc_output_take_np(grpc_output_t_np *output, const char **bytes, size_t *length, int *is_cut);

/* Frees a receiver. Nobody gets any more what calls print that have it. */
grpc_error_t grpc_output_destruct_np(grpc_output_t_np *output);

/* ---- Arrays that stay at a server ----
 * A held array stands for an array at a server. Pass it to a call where the routine takes an array, also on a stack:
 *   - as a result, which then stays at the server,
 *   - as an input that the server has,
 *   - as both: the result takes the place of what was there.
 *         grpc_held_array_t_np *ab;
 *         grpc_held_array_create_np(&ab);
 *         grpc_call(&dmmul, n, a, b, ab);
 *         grpc_call(&dmmul, n, ab, c, d);
 *         grpc_held_array_release_np(ab);
 * A result is there when the end of its call is reported. If that call fails, the held array stays as it was, unless the routine
 * said so by its status.
 *   - All calls that use it go to one server, by handles of its address.
 *   - By handles of a metaserver, a call that makes it runs at any server, and calls that read it run at the server that has it. All
 *     arrays that a call reads are at one server, and all these handles have the same address. If the server is gone such a call
 *     fails at once and runs nowhere else, also if its routine may run twice; the text names server and array. An array may outlive
 *     the metaserver. Methods of objects that a metaserver has placed take none.
 *   - The server has it for an hour at most unless configured otherwise, and not longer than the connection.
 *   - Type, length and memory order are compared with the description. GRPC_HANDLE_ATTR_ORDER_NP changes nothing of it.
 *   - Arrays of which a section travels cannot be held.
 *   - Its address is that of no memory, and is never given out again. Calls refuse one that was released, also after
 *     grpc_finalize() and in children of fork(), and a held array where no array is wanted.
 * Errors of all functions here and of calls: INVALID_ARGUMENT_NP: this is no held array, it was released, it holds nothing yet, or
 * it does not fit, or it is at another server; RPC_REFUSED with HELD_LOST_NP: the server does not have it any more; RPC_REFUSED with
 * HELD_FULL_NP: the server has no room. SESSION_FAILED instead of RPC_REFUSED: from a wait for a session, or the server went while
 * the call may have run. */

/* Makes one that holds nothing. grpc_finalize() releases those that were not released. */
grpc_error_t grpc_held_array_create_np(grpc_held_array_t_np **array);

/* Gives its length in bytes. */
grpc_error_t grpc_held_array_bytes_np(const grpc_held_array_t_np *array, size_t *bytes);

/* Sends an array to the server of a handle, which then holds it, instead of what was held. Later calls with handles of that server
 * have it as an input, in the memory order in which it was sent. The library compares its length only. At most the time limit of
 * the handle. A metaserver takes none, since it chooses servers for calls only. Errors: also INVALID_FUNCTION_HANDLE,
 * SERVER_NOT_FOUND, RPC_REFUSED, COMMUNICATION_FAILED, TIMEOUT_NP; OTHER_ERROR_CODE: the server is of an earlier version. */
grpc_error_t grpc_held_array_put_np(const grpc_held_array_t_np *array, const grpc_function_handle_t *handle, const void *from,
                                    size_t bytes);

/* Copies the array to memory of its length, in the memory order of the routine that made it. At most the timeout of the
 * configuration. Errors: also COMMUNICATION_FAILED, TIMEOUT_NP; INVALID_ARGUMENT_NP: it has another length. */
grpc_error_t grpc_held_array_fetch_np(const grpc_held_array_t_np *array, void *to, size_t bytes);

/* Frees it, and has the server drop the array. Calls that have begun go on with it. */
grpc_error_t grpc_held_array_release_np(grpc_held_array_t_np *array);

/* ---- Objects of classes ----
 * An object is a process at a server that keeps the state of its class (`DefClass`) from call to call.
 *   - Calls on one object run one after the other, in the order in which they began. They are ordinary sessions.
 *   - Method names do not contain the name of the class.
 *   - An object ends with its connection, and when its handle is destructed and all sessions on it are over. It also ends when a
 *     running method crashes, is cancelled or exceeds its time limit.
 *   - Calls on an ended object do not run: GRPC_OBJECT_LOST_NP. */

/* Creates an object at the first configured server that can, and waits for it, at most the timeout of the configuration.
 * Errors: SERVER_NOT_FOUND; FUNCTION_NOT_FOUND: no such class (INVALID_ARGUMENT_NP from a metaserver if it is a routine);
 * RPC_REFUSED: for example because the server has too many objects; COMMUNICATION_FAILED; TIMEOUT_NP;
 * INVALID_FUNCTION_HANDLE: `handle` is NULL. */
grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np *handle, const char *class_name);

/* Creates an object at a server or through a metaserver. NULL: as grpc_object_handle_default_np(). Same errors. */
grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np *handle, const char *server_name, const char *class_name);

/* Frees a handle. Sessions on the object go on; the object ends with the last of them. Errors: INVALID_FUNCTION_HANDLE. */
grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np *handle);

/* The same for an array of objects of one class. A function creates or frees all of them or none. */
grpc_error_t grpc_object_handle_array_default_np(grpc_object_handle_t_np *handles, size_t count, const char *class_name);
grpc_error_t grpc_object_handle_array_init_np(grpc_object_handle_t_np *handles, size_t count, const char *server_name,
                                              const char *class_name);
grpc_error_t grpc_object_handle_array_destruct_np(grpc_object_handle_t_np *handles, size_t count);

/* Creates an object with a time limit, a memory order, threads and memory for all calls on it. The time limit also holds for the creation.
 * Errors: those of grpc_object_handle_default_np(); INVALID_ARGUMENT_NP: the attributes name no class. */
grpc_error_t grpc_object_handle_init_with_attr_np(grpc_object_handle_t_np *handle, const grpc_handle_attr_t_np *attributes);
grpc_error_t grpc_object_handle_array_init_with_attr_np(grpc_object_handle_t_np *handles, size_t count,
                                                        const grpc_handle_attr_t_np *attributes);
/* Gives the attributes of a handle. Free them with grpc_handle_attr_destruct_np(). */
grpc_error_t grpc_object_handle_get_attr_np(const grpc_object_handle_t_np *handle, grpc_handle_attr_t_np *attributes);

/* NO_ERROR: the object exists, as far as the library knows without waiting. OBJECT_LOST_NP: it does not.
 * Errors: INVALID_FUNCTION_HANDLE. */
grpc_error_t grpc_object_handle_is_ready_np(const grpc_object_handle_t_np *handle);

/* Gives the address of the object handle of a session. Errors: INVALID_SESSION_ID, also for sessions of routines. */
grpc_error_t grpc_object_handle_get_from_session_np(grpc_object_handle_t_np **handle, grpc_sessionid_t session);

/* Calls a method and waits. Errors: those of grpc_call(), with the exact code OBJECT_LOST_NP for an ended object. */
grpc_error_t grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method, ...);

/* Begins a session; returns when the arguments are sent. Errors: those of grpc_invoke_np(). */
grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method, grpc_sessionid_t *session, ...);

/* The same with the arguments of a stack. */
grpc_error_t grpc_invoke_arg_stack_np(grpc_object_handle_t_np *handle, const char *method, grpc_arg_stack_t *stack);
grpc_error_t grpc_invoke_arg_stack_async_np(grpc_object_handle_t_np *handle, const char *method, grpc_sessionid_t *session,
                                            grpc_arg_stack_t *stack);

/* Calls with attributes. The library does not keep them. A priority above 0 is INVALID_ARGUMENT_NP. */
grpc_error_t grpc_session_attr_initialize_with_object_handle_np(const grpc_object_handle_t_np *handle,
                                                                grpc_session_attr_t_np *attributes);
grpc_error_t grpc_invoke_with_attr_np(grpc_object_handle_t_np *handle, const char *method, const grpc_session_attr_t_np *attributes,
                                      ...);
grpc_error_t grpc_invoke_async_with_attr_np(grpc_object_handle_t_np *handle, const char *method, grpc_sessionid_t *session,
                                            const grpc_session_attr_t_np *attributes, ...);
grpc_error_t grpc_invoke_arg_stack_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                                const grpc_session_attr_t_np *attributes, grpc_arg_stack_t *stack);
grpc_error_t grpc_invoke_arg_stack_async_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                                      grpc_sessionid_t *session, const grpc_session_attr_t_np *attributes,
                                                      grpc_arg_stack_t *stack);

/* ---- Information about a session ---- */

enum { GRPC_SESSION_EXECUTING = 1, GRPC_SESSION_DOWN = 2, GRPC_SESSION_DONE = 3 };

typedef struct grpc_session_info_s_np {
    /* Seconds that the call waited at the server, and that the routine ran; 0 until the session is over, or when it failed. */
    double gsi_waited;
    double gsi_ran;
    /* Seconds from the begin of the session until the program saw its end. */
    double gsi_total;
    /* Bytes of arrays and scalars that are sent and that come back. */
    uint64_t gsi_sent;
    uint64_t gsi_returned;
    /* The result of grpc_get_error_np(). */
    grpc_error_t gsi_error;
} grpc_session_info_t_np;

/* Either pointer may be NULL. Free the information with grpc_session_info_release_np().
 * Errors: INVALID_SESSION_ID. */
grpc_error_t grpc_session_info_get_np(grpc_sessionid_t session, grpc_session_info_t_np **info, int *status);
grpc_error_t grpc_session_info_release_np(grpc_session_info_t_np *info);

#ifdef __cplusplus
}
#endif

#include "kumi_grpc_transaction.h"

#endif
