/* A gate with which a test waits for routines (gate and same of routines.idl), and routines for a test. */
#ifndef GATE_H
#define GATE_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "server.h"

/* The routines wait until there is a file here. */
static char path[4096];

static inline void close_gate(void)
{
    temporary(path, sizeof path, "kumi-grpc-gate-XXXXXX");
    int file = mkstemp(path);
    EXPECT(file >= 0 && close(file) == 0 && unlink(path) == 0);
}

/* Which server runs the routine that has begun. */
static inline void wait_for_begin(char *server, size_t size)
{
    char begun[4200];
    snprintf(begun, sizeof begun, "%s.begun", path);
    for (;;) {
        FILE *file = fopen(begun, "rb");
        if (file != NULL) {
            int is_whole = fgets(server, (int)size, file) != NULL && strchr(server, '\n') != NULL;
            fclose(file);
            if (is_whole) {
                server[strcspn(server, "\n")] = 0;
                return;
            }
        }
        usleep(1000);
    }
}

/* Waits until so many have begun. */
static inline void wait_for_begins(int count)
{
    char begun[4200];
    snprintf(begun, sizeof begun, "%s.begun", path);
    for (int lines = 0; lines < count; usleep(1000)) {
        FILE *file = fopen(begun, "rb");
        if (file != NULL) {
            lines = 0;
            for (int c = getc(file); c != EOF; c = getc(file)) {
                lines += c == '\n';
            }
            fclose(file);
        }
    }
}

static inline void open_gate(void)
{
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fclose(file) == 0);
}

static inline void remove_gate(void)
{
    char begun[4200];
    snprintf(begun, sizeof begun, "%s.begun", path);
    unlink(path);
    EXPECT(unlink(begun) == 0);
}

#endif
