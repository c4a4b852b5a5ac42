/* Transactions: what depends on what, what is refused, what comes of calls, and servers that die. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "gate.h"
#include "server.h"

static grpc_transaction_t_np *transaction;
static grpc_function_handle_t dmmul, count, shout, crash, judge, gate, same, nap;
static const double A[4] = {1, 2, 3, 4}, B[4] = {5, 6, 7, 8}, AB[4] = {19, 22, 43, 50}, ABA[4] = {85, 126, 193, 286};

static int equal(const double *one, const double *other, size_t elements)
{
    for (size_t i = 0; i < elements; i++) {
        if (one[i] != other[i]) {
            return 0;
        }
    }
    return 1;
}

static void handles(const char *server)
{
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&dmmul, server, "dmmul"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&count, server, "count"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&shout, server, "shout"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&crash, server, "crash"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&judge, server, "judge"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&gate, server, "gate"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&same, server, "same"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&nap, server, "nap"));
}

/* That a function said this of no transaction. */
static void over(int code, const char *text)
{
    EXPECT(code == GRPC_INVALID_ARGUMENT_NP && grpc_last_error_get_np() == GRPC_INVALID_TRANSACTION_NP);
    EXPECT(strstr(grpc_last_error_text_np(), text) != NULL);
}

/* The same of arguments, which then are no part of the transaction. */
static void refused(int code, const char *text)
{
    EXPECT(code == GRPC_INVALID_ARGUMENT_NP && grpc_last_error_get_np() == GRPC_INVALID_ARGUMENT_NP);
    EXPECT(strstr(grpc_last_error_text_np(), text) != NULL);
}

/* Arrays of the program go from call to call; all of them come back. */
static void chains(const char *servers)
{
    grpc_intermediate_t_np *between = NULL;
    double c[4] = {0}, d[4] = {0}, e[4] = {0};
    int first = -1, last = -1;
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, servers));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &first, &dmmul, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &last, &dmmul, 2, c, A, d));
    GIVES(GRPC_NO_ERROR, grpc_transaction_intermediate_np(transaction, &between));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, between));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, between, A, e));
    EXPECT(first == 0 && last == 1 && c[0] == 0);
    GIVES(GRPC_NOT_COMPLETED, grpc_transaction_get_error_np(transaction, 0));
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    EXPECT(equal(c, AB, 4) && equal(d, ABA, 4) && equal(e, ABA, 4));
    for (int call = 0; call < 4; call++) {
        GIVES(GRPC_NO_ERROR, grpc_transaction_get_error_np(transaction, call));
    }
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    /* It went with its transaction, and is no memory. */
    refused(grpc_call(&dmmul, 2, A, between, c), "`B` is no held array");
}

/* Parts of arrays that overlap, and what is sent and comes back in one place. */
static void parts(void)
{
    double all[8] = {0, 0, 1, 0, 0, 1, 0, 0};
    double column[4] = {1, 1, 1, 1};
    double back[4] = {0};
    grpc_function_handle_t by_columns;
    grpc_handle_attr_t_np attributes;
    int order = GRPC_ORDER_FORTRAN_NP;
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    /* all[0..4] is A B; all[1..5] of that is the input of the next. */
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, all));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, all + 1, column, all + 4));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, all, all + 4, back));
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    EXPECT(equal(all, AB, 4) && all[4] == 65 && all[5] == 65 && all[6] == 50 && all[7] == 50);
    EXPECT(back[0] == 19 * 65 + 22 * 50 && back[2] == 43 * 65 + 50 * 50);
    /* In another order than the routine's. */
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_initialize_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, "dmmul"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_ORDER_NP, &order));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init_with_attr_np(&by_columns, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &by_columns, 2, B, A, all));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &by_columns, 2, A, all, back));
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    /* By columns the product of the transposed is the transposed of the product the other way round. */
    EXPECT(equal(all, AB, 4) && equal(back, ABA, 4));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&by_columns));
}

/* Numbers and texts are read when the call is recorded, and given when the transaction has ended. */
static void values(void)
{
    grpc_arg_stack_t *stack = grpc_arg_stack_new(2);
    int number = 40, other = 1, by = 5;
    char text[16] = "hello", answer[16] = "";
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &count, &number, 2));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &shout, text, answer));
    EXPECT(grpc_arg_stack_push_arg(stack, &other) == 0 && grpc_arg_stack_push_arg(stack, &by) == 0);
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_arg_stack_np(transaction, NULL, &count, stack));
    refused(grpc_transaction_call_np(transaction, NULL, &count, &number, 2), "`number` is what an earlier call");
    refused(grpc_transaction_call_np(transaction, NULL, &shout, answer, text), "`text` is what an earlier call");
    EXPECT(grpc_arg_stack_pop_arg(stack) == &by && grpc_arg_stack_pop_arg(stack) == &other);
    EXPECT(grpc_arg_stack_push_arg(stack, &by) == 0);
    refused(grpc_transaction_call_arg_stack_np(transaction, NULL, &count, stack), "2 arguments (number, by), 1 were given");
    EXPECT(grpc_arg_stack_destruct(stack) == 0);
    strcpy(text, "changed");
    by = 50;
    EXPECT(number == 40 && other == 1 && answer[0] == 0);
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    EXPECT(number == 42 && other == 6 && strcmp(answer, "hello!") == 0);
    refused(grpc_transaction_get_error_np(transaction, 3), "no call 3");
    refused(grpc_transaction_get_error_np(transaction, -1), "no call -1");
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
}

static void square(double x, double *y)
{
    *y = x * x;
}

/* What no call of a transaction can be; the others run. */
static void wrong_calls(const char *elsewhere)
{
    grpc_function_handle_t integrate, capitals, there, method;
    grpc_held_array_t_np *held = NULL;
    grpc_output_t_np *output = NULL;
    grpc_transaction_t_np *other = NULL;
    grpc_intermediate_t_np *array = NULL;
    double c[4] = {0};
    int call = -1;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&integrate, "integrate"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&capitals, "capitals"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&method, "counter.add"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&there, elsewhere, "dmmul"));
    GIVES(GRPC_NO_ERROR, grpc_held_array_create_np(&held));
    GIVES(GRPC_NO_ERROR, grpc_held_array_put_np(held, &dmmul, A, sizeof A));
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&other, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_intermediate_np(other, &array));
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    refused(grpc_transaction_call_np(transaction, &call, &dmmul, 2, A, NULL, c), "`B` is NULL");
    refused(grpc_transaction_call_np(transaction, &call, &dmmul, 2, A, held, c), "held arrays are for other calls");
    refused(grpc_transaction_call_np(transaction, &call, &dmmul, 2, A, array, c), "no intermediate array of this transaction");
    refused(grpc_transaction_call_np(transaction, &call, &integrate, 4, square, c), "no functions");
    refused(grpc_transaction_call_np(transaction, &call, &capitals, "/a", "/b", "/c"), "no files");
    refused(grpc_transaction_call_np(transaction, &call, &method, 1), "is a method");
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_transaction_call_np(transaction, &call, &there, 2, A, B, c));
    EXPECT(strstr(grpc_last_error_text_np(), elsewhere) != NULL);
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_transaction_call_np(transaction, &call, NULL, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_output_create_np(&output));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_output_np(&dmmul, output));
    refused(grpc_transaction_call_np(transaction, &call, &dmmul, 2, A, B, c), "receiver of output");
    GIVES(GRPC_NO_ERROR, grpc_function_handle_output_np(&dmmul, NULL));
    refused(grpc_transaction_priority_np(transaction, 1), "metaserver");
    refused(grpc_transaction_priority_np(transaction, 10), "0 to 9");
    EXPECT(call == -1 && c[0] == 0);
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &call, &dmmul, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    EXPECT(call == 0 && equal(c, AB, 4));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(other));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&there));
}

static void asks_for_threads(void)
{
    grpc_handle_attr_t_np attributes;
    grpc_function_handle_t handle;
    int threads = 2;
    int found = 0;
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_initialize_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, "threads"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_THREADS_NP, &threads));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init_with_attr_np(&handle, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    refused(grpc_transaction_call_np(transaction, NULL, &handle, &found), "asks for threads");
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&handle));
}

/* Transactions that are none, or over; two at once are independent of each other. */
static void wrong_transactions(void)
{
    grpc_transaction_t_np *none = (grpc_transaction_t_np *)&dmmul;
    grpc_transaction_t_np *inner = NULL;
    grpc_intermediate_t_np *array = NULL;
    double c[4] = {0}, d[4] = {0};
    over(grpc_transaction_call_np(none, NULL, &dmmul, 2, A, B, c), "no transaction");
    over(grpc_transaction_call_np(NULL, NULL, &dmmul, 2, A, B, c), "no transaction");
    over(grpc_transaction_end_np(NULL), "no transaction");
    over(grpc_transaction_abandon_np(none), "no transaction");
    over(grpc_transaction_destruct_np(none), "no transaction");
    over(grpc_transaction_get_error_np(none, 0), "no transaction");
    over(grpc_transaction_intermediate_np(none, &array), "no transaction");
    over(grpc_transaction_priority_np(none, 0), "no transaction");
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_transaction_begin_np(NULL, NULL));
    GIVES(GRPC_SERVER_NOT_FOUND, grpc_transaction_begin_np(&transaction, "127.0.0.1:1, 127.0.0.1:2"));
    GIVES(GRPC_SERVER_NOT_FOUND, grpc_transaction_begin_np(&transaction, " , "));
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_transaction_intermediate_np(transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&inner, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(inner, NULL, &dmmul, 2, B, A, d));
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(inner));
    EXPECT(d[0] == 23 && c[0] == 0);
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    EXPECT(equal(c, AB, 4));
    over(grpc_transaction_end_np(transaction), "has ended");
    over(grpc_transaction_abandon_np(transaction), "has ended");
    over(grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, c), "has ended");
    over(grpc_transaction_intermediate_np(transaction, &array), "has ended");
    GIVES(GRPC_NO_ERROR, grpc_transaction_get_error_np(transaction, 0));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    over(grpc_transaction_destruct_np(transaction), "no transaction");
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(inner));
    /* One without calls. */
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
}

/* What cannot be seen before the end: then nothing runs. */
static void wrong_graphs(void)
{
    grpc_intermediate_t_np *array = NULL;
    double c[4] = {0}, d[4] = {0};
    int wrong = -1;
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_intermediate_np(transaction, &array));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &wrong, &dmmul, 2, A, array, d));
    refused(grpc_transaction_end_np(transaction), "call 1 (`dmmul`): `B` is an intermediate array that no earlier call makes");
    EXPECT(wrong == 1 && c[0] == 0 && d[0] == 0);
    for (int call = 0; call < 2; call++) {
        GIVES(GRPC_NOT_RUN_NP, grpc_transaction_get_error_np(transaction, call));
        EXPECT(strstr(grpc_last_error_text_np(), "no call of the transaction has run") != NULL);
    }
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
}

/* What came of each call when some fail. */
static void failures(void)
{
    double c[4] = {0}, d[4] = {0}, seen[1] = {0}, after[4] = {0};
    int info = 0, slept = 0;
    int crashed = -1, judged = -1, late = -1, behind = -1, ran = -1;
    grpc_function_handle_t short_nap;
    grpc_handle_attr_t_np attributes;
    int milliseconds = 50;
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_initialize_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, "nap"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_SESSION_TIMEOUT_MS_NP, &milliseconds));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init_with_attr_np(&short_nap, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &judged, &judge, 3, seen, &info));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &behind, &judge, 0, seen, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &crashed, &crash));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &late, &short_nap, 60000, &slept));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, &ran, &dmmul, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, c, A, d));
    GIVES(GRPC_SESSION_FAILED, grpc_transaction_end_np(transaction));
    EXPECT(grpc_last_error_get_np() == GRPC_STATUS_NP);
    EXPECT(strstr(grpc_last_error_text_np(), "3 of 6 calls have run") != NULL);
    EXPECT(equal(c, AB, 4) && equal(d, ABA, 4) && info == 3 && slept == 0 && after[0] == 0);
    GIVES(GRPC_STATUS_NP, grpc_transaction_get_error_np(transaction, judged));
    GIVES(GRPC_NO_ERROR, grpc_transaction_get_error_np(transaction, behind));
    GIVES(GRPC_CRASHED_NP, grpc_transaction_get_error_np(transaction, crashed));
    EXPECT(strstr(grpc_last_error_text_np(), "call 2 (crash) failed") != NULL);
    GIVES(GRPC_TIMEOUT_NP, grpc_transaction_get_error_np(transaction, late));
    GIVES(GRPC_NO_ERROR, grpc_transaction_get_error_np(transaction, ran));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&short_nap));
}

static void *end(void *nothing)
{
    static int code;
    code = grpc_transaction_end_np(transaction);
    return nothing == NULL ? &code : nothing;
}

/* Before its end a transaction is given up at once; while it runs, its calls are cancelled. */
static void abandoned(void)
{
    double c[4] = {0}, y[1] = {0}, z[1] = {0};
    char server[64] = "";
    pthread_t ending;
    void *code = NULL;
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_transaction_abandon_np(transaction));
    over(grpc_transaction_end_np(transaction), "was abandoned");
    over(grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, c), "was abandoned");
    GIVES(GRPC_CANCELED_NP, grpc_transaction_get_error_np(transaction, 0));
    EXPECT(strstr(grpc_last_error_text_np(), "abandoned") != NULL && c[0] == 0);
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    close_gate();
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &gate, path, A, y));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &gate, path, y, z));
    EXPECT(pthread_create(&ending, NULL, end, NULL) == 0);
    wait_for_begin(server, sizeof server);
    GIVES(GRPC_NOT_COMPLETED, grpc_transaction_get_error_np(transaction, 0));
    over(grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, c), "runs in another thread");
    over(grpc_transaction_end_np(transaction), "runs in another thread");
    GIVES(GRPC_NO_ERROR, grpc_transaction_abandon_np(transaction));
    EXPECT(pthread_join(ending, &code) == 0 && *(int *)code == GRPC_CANCELED_NP);
    GIVES(GRPC_CANCELED_NP, grpc_transaction_get_error_np(transaction, 0));
    EXPECT(grpc_transaction_get_error_np(transaction, 1) == GRPC_CANCELED_NP ||
           grpc_last_error_get_np() == GRPC_NOT_RUN_NP);
    EXPECT(y[0] == 0 && z[0] == 0);
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    remove_gate();
}

/* The end of the library is that of its transactions: of one that runs, and of one that was left. */
static void finalized(void)
{
    grpc_transaction_t_np *left = NULL;
    double c[4] = {0}, y[1] = {0};
    char server[64] = "";
    pthread_t ending;
    void *code = NULL;
    close_gate();
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&left, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(left, NULL, &dmmul, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &gate, path, A, y));
    EXPECT(pthread_create(&ending, NULL, end, NULL) == 0);
    wait_for_begin(server, sizeof server);
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    EXPECT(pthread_join(ending, &code) == 0 && *(int *)code == GRPC_CANCELED_NP && y[0] == 0 && c[0] == 0);
    GIVES(GRPC_NOT_INITIALIZED, grpc_transaction_end_np(left));
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    over(grpc_transaction_end_np(left), "no transaction");
    over(grpc_transaction_destruct_np(transaction), "no transaction");
    remove_gate();
}

/* Each thread records products of its own arrays. */
enum { THREADS = 4, CALLS = 8 };

static double products[THREADS][CALLS][4];

static void *record(void *own)
{
    double(*results)[4] = own;
    for (int i = 0; i < CALLS; i++) {
        GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, i % 2 == 0 ? B : results[i - 1], results[i]));
    }
    return NULL;
}

static void threads(void)
{
    static const double AAB[4] = {105, 122, 229, 266};
    pthread_t recording[THREADS];
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_create(&recording[i], NULL, record, products[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(recording[i], NULL) == 0);
    }
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    for (int i = 0; i < THREADS; i++) {
        for (int j = 0; j < CALLS; j++) {
            EXPECT(equal(products[i][j], j % 2 == 0 ? AB : AAB, 4));
        }
    }
}

/* A routine that needs a function of the program has the only slots: the end of the transaction runs that function. */
static void serves_functions(void)
{
    grpc_function_handle_t integrate;
    grpc_sessionid_t sessions[2];
    double sums[2] = {0}, c[4] = {0};
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&integrate, "integrate"));
    for (int i = 0; i < 2; i++) {
        GIVES(GRPC_NO_ERROR, grpc_call_async(&integrate, &sessions[i], 4, square, &sums[i]));
    }
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, c));
    GIVES(GRPC_NO_ERROR, grpc_transaction_end_np(transaction));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    EXPECT(equal(c, AB, 4));
    GIVES(GRPC_NO_ERROR, grpc_wait_and(sessions, 2));
    EXPECT(sums[0] == 0.328125 && sums[1] == 0.328125);
}

/* Kills the server that runs a routine behind the gate, and opens it. */
static void *kill_one(void *both)
{
    struct server *servers = both;
    char name[64] = "";
    wait_for_begin(name, sizeof name);
    int which = strcmp(name, "two") == 0;
    EXPECT(which == 1 || strcmp(name, "one") == 0);
    server_end(&servers[which], SIGKILL);
    servers[which].pid = 0;
    open_gate();
    return NULL;
}

/* A server dies under a call: it runs again elsewhere if it may, and otherwise the others do. */
static void dies(int is_idempotent)
{
    struct server servers[2];
    grpc_function_handle_t *routine = is_idempotent ? &same : &gate;
    double y[1] = {0}, z[1] = {0}, c[4] = {0};
    char both[160];
    pthread_t killing;
    setenv("TEST_SERVER", "one", 1);
    server_start(&servers[0], 2, 64, "127.0.0.1:0");
    setenv("TEST_SERVER", "two", 1);
    server_start(&servers[1], 2, 64, "127.0.0.1:0");
    snprintf(both, sizeof both, "%s,%s", servers[0].address, servers[1].address);
    handles(servers[0].address);
    close_gate();
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, both));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, routine, path, A, y));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, routine, path, y, z));
    if (!is_idempotent) {
        GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &dmmul, 2, A, B, c));
    }
    EXPECT(pthread_create(&killing, NULL, kill_one, servers) == 0);
    GIVES(is_idempotent ? GRPC_NO_ERROR : GRPC_SESSION_FAILED, grpc_transaction_end_np(transaction));
    EXPECT(pthread_join(killing, NULL) == 0);
    if (is_idempotent) {
        EXPECT(y[0] == 2 && z[0] == 3);
    } else {
        GIVES(GRPC_COMMUNICATION_FAILED, grpc_transaction_get_error_np(transaction, 0));
        GIVES(GRPC_NOT_RUN_NP, grpc_transaction_get_error_np(transaction, 1));
        EXPECT(strstr(grpc_last_error_text_np(), "did not run, because of 0 (gate)") != NULL && z[0] == 0);
        /* It may have run at the server that died. */
        EXPECT(grpc_transaction_get_error_np(transaction, 2) == GRPC_COMMUNICATION_FAILED || equal(c, AB, 4));
    }
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    remove_gate();
    for (int i = 0; i < 2; i++) {
        if (servers[i].pid != 0) {
            server_end(&servers[i], SIGTERM);
        }
    }
}

/* A metaserver chooses the servers. */
static void through_metaserver(void)
{
    struct server meta, one, two;
    server_start_meta(&meta);
    server_start_at(&one, meta.address);
    server_start_at(&two, meta.address);
    /* Until it knows a server. */
    while (grpc_function_handle_init(&dmmul, meta.address, "dmmul") == GRPC_FUNCTION_NOT_FOUND) {
        usleep(1000);
    }
    handles(meta.address);
    chains(meta.address);
    GIVES(GRPC_NO_ERROR, grpc_transaction_begin_np(&transaction, meta.address));
    GIVES(GRPC_NO_ERROR, grpc_transaction_priority_np(transaction, 9));
    GIVES(GRPC_NO_ERROR, grpc_transaction_call_np(transaction, NULL, &crash));
    GIVES(GRPC_SESSION_FAILED, grpc_transaction_end_np(transaction));
    GIVES(GRPC_CRASHED_NP, grpc_transaction_get_error_np(transaction, 0));
    GIVES(GRPC_NO_ERROR, grpc_transaction_destruct_np(transaction));
    server_end(&two, SIGTERM);
    server_end(&one, SIGTERM);
    server_end(&meta, SIGTERM);
}

int main(void)
{
    struct server server, other;
    server_start(&server, 2, 64, "127.0.0.1:0");
    server_start(&other, 1, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NOT_INITIALIZED, grpc_transaction_begin_np(&transaction, NULL));
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    handles(NULL);
    chains(NULL);
    chains(server.address);
    parts();
    values();
    wrong_calls(other.address);
    asks_for_threads();
    wrong_transactions();
    wrong_graphs();
    failures();
    abandoned();
    threads();
    serves_functions();
    finalized();
    dies(0);
    dies(1);
    through_metaserver();
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&other, SIGTERM);
    server_end(&server, SIGTERM);
    return 0;
}
