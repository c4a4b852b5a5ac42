/* Results that stay at the servers that a metaserver has chosen, and calls that then run there. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "gate.h"
#include "server.h"

static const double A[4] = {1, 2, 3, 4};
static const double B[4] = {5, 6, 7, 8};
static const double AB[4] = {19, 22, 43, 50};
static const double ABA[4] = {85, 126, 193, 286};

static struct server meta;
static grpc_function_handle_t dmmul;
static grpc_function_handle_t fill;

static grpc_held_array_t_np *created(void)
{
    grpc_held_array_t_np *array = NULL;
    GIVES(GRPC_NO_ERROR, grpc_held_array_create_np(&array));
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

static void said(grpc_error_t exact, const char *text)
{
    EXPECT(grpc_last_error_get_np() == exact && strstr(grpc_last_error_text_np(), text) != NULL);
}

/* Whether two arrays of n by n are at different servers; `first` becomes the address of the first. */
static int are_apart(int n, grpc_held_array_t_np *one, grpc_held_array_t_np *other, char *first)
{
    double c[4];
    if (grpc_call(&dmmul, n, one, other, c) == GRPC_NO_ERROR) {
        return 0;
    }
    said(GRPC_INVALID_ARGUMENT_NP, "a call has arrays of one server; fetch one of them");
    EXPECT(sscanf(grpc_last_error_text_np(), "`dmmul`: `A` is `C` of `dmmul` at %*s (%63[^)])", first) == 1);
    return 1;
}

/* Has calls in turn make two arrays at two servers. One of these may not have registered yet. */
static void make_apart(int n, grpc_held_array_t_np *one, grpc_held_array_t_np *other, char *first)
{
    for (int i = 0; i < 600; i++) {
        GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, n, A, B, one));
        GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, n, A, B, other));
        if (are_apart(n, one, other, first)) {
            return;
        }
        usleep(100000);
    }
    EXPECT(!"there are two servers");
}

static void calls_run_where_their_arrays_are(void)
{
    grpc_held_array_t_np *x = created();
    grpc_held_array_t_np *y = created();
    grpc_held_array_t_np *z = created();
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    char first[64];
    double c[4] = {0};
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, x, B, c));
    said(GRPC_INVALID_ARGUMENT_NP, "`A` holds no array yet");
    make_apart(2, x, y, first);
    holds(x, AB);
    for (int i = 0; i < 4; i++) {
        /* In turn, each second call would leave its result at the other server. */
        GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, x, A, z));
        holds(z, ABA);
        GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, x, z, c));
    }
    /* Read and made by one call. */
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, x, A, x));
    holds(x, ABA);
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, x, z, c));
    /* A session, whose result is there when its end was reported, and that goes on with what it was given. */
    GIVES(GRPC_NO_ERROR, grpc_call_async(&dmmul, &session, 2, y, A, z));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, A, B, z));
    said(GRPC_INVALID_ARGUMENT_NP, "already the result of a call that is not over");
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(y));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    holds(z, ABA);
    EXPECT(are_apart(2, x, z, first));
    /* A session that was cancelled leaves what was there. */
    GIVES(GRPC_NO_ERROR, grpc_call_async(&fill, &session, 4, 60000, 1.0, z));
    GIVES(GRPC_NO_ERROR, grpc_cancel(session));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(session));
    holds(z, ABA);
    /* An array without elements. */
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 0, A, B, z));
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 0, z, z, c));
    GIVES(GRPC_NO_ERROR, grpc_held_array_fetch_np(z, NULL, 0));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(z));
}

static void wrong_use(const struct server *server)
{
    grpc_held_array_t_np *x = created();
    grpc_held_array_t_np *there = created();
    grpc_function_handle_t handle;
    grpc_object_handle_t_np counter;
    char other[80];
    double c[4] = {0};
    int info = 0;
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 2, A, B, x));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_held_array_put_np(x, &dmmul, A, sizeof A));
    said(GRPC_INVALID_ARGUMENT_NP, "a metaserver chooses servers for calls only");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 3, x, x, c));
    said(GRPC_INVALID_ARGUMENT_NP, "`A` has 32 bytes, the routine wants 72");
    handle = handle_at_meta("conjugate");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&handle, 2, x));
    said(GRPC_INVALID_ARGUMENT_NP, "has elements of double, the routine wants dcomplex");
    handle = handle_at_meta("negate");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&handle, 4, x));
    said(GRPC_INVALID_ARGUMENT_NP, "travels in pieces");
    /* Arrays of a server and of calls through the metaserver, or of two ways to it, do not meet. */
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&handle, server->address, "dmmul"));
    GIVES(GRPC_NO_ERROR, grpc_call(&handle, 2, A, B, there));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&handle, 2, x, B, c));
    said(GRPC_INVALID_ARGUMENT_NP, "at the server of another connection");
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&dmmul, 2, there, B, c));
    said(GRPC_INVALID_ARGUMENT_NP, "at the server of another connection");
    snprintf(other, sizeof other, "localhost%s", strchr(meta.address, ':'));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init(&handle, other, "dmmul"));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&handle, 2, x, B, c));
    said(GRPC_INVALID_ARGUMENT_NP, "at the server of another connection");
    GIVES(GRPC_NO_ERROR, grpc_object_handle_default_np(&counter, "counter"));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_invoke_np(&counter, "keep", 2, x));
    said(GRPC_INVALID_ARGUMENT_NP, "calls through a metaserver");
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&counter));
    /* What failed took nothing. */
    holds(x, AB);
    /* The results of a routine that says that it failed are in place. */
    handle = handle_at_meta("judge");
    GIVES(GRPC_SESSION_FAILED, grpc_call(&handle, 3, x, &info));
    EXPECT(grpc_last_error_get_np() == GRPC_STATUS_NP && info == 3);
    GIVES(GRPC_NO_ERROR, grpc_held_array_fetch_np(x, c, sizeof *c));
    EXPECT(c[0] == 3);
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(there));
}

static struct server *ends_with_a_call;

static void ends_server(double x, double *y)
{
    server_end(ends_with_a_call, SIGKILL);
    *y = x;
}

/* With the connection to a server only the arrays there are lost. */
static void another_server_is_lost(struct server *two)
{
    grpc_function_handle_t gate = handle_at_meta("gate");
    grpc_function_handle_t integrate = handle_at_meta("integrate");
    grpc_held_array_t_np *arrays[2] = {created(), created()};
    grpc_sessionid_t sessions[2];
    char first[64];
    double c[2] = {0};
    double sum = 0;
    make_apart(1, arrays[0], arrays[1], first);
    grpc_held_array_t_np *stays = arrays[strcmp(first, two->address) == 0];
    /* Both slots of its server are taken, so that the next call goes to the other one. */
    close_gate();
    for (int i = 0; i < 2; i++) {
        GIVES(GRPC_NO_ERROR, grpc_call_async(&gate, &sessions[i], path, stays, &c[i]));
    }
    wait_for_begins(2);
    ends_with_a_call = two;
    GIVES(GRPC_COMMUNICATION_FAILED, grpc_call(&integrate, 1, ends_server, &sum));
    open_gate();
    GIVES(GRPC_NO_ERROR, grpc_wait_and(sessions, 2));
    remove_gate();
    EXPECT(c[0] == 6 && c[1] == 6);
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 1, stays, B, c));
    EXPECT(c[0] == 25);
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(arrays[0]));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(arrays[1]));
}

/* A call whose array is gone runs nowhere else, though its routine may run twice. */
static void their_server_is_lost(struct server *servers)
{
    grpc_function_handle_t same = handle_at_meta("same");
    grpc_held_array_t_np *x = created();
    grpc_held_array_t_np *y = created();
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    char first[64];
    char server[64];
    double c[1] = {0};
    make_apart(1, x, y, first);
    close_gate();
    GIVES(GRPC_NO_ERROR, grpc_call_async(&same, &session, path, x, c));
    wait_for_begin(server, sizeof server);
    server_end(&servers[strcmp(first, servers[0].address) != 0], SIGKILL);
    GIVES(GRPC_SESSION_FAILED, grpc_wait(session));
    GIVES(GRPC_HELD_LOST_NP, grpc_get_error_np(session));
    said(GRPC_HELD_LOST_NP, "`same`: `x` is `C` of `dmmul` at ");
    said(GRPC_HELD_LOST_NP, first);
    remove_gate();
    for (int i = 0; i < 2; i++) {
        GIVES(GRPC_RPC_REFUSED, grpc_call(&dmmul, 1, x, B, c));
        said(GRPC_HELD_LOST_NP, "`dmmul`: `A` is `C` of `dmmul` at ");
        said(GRPC_HELD_LOST_NP, first);
        GIVES(GRPC_RPC_REFUSED, grpc_held_array_fetch_np(x, c, sizeof c));
        said(GRPC_HELD_LOST_NP, first);
    }
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 1, y, B, c));
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 1, A, B, x));
    GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, 1, x, y, c));
    EXPECT(c[0] == 25);
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(y));
    server_end(&servers[strcmp(first, servers[0].address) == 0], SIGTERM);
}

/* The server has room for one array of 800 kB. */
static void arrays_go_with_their_handles(void)
{
    struct server small;
    grpc_function_handle_t fills = handle_at_meta("fill");
    grpc_held_array_t_np *x = created();
    grpc_held_array_t_np *y = created();
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    server_start_small(&small, meta.address);
    int found = GRPC_FUNCTION_NOT_FOUND;
    for (int i = 0; i < 600 && found != GRPC_NO_ERROR; i++) {
        found = grpc_call(&fills, 100000, 0, 1.0, x);
        usleep(100000);
    }
    GIVES(GRPC_NO_ERROR, found);
    GIVES(GRPC_RPC_REFUSED, grpc_call(&fills, 100000, 0, 1.0, y));
    said(GRPC_HELD_FULL_NP, "room");
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_call(&fills, 100000, 0, 1.0, y));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(y));
    /* Released while it is made: it is gone with the session's end. */
    x = created();
    y = created();
    GIVES(GRPC_NO_ERROR, grpc_call_async(&fills, &session, 100000, 1, 1.0, x));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(x));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    GIVES(GRPC_NO_ERROR, grpc_call(&fills, 100000, 0, 1.0, y));
    GIVES(GRPC_NO_ERROR, grpc_held_array_release_np(y));
    server_end(&small, SIGTERM);
}

int main(void)
{
    struct server servers[2];
    server_start_meta(&meta);
    server_start_at(&servers[0], meta.address);
    server_start_at(&servers[1], meta.address);
    setenv("KUMI_CALL_SERVER", meta.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    dmmul = handle_at_meta("dmmul");
    fill = handle_at_meta("fill");
    calls_run_where_their_arrays_are();
    wrong_use(&servers[0]);
    another_server_is_lost(&servers[1]);
    server_start_at(&servers[1], meta.address);
    their_server_is_lost(servers);
    arrays_go_with_their_handles();
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&meta, SIGTERM);
    return 0;
}
