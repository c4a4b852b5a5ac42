/* Programs of MPI whose ranks wait for each other for ever, one of each kind, and some that only look as if they did. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG = 5, LARGE = 1 << 22, MOST = 64 };

/* How the ranks wait in turns. */
enum { RECEIVES, ANYBODY, PROBES, WAITS, LARGE_SENDS, KINDS };

static int rank, size;

static void receive(int from) {
  int value;
  MPI_Recv(&value, 1, MPI_INT, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send(int to) {
  MPI_Send(&rank, 1, MPI_INT, to, TAG, MPI_COMM_WORLD);
}

/* All send before they receive, more than there is room for. */
static void crossed_sends(void) {
  char *data = calloc(1, LARGE);
  MPI_Send(data, LARGE, MPI_CHAR, (rank + 1) % size, TAG, MPI_COMM_WORLD);
  receive((rank + size - 1) % size);
  free(data);
}

/* Tests for a message that comes after a while. */
static void test(void) {
  MPI_Request request;
  int value, done = 0;
  if (rank == 0) {
    sleep(4);
    for (int other = 1; other < size; other++)
      send(other);
    return;
  }
  MPI_Irecv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, &request);
  while (!done)
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

/* Tests in vain for a while, then all go on. */
static void poll(void) {
  double end = MPI_Wtime() + 4;
  int found = 0;
  while (MPI_Wtime() < end && !found)
    MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

/* Each rank in turn sleeps or computes, for longer than a wait takes to settle, while all others wait for it, each time in
   another call. */
static void think(int round) {
  double end = MPI_Wtime() + 1;
  if (round % 2)
    sleep(1);
  else
    while (MPI_Wtime() < end)
      ;
}

static void serve(int round) {
  MPI_Request requests[MOST];
  char *data = calloc(size, LARGE);
  int count = 0;
  for (int other = 0; other < size; other++) {
    if (other == rank)
      continue;
    if (round % KINDS == LARGE_SENDS)
      MPI_Irecv(data + (size_t)other * LARGE, LARGE, MPI_CHAR, other, TAG, MPI_COMM_WORLD, &requests[count++]);
    else
      MPI_Isend(&rank, 1, MPI_INT, other, TAG, MPI_COMM_WORLD, &requests[count++]);
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  free(data);
}

static void wait_for(int thinker, int round) {
  MPI_Request request;
  char *data;
  int value;
  switch (round % KINDS) {
  case RECEIVES:
    receive(thinker);
    break;
  case ANYBODY:
    receive(MPI_ANY_SOURCE);
    break;
  case PROBES:
    MPI_Probe(thinker, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    receive(thinker);
    break;
  case WAITS:
    MPI_Irecv(&value, 1, MPI_INT, thinker, TAG, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    break;
  case LARGE_SENDS:
    data = calloc(1, LARGE);
    MPI_Send(data, LARGE, MPI_CHAR, thinker, TAG, MPI_COMM_WORLD);
    free(data);
    break;
  }
}

static void turns(void) {
  for (int round = 0; round < 2 * (KINDS + 1); round++) {
    int thinker = round % size;
    if (rank == thinker)
      think(round);
    if (round % (KINDS + 1) == KINDS)
      MPI_Barrier(MPI_COMM_WORLD);
    else if (rank == thinker)
      serve(round % (KINDS + 1));
    else
      wait_for(thinker, round % (KINDS + 1));
  }
  /* The others end meanwhile. */
  if (rank == 0)
    think(0);
}

/* Messages go round and round. */
static void ring(void) {
  for (;;) {
    send((rank + 1) % size);
    receive((rank + size - 1) % size);
  }
}

int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!strcmp(kind, "receives"))
    receive((rank + 1) % size);
  else if (!strcmp(kind, "sends"))
    crossed_sends();
  else if (!strcmp(kind, "anybody"))
    receive(MPI_ANY_SOURCE);
  else if (!strcmp(kind, "probes"))
    MPI_Probe((rank + 1) % size, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else if (!strcmp(kind, "left") && rank == 0)
    receive(1);
  else if (!strcmp(kind, "turns"))
    turns();
  else if (!strcmp(kind, "test"))
    test();
  else if (!strcmp(kind, "poll"))
    poll();
  else if (!strcmp(kind, "ring"))
    ring();
  MPI_Finalize();
  return 0;
}
