/*
 * Raw ping-pong of 64-byte Ethernet frames over AF_XDP, copied, both ends polling their ring.
 *
 *   xdp serve INTERFACE CPU
 *   xdp ping  INTERFACE CPU BATCHES
 *
 * Frames go to everybody, so that neither end needs to know the other. The server is ended by whoever
 * started it. It replaces no other XDP program on the interface.
 */
#include "measure.h"
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

#define FRAMES 64u
#define FRAME_BYTES 4096u
#define LENGTH 64u
/* An Ethernet type for experiments. */
#define TYPE_HIGH 0x88
#define TYPE_LOW 0xb5

struct ring {
    uint32_t *producer, *consumer;
    void *entries;
};

/* The socket's memory, of which the first FRAMES frames are to receive into, and its rings. */
static struct {
    int fd;
    unsigned char *memory;
    struct ring fill, completion, receive, send;
    uint32_t received, sent, filled;
} own;

static long bpf(int command, union bpf_attr *arguments)
{
    long done = syscall(SYS_bpf, command, arguments, sizeof *arguments);
    if (done < 0)
        fail("bpf");
    return done;
}

static void option(int name, const void *value, socklen_t length)
{
    if (setsockopt(own.fd, SOL_XDP, name, value, length) != 0)
        fail("setsockopt");
}

static struct ring map(const struct xdp_ring_offset *offset, size_t entry, off_t which)
{
    int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    char *start = mmap(NULL, offset->desc + FRAMES * entry, protection, flags, own.fd, which);
    if (start == MAP_FAILED)
        fail("mmap");
    return (struct ring){(uint32_t *)(start + offset->producer),
                         (uint32_t *)(start + offset->consumer), start + offset->desc};
}

static void open_socket(unsigned interface)
{
    uint32_t size = FRAMES;
    struct xdp_mmap_offsets at;
    socklen_t length = sizeof at;
    own.fd = socket(AF_XDP, SOCK_RAW, 0);
    own.memory = mmap(NULL, 2 * FRAMES * FRAME_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (own.fd < 0 || own.memory == MAP_FAILED)
        fail("socket");
    struct xdp_umem_reg region = {.addr = (uintptr_t)own.memory,
                                  .len = 2 * FRAMES * FRAME_BYTES,
                                  .chunk_size = FRAME_BYTES};
    option(XDP_UMEM_REG, &region, sizeof region);
    option(XDP_UMEM_FILL_RING, &size, sizeof size);
    option(XDP_UMEM_COMPLETION_RING, &size, sizeof size);
    option(XDP_RX_RING, &size, sizeof size);
    option(XDP_TX_RING, &size, sizeof size);
    if (getsockopt(own.fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length) != 0)
        fail("getsockopt");
    own.receive = map(&at.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
    own.send = map(&at.tx, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);
    own.fill = map(&at.fr, sizeof(uint64_t), (off_t)XDP_UMEM_PGOFF_FILL_RING);
    own.completion = map(&at.cr, sizeof(uint64_t), (off_t)XDP_UMEM_PGOFF_COMPLETION_RING);
    for (uint64_t i = 0; i < FRAMES; i++)
        ((uint64_t *)own.fill.entries)[i] = i * FRAME_BYTES;
    own.filled = FRAMES;
    __atomic_store_n(own.fill.producer, own.filled, __ATOMIC_RELEASE);
    struct sockaddr_xdp name = {
        .sxdp_family = AF_XDP, .sxdp_ifindex = interface, .sxdp_flags = XDP_COPY};
    if (bind(own.fd, (struct sockaddr *)&name, sizeof name) != 0)
        fail("bind");
}

/* Everything that arrives goes to the socket, or its normal way if the queue has none. */
static void attach(unsigned interface)
{
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_XSKMAP,
                          .key_size = 4,
                          .value_size = 4,
                          .max_entries = 1};
    int sockets = (int)bpf(BPF_MAP_CREATE, &map);
    const struct bpf_insn code[] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 16},
        {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = 1, .src_reg = 1, .imm = sockets},
        {.code = 0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_XDP,
                           .insns = (uintptr_t)code,
                           .insn_cnt = sizeof code / sizeof *code,
                           .license = (uintptr_t) "Dual MIT/GPL"};
    int program = (int)bpf(BPF_PROG_LOAD, &load);
    uint32_t key = 0, value = (uint32_t)own.fd;
    union bpf_attr put = {
        .map_fd = (uint32_t)sockets, .key = (uintptr_t)&key, .value = (uintptr_t)&value};
    bpf(BPF_MAP_UPDATE_ELEM, &put);
    union bpf_attr link = {.link_create = {.prog_fd = (uint32_t)program,
                                           .target_ifindex = interface,
                                           .attach_type = BPF_XDP,
                                           .flags = XDP_FLAGS_DRV_MODE}};
    /* It is gone when this process ends. */
    bpf(BPF_LINK_CREATE, &link);
}

/* Polls until a frame of ours has come. */
static void receive_frame(void)
{
    for (int ours = 0; !ours;) {
        while (__atomic_load_n(own.receive.producer, __ATOMIC_ACQUIRE) == own.received)
            ;
        const struct xdp_desc *entry =
            (struct xdp_desc *)own.receive.entries + own.received % FRAMES;
        uint64_t at = entry->addr;
        ours = own.memory[at + 12] == TYPE_HIGH && own.memory[at + 13] == TYPE_LOW;
        __atomic_store_n(own.receive.consumer, ++own.received, __ATOMIC_RELEASE);
        ((uint64_t *)own.fill.entries)[own.filled % FRAMES] = at - at % FRAME_BYTES;
        __atomic_store_n(own.fill.producer, ++own.filled, __ATOMIC_RELEASE);
    }
}

static void send_frame(void)
{
    uint64_t at = (FRAMES + own.sent % FRAMES) * (uint64_t)FRAME_BYTES;
    unsigned char *frame = own.memory + at;
    memset(frame, 0xff, 6);
    memset(frame + 6, 2, 6);
    frame[12] = TYPE_HIGH;
    frame[13] = TYPE_LOW;
    ((struct xdp_desc *)own.send.entries)[own.sent % FRAMES] =
        (struct xdp_desc){.addr = at, .len = LENGTH};
    __atomic_store_n(own.send.producer, ++own.sent, __ATOMIC_RELEASE);
    sendto(own.fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
    uint32_t done = __atomic_load_n(own.completion.producer, __ATOMIC_ACQUIRE);
    __atomic_store_n(own.completion.consumer, done, __ATOMIC_RELEASE);
}

static void ping(int batches)
{
    double *half = malloc((size_t)batches * sizeof *half);
    if (half == NULL)
        fail("malloc");
    for (int batch = -WARM_UP; batch < batches; batch++) {
        double start = now_ns();
        for (int i = 0; i < BATCH; i++) {
            send_frame();
            receive_frame();
        }
        if (batch >= 0)
            half[batch] = (now_ns() - start) / BATCH / 2;
    }
    report(half, batches);
}

int main(int argc, char **argv)
{
    int serves = argc == 4 && strcmp(argv[1], "serve") == 0;
    if (!serves && !(argc == 5 && strcmp(argv[1], "ping") == 0)) {
        fputs("usage: xdp serve INTERFACE CPU | xdp ping INTERFACE CPU BATCHES\n", stderr);
        return 2;
    }
    unsigned interface = if_nametoindex(argv[2]);
    if (interface == 0)
        fail(argv[2]);
    pin(number(argv[3], -1, 4096));
    alarm(PATIENCE_S);
    open_socket(interface);
    attach(interface);
    if (!serves) {
        ping(number(argv[4], 1, 100000));
        return 0;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        receive_frame();
        send_frame();
    }
}
