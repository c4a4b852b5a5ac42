/* Common start of the MPI programs with two ranks. */
#ifndef TWO_RANKS_H
#define TWO_RANKS_H

#include "measure.h"
#include <mpi.h>

/* Starts MPI, and returns this process's rank, 0 or 1. Ends the program if there are not two. */
static int two_ranks(int *argc, char ***argv)
{
    int rank, ranks;
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) {
        fprintf(stderr, "two ranks are needed, there are %d\n", ranks);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    alarm(PATIENCE_S);
    return rank;
}

#endif
