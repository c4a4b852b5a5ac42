/* Calls through a metaserver. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "server.h"

static const double A[4] = {1, 2, 3, 4};
static const double B[4] = {5, 6, 7, 8};
static const double AB[4] = {19, 22, 43, 50};

static void square(double x, double *y)
{
    *y = x * x;
}

/* A server may register after it has said where it listens. */
static grpc_function_handle_t handle_of(const char *routine)
{
    grpc_function_handle_t handle;
    for (int i = 0; i < 600 && grpc_function_handle_default(&handle, routine) != GRPC_NO_ERROR; i++) {
        usleep(100000);
    }
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&handle, routine));
    return handle;
}

static void calls(void)
{
    grpc_function_handle_t dmmul = handle_of("dmmul");
    grpc_function_handle_t nap = handle_of("nap");
    grpc_function_handle_t crash = handle_of("crash");
    grpc_function_handle_t integrate = handle_of("integrate");
    grpc_session_attr_t_np attributes;
    grpc_session_info_t_np *info = NULL;
    grpc_sessionid_t sessions[8];
    double c[8][4] = {{0}};
    double sum = 0;
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
    GIVES(GRPC_CANCELED_NP, grpc_wait(sessions[0]));
    GIVES(GRPC_SESSION_FAILED, grpc_call(&crash));
    EXPECT(grpc_last_error_get_np() == GRPC_CRASHED_NP);
    /* Which server calls back is not known when the call begins. */
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&integrate, 1, square, &sum));
    EXPECT(strstr(grpc_last_error_text_np(), "takes functions") != NULL);
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
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&server, SIGTERM);
    server_end(&meta, SIGTERM);
    return 0;
}
