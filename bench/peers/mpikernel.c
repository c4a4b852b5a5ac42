/*
 * Kernels with the patterns of communication of three of the NAS parallel benchmarks, and their sizes of class A:
 *
 *   mpikernel cg|mg|is [STEPS]      prints "seconds_per_step S" and whether the result is right
 *   mpikernel cg|mg|is --progress   steps until it is ended, with lines "PROGRESS STEPS TIME"
 *
 * cg: conjugate gradients; each product gathers the whole vector (14,000 rows of 11 elements around the diagonal).
 * mg: Jacobi sweeps on a grid of 256 x 256 x 256 and of three coarser ones, with the neighbours' planes.
 * is: ranks 2^23 keys below 2^19 by a histogram, an exchange of all with all, and a count.
 */
#include "measure.h"
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <string.h>

static int rank, ranks;

static void *memory(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        fail("memory");
    return memory;
}

static double sum(double value)
{
    double total;
    MPI_Allreduce(&value, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

/* cg */

#define ROWS 14000
#define BAND 5
#define INNER 25

static struct {
    int rows, first;
    double *p, *all, *q, *r, *x;
} cg;

static void cg_prepare(void)
{
    cg.rows = ROWS / ranks;
    cg.first = rank * cg.rows;
    size_t bytes = (size_t)cg.rows * sizeof(double);
    cg.p = memory(bytes);
    cg.q = memory(bytes);
    cg.r = memory(bytes);
    cg.x = memory(bytes);
    cg.all = memory(bytes * (size_t)ranks);
}

/* q = A p: 12 on the diagonal, -1 at the places of a band that winds through all rows. */
static void product(void)
{
    int total = cg.rows * ranks;
    MPI_Allgather(cg.p, cg.rows, MPI_DOUBLE, cg.all, cg.rows, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < cg.rows; i++) {
        double value = 12 * cg.p[i];
        for (int k = 1; k <= BAND; k++) {
            int step = k * k * 97;
            value -= cg.all[(cg.first + i + step) % total] + cg.all[(cg.first + i + total - step) % total];
        }
        cg.q[i] = value;
    }
}

static double dot(const double *a, const double *b)
{
    double value = 0;
    for (int i = 0; i < cg.rows; i++)
        value += a[i] * b[i];
    return sum(value);
}

static int cg_step(void)
{
    memset(cg.x, 0, (size_t)cg.rows * sizeof(double));
    for (int i = 0; i < cg.rows; i++)
        cg.p[i] = cg.r[i] = 1 + (cg.first + i) % 7;
    double begin = dot(cg.r, cg.r), rho = begin;
    for (int inner = 0; inner < INNER; inner++) {
        product();
        double alpha = rho / dot(cg.p, cg.q);
        for (int i = 0; i < cg.rows; i++) {
            cg.x[i] += alpha * cg.p[i];
            cg.r[i] -= alpha * cg.q[i];
        }
        double next = dot(cg.r, cg.r), beta = next / rho;
        for (int i = 0; i < cg.rows; i++)
            cg.p[i] = cg.r[i] + beta * cg.p[i];
        rho = next;
    }
    return rho < 1e-6 * begin;
}

/* mg */

#define SIDE 256
#define LEVELS 4

static struct {
    int planes;
    double *now, *next;
} mg[LEVELS];

static void mg_prepare(void)
{
    for (int level = 0; level < LEVELS; level++) {
        size_t side = SIDE >> level;
        mg[level].planes = (int)side / ranks;
        size_t places = ((size_t)mg[level].planes + 2) * side * side;
        mg[level].now = memory(places * sizeof(double));
        mg[level].next = memory(places * sizeof(double));
        for (size_t i = 0; i < places; i++)
            mg[level].now[i] = 1;
    }
}

static void planes_of_neighbours(int level)
{
    int plane = (SIDE >> level) * (SIDE >> level), planes = mg[level].planes;
    int above = (rank + 1) % ranks, below = (rank + ranks - 1) % ranks;
    double *now = mg[level].now;
    MPI_Request requests[4];
    MPI_Irecv(now, plane, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(now + (size_t)(planes + 1) * (size_t)plane, plane, MPI_DOUBLE, above, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(now + (size_t)planes * (size_t)plane, plane, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(now + plane, plane, MPI_DOUBLE, below, 2, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void sweep(int level)
{
    size_t side = SIDE >> level, plane = side * side;
    planes_of_neighbours(level);
    for (size_t z = 1; z <= (size_t)mg[level].planes; z++)
        for (size_t y = 1; y + 1 < side; y++) {
            const double *line = mg[level].now + z * plane + y * side;
            double *into = mg[level].next + z * plane + y * side;
            for (size_t x = 1; x + 1 < side; x++)
                into[x] = (line[x - 1] + line[x + 1] + line[x - side] + line[x + side] + *(line + x - plane) +
                           line[x + plane]) / 6;
            into[0] = line[0];
            into[side - 1] = line[side - 1];
        }
    double *old = mg[level].now;
    mg[level].now = mg[level].next;
    mg[level].next = old;
}

/* Down to the coarsest grid and up. Values stay between 0 and 1, and their mean is the same on all ranks. */
static int mg_step(void)
{
    for (int level = 0; level < LEVELS; level++)
        sweep(level);
    for (int level = LEVELS - 1; level >= 0; level--)
        sweep(level);
    double middle = mg[0].now[(size_t)SIDE * SIDE + SIDE + 5], total = sum(middle);
    return total > 0 && total <= 1.0001 * ranks;
}

/* is */

#define KEYS (1 << 23)
#define GREATEST (1 << 19)

static struct {
    int own, seed;
    int32_t *keys, *sorted, *received;
    int *counts, *places, *in_counts, *in_places, *histogram;
} is;

static void is_prepare(void)
{
    size_t most = (size_t)KEYS / (size_t)ranks * 2 + GREATEST;
    is.own = KEYS / ranks;
    is.keys = memory((size_t)is.own * sizeof(int32_t));
    is.sorted = memory((size_t)is.own * sizeof(int32_t));
    is.received = memory(most * sizeof(int32_t));
    is.counts = memory(4 * (size_t)ranks * sizeof(int));
    is.places = is.counts + ranks;
    is.in_counts = is.places + ranks;
    is.in_places = is.in_counts + ranks;
    is.histogram = memory((size_t)GREATEST * sizeof(int));
    uint64_t state = 314159265u + (uint64_t)rank;
    for (int i = 0; i < is.own; i++) {
        int key = 0;
        for (int part = 0; part < 4; part++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            key += (int)(state >> 45) % (GREATEST / 4);
        }
        is.keys[i] = key;
    }
}

/* The rank that counts a key: an equal part of the values each. */
static int owner(int key)
{
    return (int)((int64_t)key * ranks / GREATEST);
}

static int exchange_keys(void)
{
    int total = 0;
    memset(is.counts, 0, (size_t)ranks * sizeof(int));
    for (int i = 0; i < is.own; i++)
        is.counts[owner(is.keys[i])]++;
    MPI_Alltoall(is.counts, 1, MPI_INT, is.in_counts, 1, MPI_INT, MPI_COMM_WORLD);
    for (int process = 0, out = 0; process < ranks; process++) {
        is.places[process] = out;
        is.in_places[process] = total;
        out += is.counts[process];
        total += is.in_counts[process];
    }
    for (int i = 0; i < is.own; i++)
        is.sorted[is.places[owner(is.keys[i])]++] = is.keys[i];
    for (int process = 0; process < ranks; process++)
        is.places[process] -= is.counts[process];
    MPI_Alltoallv(is.sorted, is.counts, is.places, MPI_INT, is.received, is.in_counts, is.in_places, MPI_INT,
                  MPI_COMM_WORLD);
    return total;
}

static int is_step(void)
{
    int total = exchange_keys(), counted = 0;
    memset(is.histogram, 0, (size_t)GREATEST * sizeof(int));
    for (int i = 0; i < total; i++) {
        if (owner(is.received[i]) != rank)
            return 0;
        is.histogram[is.received[i]]++;
    }
    for (int key = 0; key < GREATEST; key++)
        counted += is.histogram[key];
    return (int)sum(counted) == is.own * ranks;
}

static const struct kernel {
    const char *name;
    void (*prepare)(void);
    int (*step)(void);
    int steps;
} kernels[] = {{"cg", cg_prepare, cg_step, 15}, {"mg", mg_prepare, mg_step, 4}, {"is", is_prepare, is_step, 10}};

static const struct kernel *kernel_of(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(name, kernels[i].name) == 0)
            return &kernels[i];
    fprintf(stderr, "there is no kernel %s\n", name);
    exit(2);
}

/* Steps until somebody ends the job; rank 0 tells how far it is. */
static void progress(const struct kernel *kernel)
{
    for (long steps = 1;; steps++) {
        struct timespec now;
        if (!kernel->step())
            fail("the result is wrong");
        clock_gettime(CLOCK_REALTIME, &now);
        if (rank == 0) {
            printf("PROGRESS %ld %.6f\n", steps, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: mpikernel cg|mg|is [STEPS | --progress]\n");
        return 2;
    }
    const struct kernel *kernel = kernel_of(argv[1]);
    int shows = argc > 2 && strcmp(argv[2], "--progress") == 0, right = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    kernel->prepare();
    if (shows)
        progress(kernel);
    int steps = argc > 2 ? number(argv[2], 1, 1000000) : kernel->steps;
    kernel->step();
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_ns();
    for (int i = 0; i < steps; i++)
        right = right && kernel->step();
    MPI_Barrier(MPI_COMM_WORLD);
    double each = (now_ns() - begin) / steps;
    int all;
    MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s\nseconds_per_step %.6f\n", all ? "right" : "wrong", 1e-9 * each);
    MPI_Finalize();
    return all ? 0 : 1;
}
