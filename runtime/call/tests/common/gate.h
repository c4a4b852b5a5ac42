#include <stdio.h>
#include <unistd.h>

/* Notes in PATH.begun that it runs, and runs until there is PATH. */
void gate(const char *path)
{
    char begun[4096];
    snprintf(begun, sizeof begun, "%s.begun", path);
    FILE *file = fopen(begun, "ab");
    putc('x', file);
    fclose(file);
    while (access(path, F_OK) != 0) {
        usleep(1000);
    }
}
