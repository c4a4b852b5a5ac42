/* Collectives that move data, at odd sizes, in place too; blocking and not. */
#include "collective.h"

static void broadcast(int count)
{
    for (int root = 0; root < size; root += size > 4 ? size - 1 : 1) {
        int *data = me == root ? values(root, 0, count) : zeros(count);
        CALL(Bcast, bcast, data, count, MPI_INT, root, comm);
        check_values(data, root, 0, count, "broadcast");
        free(data);
    }
}

static void gather(int count)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        int root = size - 1, total = count * size, *own = values(me, 0, count), *all = zeros(total);
        memcpy(all + me * count, own, (size_t)count * sizeof *own);
        CALL(Gather, gather, in_place && me == root ? MPI_IN_PLACE : own, count, MPI_INT, all, count, MPI_INT, root, comm);
        for (int from = 0; me == root && from < size; from++)
            check_values(all + from * count, from, 0, count, "gather");
        check_end(all, total, "gather");
        free(own);
        free(all);
    }
}

static void scatter(int count)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        int root = size / 2, keeps = in_place && me == root;
        int *all = me == root ? values(root, 0, count * size) : NULL, *own = zeros(count);
        CALL(Scatter, scatter, all, count, MPI_INT, keeps ? MPI_IN_PLACE : own, count, MPI_INT, root, comm);
        check_values(keeps ? all + me * count : own, root, me * count, count, "scatter");
        check_end(own, count, "scatter");
        free(own);
        free(all);
    }
}

static void allgather(int count)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        int total = count * size, *own = values(me, 0, count), *all = zeros(total);
        memcpy(all + me * count, own, (size_t)count * sizeof *own);
        CALL(Allgather, allgather, in_place ? MPI_IN_PLACE : own, count, MPI_INT, all, count, MPI_INT, comm);
        for (int from = 0; from < size; from++)
            check_values(all + from * count, from, 0, count, "allgather");
        check_end(all, total, "allgather");
        free(own);
        free(all);
    }
}

static void alltoall(int count)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        int total = count * size, *out = values(me, 0, total), *in = zeros(total);
        if (in_place)
            memcpy(in, out, (size_t)total * sizeof *out);
        CALL(Alltoall, alltoall, in_place ? MPI_IN_PLACE : out, count, MPI_INT, in, count, MPI_INT, comm);
        for (int from = 0; from < size; from++)
            check_values(in + from * count, from, me * count, count, "alltoall");
        check_end(in, total, "alltoall");
        free(out);
        free(in);
    }
}

/* Counts that differ between processes, some of them 0; the blocks lie in reverse order. */
static int counts[64], places[64];

static int uneven(int count)
{
    int total = 0;
    for (int process = size - 1; process >= 0; process--) {
        counts[process] = process % 3 == 1 ? 0 : count + process;
        places[process] = total;
        total += counts[process];
    }
    return total;
}

static void gather_uneven(int count)
{
    int total = uneven(count), root = 0, *own = values(me, 0, counts[me]), *all = zeros(total);
    CALL(Gatherv, gatherv, own, counts[me], MPI_INT, all, counts, places, MPI_INT, root, comm);
    for (int from = 0; me == root && from < size; from++)
        check_values(all + places[from], from, 0, counts[from], "gatherv");
    free(all);
    all = zeros(total);
    CALL(Allgatherv, allgatherv, own, counts[me], MPI_INT, all, counts, places, MPI_INT, comm);
    for (int from = 0; from < size; from++)
        check_values(all + places[from], from, 0, counts[from], "allgatherv");
    check_end(all, total, "allgatherv");
    memset(all, 0, (size_t)total * sizeof *all);
    memcpy(all + places[me], own, (size_t)counts[me] * sizeof *own);
    CALL(Allgatherv, allgatherv, MPI_IN_PLACE, 0, MPI_INT, all, counts, places, MPI_INT, comm);
    for (int from = 0; from < size; from++)
        check_values(all + places[from], from, 0, counts[from], "allgatherv in place");
    free(own);
    free(all);
}

static void scatter_uneven(int count)
{
    int total = uneven(count), root = size - 1;
    int *all = me == root ? values(root, 0, total) : NULL, *own = zeros(counts[me]);
    CALL(Scatterv, scatterv, all, counts, places, MPI_INT, own, counts[me], MPI_INT, root, comm);
    check_values(own, root, places[me], counts[me], "scatterv");
    check_end(own, counts[me], "scatterv");
    free(own);
    free(all);
}

/* Process a sends count + (a + b) % 5 elements to process b, none if (a + b) % 4 is 1. */
static int block(int a, int b, int count)
{
    return (a + b) % 4 == 1 ? 0 : count + (a + b) % 5;
}

static void alltoall_uneven(int count)
{
    static const char *const names[] = {"alltoallv", "alltoallw", "alltoallv in place"};
    int total = 0, length[64];
    MPI_Datatype types[64];
    for (int process = 0; process < size; process++) {
        places[process] = total;
        counts[process] = block(me, process, count);
        total += counts[process];
        length[process] = places[process] * (int)sizeof(int);
        types[process] = MPI_INT;
    }
    int *out = memory((size_t)total * sizeof *out), *in = zeros(total);
    for (int process = 0; process < size; process++)
        for (int i = 0; i < counts[process]; i++)
            out[places[process] + i] = value(me, process * 1000 + i);
    /* Open MPI mixes up the elements of the last kind when it does not block. */
    for (int kind = 0; kind < (nonblocking && library_is("Open MPI") ? 2 : 3); kind++) {
        memset(in, 0, (size_t)total * sizeof *in);
        if (kind == 2)
            memcpy(in, out, (size_t)total * sizeof *in);
        if (kind == 0)
            CALL(Alltoallv, alltoallv, out, counts, places, MPI_INT, in, counts, places, MPI_INT, comm);
        else if (kind == 1)
            CALL(Alltoallw, alltoallw, out, counts, length, types, in, counts, length, types, comm);
        else
            CALL(Alltoallv, alltoallv, MPI_IN_PLACE, NULL, NULL, MPI_INT, in, counts, places, MPI_INT, comm);
        for (int from = 0; from < size; from++)
            check_values(in + places[from], from, me * 1000, counts[from], names[kind]);
        check_end(in, total, names[kind]);
    }
    free(out);
    free(in);
}

/* Nobody leaves a barrier before all have come: seen by messages that were sent before it. */
static void barrier(int count)
{
    int token = count, got, seen, next = (me + 1) % size, previous = (me + size - 1) % size;
    MPI_Request request;
    MPI_Isend(&token, 1, MPI_INT, next, 1, comm, &request);
    MPI_Recv(&got, 1, MPI_INT, previous, 1, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (nonblocking) {
        MPI_Ibarrier(comm, &request);
        complete(&request);
    } else {
        MPI_Barrier(comm);
    }
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &seen, MPI_STATUS_IGNORE);
    CHECK(got == count && !seen, "a message of another barrier is there");
    MPI_Barrier(comm);
}

/* Several operations under way on two communicators at once, each completed in an order of its own. */
static void many_at_once(int count)
{
    enum { MANY = 12 };
    MPI_Comm other;
    MPI_Request requests[MANY];
    int *out[MANY], *in[MANY];
    MPI_Comm_dup(comm, &other);
    for (int i = 0; i < MANY; i++) {
        MPI_Comm c = i % 2 ? other : comm;
        out[i] = values(me, i, count * size);
        in[i] = zeros(count * size);
        if (i % 3 == 0)
            MPI_Iallgather(out[i], count, MPI_INT, in[i], count, MPI_INT, c, &requests[i]);
        else if (i % 3 == 1)
            MPI_Ialltoall(out[i], count, MPI_INT, in[i], count, MPI_INT, c, &requests[i]);
        else
            MPI_Ibcast(me == i % size ? out[i] : in[i], count, MPI_INT, i % size, c, &requests[i]);
    }
    for (int i = 0; i < MANY; i++)
        complete(&requests[(i * 5 + me) % MANY]);
    for (int i = 0; i < MANY; i++) {
        for (int from = 0; i % 3 < 2 && from < size; from++)
            check_values(in[i] + from * count, from, i + (i % 3 == 1 ? me * count : 0), count, "many at once");
        if (i % 3 == 2)
            check_values(me == i % size ? out[i] : in[i], i % size, i, count, "many broadcasts at once");
        free(out[i]);
        free(in[i]);
    }
    MPI_Comm_free(&other);
}

static const struct collective all[] = {
    {"barrier", barrier},
    {"broadcast", broadcast},
    {"gather", gather},
    {"scatter", scatter},
    {"allgather", allgather},
    {"alltoall", alltoall},
    {"gatherv and allgatherv", gather_uneven},
    {"scatterv", scatter_uneven},
    {"alltoallv and alltoallw", alltoall_uneven},
    {"many at once", many_at_once},
};

int main(int argc, char **argv)
{
    start(argc, argv);
    if (library_is("Open MPI"))
        left_out("nonblocking alltoallv in place");
    check_all(all, sizeof all / sizeof *all);
    return finish();
}
