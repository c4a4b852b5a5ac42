/* Routines that use much: memory, processes, sessions. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing outlives a test by much. */
static void rest(void) {
    alarm(300);
    for (;;) pause();
}

/* Uses memory. */
static int touch(int mib) {
    size_t bytes = (size_t)mib << 20;
    volatile char *memory = malloc(bytes);
    if (!memory) return ENOMEM;
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    return 0;
}

/* Uses so much memory in one process. */
int use(int mib) { return touch(mib); }

struct later {
    char path[256];
    int mib;
};

static void *wait_and_use(void *at) {
    struct later *later = at;
    while (access(later->path, F_OK) != 0) usleep(1000);
    touch(later->mib);
    return NULL;
}

/* Returns at once. A thread uses so much memory when the file is there. */
void use_later(const char *path, int mib) {
    static struct later later;
    pthread_t thread;
    strncpy(later.path, path, sizeof later.path - 1);
    later.mib = mib;
    if (pthread_create(&thread, NULL, wait_and_use, &later) != 0) abort();
}

/* Uses so much memory in each of so many children. Crashes when the first of them is killed; ends them when all have it. */
int share_out(int children, int mib) {
    int ends[2];
    char byte = 0;
    if (pipe(ends) < 0) return errno;
    for (int child = 0; child < children; child++) {
        pid_t pid = fork();
        if (pid < 0) return errno;
        if (pid == 0) {
            close(ends[0]);
            if (touch(mib) != 0) _exit(1);
            if (write(ends[1], &byte, 1) != 1) _exit(1);
            close(ends[1]);
            rest();
        }
    }
    close(ends[1]);
    /* The end comes early if none is left, each having said so or died. */
    for (int child = 0; child < children; child++) {
        if (read(ends[0], &byte, 1) != 1) break;
    }
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) > 0 && WIFSIGNALED(status)) abort();
    return 0;
}

/* Writes so much into a file. */
int fill(const char *file, int mib) {
    static char block[1 << 20];
    int to = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (to < 0) return errno;
    memset(block, 1, sizeof block);
    for (int at = 0; at < mib; at++) {
        if (write(to, block, sizeof block) != (ssize_t)sizeof block) return errno;
    }
    close(to);
    return 0;
}

/* Starts so many children, or as many as it may; then crashes if it is to. Returns how many. */
int breed(int children, int crashes) {
    int made = 0;
    for (; made < children; made++) {
        pid_t pid = fork();
        if (pid < 0) break;
        if (pid == 0) rest();
    }
    if (crashes) abort();
    return made;
}

/* Leaves a daemon in a session of its own, which holds a lock on the file, and stays. The daemon writes the number of this
   process's guard into the file. */
int stay_with_a_daemon(const char *file) {
    int guard = getppid();
    int lock = open(file, O_WRONLY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0) return errno;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        if (write(lock, &guard, sizeof guard) != sizeof guard) _exit(1);
        rest();
    }
    close(lock);
    waitpid(child, NULL, 0);
    rest();
    return 0;
}
