/* An IPv4 address from the command line. */
#ifndef KUMI_BENCH_ADDRESS_H
#define KUMI_BENCH_ADDRESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static inline struct sockaddr_in address(const char *ip, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, ip, &to.sin_addr) != 1) {
        fprintf(stderr, "not an IPv4 address: %s\n", ip);
        exit(2);
    }
    return to;
}

#endif
