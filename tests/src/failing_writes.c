// Preloaded into daemons by tests: while the file KUMI_TEST_EIO.eio exists, writes to files below the folder KUMI_TEST_EIO
// fail as on a broken disk. Logs are spared.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_below(const char *folder, int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t begin = strlen(folder);
    if (length <= (ssize_t)begin) return 0;
    path[length] = 0;
    int is_log = length > 4 && strcmp(path + length - 4, ".log") == 0;
    return !is_log && strncmp(path, folder, begin) == 0 && path[begin] == '/';
}

static int fails(int fd) {
    int before = errno;
    const char *folder = getenv("KUMI_TEST_EIO");
    char flag[PATH_MAX];
    int broken = 0;
    if (folder && snprintf(flag, sizeof flag, "%s.eio", folder) < (int)sizeof flag)
        broken = access(flag, F_OK) == 0 && is_below(folder, fd);
    errno = broken ? EIO : before;
    return broken;
}

#define FAILING(type, name, parameters, arguments)                           \
    type name parameters {                                                   \
        static type(*real) parameters;                                       \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);       \
        return fails(fd) ? -1 : real arguments;                              \
    }

FAILING(ssize_t, write, (int fd, const void *data, size_t count), (fd, data, count))
FAILING(ssize_t, pwrite, (int fd, const void *data, size_t count, off_t at), (fd, data, count, at))
FAILING(ssize_t, pwrite64, (int fd, const void *data, size_t count, off64_t at), (fd, data, count, at))
FAILING(int, fsync, (int fd), (fd))
FAILING(int, fdatasync, (int fd), (fd))
