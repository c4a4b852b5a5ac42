/* Threads and memory for which calls and objects ask: by a handle's attributes, and by those of one call. */
#include <signal.h>
#include <string.h>

#include "expect.h"
#include "server.h"

/* So many slots of one thread each. */
enum { SLOTS = 3 };

static uint64_t memory = UINT64_C(1) << 30;

/* Refused, with both of these in the text. */
static void refused(int code, const char *asked, const char *given)
{
    EXPECT(code == GRPC_RPC_REFUSED && grpc_last_error_get_np() == GRPC_TOO_LARGE_NP);
    EXPECT(strstr(grpc_last_error_text_np(), asked) != NULL && strstr(grpc_last_error_text_np(), given) != NULL);
}

static void attributes(void)
{
    grpc_handle_attr_t_np of_handle;
    grpc_session_attr_t_np of_call;
    grpc_function_handle_t handle;
    int number = -1;
    void *found = NULL;
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_initialize_np(&of_handle));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_handle_attr_set_np(&of_handle, GRPC_HANDLE_ATTR_THREADS_NP, &number));
    number = 2;
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&of_handle, GRPC_HANDLE_ATTR_FUNCNAME, "threads"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&of_handle, GRPC_HANDLE_ATTR_THREADS_NP, &number));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&of_handle, GRPC_HANDLE_ATTR_MEMORY_NP, &memory));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_init_with_attr_np(&handle, &of_handle));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&of_handle));
    /* The handle has them, and its calls unless they say otherwise. */
    GIVES(GRPC_NO_ERROR, grpc_function_handle_get_attr_np(&handle, &of_handle));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_get_np(&of_handle, GRPC_HANDLE_ATTR_THREADS_NP, &found));
    EXPECT(*(int *)found == 2);
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_release_np(found));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_get_np(&of_handle, GRPC_HANDLE_ATTR_MEMORY_NP, &found));
    EXPECT(*(uint64_t *)found == memory);
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_release_np(found));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&of_handle));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_np(&handle, &of_call));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_get_np(&of_call, GRPC_SESSION_ATTR_MEMORY_NP, &found));
    EXPECT(*(uint64_t *)found == memory);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_release_np(found));
    number = -1;
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_session_attr_set_np(&of_call, GRPC_SESSION_ATTR_THREADS_NP, &number));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_get_np(&of_call, GRPC_SESSION_ATTR_THREADS_NP, &found));
    EXPECT(*(int *)found == 2);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_release_np(found));
    refused(grpc_call(&handle, &number), "1073741824 bytes", "--slot-memory");
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&handle));
}

static void calls(void)
{
    grpc_function_handle_t handle;
    grpc_session_attr_t_np attributes;
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    int number = SLOTS;
    int count = 0;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&handle, "threads"));
    GIVES(GRPC_NO_ERROR, grpc_call(&handle, &count));
    EXPECT(count == 1);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_np(&handle, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_THREADS_NP, &number));
    GIVES(GRPC_NO_ERROR, grpc_call_with_attr_np(&handle, &attributes, &count));
    EXPECT(count == SLOTS);
    GIVES(GRPC_NO_ERROR, grpc_call_async_with_attr_np(&handle, &session, &attributes, &count));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    EXPECT(count == SLOTS);
    GIVES(GRPC_NO_ERROR, grpc_call(&handle, &count));
    EXPECT(count == 1);
    number = SLOTS + 1;
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_THREADS_NP, &number));
    refused(grpc_call_with_attr_np(&handle, &attributes, &count), "4 threads", "3 slots of 1");
    number = 0;
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_THREADS_NP, &number));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_MEMORY_NP, &memory));
    refused(grpc_call_with_attr_np(&handle, &attributes, &count), "1073741824 bytes", "--slot-memory");
    attributes.gsa_threads = -1;
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call_with_attr_np(&handle, &attributes, &count));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&handle));
}

static void objects(void)
{
    grpc_handle_attr_t_np asked;
    grpc_session_attr_t_np attributes;
    grpc_object_handle_t_np wide;
    int number = SLOTS;
    int count = 0;
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_initialize_np(&asked));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&asked, GRPC_HANDLE_ATTR_FUNCNAME, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&asked, GRPC_HANDLE_ATTR_THREADS_NP, &number));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_init_with_attr_np(&wide, &asked));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&wide, "threads", &count));
    EXPECT(count == SLOTS);
    /* A call on it has what the object has, and asks for nothing else. */
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_with_object_handle_np(&wide, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_invoke_with_attr_np(&wide, "threads", &attributes, &count));
    number = 1;
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_THREADS_NP, &number));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_invoke_with_attr_np(&wide, "threads", &attributes, &count));
    EXPECT(strstr(grpc_last_error_text_np(), "with which the object was made") != NULL);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&wide));
    number = SLOTS + 1;
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_set_np(&asked, GRPC_HANDLE_ATTR_THREADS_NP, &number));
    refused(grpc_object_handle_init_with_attr_np(&wide, &asked), "`counter` asks for 4 threads", "3 slots");
    GIVES(GRPC_NO_ERROR, grpc_handle_attr_destruct_np(&asked));
}

int main(void)
{
    struct server server;
    server_start(&server, SLOTS, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    attributes();
    calls();
    objects();
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&server, SIGTERM);
    return 0;
}
