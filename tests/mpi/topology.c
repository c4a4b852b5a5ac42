/* Grids and graphs of processes, and exchanges between neighbours; blocking and not. */
#include "collective.h"

/* The order of neighbours in a grid: below and above in each direction. */
static void grid(int count)
{
    int dimensions[2] = {0, 0}, periodic[2] = {1, 0}, neighbours[4];
    MPI_Dims_create(ranks, 2, dimensions);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dimensions, periodic, 0, &comm);
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    for (int d = 0; d < 2; d++)
        MPI_Cart_shift(comm, d, 1, &neighbours[2 * d], &neighbours[2 * d + 1]);
    int *own = values(me, 0, 4 * count), *in = zeros(4 * count);
    CALL(Neighbor_allgather, neighbor_allgather, own, count, MPI_INT, in, count, MPI_INT, comm);
    for (int i = 0; i < 4; i++)
        if (neighbours[i] != MPI_PROC_NULL)
            check_values(in + i * count, neighbours[i], 0, count, "grid, allgather");
    check_end(in, 4 * count, "grid, allgather");
    CALL(Neighbor_alltoall, neighbor_alltoall, own, count, MPI_INT, in, count, MPI_INT, comm);
    /* What goes to the neighbour above comes from its neighbour below, unless both are the same. */
    for (int i = 2; i < 4; i++)
        if (neighbours[i] != MPI_PROC_NULL)
            check_values(in + i * count, neighbours[i], (i ^ 1) * count, count, "grid, alltoall");
    check_end(in, 4 * count, "grid, alltoall");
    free(own);
    free(in);
    MPI_Comm_free(&comm);
}

/* Process p sends to the processes 1 and 3 after it, in a graph with directions. */
static void graph(int count)
{
    int from[2] = {(rank + ranks - 1) % ranks, (rank + 3 * ranks - 3) % ranks};
    int to[2] = {(rank + 1) % ranks, (rank + 3) % ranks};
    int counts[2] = {count, count + 5}, places[2] = {count + 5, 0};
    const int weights[2] = {1, 1};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, weights, 2, to, weights, MPI_INFO_NULL, 0, &comm);
    me = rank;
    size = ranks;
    int *own = values(rank, 0, 2 * count + 5), *in = zeros(2 * count + 5);
    CALL(Neighbor_alltoallv, neighbor_alltoallv, own, counts, places, MPI_INT, in, counts, places, MPI_INT, comm);
    /* Where two edges join the same pair, the library may give them in either order. */
    if (from[0] != from[1])
        for (int i = 0; i < 2; i++)
            check_values(in + places[i], from[i], places[i], counts[i], "graph, alltoallv");
    check_end(in, 2 * count + 5, "graph, alltoallv");
    CALL(Neighbor_allgatherv, neighbor_allgatherv, own, count, MPI_INT, in, (int[]){count, count}, places, MPI_INT, comm);
    for (int i = 0; i < 2; i++)
        check_values(in + places[i], from[i], 0, count, "graph, allgatherv");
    free(own);
    free(in);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++)
        for (nonblocking = 0; nonblocking < 2; nonblocking++) {
            for (int i = 0; i < LENGTHS; i++)
                grid(lengths[i]);
            passed(nonblocking ? "neighbours in a grid, nonblocking" : "neighbours in a grid");
            for (int i = 0; i < LENGTHS; i++)
                graph(lengths[i]);
            passed(nonblocking ? "neighbours in a graph, nonblocking" : "neighbours in a graph");
        }
    return finish();
}
