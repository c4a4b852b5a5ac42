/* Files, and functions of the program that routines call. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "server.h"

static int calls;

static void square(double x, double *y)
{
    calls++;
    *y = x * x;
}

static void fails(double x, double *y)
{
    *y = x;
    if (++calls == 2) {
        GIVES(GRPC_NO_ERROR, grpc_callback_failed_np("no more points"));
    }
}

/* Calls a routine itself, over the same connection. */
static void nested(double x, double *y)
{
    grpc_function_handle_t integrate;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&integrate, "integrate"));
    GIVES(GRPC_NO_ERROR, grpc_call(&integrate, 1, square, y));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&integrate));
    *y += x;
}

static void visited(int k, const char *text, double *x, float w, int64_t *total, char *said)
{
    EXPECT(k == 3 && strcmp(text, "text") == 0 && w == 2.5F && *total == 40);
    for (int i = 0; i < k; i++) {
        EXPECT(x[i] == i + 1);
        x[i] *= 10;
    }
    *total += 2;
    strcpy(said, "done");
}

static void functions(void)
{
    grpc_function_handle_t integrate;
    grpc_function_handle_t visit;
    grpc_sessionid_t sessions[3];
    grpc_sessionid_t over = 0;
    double sums[3] = {0};
    double x[3] = {1, 2, 3};
    int64_t total = 0;
    char said[8] = "";
    int n = 4;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&integrate, "integrate"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&visit, "visit"));
    GIVES(GRPC_NO_ERROR, grpc_call(&integrate, n, square, &sums[0]));
    EXPECT(calls == 4 && sums[0] == 0.328125);
    GIVES(GRPC_NO_ERROR, grpc_call(&visit, 3, visited, x, &total, said));
    EXPECT(x[0] == 10 && x[2] == 30 && total == 42 && strcmp(said, "done") == 0);
    GIVES(GRPC_NO_ERROR, grpc_call(&integrate, 1, nested, &sums[0]));
    EXPECT(sums[0] == 0.75);
    /* In whichever wait. */
    for (int i = 0; i < 3; i++) {
        sums[i] = 0;
        GIVES(GRPC_NO_ERROR, grpc_call_async(&integrate, &sessions[i], n, square, &sums[i]));
    }
    while (grpc_probe(sessions[1]) == GRPC_NOT_COMPLETED) {
        usleep(1000);
    }
    GIVES(GRPC_NO_ERROR, grpc_wait(sessions[1]));
    GIVES(GRPC_NO_ERROR, grpc_wait_or(sessions, 3, &over));
    EXPECT(over == sessions[0] || over == sessions[2]);
    GIVES(GRPC_NO_ERROR, grpc_wait_all());
    for (int i = 0; i < 3; i++) {
        EXPECT(sums[i] == 0.328125);
    }
    calls = 0;
    GIVES(GRPC_SESSION_FAILED, grpc_call(&integrate, n, fails, &sums[0]));
    EXPECT(calls == 2 && grpc_last_error_get_np() == GRPC_CALLBACK_FAILED_NP);
    EXPECT(strstr(grpc_last_error_text_np(), "no more points") != NULL);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&integrate, n, NULL, &sums[0]));
    GIVES(GRPC_NO_ERROR, grpc_call(&integrate, n, square, &sums[0]));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&integrate));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&visit));
}

/* How much time the callback has, and a routine that it calls. */
static double own_time, routine_time;

static void looks(double x, double *y)
{
    grpc_function_handle_t left;
    GIVES(GRPC_NO_ERROR, grpc_remaining_np(&own_time));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&left, "left"));
    GIVES(GRPC_NO_ERROR, grpc_call(&left, &routine_time));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&left));
    *y = x;
}

/* Outlasts its call. */
static void outlasts(double x, double *y)
{
    grpc_function_handle_t left;
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&left, "left"));
    do {
        usleep(1000);
        GIVES(GRPC_NO_ERROR, grpc_remaining_np(&own_time));
    } while (own_time > 0);
    GIVES(GRPC_TIMEOUT_NP, grpc_call(&left, &routine_time));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&left));
    *y = x;
}

static void deadlines(void)
{
    grpc_function_handle_t integrate;
    grpc_session_attr_t_np attributes;
    int milliseconds = 3600000;
    double seconds = 0;
    double sum = 0;
    GIVES(GRPC_NO_ERROR, grpc_remaining_np(&seconds));
    EXPECT(seconds == HUGE_VAL);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_remaining_np(NULL));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&integrate, "integrate"));
    GIVES(GRPC_NO_ERROR, grpc_call(&integrate, 1, looks, &sum));
    EXPECT(own_time == HUGE_VAL && routine_time == -1);
    GIVES(GRPC_NO_ERROR, grpc_session_attr_initialize_np(&integrate, &attributes));
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_SESSION_TIMEOUT_MS_NP, &milliseconds));
    GIVES(GRPC_NO_ERROR, grpc_call_with_attr_np(&integrate, &attributes, 1, looks, &sum));
    EXPECT(own_time > 1800 && own_time <= 3600 && routine_time > 1800 && routine_time <= own_time);
    milliseconds = 200;
    GIVES(GRPC_NO_ERROR, grpc_session_attr_set_np(&attributes, GRPC_SESSION_ATTR_SESSION_TIMEOUT_MS_NP, &milliseconds));
    GIVES(GRPC_TIMEOUT_NP, grpc_call_with_attr_np(&integrate, &attributes, 1, outlasts, &sum));
    EXPECT(own_time == 0 && strstr(grpc_last_error_text_np(), "it waited for `f`") != NULL);
    GIVES(GRPC_NO_ERROR, grpc_remaining_np(&seconds));
    EXPECT(seconds == HUGE_VAL);
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&integrate));
}

static void traces(void)
{
    static const char *TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-";
    static const char *PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    grpc_function_handle_t traced;
    char found[80] = "";
    char set[GRPC_TRACEPARENT_SIZE_NP] = "before";
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&traced, "traced"));
    GIVES(GRPC_NO_ERROR, grpc_call(&traced, found));
    EXPECT(strcmp(found, "") == 0);
    GIVES(GRPC_NO_ERROR, grpc_traceparent_get_np(set, sizeof set));
    EXPECT(strcmp(set, "") == 0);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_traceparent_get_np(set, sizeof set - 1));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_traceparent_get_np(NULL, sizeof set));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_traceparent_set_np("00-1-2-3"));
    EXPECT(strstr(grpc_last_error_text_np(), "a traceparent is `00-`") != NULL);
    GIVES(GRPC_NO_ERROR, grpc_call(&traced, found));
    EXPECT(strcmp(found, "") == 0);
    GIVES(GRPC_NO_ERROR, grpc_traceparent_set_np(PARENT));
    GIVES(GRPC_NO_ERROR, grpc_traceparent_get_np(set, sizeof set));
    EXPECT(strcmp(set, PARENT) == 0);
    GIVES(GRPC_NO_ERROR, grpc_call(&traced, found));
    EXPECT(strncmp(found, TRACE, strlen(TRACE)) == 0 && strlen(found) == strlen(PARENT) && strcmp(found, PARENT) != 0);
    /* Calls do not read the environment while a program changes it. */
    setenv("TRACEPARENT", PARENT, 1);
    GIVES(GRPC_NO_ERROR, grpc_traceparent_set_np(NULL));
    GIVES(GRPC_NO_ERROR, grpc_call(&traced, found));
    EXPECT(strcmp(found, "") == 0);
    unsetenv("TRACEPARENT");
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&traced));
}

static void fill(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int has(const char *path, const char *text)
{
    char line[64] = "";
    FILE *file = fopen(path, "rb");
    int same = file != NULL && fgets(line, sizeof line, file) != NULL && strcmp(line, text) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return same;
}

/* Works in a new folder, of which it tells the path. */
static void enter_folder(char *folder, size_t size)
{
    temporary(folder, size, "kumi-grpc-XXXXXX");
    EXPECT(mkdtemp(folder) != NULL && chdir(folder) == 0);
    /* What the variable says may count from where the program was begun. */
    EXPECT(getcwd(folder, size) != NULL);
}

/* Nothing is left in it. */
static void leave_folder(const char *folder)
{
    EXPECT(chdir("/") == 0 && rmdir(folder) == 0);
}

static void files(void)
{
    grpc_function_handle_t capitals;
    char folder[PATH_MAX];
    enter_folder(folder, sizeof folder);
    fill("from", "some text");
    fill("both", "the");
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&capitals, "capitals"));
    GIVES(GRPC_NO_ERROR, grpc_call(&capitals, "from", "to", "both"));
    EXPECT(has("to", "SOME TEXT") && has("both", "the end") && has("from", "some text"));
    GIVES(GRPC_SESSION_FAILED, grpc_call(&capitals, "missing", "to", "both"));
    EXPECT(grpc_last_error_get_np() == GRPC_FILE_NP && strstr(grpc_last_error_text_np(), "missing") != NULL);
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&capitals, "from", NULL, "both"));
    GIVES(GRPC_INVALID_ARGUMENT_NP, grpc_call(&capitals, "from", "to", ""));
    EXPECT(has("to", "SOME TEXT") && has("both", "the end"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_destruct(&capitals));
    EXPECT(unlink("from") == 0 && unlink("to") == 0 && unlink("both") == 0);
    leave_folder(folder);
}

/* A file of 9 bytes comes back, of which the configuration takes 8: that is what this one says, or without one the environment. */
static void long_files(const char *configuration)
{
    grpc_function_handle_t capitals;
    char folder[PATH_MAX];
    enter_folder(folder, sizeof folder);
    fill("from", "some text");
    fill("both", "the");
    fill("grpc.conf", "file_bytes = 8\n");
    GIVES(GRPC_NO_ERROR, grpc_initialize(configuration));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&capitals, "capitals"));
    GIVES(GRPC_SESSION_FAILED, grpc_call(&capitals, "from", "to", "both"));
    EXPECT(grpc_last_error_get_np() == GRPC_FILE_NP && strstr(grpc_last_error_text_np(), "more than the 8") != NULL);
    EXPECT(access("to", F_OK) != 0 && has("both", "the"));
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    EXPECT(unlink("from") == 0 && unlink("both") == 0 && unlink("grpc.conf") == 0);
    leave_folder(folder);
}

int main(void)
{
    struct server server;
    server_start(&server, 4, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    functions();
    deadlines();
    traces();
    files();
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    long_files("grpc.conf");
    setenv("KUMI_CALL_FILE_BYTES", "8 bytes", 1);
    GIVES(GRPC_CONFIGFILE_ERROR, grpc_initialize(NULL));
    EXPECT(strstr(grpc_last_error_text_np(), "KUMI_CALL_FILE_BYTES is a number of bytes, not `8 bytes`") != NULL);
    setenv("KUMI_CALL_FILE_BYTES", "8", 1);
    long_files(NULL);
    server_end(&server, SIGTERM);
    return 0;
}
