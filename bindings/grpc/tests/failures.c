/* Everything that can go wrong, and what is said of it. */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "server.h"

/* Whether the last error's text has this in it. */
static int said(const char *text)
{
    return strstr(grpc_last_error_text_np(), text) != NULL;
}

/* A configuration with these lines. */
static const char *configuration(const char *lines)
{
    static char path[PATH_MAX];
    char name[64];
    snprintf(name, sizeof name, "kumi-grpc-%ld.conf", (long)getpid());
    temporary(path, sizeof path, name);
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs(lines, file) >= 0 && fclose(file) == 0);
    return path;
}

static void configurations(void)
{
    grpc_function_handle_t handle;
    GIVES(GRPC_CONFIGFILE_NOT_FOUND, grpc_initialize("/not/there"));
    EXPECT(said("/not/there"));
    GIVES(GRPC_CONFIGFILE_ERROR, grpc_initialize(configuration("# a comment\n\nservers\n")));
    EXPECT(said(":3: ") && said("key = value"));
    GIVES(GRPC_CONFIGFILE_ERROR, grpc_initialize(configuration("timeout = never\n")));
    EXPECT(said(":1: ") && said("never"));
    GIVES(GRPC_NOT_INITIALIZED, grpc_finalize());
    /* A server that is not there, at once and by its name. */
    GIVES(GRPC_NO_ERROR, grpc_initialize(configuration("servers = 127.0.0.1:1\nconnect_timeout = 5\n")));
    GIVES(GRPC_SERVER_NOT_FOUND, grpc_function_handle_default(&handle, "noop"));
    EXPECT(said("127.0.0.1:1"));
    GIVES(GRPC_SERVER_NOT_FOUND, grpc_function_handle_init(&handle, "unix:/not/there", "noop"));
    GIVES(GRPC_SERVER_NOT_FOUND, grpc_function_handle_init(&handle, "nowhere", "noop"));
    EXPECT(said("HOST:PORT"));
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    EXPECT(unlink(configuration("")) == 0);
}

/* The first server is not there: the next one has it. */
static void others(const char *address)
{
    char lines[256];
    grpc_function_handle_t handle;
    snprintf(lines, sizeof lines, "servers = 127.0.0.1:1, %s\n", address);
    GIVES(GRPC_NO_ERROR, grpc_initialize(configuration(lines)));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&handle, "noop"));
    GIVES(GRPC_NO_ERROR, grpc_call(&handle));
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_function_handle_default(&handle, "nop"));
    EXPECT(said("noop"));
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    EXPECT(unlink(configuration("")) == 0);
}

static void handles(void)
{
    grpc_function_handle_t zero = {0};
    grpc_function_handle_t handle;
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_function_handle_default(&handle, "dmul"));
    EXPECT(said("dmmul"));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_function_handle_default(&handle, NULL));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_default(NULL, "noop"));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&zero));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(NULL));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_destruct(&zero));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_destruct(NULL));
}

static void sessions(void)
{
    grpc_function_handle_t *handle = NULL;
    grpc_sessionid_t session = 7;
    GIVES(GRPC_INVALID_SESSION_ID, grpc_wait(12345));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_wait(GRPC_SESSIONID_VOID));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_probe(12345));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_cancel(12345));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_get_error(12345));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_get_error(GRPC_SESSIONID_VOID));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_get_handle(&handle, 12345));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_wait_or(&session, 1, &session));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_wait_and(&session, 1));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_probe_or(&session, 1, &session));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_session_info_get_np(12345, NULL, NULL));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_wait_any(NULL));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_wait_and(NULL, 1));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_get_failed_sessionid(NULL));
    /* There are none. */
    GIVES(GRPC_NO_ERROR, grpc_wait_any(&session));
    EXPECT(session == GRPC_SESSIONID_VOID);
    GIVES(GRPC_NO_ERROR, grpc_wait_all());
    GIVES(GRPC_NO_ERROR, grpc_wait_and(NULL, 0));
    GIVES(GRPC_NO_ERROR, grpc_wait_or(NULL, 0, &session));
    EXPECT(session == GRPC_SESSIONID_VOID);
    GIVES(GRPC_NONE_COMPLETED, grpc_probe_or(NULL, 0, &session));
    EXPECT(session == GRPC_SESSIONID_VOID);
    GIVES(GRPC_NO_ERROR, grpc_cancel_all());
}

static void routines(void)
{
    grpc_function_handle_t crash;
    grpc_function_handle_t absent;
    grpc_function_handle_t judge;
    grpc_sessionid_t session = 0;
    grpc_sessionid_t failed = 0;
    double seen = 0;
    int info = 0;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&crash, "crash"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&absent, "absent"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&judge, "judge"));
    GIVES(GRPC_SESSION_FAILED, grpc_call(&crash));
    EXPECT(grpc_last_error_get_np() == GRPC_CRASHED_NP && said("crash"));
    GIVES(GRPC_RPC_REFUSED, grpc_call(&absent));
    EXPECT(grpc_last_error_get_np() == GRPC_NOT_RUNNABLE_NP && said("absent"));
    GIVES(GRPC_NO_ERROR, grpc_call(&judge, 0, &seen, &info));
    GIVES(GRPC_SESSION_FAILED, grpc_call(&judge, 7, &seen, &info));
    EXPECT(grpc_last_error_get_np() == GRPC_STATUS_NP && seen == 7 && info == 7);
    GIVES(GRPC_NO_ERROR, grpc_call_async(&crash, &session));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(session));
    GIVES(GRPC_SESSION_FAILED, grpc_get_error(session));
    GIVES(GRPC_CRASHED_NP, grpc_get_error_np(session));
    GIVES(GRPC_NO_ERROR, grpc_get_failed_sessionid(&failed));
    EXPECT(failed == session);
    GIVES(GRPC_NO_ERROR, grpc_get_failed_sessionid(&failed));
    EXPECT(failed == GRPC_SESSIONID_VOID);
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_call_async(&crash, NULL));
}

static void limits(void)
{
    grpc_function_handle_t nap;
    grpc_session_attr_t_np attributes;
    grpc_sessionid_t ids[2];
    int milliseconds = 50;
    int slept = 0;
    void *value = NULL;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&nap, "nap"));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_np(&nap, &attributes));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_session_attr_set_np(&attributes, (grpc_session_attr_name_t_np)99, &slept));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_SESSION_TIMEOUT_MS_NP, &milliseconds));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_get_np(&attributes, GRPC_SESSION_ATTR_SESSION_TIMEOUT, &value));
    EXPECT(*(int *)value == 1);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_release_np(value));
    GIVES(GRPC_TIMEOUT_NP, grpc_call_with_attr_np(&nap, &attributes, 60000, &slept));
    GIVES(GRPC_NO_ERROR, grpc_call_async_with_attr_np(&nap, &ids[0], &attributes, 60000, &slept));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(ids[0]));
    GIVES(GRPC_TIMEOUT_NP, grpc_get_error(ids[0]));
    milliseconds = 60000;
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_SESSION_TIMEOUT_MS_NP, &milliseconds));
    GIVES(GRPC_NO_ERROR, grpc_call_with_attr_np(&nap, &attributes, 1, &slept));
    EXPECT(slept == 1);
    /* One slot and one place to wait: of three calls one is refused. */
    GIVES(GRPC_NO_ERROR, grpc_call_async(&nap, &ids[0], 60000, NULL));
    GIVES(GRPC_NO_ERROR, grpc_call_async(&nap, &ids[1], 60000, NULL));
    GIVES(GRPC_RPC_REFUSED, grpc_call(&nap, 1, NULL));
    EXPECT(grpc_last_error_get_np() == GRPC_BUSY_NP);
    GIVES(GRPC_NO_ERROR, grpc_cancel_all());
    GIVES(GRPC_SESSION_FAILED, grpc_wait_and(ids, 2));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_destruct_np(&attributes));
    GIVES(GRPC_NO_ERROR, grpc_call(&nap, 1, &slept));
}

/* What a server does not take is refused before anything is sent: what the arguments point to is not even read. */
static void refusals(void)
{
    grpc_function_handle_t dmmul;
    grpc_session_attr_t_np attributes;
    double c[4] = {0};
    double one[4] = {1, 0, 0, 1};
    int priority = 1;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&dmmul, "dmmul"));
    GIVES(GRPC_RPC_REFUSED, grpc_call(&dmmul, 10000000, one, one, c));
    EXPECT(grpc_last_error_get_np() == GRPC_TOO_LARGE_NP && said("memory"));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_np(&dmmul, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_PRIORITY_NP, &priority));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call_with_attr_np(&dmmul, &attributes, 2, one, one, c));
    EXPECT(said("through a metaserver"));
    priority = 0;
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_PRIORITY_NP, &priority));
    GIVES(GRPC_NO_ERROR, grpc_call_with_attr_np(&dmmul, &attributes, 2, one, one, c));
    EXPECT(c[0] == 1 && c[1] == 0 && c[3] == 1);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_destruct_np(&attributes));
}

/* A server that is killed, and one that comes in its place. */
static void death(struct server *server)
{
    grpc_function_handle_t nap;
    grpc_sessionid_t session = 0;
    char address[64];
    int slept = 0;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&nap, "nap"));
    GIVES(GRPC_NO_ERROR, grpc_call_async(&nap, &session, 60000, &slept));
    server_end(server, SIGKILL);
    GIVES(GRPC_SESSION_FAILED, grpc_wait(session));
    GIVES(GRPC_COMMUNICATION_FAILED, grpc_get_error(session));
    GIVES(GRPC_COMMUNICATION_FAILED, grpc_call(&nap, 1, &slept));
    GIVES(GRPC_COMMUNICATION_FAILED, grpc_call_async(&nap, &session, 1, &slept));
    snprintf(address, sizeof address, "%s", server->address);
    server_start(server, 1, 1, address);
    GIVES(GRPC_NO_ERROR, grpc_call(&nap, 1, &slept));
    EXPECT(slept == 1);
    /* One that goes while nobody calls is not missed. */
    server_end(server, SIGTERM);
    server_start(server, 1, 1, address);
    GIVES(GRPC_NO_ERROR, grpc_call(&nap, 2, &slept));
    EXPECT(slept == 2);
    server_end(server, SIGKILL);
    GIVES(GRPC_SERVER_NOT_FOUND, grpc_function_handle_default(&nap, "nap"));
    server_start(server, 1, 1, address);
}

int main(void)
{
    struct server server;
    configurations();
    server_start(&server, 1, 1, "127.0.0.1:0");
    others(server.address);
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    handles();
    sessions();
    routines();
    limits();
    refusals();
    death(&server);
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&server, SIGTERM);
    return 0;
}
