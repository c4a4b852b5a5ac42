/*
 * How many bytes a second go from one process to another: over TCP as a stream, or by UDP in runs of
 * full packets, each run one system call at both ends (UDP_SEGMENT, UDP_GRO), nothing resent.
 *
 *   bulk gso|tcp serve LOCAL_IP PORT CPU SIZE
 *   bulk gso|tcp send  SERVER_IP PORT CPU SIZE BATCHES
 *
 * Both ends go round in buffers of SIZE bytes. A batch ends when the receiver has answered how many
 * of its bytes have come; what got lost does not count.
 */
#include "address.h"
#include "measure.h"
#include <errno.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <string.h>

/* Bytes of a batch. */
#define BATCH_BYTES (32UL << 20)
/* Batches before those that count. */
#define BULK_WARM_UP 3
/* The largest run that the kernel joins. */
#define RUN_BYTES 65536
/* Most packets and most bytes of a run that is sent. */
#define RUN_PACKETS 44
#define RUN_MOST 65507
/* Buffer of a socket, as Kumi asks for it. */
#define SOCKET_BUFFER (8 << 20)
/* An unanswered end of a batch is repeated after this long. */
#define PATIENCE_NS 1e6

/* The receiver's answer to the end of a batch. */
struct answer {
    uint64_t batch;
    uint64_t bytes;
};

static void large_buffers(int fd)
{
    int size = SOCKET_BUFFER;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) != 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) != 0)
        fail("SO_RCVBUF");
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) != 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) != 0)
        fail("SO_SNDBUF");
}

/* A UDP socket that joins received packets and splits sent runs. */
static int datagrams(void)
{
    int one = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof one) != 0)
        fail("UDP_GRO");
    large_buffers(fd);
    return fd;
}

/* Bytes of a packet that fits the path to the connected peer, at most those of a 9,000-byte frame. */
static size_t packet_bytes(int fd)
{
    int mtu;
    socklen_t length = sizeof mtu;
    if (getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &length) != 0)
        fail("IP_MTU");
    size_t bytes = (size_t)mtu - 28;
    return bytes < 8972 ? bytes : 8972;
}

static void serve_datagrams(int fd, char *data, size_t size)
{
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    struct answer answer = {0, 0};
    uint64_t bytes = 0;
    if (recvfrom(fd, data, 1, 0, (struct sockaddr *)&from, &length) < 0)
        fail("first datagram");
    if (connect(fd, (struct sockaddr *)&from, length) != 0 || send(fd, &answer, sizeof answer, 0) < 0)
        fail("answer");
    size_t packet = packet_bytes(fd), at = 0;
    for (;;) {
        ssize_t n = recv(fd, data + at, RUN_BYTES, MSG_DONTWAIT);
        if (n <= 0) {
            if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
                fail("recv");
            continue;
        }
        bytes += (size_t)n;
        /* The end of a batch is one byte, its number; it may have been joined to a run. */
        if ((size_t)n % packet == 1) {
            unsigned char batch = (unsigned char)data[at + (size_t)n - 1];
            if (batch != answer.batch) {
                answer = (struct answer){batch, bytes - 1};
                bytes = 0;
            }
            if (send(fd, &answer, sizeof answer, 0) < 0 && errno != ECONNREFUSED)
                fail("answer");
        }
        at = at + 2 * RUN_BYTES <= size ? at + RUN_BYTES : 0;
    }
}

/* Sends one run by one call. */
static void send_run(int fd, char *run, size_t bytes, uint16_t packet)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof packet)] = {0};
    struct iovec part = {run, bytes};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    struct cmsghdr *message = CMSG_FIRSTHDR(&header);
    message->cmsg_level = SOL_UDP;
    message->cmsg_type = UDP_SEGMENT;
    message->cmsg_len = CMSG_LEN(sizeof packet);
    memcpy(CMSG_DATA(message), &packet, sizeof packet);
    while (sendmsg(fd, &header, 0) < 0)
        if (errno != EINTR && errno != ENOBUFS && errno != ECONNREFUSED)
            fail("sendmsg with UDP_SEGMENT");
}

/* Sends the end of a batch until it is answered; returns the bytes that have come. */
static uint64_t end_batch(int fd, unsigned char batch)
{
    struct answer answer;
    for (;;) {
        if (send(fd, &batch, 1, 0) < 0 && errno != ECONNREFUSED)
            fail("send");
        double until = now_ns() + PATIENCE_NS;
        do {
            ssize_t n = recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
            if (n == sizeof answer && answer.batch == batch)
                return answer.bytes;
            if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
                fail("recv");
        } while (now_ns() < until);
    }
}

static double datagram_batch(int fd, char *data, size_t size, int number)
{
    size_t packet = packet_bytes(fd), packets = RUN_MOST / packet;
    size_t run = packet * (packets < RUN_PACKETS ? packets : RUN_PACKETS), at = 0;
    double begin = now_ns();
    for (size_t sent = 0; sent < BATCH_BYTES; sent += run) {
        send_run(fd, data + at, run, (uint16_t)packet);
        at = at + 2 * RUN_BYTES <= size ? at + RUN_BYTES : 0;
    }
    /* Never 0, which the first answer has. */
    uint64_t bytes = end_batch(fd, (unsigned char)(number % 255 + 1));
    return 1e3 * (double)bytes / (now_ns() - begin);
}

static void serve_stream(int fd, char *data, size_t size)
{
    size_t bytes = 0;
    for (;;) {
        size_t at = bytes % size, most = size - at;
        ssize_t n = recv(fd, data + at, most < BATCH_BYTES - bytes ? most : BATCH_BYTES - bytes, 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return;
        if (n < 0)
            fail("recv");
        bytes += (size_t)n;
        if (bytes == BATCH_BYTES) {
            bytes = 0;
            if (send(fd, "k", 1, MSG_NOSIGNAL) < 0)
                fail("send");
        }
    }
}

static double stream_batch(int fd, char *data, size_t size)
{
    double begin = now_ns();
    for (size_t sent = 0; sent < BATCH_BYTES;) {
        size_t at = sent % size, most = size - at;
        ssize_t n = send(fd, data + at, most < BATCH_BYTES - sent ? most : BATCH_BYTES - sent,
                         MSG_NOSIGNAL);
        if (n < 0)
            fail("send");
        sent += (size_t)n;
    }
    char answer;
    if (recv(fd, &answer, 1, 0) != 1)
        fail("the server has gone");
    return 1e3 * (double)BATCH_BYTES / (now_ns() - begin);
}

static int serve(int stream, const char *ip, int port, char *data, size_t size)
{
    struct sockaddr_in own = address(ip, port);
    int one = 1, fd = stream ? socket(AF_INET, SOCK_STREAM, 0) : datagrams();
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0)
        fail("socket");
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0 || (stream && listen(fd, 1) != 0))
        fail("bind");
    puts("ready");
    fflush(stdout);
    if (!stream) {
        serve_datagrams(fd, data, size);
        return 0;
    }
    fd = accept(fd, NULL, NULL);
    if (fd < 0)
        fail("accept");
    serve_stream(fd, data, size);
    return 0;
}

static int send_batches(int stream, const char *ip, int port, char *data, size_t size, int batches)
{
    struct sockaddr_in to = address(ip, port);
    int fd = stream ? socket(AF_INET, SOCK_STREAM, 0) : datagrams();
    double *rates = calloc((size_t)batches, sizeof *rates);
    if (rates == NULL || fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail("connect");
    struct answer first;
    if (!stream && (send(fd, "k", 1, 0) != 1 || recv(fd, &first, sizeof first, 0) < 0))
        fail("first datagram");
    for (int batch = -BULK_WARM_UP; batch < batches; batch++) {
        double rate = stream ? stream_batch(fd, data, size)
                             : datagram_batch(fd, data, size, batch + BULK_WARM_UP);
        if (batch >= 0)
            rates[batch] = rate;
    }
    printf("megabytes_per_second %.1f\n", median(rates, batches));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 7) {
        fprintf(stderr, "usage: bulk gso|tcp serve|send IP PORT CPU SIZE [BATCHES]\n");
        return 2;
    }
    int stream = strcmp(argv[1], "tcp") == 0, port = number(argv[4], 1, 65535);
    size_t size = (size_t)number(argv[6], RUN_BYTES, BATCH_BYTES);
    char *data = malloc(size);
    if (data == NULL)
        fail("memory");
    memset(data, 'k', size);
    alarm(PATIENCE_S);
    pin(number(argv[5], -1, CPU_SETSIZE - 1));
    if (strcmp(argv[2], "serve") == 0)
        return serve(stream, argv[3], port, data, size);
    return send_batches(stream, argv[3], port, data, size,
                        argc > 7 ? number(argv[7], 1, 1000000) : 20);
}
