/* Many sessions at once: the order in which they are told, cancellation, threads, and clients that are killed. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "server.h"

enum { MANY = 16, SLOTS = 4 };

static grpc_function_handle_t nap;
static grpc_function_handle_t dmmul;

static void begin(grpc_sessionid_t *ids, int *slept, int milliseconds)
{
    for (int i = 0; i < MANY; i++) {
        slept[i] = -1;
        GIVES(GRPC_NO_ERROR, grpc_call_async(&nap, &ids[i], milliseconds, &slept[i]));
    }
}

/* Each is told once, with its result in place. */
static void one_by_one(int any)
{
    grpc_sessionid_t ids[MANY];
    int slept[MANY];
    int told = 0;
    grpc_sessionid_t id = 0;
    begin(ids, slept, 5);
    for (;;) {
        GIVES(GRPC_NO_ERROR, any ? grpc_wait_any(&id) : grpc_wait_or(ids, MANY, &id));
        if (id == GRPC_SESSIONID_VOID) {
            break;
        }
        int at = 0;
        while (at < MANY && ids[at] != id) {
            at++;
        }
        EXPECT(at < MANY && slept[at] == 5);
        /* Not a second time. */
        slept[at] = -2;
        told++;
    }
    EXPECT(told == MANY);
    GIVES(GRPC_NONE_COMPLETED, grpc_probe_or(ids, MANY, &id));
    EXPECT(id == GRPC_SESSIONID_VOID);
}

/* Of several that are over it is the first of the array, or the oldest. */
static void order(void)
{
    grpc_sessionid_t ids[MANY];
    grpc_sessionid_t back[MANY];
    int slept[MANY];
    grpc_sessionid_t id = 0;
    begin(ids, slept, 1);
    for (int i = 0; i < MANY; i++) {
        while (grpc_probe(ids[i]) != GRPC_NO_ERROR) {
            usleep(1000);
        }
        back[MANY - 1 - i] = ids[i];
        EXPECT(slept[i] == 1);
    }
    GIVES(GRPC_NO_ERROR, grpc_probe_or(ids, MANY, &id));
    EXPECT(id == ids[0]);
    GIVES(GRPC_NO_ERROR, grpc_probe_or(back, MANY, &id));
    EXPECT(id == ids[MANY - 1]);
    GIVES(GRPC_NO_ERROR, grpc_wait_or(back, MANY, &id));
    EXPECT(id == ids[MANY - 1]);
    GIVES(GRPC_NO_ERROR, grpc_wait_or(back, MANY, &id));
    EXPECT(id == ids[MANY - 2]);
    GIVES(GRPC_NO_ERROR, grpc_wait_any(&id));
    EXPECT(id == ids[0]);
    GIVES(GRPC_NO_ERROR, grpc_wait_and(back, MANY));
    GIVES(GRPC_NO_ERROR, grpc_wait_any(&id));
    EXPECT(id == GRPC_SESSIONID_VOID);
    /* What was told gives the same answer again. */
    GIVES(GRPC_NO_ERROR, grpc_wait(ids[3]));
}

static void cancelled(void)
{
    grpc_sessionid_t ids[MANY];
    int slept[MANY];
    grpc_sessionid_t id = 0;
    int failed = 0;
    int status = 0;
    begin(ids, slept, 60000);
    GIVES(GRPC_NOT_COMPLETED, grpc_probe(ids[0]));
    GIVES(GRPC_NONE_COMPLETED, grpc_probe_or(ids, MANY, &id));
    GIVES(GRPC_NO_ERROR, grpc_get_error(ids[0]));
    GIVES(GRPC_NO_ERROR, grpc_session_info_get_np(ids[0], NULL, &status));
    EXPECT(status == GRPC_SESSION_EXECUTING);
    GIVES(GRPC_NO_ERROR, grpc_cancel(ids[5]));
    GIVES(GRPC_NO_ERROR, grpc_probe(ids[5]));
    GIVES(GRPC_SESSION_FAILED, grpc_wait_any(&id));
    EXPECT(id == ids[5]);
    /* A wait has the code of the standard; the extension stands beside it. */
    EXPECT(grpc_last_error_get_np() == GRPC_CANCELED_NP);
    GIVES(GRPC_CANCELED_NP, grpc_get_error(id));
    GIVES(GRPC_SESSION_FAILED, grpc_wait(id));
    GIVES(GRPC_SESSION_FAILED, grpc_wait_and(&id, 1));
    GIVES(GRPC_NO_ERROR, grpc_cancel_all());
    GIVES(GRPC_SESSION_FAILED, grpc_wait_all());
    do {
        GIVES(GRPC_NO_ERROR, grpc_get_failed_sessionid(&id));
        failed += id != GRPC_SESSIONID_VOID;
    } while (id != GRPC_SESSIONID_VOID);
    EXPECT(failed == MANY - 1);
    for (int i = 0; i < MANY; i++) {
        EXPECT(slept[i] == -1);
    }
    GIVES(GRPC_NO_ERROR, grpc_session_info_get_np(ids[0], NULL, &status));
    EXPECT(status == GRPC_SESSION_DOWN);
    /* The slots are free again. */
    GIVES(GRPC_NO_ERROR, grpc_call(&nap, 1, slept));
    EXPECT(slept[0] == 1);
}

static void information(void)
{
    grpc_session_info_t_np *info = NULL;
    grpc_sessionid_t id = 0;
    double c = 0;
    int status = 0;
    GIVES(GRPC_NO_ERROR, grpc_call_async(&dmmul, &id, 1, (double[]){2}, (double[]){3}, &c));
    GIVES(GRPC_NO_ERROR, grpc_wait(id));
    EXPECT(c == 6);
    GIVES(GRPC_NO_ERROR, grpc_session_info_get_np(id, &info, &status));
    EXPECT(status == GRPC_SESSION_DONE && info->gsi_error == GRPC_NO_ERROR);
    EXPECT(info->gsi_sent == 4 + 8 + 8 && info->gsi_returned == 8);
    EXPECT(info->gsi_total >= info->gsi_ran && info->gsi_ran > 0);
    GIVES(GRPC_NO_ERROR, grpc_session_info_release_np(info));
}

/* One thread waits, another cancels. */
static void *wait_for(void *session)
{
    GIVES(GRPC_SESSION_FAILED, grpc_wait(*(grpc_sessionid_t *)session));
    return NULL;
}

static void *multiply(void *number)
{
    int thread = *(int *)number;
    enum { N = 24 };
    for (int round = 0; round < 10; round++) {
        double a[N * N];
        double c[N * N];
        double once[N * N];
        grpc_sessionid_t id = 0;
        for (int i = 0; i < N * N; i++) {
            a[i] = thread + 1;
        }
        GIVES(GRPC_NO_ERROR, grpc_call_async(&dmmul, &id, N, a, a, c));
        GIVES(GRPC_NO_ERROR, grpc_call(&dmmul, N, a, a, once));
        GIVES(GRPC_NO_ERROR, grpc_wait(id));
        for (int i = 0; i < N * N; i++) {
            EXPECT(c[i] == (double)N * (thread + 1) * (thread + 1) && once[i] == c[i]);
        }
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[8];
    int numbers[8];
    grpc_sessionid_t id = 0;
    for (int i = 0; i < 8; i++) {
        numbers[i] = i;
        EXPECT(pthread_create(&thread[i], NULL, multiply, &numbers[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        EXPECT(pthread_join(thread[i], NULL) == 0);
    }
    GIVES(GRPC_NO_ERROR, grpc_call_async(&nap, &id, 60000, NULL));
    EXPECT(pthread_create(&thread[0], NULL, wait_for, &id) == 0);
    usleep(100000);
    GIVES(GRPC_NO_ERROR, grpc_cancel(id));
    EXPECT(pthread_join(thread[0], NULL) == 0);
}

/* A client that fills all slots and is killed. */
static void killed(const char *program)
{
    int ends[2];
    char ready = 0;
    int slept = 0;
    EXPECT(pipe(ends) == 0);
    pid_t client = fork();
    if (client == 0) {
        /* What the parent has is the parent's: another image of this program. */
        close(ends[0]);
        dup2(ends[1], STDOUT_FILENO);
        execl(program, program, "fill", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    EXPECT(read(ends[0], &ready, 1) == 1 && ready == '!');
    EXPECT(kill(client, SIGKILL) == 0 && waitpid(client, NULL, 0) == client);
    /* Were its calls still there, this would wait for a minute behind sixteen of them. */
    GIVES(GRPC_NO_ERROR, grpc_call(&nap, 1, &slept));
    EXPECT(slept == 1);
}

/* The client that is killed. */
static int fill(void)
{
    grpc_sessionid_t ids[MANY];
    int slept[MANY];
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&nap, "nap"));
    begin(ids, slept, 600000);
    /* Answered behind those calls: the server has them. */
    GIVES(GRPC_FUNCTION_NOT_FOUND, grpc_function_handle_default(&dmmul, "no"));
    EXPECT(write(STDOUT_FILENO, "!", 1) == 1);
    for (;;) {
        pause();
    }
}

int main(int argc, char **argv)
{
    struct server server;
    grpc_sessionid_t left = 0;
    int slept = 5;
    if (argc > 1 && strcmp(argv[1], "fill") == 0) {
        return fill();
    }
    server_start(&server, SLOTS, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&nap, "nap"));
    GIVES(GRPC_NO_ERROR, grpc_function_handle_default(&dmmul, "dmmul"));
    one_by_one(0);
    one_by_one(1);
    order();
    cancelled();
    information();
    threads();
    killed(argv[0]);
    /* Ends with sessions under way. */
    GIVES(GRPC_NO_ERROR, grpc_call_async(&nap, &left, 60000, &slept));
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    EXPECT(slept == 5);
    GIVES(GRPC_NO_ERROR, grpc_initialize(NULL));
    GIVES(GRPC_INVALID_SESSION_ID, grpc_wait(left));
    GIVES(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&nap, 1, &slept));
    GIVES(GRPC_NO_ERROR, grpc_finalize());
    server_end(&server, SIGTERM);
    return 0;
}
