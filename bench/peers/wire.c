/*
 * Raw ping-pong over UDP or TCP, both ends polling their socket without ever blocking, or both
 * blocking in every receive.
 *
 *   wire udp|tcp|udp-blocking|tcp-blocking serve LOCAL_IP PORT CPU SIZE
 *   wire udp|tcp|udp-blocking|tcp-blocking ping  SERVER_IP PORT CPU SIZE BATCHES
 *
 * SIZE is the number of bytes of each message, or REQUEST:REPLY if those of both ways differ.
 *
 * The server serves one client and ends with it (TCP) or is ended by whoever started it (UDP).
 */
#include "address.h"
#include "measure.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#define MOST_BYTES 65000

/* How to receive: MSG_DONTWAIT polls. */
static int wait_flag = MSG_DONTWAIT;

static void no_delay(int fd)
{
    int one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
        fail("TCP_NODELAY");
}

/* Sends all of it. */
static void send_all(int fd, const char *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = send(fd, data + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            fail("send");
    }
}

/* Polls, or waits, until `size` bytes have come; 0 when the other end has closed. */
static int receive_all(int fd, char *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = recv(fd, data + done, size - done, wait_flag);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return 0;
        else if (errno == ECONNRESET)
            return 0;
        else if (errno != EAGAIN && errno != EINTR)
            fail("recv");
    }
    return 1;
}

static int serve(int type, const char *ip, int port, size_t size, size_t reply)
{
    static char data[MOST_BYTES];
    struct sockaddr_in own = address(ip, port), from;
    socklen_t length = sizeof from;
    int one = 1, fd = socket(AF_INET, type, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0)
        fail("socket");
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0)
        fail("bind");
    if (type == SOCK_STREAM) {
        if (listen(fd, 1) != 0)
            fail("listen");
        puts("ready");
        fflush(stdout);
        fd = accept(fd, NULL, NULL);
        if (fd < 0)
            fail("accept");
        no_delay(fd);
    } else {
        puts("ready");
        fflush(stdout);
        ssize_t n = recvfrom(fd, data, size, 0, (struct sockaddr *)&from, &length);
        if (n < 0 || connect(fd, (struct sockaddr *)&from, length) != 0)
            fail("first datagram");
        send_all(fd, data, reply);
    }
    while (receive_all(fd, data, size))
        send_all(fd, data, reply);
    return 0;
}

static int ping(int type, const char *ip, int port, size_t size, size_t reply, int batches)
{
    static char data[MOST_BYTES];
    struct sockaddr_in to = address(ip, port);
    double *half_ns = calloc((size_t)batches, sizeof *half_ns);
    int fd = socket(AF_INET, type, 0);
    if (half_ns == NULL || fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail("connect");
    if (type == SOCK_STREAM)
        no_delay(fd);
    memset(data, 'k', size);
    for (int batch = -WARM_UP; batch < batches; batch++) {
        double begin = now_ns();
        for (int i = 0; i < BATCH; i++) {
            send_all(fd, data, size);
            if (!receive_all(fd, data, reply))
                fail("the server has gone");
        }
        if (batch >= 0)
            half_ns[batch] = (now_ns() - begin) / (2.0 * BATCH);
    }
    report(half_ns, batches);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 7) {
        fprintf(stderr, "usage: wire udp|tcp|udp-blocking|tcp-blocking serve|ping IP PORT CPU SIZE [BATCHES]\n");
        return 2;
    }
    int type = strncmp(argv[1], "tcp", 3) == 0 ? SOCK_STREAM : SOCK_DGRAM;
    if (strstr(argv[1], "-blocking") != NULL)
        wait_flag = 0;
    int port = number(argv[4], 1, 65535);
    char *colon = strchr(argv[6], ':');
    if (colon != NULL)
        *colon = '\0';
    size_t size = (size_t)number(argv[6], 1, MOST_BYTES);
    size_t reply = colon == NULL ? size : (size_t)number(colon + 1, 1, MOST_BYTES);
    alarm(PATIENCE_S);
    pin(number(argv[5], -1, CPU_SETSIZE - 1));
    if (strcmp(argv[2], "serve") == 0)
        return serve(type, argv[3], port, size, reply);
    return ping(type, argv[3], port, size, reply, argc > 7 ? number(argv[7], 1, 1000000) : 100);
}
