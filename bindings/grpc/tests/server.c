#include "server.h"

#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* The folder of this program. */
static void here(char *folder)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) {
        fail("/proc/self/exe");
    }
    path[length] = 0;
    snprintf(folder, PATH_MAX, "%s", dirname(path));
}

/* Without a place to listen it is a metaserver; `meta` is the one to which a server belongs, or NULL. The server has `held` MiB for
 * arrays that stay. */
static void become(int slots, int waiting, const char *listen, const char *meta, const char *held, int said)
{
    char folder[PATH_MAX];
    char program[PATH_MAX + 16];
    char library[PATH_MAX + 32];
    char counter[PATH_MAX + 48];
    char other[PATH_MAX + 48];
    char slot_count[16];
    char waiting_count[16];
    here(folder);
    snprintf(program, sizeof program, "%s/kumi", folder);
    snprintf(library, sizeof library, "%s/libgrpc_routines.so", folder);
    snprintf(counter, sizeof counter, "%s/grpc-classes/counter.routine", folder);
    snprintf(other, sizeof other, "%s/grpc-classes/other.routine", folder);
    snprintf(slot_count, sizeof slot_count, "%d", slots);
    snprintf(waiting_count, sizeof waiting_count, "%d", waiting);
    /* A test that dies leaves no server behind. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(said, STDERR_FILENO);
    if (listen == NULL) {
        execl(program, program, "call", "meta", "--policy", "round-robin", "--listen", "127.0.0.1:0", (char *)NULL);
    } else {
        execl(program, program, "call", "serve", "--listen", listen, "--library", library, "--slots", slot_count, "--waiting",
              waiting_count, "--objects", "4", "--held-memory", held, ROUTINES, counter, other, meta == NULL ? (char *)NULL : "--meta", meta, (char *)NULL);
    }
    perror(program);
    _exit(1);
}

/* Reads what a server says until it ends: it must not wait for somebody to read its log. */
static void *hear(void *said)
{
    char line[512];
    while (fgets(line, sizeof line, said) != NULL) {
    }
    fclose(said);
    return NULL;
}

static void start(struct server *server, int slots, int waiting, const char *listen, const char *meta, const char *held)
{
    int ends[2];
    char line[512];
    if (pipe(ends) != 0) {
        fail("pipe");
    }
    server->pid = fork();
    if (server->pid < 0) {
        fail("fork");
    }
    if (server->pid == 0) {
        close(ends[0]);
        become(slots, waiting, listen, meta, held, ends[1]);
    }
    close(ends[1]);
    pthread_t hearing;
    FILE *said = fdopen(ends[0], "r");
    while (fgets(line, sizeof line, said) != NULL) {
        char *at = strstr(line, " at ");
        if (at != NULL && (strstr(line, "serves") != NULL || strstr(line, "metaserver") != NULL)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(server->address, sizeof server->address, "%s", at + 4);
            if (pthread_create(&hearing, NULL, hear, said) != 0 || pthread_detach(hearing) != 0) {
                fail("pthread_create");
            }
            return;
        }
        fputs(line, stderr);
    }
    fprintf(stderr, "the server did not start\n");
    exit(1);
}

void server_start(struct server *server, int slots, int waiting, const char *listen)
{
    start(server, slots, waiting, listen, NULL, "1024");
}

void server_start_meta(struct server *server)
{
    start(server, 0, 0, NULL, NULL, NULL);
}

void server_start_at(struct server *server, const char *meta)
{
    start(server, 2, 64, "127.0.0.1:0", meta, "1024");
}

void server_start_small(struct server *server, const char *meta)
{
    start(server, 2, 64, "127.0.0.1:0", meta, "1");
}

void server_end(struct server *server, int signal)
{
    int status;
    kill(server->pid, signal);
    if (waitpid(server->pid, &status, 0) != server->pid) {
        fail("waitpid");
    }
}

void temporary(char *path, size_t size, const char *name)
{
    const char *below = getenv("TMPDIR");
    int length = snprintf(path, size, "%s/%s", below != NULL && *below != 0 ? below : "/tmp", name);
    if (length < 0 || (size_t)length >= size) {
        fprintf(stderr, "TMPDIR: the path of a file there is longer than %zu bytes\n", size);
        exit(1);
    }
}
