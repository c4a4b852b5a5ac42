/* What a routine tries that wants out of its sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The error of killing a process. */
int stab(int pid) { return kill(pid, SIGKILL) == 0 ? 0 : errno; }

int leads_its_session(void) { return getsid(0) == getpid(); }

int is_set(const char *name) { return getenv(name) != NULL; }

int is_there(const char *path) { return access(path, F_OK) == 0; }

/* MiB that fit into the folder. */
long room(const char *path) {
    struct statvfs disk;
    return statvfs(path, &disk) == 0 ? (long)(disk.f_blocks * disk.f_frsize >> 20) : -1;
}

/* Leaves a child in a session of its own, which holds a lock on the file. */
int leave_a_child(const char *file) {
    int lock = open(file, O_RDONLY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0) return errno;
    if (fork() == 0) {
        setsid();
        alarm(300);
        for (;;) pause();
    }
    close(lock);
    return 0;
}

int give_up(void) { abort(); }
