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
 * Arguments. The server's description of the routine says what a call takes: one argument for each parameter but those of
 * mode `work`, in its order.
 *   - A scalar of mode `in` is passed by value, as the C type of its description (`int64_t` for `int64` and `long`: a plain
 *     `int` must be cast). Smaller integers and `float` are promoted as C does.
 *   - Scalars of the other modes are passed by address. NULL: what comes back is not wanted.
 *   - Arrays are passed by address, in the full size that the description says, also where only a section travels, and
 *     in the order of the description; GRPC_HANDLE_ATTR_ORDER_NP changes that.
 *   - Texts of mode `in` are UTF-8 with a zero at the end; those that come back go to a buffer of the size that the description
 *     says.
 *   - Files are passed as the text of a path: what is sent is read from there before the call begins, what comes back is there,
 *     whole, when the call has ended well. A file of mode `inout` is both.
 *   - A function that the routine calls is passed as a pointer to one that returns nothing and has the arguments of its declaration:
 *     scalars of mode `in` by value, the rest by address, as a routine in C has them.
 * On an argument stack everything is passed by address, scalars of mode `in` too.
 * Types of arguments behind `...` cannot be checked in C, nor whether an array has the size that the description says: a server
 * is trusted with what it describes. Ranges of numbers and sizes of calls are checked before anything is sent.
 *
 * Memory. What is passed belongs to the call until it is over: until grpc_call returns, or until a function of this header has
 * said that the session is over (or cancelled). Input arrays may be changed when grpc_call_async has returned, through a
 * metaserver when the session is over; arrays and scalars that come back must not be read, changed or freed before the session is over. A handle must stay where
 * it is until it is destructed (grpc_get_handle gives its address). Nothing else that is passed is kept.
 *
 * Threads. All functions may be called from any thread at any time. The last error and the failed sessions are those of the
 * calling thread. What was made stays the process': in a child made by fork() all functions say GRPC_NOT_INITIALIZED, also
 * grpc_finalize, until it calls grpc_initialize itself, which is safe if no other thread used the library during the fork.
 *
 * Functions that a routine calls run in the thread that waits for the session, or probes it: as long as none does, the routine waits.
 * They may make calls themselves, but not wait for the session that they belong to. longjmp and exceptions must not leave them.
 *
 * Sessions. A session ends by itself, or by grpc_cancel. Waiting for it tells its end; after that grpc_wait and
 * grpc_probe give the same answer again, grpc_wait_or, grpc_wait_any, grpc_wait_all and grpc_probe_or pass it over, and how it ended is known
 * as long as it is among the last 4096. */
#ifndef KUMI_GRPC_H
#define KUMI_GRPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A routine at a server. What is in it is the library's; copies stand for the same handle. */
typedef struct grpc_function_handle_s {
    uint64_t gfh_number;
} grpc_function_handle_t;

/* A call that was begun; numbers above 0. */
typedef int grpc_sessionid_t;
#define GRPC_SESSIONID_VOID (-1)

/* An object of a class at a server; the same. */
typedef struct grpc_object_handle_s_np {
    uint64_t goh_number;
} grpc_object_handle_t_np;

typedef int grpc_error_t;

/* Standard functions return codes 0 to 16 and the first three behind; grpc_last_error_get_np() and grpc_get_error_np() also
 * the others, which say more exactly why a call was refused or failed. */
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
    /* the server did not run the call: it is busy, or does not permit it, or the call needs too much, or the library is missing */
    GRPC_RPC_REFUSED = 8,
    /* the connection is lost; the call may have run. The next call connects again. */
    GRPC_COMMUNICATION_FAILED = 9,
    /* the call failed: the routine crashed, or says by its status that it failed */
    GRPC_SESSION_FAILED = 10,
    GRPC_NOT_COMPLETED = 11,
    GRPC_NONE_COMPLETED = 12,
    /* anything else, NULL where a pointer is needed among it */
    GRPC_OTHER_ERROR_CODE = 13,
    /* what grpc_error_string() says of other numbers */
    GRPC_UNKNOWN_ERROR_CODE = 14,
    GRPC_ALREADY_INITIALIZED = 15,
    GRPC_LAST_ERROR_CODE = 16,

    /* the call took longer than it may */
    GRPC_TIMEOUT_NP = 32,
    GRPC_CANCELED_NP = 33,
    /* the arguments do not fit the description; nothing was sent */
    GRPC_INVALID_ARGUMENT_NP = 34,

    /* GRPC_SESSION_FAILED: the routine crashed */
    GRPC_CRASHED_NP = 35,
    /* GRPC_SESSION_FAILED: the routine says so by its status; arrays and the status are in place */
    GRPC_STATUS_NP = 36,
    /* GRPC_RPC_REFUSED: as many calls wait as may */
    GRPC_BUSY_NP = 37,
    /* GRPC_RPC_REFUSED: more memory than a call may have */
    GRPC_TOO_LARGE_NP = 38,
    /* GRPC_RPC_REFUSED: the server does not take this client */
    GRPC_NOT_PERMITTED_NP = 39,
    /* GRPC_RPC_REFUSED: the routine's library or symbol is missing */
    GRPC_NOT_RUNNABLE_NP = 40,
    /* GRPC_SESSION_FAILED: a function that the routine called failed, see grpc_callback_failed_np() */
    GRPC_CALLBACK_FAILED_NP = 41,
    /* GRPC_SESSION_FAILED: a file cannot be read or written; grpc_last_error_text_np() says which, and whether here or at the server */
    GRPC_FILE_NP = 42,
    /* GRPC_SESSION_FAILED: a function of Python that is served has raised an exception, which grpc_last_error_text_np() tells */
    GRPC_RAISED_NP = 43,
    /* GRPC_RPC_REFUSED: the token has expired */
    GRPC_EXPIRED_NP = 44,
    /* GRPC_RPC_REFUSED: the object is no more; of waits for a session GRPC_SESSION_FAILED. The method has not run. */
    GRPC_OBJECT_LOST_NP = 45
};
/* As it is spelled elsewhere. */
#define GRPC_CANCELLED_NP GRPC_CANCELED_NP

/* ---- Start and end ---- */

/* Reads the configuration; NULL: the server is that of the environment variable KUMI_CALL_SERVER (several, with commas between),
 * or 127.0.0.1:7070. A metaserver may be named where a server may: it says for each call where it runs. Lines of the file are `key = value`, `#` begins a comment:
 *     servers = HOST:PORT, unix:PATH      those of handles that name no server: the first that has the routine
 *     token_file = PATH                   who calls; a path from the folder of the configuration
 *     ca = PATH                           certificates of the authorities of tls:// servers; that of the environment
 *                                         variable KUMI_CALL_CA, or those of the system, unless given
 *     timeout = SECONDS                   how long a call may take; without: the server's own limit
 *     connect_timeout = SECONDS           how long connecting may take; 10 unless given
 *     file_bytes = BYTES                  most bytes of a file that comes back; those of the environment variable
 *                                         KUMI_CALL_FILE_BYTES, or 16 GiB, unless given
 * Nothing is connected yet.
 * Errors: ALREADY_INITIALIZED, CONFIGFILE_NOT_FOUND, CONFIGFILE_ERROR (of what the environment says too). */
grpc_error_t grpc_initialize(const char *config_file);

/* Cancels all sessions and closes all connections; handles and sessions are invalid from then on.
 * Errors: NOT_INITIALIZED, as of all functions below. */
grpc_error_t grpc_finalize(void);

/* ---- Function handles ---- */

/* A routine at the first of the configured servers that has it. Connects, and asks for the description.
 * Errors: SERVER_NOT_FOUND, FUNCTION_NOT_FOUND, RPC_REFUSED. */
grpc_error_t grpc_function_handle_default(grpc_function_handle_t *handle, const char *func_name);

/* A routine at a server, `HOST:PORT` or `unix:PATH`; NULL: as grpc_function_handle_default(). Errors: the same. */
grpc_error_t grpc_function_handle_init(grpc_function_handle_t *handle, const char *server_name, const char *func_name);

/* Sessions of the handle go on. Errors: INVALID_FUNCTION_HANDLE. */
grpc_error_t grpc_function_handle_destruct(grpc_function_handle_t *handle);

/* The handle of a session: the address with which it was made. Errors: INVALID_SESSION_ID, also of a call on an object. */
grpc_error_t grpc_get_handle(grpc_function_handle_t **handle, grpc_sessionid_t session);

/* The same for arrays of handles of one routine. */
grpc_error_t grpc_function_handle_array_default_np(grpc_function_handle_t *handles, size_t count, const char *func_name);
grpc_error_t grpc_function_handle_array_init_np(grpc_function_handle_t *handles, size_t count, const char *server_name,
                                                const char *func_name);
grpc_error_t grpc_function_handle_array_destruct_np(grpc_function_handle_t *handles, size_t count);

/* ---- Calls ---- */

/* Calls and waits. Errors: INVALID_FUNCTION_HANDLE, INVALID_ARGUMENT_NP, FUNCTION_NOT_FOUND, RPC_REFUSED, COMMUNICATION_FAILED,
 * SESSION_FAILED, TIMEOUT_NP, OTHER_ERROR_CODE. */
grpc_error_t grpc_call(grpc_function_handle_t *handle, ...);

/* Begins a session; returns when the arguments are sent. Errors: those of grpc_call(). */
grpc_error_t grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session, ...);

/* In a function that a routine calls: it has failed, and with it the call, when the function returns. NULL: without a reason. */
grpc_error_t grpc_callback_failed_np(const char *why);

/* ---- Sessions ---- */

/* Whether a session is over: NO_ERROR, then its results are in place, however it ended; otherwise NOT_COMPLETED. */
grpc_error_t grpc_probe(grpc_sessionid_t session);

/* Which of them is over: the first in the array that is; otherwise NONE_COMPLETED and GRPC_SESSIONID_VOID.
 * GRPC_SESSIONID_VOID in the array is passed over, here and below. Errors: INVALID_SESSION_ID. */
grpc_error_t grpc_probe_or(const grpc_sessionid_t *sessions, size_t count, grpc_sessionid_t *session);

/* Ends a session: nothing is written to its arrays any more, and its end can be waited for: CANCELED_NP, unless it was over
 * before. If another thread waits for it, both are true when that returns. Errors: INVALID_SESSION_ID. */
grpc_error_t grpc_cancel(grpc_sessionid_t session);

/* Ends all sessions that are under way. */
grpc_error_t grpc_cancel_all(void);

/* Waits for a session. Errors: INVALID_SESSION_ID; SESSION_FAILED, TIMEOUT_NP or CANCELED_NP when it failed. */
grpc_error_t grpc_wait(grpc_sessionid_t session);

/* Waits for all of them. Errors: INVALID_SESSION_ID; SESSION_FAILED when one failed, see grpc_get_failed_sessionid(). */
grpc_error_t grpc_wait_and(const grpc_sessionid_t *sessions, size_t count);

/* Waits until one of them is over, the first in the array if several are; that is in *session. Without sessions that were
 * not told yet it is GRPC_SESSIONID_VOID. Errors: those of grpc_wait(). */
grpc_error_t grpc_wait_or(const grpc_sessionid_t *sessions, size_t count, grpc_sessionid_t *session);

/* The same of all sessions that were not told yet, the oldest first. */
grpc_error_t grpc_wait_all(void);
grpc_error_t grpc_wait_any(grpc_sessionid_t *session);

/* ---- Errors ---- */

/* The name of a code; never freed. */
const char *grpc_error_string(grpc_error_t error);

/* How a session ended, which becomes this thread's last error; NO_ERROR while it is under way. Errors: INVALID_SESSION_ID. */
grpc_error_t grpc_get_error(grpc_sessionid_t session);
/* The same with the codes that say more. */
grpc_error_t grpc_get_error_np(grpc_sessionid_t session);

/* The next of the sessions that failed in this thread's last wait; GRPC_SESSIONID_VOID: no more. */
grpc_error_t grpc_get_failed_sessionid(grpc_sessionid_t *session);

/* The most exact code of this thread's last error, and what exactly happened; the text is there until the next error. */
grpc_error_t grpc_last_error_get_np(void);
const char *grpc_last_error_text_np(void);

/* Prints both to standard error, behind a text and a colon unless it is NULL. */
grpc_error_t grpc_perror_np(const char *text);

/* ---- Argument stacks, in three dialects that do the same ----
 * Addresses are pushed in the order of the arguments; that of a scalar of mode `in` too. A stack has room for `most`.
 * Stacks return 0, or -1 (NULL) after an error. Calls return an error; those that begin a session return the session, or
 * GRPC_SESSIONID_VOID after an error (grpc_last_error_get_np()). A stack may be used again and freed when a call has returned, what it
 * points to must stay. */

typedef struct grpc_arg_stack_s grpc_arg_stack_t;

grpc_arg_stack_t *grpc_arg_stack_new(int most);
int grpc_arg_stack_push_arg(grpc_arg_stack_t *stack, void *address);
/* The argument that was pushed last; NULL: there is none. */
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
    /* const char *: the server; without: as grpc_function_handle_default() */
    GRPC_HANDLE_ATTR_HOSTNAME = 0,
    /* const char *: the routine, or the class of an object */
    GRPC_HANDLE_ATTR_FUNCNAME = 4,
    /* int *: how many milliseconds a call may take; 0: as the configuration says */
    GRPC_HANDLE_ATTR_SESSION_TIMEOUT_MS_NP = 32,
    /* int *: how the program's arrays lie, see below */
    GRPC_HANDLE_ATTR_ORDER_NP = 33
} grpc_handle_attr_name_t_np;

enum {
    /* as the description has them; nothing is copied */
    GRPC_ORDER_ROUTINE_NP = 0,
    /* the last index moves fastest */
    GRPC_ORDER_C_NP = 1,
    /* the first index moves fastest */
    GRPC_ORDER_FORTRAN_NP = 2
};

/* What is in it is the library's. */
typedef struct grpc_handle_attr_s_np {
    char *gha_server;
    char *gha_routine;
    int gha_timeout_ms;
    int gha_order;
} grpc_handle_attr_t_np;

grpc_error_t grpc_handle_attr_initialize_np(grpc_handle_attr_t_np *attributes);
grpc_error_t grpc_handle_attr_destruct_np(grpc_handle_attr_t_np *attributes);
/* The value is copied. Errors: INVALID_ARGUMENT_NP: there is no such attribute. */
grpc_error_t grpc_handle_attr_set_np(grpc_handle_attr_t_np *attributes, grpc_handle_attr_name_t_np name, const void *value);
/* Gives a copy of the value, NULL if there is none, to be freed with grpc_handle_attr_release_np(). */
grpc_error_t grpc_handle_attr_get_np(grpc_handle_attr_t_np *attributes, grpc_handle_attr_name_t_np name, void **value);
grpc_error_t grpc_handle_attr_release_np(void *value);

/* Errors: those of grpc_function_handle_default(); INVALID_ARGUMENT_NP: no routine is named. */
grpc_error_t grpc_function_handle_init_with_attr_np(grpc_function_handle_t *handle, const grpc_handle_attr_t_np *attributes);
grpc_error_t grpc_function_handle_array_init_with_attr_np(grpc_function_handle_t *handles, size_t count,
                                                          const grpc_handle_attr_t_np *attributes);
/* What a handle is, to be freed with grpc_handle_attr_destruct_np(). */
grpc_error_t grpc_function_handle_get_attr_np(const grpc_function_handle_t *handle, grpc_handle_attr_t_np *attributes);

/* ---- Attributes of sessions ---- */

typedef enum grpc_session_attr_name_e_np {
    /* int *: how many seconds the call may take; 0: as the handle says */
    GRPC_SESSION_ATTR_SESSION_TIMEOUT = 1,
    /* int *: the same in milliseconds */
    GRPC_SESSION_ATTR_SESSION_TIMEOUT_MS_NP = 32,
    /* int *: 0 to 9; which of the user's calls through a metaserver that wait comes first. A server refuses any but 0. */
    GRPC_SESSION_ATTR_PRIORITY_NP = 33
} grpc_session_attr_name_t_np;

typedef struct grpc_session_attr_s_np {
    int gsa_timeout_ms;
    int gsa_priority;
} grpc_session_attr_t_np;

/* As those of handles. */
grpc_error_t grpc_session_attr_initialize_np(const grpc_function_handle_t *handle, grpc_session_attr_t_np *attributes);
grpc_error_t grpc_session_attr_destruct_np(grpc_session_attr_t_np *attributes);
grpc_error_t grpc_session_attr_set_np(grpc_session_attr_t_np *attributes, grpc_session_attr_name_t_np name, const void *value);
grpc_error_t grpc_session_attr_get_np(grpc_session_attr_t_np *attributes, grpc_session_attr_name_t_np name, void **value);
grpc_error_t grpc_session_attr_release_np(void *value);

/* Calls with attributes, which are not kept. */
grpc_error_t grpc_call_with_attr_np(grpc_function_handle_t *handle, const grpc_session_attr_t_np *attributes, ...);
grpc_error_t grpc_call_async_with_attr_np(grpc_function_handle_t *handle, grpc_sessionid_t *session,
                                          const grpc_session_attr_t_np *attributes, ...);
int grpc_call_arg_stack_with_attr_np(grpc_function_handle_t *handle, const grpc_session_attr_t_np *attributes,
                                     grpc_arg_stack_t *stack);
grpc_sessionid_t grpc_call_arg_stack_async_with_attr_np(grpc_function_handle_t *handle,
                                                        const grpc_session_attr_t_np *attributes, grpc_arg_stack_t *stack);

/* ---- Objects of classes ----
 * An object is a process at a server that keeps the state of its class (`DefClass`) from call to call. It ends when its handle was destructed
 * and all sessions on it are over, and with the connection; also when a method crashes, is cancelled or takes too long while it runs. What
 * is called on it afterwards has not run: GRPC_OBJECT_LOST_NP. Calls on one object run one after the other, in the order
 * in which they were begun; sessions of methods are sessions as others. A method is named as its class does, without the name of that. */

/* Makes an object at the first of the configured servers that can, and waits until it is there, no longer than the timeout of the
 * configuration. Errors: SERVER_NOT_FOUND, FUNCTION_NOT_FOUND (no such class; a metaserver says INVALID_ARGUMENT_NP of routines),
 * RPC_REFUSED (as many objects as there may be, for one), COMMUNICATION_FAILED, TIMEOUT_NP; INVALID_FUNCTION_HANDLE: `handle` is NULL. */
grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np *handle, const char *class_name);

/* At a server or metaserver; NULL: as grpc_object_handle_default_np(). Errors: the same. */
grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np *handle, const char *server_name, const char *class_name);

/* Sessions on the object go on; it ends with the last of them. Errors: INVALID_FUNCTION_HANDLE. */
grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np *handle);

/* The same for arrays of objects of one class: all are made, or none; all are destructed, or none. */
grpc_error_t grpc_object_handle_array_default_np(grpc_object_handle_t_np *handles, size_t count, const char *class_name);
grpc_error_t grpc_object_handle_array_init_np(grpc_object_handle_t_np *handles, size_t count, const char *server_name,
                                              const char *class_name);
grpc_error_t grpc_object_handle_array_destruct_np(grpc_object_handle_t_np *handles, size_t count);

/* With a time and an order of arrays for all calls on it; making it may take that time too. Errors: those of
 * grpc_object_handle_default_np(); INVALID_ARGUMENT_NP: no class is named. */
grpc_error_t grpc_object_handle_init_with_attr_np(grpc_object_handle_t_np *handle, const grpc_handle_attr_t_np *attributes);
grpc_error_t grpc_object_handle_array_init_with_attr_np(grpc_object_handle_t_np *handles, size_t count,
                                                        const grpc_handle_attr_t_np *attributes);
/* What a handle is, to be freed with grpc_handle_attr_destruct_np(). */
grpc_error_t grpc_object_handle_get_attr_np(const grpc_object_handle_t_np *handle, grpc_handle_attr_t_np *attributes);

/* Whether the object is there, as far as can be seen without waiting: NO_ERROR, or OBJECT_LOST_NP.
 * Errors: INVALID_FUNCTION_HANDLE. */
grpc_error_t grpc_object_handle_is_ready_np(const grpc_object_handle_t_np *handle);

/* The handle of a session on an object: the address with which it was made. Errors: INVALID_SESSION_ID, also of other calls. */
grpc_error_t grpc_object_handle_get_from_session_np(grpc_object_handle_t_np **handle, grpc_sessionid_t session);

/* Calls a method and waits. Errors: those of grpc_call(); the exact code of an object that is no more is OBJECT_LOST_NP. */
grpc_error_t grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method, ...);

/* Begins a session; returns when the arguments are sent. Errors: those of grpc_invoke_np(). */
grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method, grpc_sessionid_t *session, ...);

/* The same with the arguments of a stack. */
grpc_error_t grpc_invoke_arg_stack_np(grpc_object_handle_t_np *handle, const char *method, grpc_arg_stack_t *stack);
grpc_error_t grpc_invoke_arg_stack_async_np(grpc_object_handle_t_np *handle, const char *method, grpc_sessionid_t *session,
                                            grpc_arg_stack_t *stack);

/* Calls with attributes, which are not kept; a priority above 0 is INVALID_ARGUMENT_NP. */
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

/* ---- What is known of a session ---- */

enum { GRPC_SESSION_EXECUTING = 1, GRPC_SESSION_DOWN = 2, GRPC_SESSION_DONE = 3 };

typedef struct grpc_session_info_s_np {
    /* Seconds that it waited for its turn at the server, and that the routine ran; 0 until it is over, or when it failed. */
    double gsi_waited;
    double gsi_ran;
    /* Seconds from its begin to when its end was seen. */
    double gsi_total;
    /* Bytes of arrays and scalars that go there and come back. */
    uint64_t gsi_sent;
    uint64_t gsi_returned;
    /* As grpc_get_error_np(). */
    grpc_error_t gsi_error;
} grpc_session_info_t_np;

/* Either pointer may be NULL. The information is to be freed with grpc_session_info_release_np().
 * Errors: INVALID_SESSION_ID. */
grpc_error_t grpc_session_info_get_np(grpc_sessionid_t session, grpc_session_info_t_np **info, int *status);
grpc_error_t grpc_session_info_release_np(grpc_session_info_t_np *info);

#ifdef __cplusplus
}
#endif

#endif
