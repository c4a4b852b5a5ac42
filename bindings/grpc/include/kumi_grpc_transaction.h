/* Transactions: a part of grpc.h, which includes it. */
#ifndef KUMI_GRPC_TRANSACTION_H
#define KUMI_GRPC_TRANSACTION_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A transaction records calls and then runs them together, on several servers. Calls that do not depend on each other run at the same
 * time. Arrays go straight from server to server.
 *         grpc_transaction_begin_np(&transaction, NULL);
 *         grpc_transaction_intermediate_np(transaction, &ab);
 *         grpc_transaction_call_np(transaction, NULL, &dmmul, n, a, b, ab);
 *         grpc_transaction_call_np(transaction, &last, &dmmul, n, ab, c, d);
 *         grpc_transaction_end_np(transaction);
 *         grpc_transaction_destruct_np(transaction);
 *   - Which call comes after which follows from the arrays: a call that reads bytes which an earlier call wrote comes after it, also
 *     for different, overlapping parts of an array.
 *   - Arrays and places for results are lent from the recording of the call until grpc_transaction_end_np() has returned, or until
 *     the transaction was abandoned or destructed before. Arrays are read when the calls run. Numbers and texts of mode `in` are
 *     read when the call is recorded.
 *   - Numbers and texts that a call gives are in place when the transaction has ended. A later call of it cannot have them, and
 *     the library refuses one that is given their address, or that of a number in an array which an earlier call writes.
 *   - A handle only says which routine is called, in which memory order, and with which time limit. It is made at
 *     one of the transaction's servers, which are taken to serve the same under that name.
 *   - Calls of transactions take no functions, files and held arrays. They are no methods, ask for no threads and memory, and give
 *     nobody what they print.
 *   - Several threads may record calls. Transactions are independent of each other, and there may be several at once.
 *   - If a call fails, those that would have read its results do not run. All others do. If a server dies, its calls run again
 *     elsewhere if their routines are `@idempotent`.
 * Errors of all functions here: INVALID_ARGUMENT_NP with the exact code INVALID_TRANSACTION_NP: this is no transaction, it was
 * destructed, or it is over. */

/* A transaction, and an array that never leaves its servers. The library makes them, and knows them by their addresses. */
typedef struct grpc_transaction_s_np grpc_transaction_t_np;
typedef struct grpc_intermediate_s_np grpc_intermediate_t_np;

/* Begins a transaction. `servers` are addresses with commas between them, or those of one metaserver, which then chooses the servers.
 * NULL: those of the configuration. Connects to the first that answers.
 * Errors: SERVER_NOT_FOUND; RPC_REFUSED; OTHER_ERROR_CODE: `transaction` is NULL. */
grpc_error_t grpc_transaction_begin_np(grpc_transaction_t_np **transaction, const char *servers);

/* Sets the priority of its calls among the user's calls that wait at a metaserver: 0 to 9. Errors: INVALID_ARGUMENT_NP: another
 * number, or above 0 without a metaserver. */
grpc_error_t grpc_transaction_priority_np(grpc_transaction_t_np *transaction, int priority);

/* Makes an array that one call makes and later ones read. It stays at the servers. Pass it to calls of this transaction where the
 * routine takes an array; it is the address of no memory. It goes with the transaction. */
grpc_error_t grpc_transaction_intermediate_np(grpc_transaction_t_np *transaction, grpc_intermediate_t_np **array);

/* Records a call. `call`, which may be NULL, gets its number: 0, 1, and so on. Errors: INVALID_FUNCTION_HANDLE, also for a handle of
 * another server; INVALID_ARGUMENT_NP: the arguments do not fit; then nothing is recorded. */
grpc_error_t grpc_transaction_call_np(grpc_transaction_t_np *transaction, int *call, grpc_function_handle_t *handle, ...);
/* The same with the arguments of a stack. */
grpc_error_t grpc_transaction_call_arg_stack_np(grpc_transaction_t_np *transaction, int *call, grpc_function_handle_t *handle,
                                                grpc_arg_stack_t *stack);

/* Runs the calls and waits. NO_ERROR: all have run. SESSION_FAILED: some have not; grpc_last_error_text_np() names them,
 * grpc_last_error_get_np() has the exact code of the first, and grpc_transaction_get_error_np() that of each. CANCELED_NP: another
 * thread has abandoned it. SERVER_NOT_FOUND, INVALID_ARGUMENT_NP, FUNCTION_NOT_FOUND, RPC_REFUSED: none has run. */
grpc_error_t grpc_transaction_end_np(grpc_transaction_t_np *transaction);

/* Returns what came of a call, as an exact code, and makes it this thread's last error. NOT_COMPLETED: the transaction has not ended.
 * Errors: INVALID_ARGUMENT_NP: there is no such call. */
grpc_error_t grpc_transaction_get_error_np(grpc_transaction_t_np *transaction, int call);

/* Gives a transaction up. Before its end none of its calls runs, and its arrays are the program's again. While another thread is in
 * grpc_transaction_end_np() its calls are cancelled, and arrays are lent until that returns. Errors: it has ended. */
grpc_error_t grpc_transaction_abandon_np(grpc_transaction_t_np *transaction);

/* Frees a transaction; abandons it before if it has not ended. grpc_finalize() does so with those that were not destructed. */
grpc_error_t grpc_transaction_destruct_np(grpc_transaction_t_np *transaction);

#ifdef __cplusplus
}
#endif

#endif
