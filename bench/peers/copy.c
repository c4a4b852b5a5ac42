/*
 * How many bytes a second memcpy moves within the caches: from a buffer of SIZE bytes to another
 * one, either ordinary memory or a shared memory file (as the windows of ranks on one node are).
 *
 *   copy ordinary|shared CPU SIZE BATCHES
 */
#include "measure.h"
#include <string.h>
#include <sys/mman.h>

/* Copies between two looks at the clock. */
#define COPIES 32

static char *target(int shared, size_t size)
{
    if (!shared)
        return malloc(size);
    int fd = memfd_create("copy", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
        fail("memfd");
    char *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return to == MAP_FAILED ? NULL : to;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: copy ordinary|shared CPU SIZE BATCHES\n");
        return 2;
    }
    pin(number(argv[2], -1, CPU_SETSIZE - 1));
    size_t size = (size_t)number(argv[3], 1, 1 << 30);
    int batches = number(argv[4], 1, 1000000);
    char *from = malloc(size), *to = target(strcmp(argv[1], "shared") == 0, size);
    double *rates = calloc((size_t)batches, sizeof *rates);
    if (from == NULL || to == NULL || rates == NULL)
        fail("memory");
    memset(from, 'k', size);
    for (int batch = -WARM_UP; batch < batches; batch++) {
        double begin = now_ns();
        for (int i = 0; i < COPIES; i++) {
            memcpy(to, from, size);
            /* The compiler must not merge the copies. */
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        if (batch >= 0)
            rates[batch] = 1e3 * (double)size * COPIES / (now_ns() - begin);
    }
    printf("megabytes_per_second %.1f\n", median(rates, batches));
    return 0;
}
