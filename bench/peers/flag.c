/*
 * Ping-pong of two processes over two flags in shared memory, each flag on its own cache line and
 * its value the 8 bytes sent.
 *
 *   flag CPU_A CPU_B BATCHES
 */
#include "measure.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>

struct flags {
    _Alignas(128) atomic_ulong ping;
    _Alignas(128) atomic_ulong pong;
};

static inline void wait_for(atomic_ulong *flag, unsigned long value)
{
    while (atomic_load_explicit(flag, memory_order_acquire) != value)
        ;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: flag CPU_A CPU_B BATCHES\n");
        return 2;
    }
    int batches = number(argv[3], 1, 1000000);
    struct flags *flags =
        mmap(NULL, sizeof *flags, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double *half_ns = calloc((size_t)batches, sizeof *half_ns);
    if (flags == MAP_FAILED || half_ns == NULL)
        fail("memory");
    alarm(PATIENCE_S);
    unsigned long last = (unsigned long)(batches + WARM_UP) * BATCH;
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(number(argv[2], -1, CPU_SETSIZE - 1));
        for (unsigned long i = 1; i <= last; i++) {
            wait_for(&flags->ping, i);
            atomic_store_explicit(&flags->pong, i, memory_order_release);
        }
        _exit(0);
    }
    pin(number(argv[1], -1, CPU_SETSIZE - 1));
    unsigned long i = 0;
    for (int batch = -WARM_UP; batch < batches; batch++) {
        double begin = now_ns();
        for (unsigned long end = i + BATCH; i < end;) {
            i++;
            atomic_store_explicit(&flags->ping, i, memory_order_release);
            wait_for(&flags->pong, i);
        }
        if (batch >= 0)
            half_ns[batch] = (now_ns() - begin) / (2.0 * BATCH);
    }
    report(half_ns, batches);
    return 0;
}
