/* Servers of the tests: `kumi call serve` with the routines of routines.c and the classes of classes.idl, of which there may be 4
 * objects. */
#ifndef SERVER_H
#define SERVER_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct server {
    pid_t pid;
    char address[64];
};

/* Starts one with so many slots and places to wait, at this address; the programs are in the folder of this one. Ends the test when
 * that does not work. */
void server_start(struct server *server, int slots, int waiting, const char *listen);
/* Starts a metaserver, which sends calls to its servers in turn, a server that belongs to one, and one that has 1 MiB for arrays that
 * stay. */
void server_start_meta(struct server *server);
void server_start_at(struct server *server, const char *meta);
void server_start_small(struct server *server, const char *meta);
/* Ends it by a signal and waits. */
void server_end(struct server *server, int signal);
/* Writes where something of this name may lie for a while: below TMPDIR if that is set, else below /tmp. Ends the test when `size`
 * bytes are too few for it. */
void temporary(char *path, size_t size, const char *name);

#ifdef __cplusplus
}
#endif

#endif
