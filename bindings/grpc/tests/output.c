/* What routines print comes to the program that asks. */
#include <signal.h>
#include <string.h>

#include "expect.h"
#include "server.h"

enum { LINE = 8, MOST = 1 << 20 };

static grpc_function_handle_t say;
static grpc_output_t_np *output;

/* That exactly the lines from 0 to `lines` have come since the last time. */
static void printed(int lines)
{
    const char *bytes = NULL;
    size_t length = 0;
    int is_cut = -1;
    char line[16];
    GIVES(GRPC_NO_ERROR, grpc_output_take_np(output, &bytes, &length, &is_cut));
    EXPECT(is_cut == 0 && length == (size_t)lines * LINE && bytes[length] == 0);
    for (int i = 0; i < lines; i++) {
        snprintf(line, sizeof line, "%07d\n", i);
        EXPECT(memcmp(bytes + (size_t)i * LINE, line, LINE) == 0);
    }
}

static void handles_listen(void)
{
    GIVES(GRPC_NO_ERROR, grpc_call(&say, 3, 0));
    printed(0);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_function_handle_output_np(&say, (grpc_output_t_np *)&say));
    EXPECT(strstr(grpc_last_error_text_np(), "no receiver") != NULL);
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_output_np(NULL, output));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_object_handle_output_np(NULL, output));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_output_np(&say, output));
    GIVES(GRPC_NO_ERROR, grpc_call(&say, 3, 0));
    printed(3);
    GIVES(GRPC_NO_ERROR, grpc_function_handle_output_np(&say, NULL));
    GIVES(GRPC_NO_ERROR, grpc_call(&say, 3, 0));
    printed(0);
    GIVES(GRPC_NO_ERROR, grpc_function_handle_output_np(&say, output));
}

static void objects(void)
{
    grpc_object_handle_t_np counter;
    const char *bytes = NULL;
    size_t length = 0;
    GIVES(GRPC_NO_ERROR, grpc_object_handle_default_np(&counter, "counter"));
    GIVES(GRPC_NO_ERROR, grpc_object_handle_output_np(&counter, output));
    GIVES(GRPC_NO_ERROR, grpc_invoke_np(&counter, "say", "a method"));
    GIVES(GRPC_NO_ERROR, grpc_output_take_np(output, &bytes, &length, NULL));
    EXPECT(length == 9 && strcmp(bytes, "a method\n") == 0);
    GIVES(GRPC_NO_ERROR, grpc_object_handle_destruct_np(&counter));
}

static void calls(void)
{
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    GIVES(GRPC_NO_ERROR, grpc_call(&say, 20, 0));
    printed(20);
    /* Nothing is given twice. */
    printed(0);
    GIVES(GRPC_NO_ERROR, grpc_call_async(&say, &session, 600, 0));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    printed(600);
    /* What a routine said before it failed is the most useful of all. */
    GIVES(GRPC_SESSION_FAILED, grpc_call(&say, 5, 1));
    EXPECT(grpc_last_error_get_np() == GRPC_CRASHED_NP);
    printed(5);
}

static void bounds(void)
{
    const char *bytes = NULL;
    size_t length = 0;
    int is_cut = 0;
    GIVES(GRPC_NO_ERROR, grpc_call(&say, 2 * MOST / LINE, 0));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_output_take_np(output, NULL, &length, &is_cut));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_output_take_np(output, &bytes, NULL, &is_cut));
    GIVES(GRPC_NO_ERROR, grpc_output_take_np(output, &bytes, &length, &is_cut));
    EXPECT(is_cut == 1 && length == MOST && memcmp(bytes, "0000000\n0000001\n", 16) == 0);
    GIVES(GRPC_NO_ERROR, grpc_call(&say, 1, 0));
    GIVES(GRPC_NO_ERROR, grpc_output_take_np(output, &bytes, &length, NULL));
    EXPECT(length == LINE);
}

static void ends(void)
{
    const char *bytes = NULL;
    size_t length = 0;
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    GIVES(GRPC_NO_ERROR, grpc_call_async(&say, &session, 10, 0));
    GIVES(GRPC_NO_ERROR, grpc_output_destruct_np(output));
    GIVES(GRPC_NO_ERROR, grpc_wait(session));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_output_destruct_np(output));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_output_take_np(output, &bytes, &length, NULL));
    GIVES(GRPC_NO_ERROR, grpc_call(&say, 1, 0));
    GIVES(GRPC_OTHER_ERROR_CODE, grpc_output_create_np(NULL));
}

int main(void)
{
    struct server server;
    server_start(&server, 2, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NOT_INITIALIZED, grpc_output_create_np(&output));
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_NO_ERROR, grpc_output_create_np(&output));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&say, "say"));
    handles_listen();
    calls();
    objects();
    bounds();
    ends();
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&server, SIGTERM);
    return 0;
}
