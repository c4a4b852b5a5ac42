/* What a routine tries against its server, its user's other processes and the machine. Each returns 0 or the error. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int error_of(long result) { return result < 0 ? errno : 0; }

int stab(int pid) { return error_of(kill(pid, SIGKILL)); }

/* Opens another process's memory for writing. */
int pry(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int file = open(path, O_RDWR | O_CLOEXEC);
    int error = error_of(file);
    if (file >= 0) close(file);
    return error;
}

static socklen_t address_of(struct sockaddr_un *address, const char *path) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strncpy(address->sun_path, path, sizeof address->sun_path - 1);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + strlen(path);
    /* The name of an abstract socket is written with an @. */
    if (path[0] == '@') address->sun_path[0] = 0;
    return path[0] == '@' ? length : length + 1;
}

/* Connects to a socket. */
int reach(const char *path) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, path);
    int end = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (end < 0) return errno;
    int error = error_of(connect(end, (struct sockaddr *)&address, length));
    close(end);
    return error;
}

/* Sends a packet to a socket, from one of a pair. */
int post(const char *path) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, path);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0) return errno;
    int error = error_of(sendto(pair[0], "x", 1, 0, (struct sockaddr *)&address, length));
    close(pair[0]);
    close(pair[1]);
    return error;
}

/* Opens a named pipe whose other end is open. */
int pipe_into(const char *path) {
    int end = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    int error = error_of(end);
    if (end >= 0) close(end);
    return error;
}

/* Leaves a daemon: a process in a session of its own, which is nobody's child and holds a lock on the file. Then returns,
   crashes or stays. */
int leave_a_daemon(const char *file, const char *then) {
    int lock = open(file, O_RDONLY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0) return errno;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        /* Nor does it hold any descriptor of its server's. */
        for (int other = 0; other < 64; other++) {
            if (other != lock) close(other);
        }
        alarm(300);
        for (;;) pause();
    }
    close(lock);
    if (child < 0 || waitpid(child, NULL, 0) < 0) return errno;
    if (!strcmp(then, "crash")) abort();
    if (!strcmp(then, "stay")) {
        /* So that one sees that there is a daemon. */
        if (chmod(file, 0600) < 0) return errno;
        sleep(600);
    }
    return 0;
}

/* Starts processes that start the next one and end, in sessions of their own, as long as the file is there; each holds a lock
   on it. Then crashes. */
int multiply(const char *file) {
    int lock = open(file, O_RDONLY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0) return errno;
    for (int chain = 0; chain < 4; chain++) {
        pid_t child = fork();
        if (child < 0) return errno;
        while (child == 0) {
            setsid();
            if (access(file, F_OK) != 0) _exit(0);
            child = fork();
            if (child > 0) _exit(0);
            /* There may be no room for more processes: again. */
            if (child < 0) child = 0;
        }
    }
    abort();
}

/* The lowest word of the signals that are blocked in this process, or in a child of it; -1: that is not known. */
static long blocked_here(void) {
    char line[256];
    unsigned long long set = 0;
    int found = 0;
    FILE *status = fopen("/proc/self/status", "re");
    if (!status) return -1;
    while (fgets(line, sizeof line, status)) {
        if (sscanf(line, "SigBlk: %llx", &set) == 1) found = 1;
    }
    fclose(status);
    return found ? (long)set : -1;
}

long blocked(int in_a_child) {
    int ends[2];
    long set = -1;
    if (!in_a_child) return blocked_here();
    if (pipe2(ends, O_CLOEXEC) < 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        set = blocked_here();
        _exit(write(ends[1], &set, sizeof set) == sizeof set ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &set, sizeof set) != sizeof set) set = -1;
    close(ends[0]);
    if (child < 0 || waitpid(child, NULL, 0) < 0) return -1;
    return set;
}

/* Ends by a real-time signal. */
int end_by(int number) {
    raise(SIGRTMIN + number);
    return 0;
}

int is_there(const char *path) { return access(path, F_OK) == 0; }

/* A pair of connected sockets passes bytes. */
static int pair_works(void) {
    int pair[2];
    char byte = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return errno;
    int error = error_of(write(pair[0], "x", 1));
    if (!error) error = error_of(read(pair[1], &byte, 1));
    close(pair[0]);
    close(pair[1]);
    return error;
}

static int fork_works(void) {
    pid_t child = fork();
    if (child == 0) _exit(3);
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0) return errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 3 ? 0 : ECHILD;
}

static int namespace_by_clone(void) {
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    if (child < 0) return errno;
    return error_of(waitpid((pid_t)child, NULL, 0));
}

static int read_of_a_process(void) {
    int from = 1, to = 0;
    struct iovec local = {&to, sizeof to}, remote = {&from, sizeof from};
    return error_of(process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
}

static int typing(void) {
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    int error = error_of(ioctl(file, TIOCSTI, "x"));
    close(file);
    return error;
}

/* Attempts something by name. */
int attempt(const char *what) {
    if (!strcmp(what, "ptrace")) return error_of(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    if (!strcmp(what, "process_vm_readv")) return read_of_a_process();
    if (!strcmp(what, "kcmp")) return error_of(syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0));
    if (!strcmp(what, "pidfd_getfd")) return error_of(syscall(SYS_pidfd_getfd, -1, 0, 0));
    if (!strcmp(what, "TIOCSTI")) return typing();
    if (!strcmp(what, "prlimit")) return error_of(prlimit(getppid(), RLIMIT_CPU, NULL, NULL));
    if (!strcmp(what, "old_packets")) return error_of(socket(AF_INET, 10 | SOCK_CLOEXEC, 0));
    if (!strcmp(what, "inet_pair")) {
        int pair[2];
        return error_of(socketpair(AF_INET, SOCK_STREAM, 0, pair));
    }
    if (!strcmp(what, "unshare")) return error_of(unshare(CLONE_NEWUSER));
    if (!strcmp(what, "clone")) return namespace_by_clone();
    if (!strcmp(what, "io_uring")) return error_of(syscall(SYS_io_uring_setup, 1, NULL));
    if (!strcmp(what, "userfaultfd")) return error_of(syscall(SYS_userfaultfd, -1));
    if (!strcmp(what, "keyctl")) return error_of(syscall(SYS_keyctl, -1));
    if (!strcmp(what, "packets")) return error_of(socket(AF_PACKET, -1, 0));
    if (!strcmp(what, "vsock")) return error_of(socket(AF_VSOCK, -1, 0));
    if (!strcmp(what, "netlink")) return error_of(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
    if (!strcmp(what, "clone3")) return error_of(syscall(SYS_clone3, NULL, 0));
    if (!strcmp(what, "pair")) return pair_works();
    if (!strcmp(what, "fork")) return fork_works();
    return -1;
}
