/* How long a call of a routine without arguments takes, and how many there are in a second with several in flight.
 *
 *     kumi call serve --library ./liblinpack.so linpack.idl
 *     rate [-c IN_FLIGHT] [-n CALLS] [ROUTINE]
 *
 * Prints the microseconds of one call and the calls per second; the server is that of KUMI_CALL_SERVER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grpc.h"

static grpc_function_handle_t handle;

static void need(grpc_error_t error)
{
    if (error != GRPC_NO_ERROR) {
        grpc_perror_np("rate");
        exit(1);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds of so many calls, one behind the other. */
static double one_by_one(int calls)
{
    double begin = now();
    for (int i = 0; i < calls; i++) {
        need(grpc_call(&handle));
    }
    return now() - begin;
}

/* Seconds of so many calls, of which so many are in flight: for each that is over another begins. */
static double at_once(int calls, int in_flight)
{
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    double begin = now();
    int begun = 0;
    for (; begun < in_flight && begun < calls; begun++) {
        need(grpc_call_async(&handle, &session));
    }
    for (int over = 0; over < calls; over++) {
        need(grpc_wait_any(&session));
        if (begun < calls) {
            need(grpc_call_async(&handle, &session));
            begun++;
        }
    }
    return now() - begin;
}

static int count(const char *text)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (end == text || *end != 0 || value < 1 || value > 100000000) {
        fprintf(stderr, "rate: `%s` is no number of calls\n", text);
        exit(64);
    }
    return (int)value;
}

int main(int argc, char **argv)
{
    int in_flight = 16;
    int calls = 5000;
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        if (strcmp(argv[at], "-c") == 0) {
            in_flight = count(argv[at + 1]);
        } else if (strcmp(argv[at], "-n") == 0) {
            calls = count(argv[at + 1]);
        } else {
            break;
        }
    }
    if (at + 1 < argc || (at < argc && argv[at][0] == '-')) {
        fprintf(stderr, "usage: rate [-c IN_FLIGHT] [-n CALLS] [ROUTINE]\n");
        return 64;
    }
    need(grpc_initialize(NULL));
    need(grpc_function_handle_default(&handle, at < argc ? argv[at] : "noop"));
    /* The first starts the routine's process. */
    need(grpc_call(&handle));
    printf("%.2f us a call, one by one\n", 1e6 * one_by_one(calls) / calls);
    printf("%.0f calls a second, %d in flight\n", calls / at_once(calls, in_flight), in_flight);
    need(grpc_function_handle_destruct(&handle));
    need(grpc_finalize());
    return 0;
}
