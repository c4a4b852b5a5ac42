/* Calls through a metaserver. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "kumi_grpc_arguments.h"
#include "server.h"

static const double A[4] = {1, 2, 3, 4};
static const double B[4] = {5, 6, 7, 8};
static const double AB[4] = {19, 22, 43, 50};

static pthread_t caller;
static int squares;

static void square(double x, double *y)
{
    EXPECT(pthread_equal(caller, pthread_self()));
    squares++;
    *y = x * x;
}

static void fails(double x, double *y)
{
    *y = x;
    grpc_callback_failed_np("not today");
}

static void calls(void)
{
    grpc_function_handle_t dmmul = handle_at_meta("dmmul");
    grpc_function_handle_t nap = handle_at_meta("nap");
    grpc_function_handle_t crash = handle_at_meta("crash");
    grpc_session_attr_t_np attributes;
    grpc_session_info_t_np *info = NULL;
    grpc_sessionid_t sessions[8];
    double c[8][4] = {{0}};
    int priority = 5;
    int ten = 10;
    int slept = 0;
    void *value = NULL;
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, c[0]));
    EXPECT(memcmp(c[0], AB, sizeof AB) == 0);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_np(&dmmul, &attributes));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_PRIORITY_NP, &ten));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_PRIORITY_NP, &priority));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_get_np(&attributes, GRPC_SESSION_ATTR_PRIORITY_NP, &value));
    EXPECT(*(int *)value == 5);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_release_np(value));
    for (int i = 0; i < 8; i++) {
        memset(c[i], 0, sizeof c[i]);
        GIVES(GRPC_NO_ERROR, grpc_call_async_with_attr_np(&dmmul, &sessions[i], &attributes, 2, A, B, c[i]));
    }
    GIVES(GRPC_NO_ERROR, grpc_wait_and(sessions, 8));
    for (int i = 0; i < 8; i++) {
        EXPECT(memcmp(c[i], AB, sizeof AB) == 0);
    }
    GIVES(GRPC_NO_ERROR, grpc_session_info_get_np(sessions[0], &info, NULL));
    EXPECT(info->gsi_sent >= 64 && info->gsi_returned == 32);
    GIVES(GRPC_NO_ERROR, grpc_session_info_release_np(info));
    GIVES(GRPC_NO_ERROR, grpc_call_async(&nap, &sessions[0], 60000, &slept));
    GIVES(GRPC_NOT_COMPLETED, grpc_probe(sessions[0]));
    GIVES(GRPC_NO_ERROR, grpc_cancel(sessions[0]));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(sessions[0]));
    GIVES(GRPC_SESSION_FAILED, grpc_call(&crash));
    EXPECT(grpc_last_error_get_np() == GRPC_CRASHED_NP);
}

/* An array that is gone when the call has begun, before the metaserver has named a server. */
static void short_lived(void)
{
    grpc_function_handle_t dmmul = handle_at_meta("dmmul");
    grpc_sessionid_t sessions[8];
    double c[8][4] = {{0}};
    int n = 2;
    for (int i = 0; i < 8; i++) {
        double *a = malloc(sizeof A);
        double *b = malloc(sizeof B);
        EXPECT(a != NULL && b != NULL);
        memcpy(a, A, sizeof A);
        memcpy(b, B, sizeof B);
        kumi_grpc_argument arguments[4] = {
            {.what = KUMI_GRPC_NUMBER, .element = KUMI_GRPC_INT32, .data = &n, .count = 1},
            {.what = KUMI_GRPC_ARRAY_COPY, .element = KUMI_GRPC_DOUBLE, .data = a, .count = 4},
            {.what = KUMI_GRPC_ARRAY_COPY, .element = KUMI_GRPC_DOUBLE, .data = b, .count = 4},
            {.what = KUMI_GRPC_ARRAY, .element = KUMI_GRPC_DOUBLE, .writable = 1, .data = c[i], .count = 4},
        };
        GIVES(GRPC_NO_ERROR, kumi_grpc_call_arguments(&dmmul, arguments, 4, 1, &sessions[i], NULL));
        memset(a, 0, sizeof A);
        memset(b, 0, sizeof B);
        free(a);
        free(b);
    }
    GIVES(GRPC_NO_ERROR, grpc_wait_and(sessions, 8));
    for (int i = 0; i < 8; i++) {
        EXPECT(memcmp(c[i], AB, sizeof AB) == 0);
    }
}

/* Functions are called by who waits. */
static void functions(void)
{
    grpc_function_handle_t integrate = handle_at_meta("integrate");
    grpc_sessionid_t sessions[2];
    grpc_sessionid_t any;
    double sum = 0;
    double sums[2] = {0};
    caller = pthread_self();
    GIVES(GRPC_NO_ERROR, grpc_call(&integrate, 4, square, &sum));
    EXPECT(sum > 0.328 && sum < 0.3282);
    EXPECT(squares == 4);
    GIVES(GRPC_NO_ERROR, grpc_call_async(&integrate, &sessions[0], 4, square, &sum));
    GIVES(GRPC_NO_ERROR, grpc_wait(sessions[0]));
    EXPECT(squares == 8);
    for (int i = 0; i < 2; i++) {
        GIVES(GRPC_NO_ERROR, grpc_call_async(&integrate, &sessions[i], 4, square, &sums[i]));
    }
    for (int i = 0; i < 2; i++) {
        GIVES(GRPC_NO_ERROR, grpc_wait_any(&any));
        EXPECT(any == sessions[0] || any == sessions[1]);
        EXPECT(any != sessions[0] || (sums[0] > 0.328 && sums[0] < 0.3282));
    }
    EXPECT(squares == 16);
    GIVES(GRPC_SESSION_FAILED, grpc_call(&integrate, 4, fails, &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_CALLBACK_FAILED_NP);
    EXPECT(strstr(grpc_last_error_text_np(), "not today") != NULL);
}

/* Made where the metaserver chooses; what is called on it then goes to that server, with or without a metaserver. */
static void objects(const char *meta)
{
    grpc_object_handle_t_np object;
    grpc_object_handle_t_np lost;
    grpc_sessionid_t session = 0;
    int64_t sum = 0;
    GIVES(GRPC_NO_ERROR, grpc_object_handle_default_np(&object, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_init_np(&lost, meta, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&object, "add", 40));
    GIVES(GRPC_NO_ERROR, grpc_invoke_async_np(&object, "add", &session, 2));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&object, "total", &sum));
    EXPECT(sum == 42);
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&lost, "total", &sum));
    EXPECT(sum == 0);
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_invoke_np(&object, "totl", &sum));
    EXPECT(strstr(grpc_last_error_text_np(), "counter.total") != NULL);
    GIVES(GRPC_SESSION_FAILED, grpc_invoke_np(&lost, "crash"));
    GIVES(GRPC_RPC_REFUSED, grpc_invoke_np(&lost, "total", &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_OBJECT_LOST_NP);
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_object_handle_init_np(&lost, meta, "conter"));
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_object_handle_init_np(&lost, meta, "noop"));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
}

/* With its server an object goes, though the metaserver stays. */
static void ends(struct server *server)
{
    grpc_object_handle_t_np object;
    int64_t sum = 0;
    GIVES(GRPC_NO_ERROR, grpc_object_handle_default_np(&object, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&object, "total", &sum));
    server_end(server, SIGTERM);
    GIVES(GRPC_RPC_REFUSED, grpc_invoke_np(&object, "total", &sum));
    EXPECT(grpc_last_error_get_np() == GRPC_OBJECT_LOST_NP);
    GIVES(GRPC_OBJECT_LOST_NP, grpc_object_handle_is_ready_np(&object));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&object));
}

int main(void)
{
    struct server meta;
    struct server server;
    server_start_meta(&meta);
    server_start_at(&server, meta.address);
    setenv("KUMI_CALL_SERVER", meta.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    calls();
    short_lived();
    functions();
    objects(meta.address);
    ends(&server);
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&meta, SIGTERM);
    return 0;
}
