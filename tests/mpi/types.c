/* Derived types: what one rank sends with one layout, another receives with another. */
#include "check.h"

/* A type, and the places in bytes of its elements of `unit` bytes in the order in which they are sent. */
struct layout {
    const char *name;
    MPI_Datatype type;
    int unit, count;
    size_t *places;
    size_t extent;
};

static void add(struct layout *layout, size_t place)
{
    layout->places[layout->count++] = place;
}

static struct layout of_ints(const char *name, int most)
{
    return (struct layout){name, MPI_DATATYPE_NULL, (int)sizeof(int), 0, memory((size_t)most * sizeof(size_t)), 0};
}

static struct layout vector(int blocks)
{
    struct layout layout = of_ints("vector", 3 * blocks);
    MPI_Type_vector(blocks, 3, 5, MPI_INT, &layout.type);
    for (int block = 0; block < blocks; block++)
        for (int i = 0; i < 3; i++)
            add(&layout, sizeof(int) * (size_t)(5 * block + i));
    layout.extent = sizeof(int) * (size_t)(5 * (blocks - 1) + 3);
    return layout;
}

static struct layout hvector(int blocks)
{
    struct layout layout = of_ints("hvector, backwards", 2 * blocks);
    int lengths[1] = {1};
    MPI_Datatype backwards;
    /* Blocks from the last to the first: the type begins behind the beginning of the buffer. */
    MPI_Type_create_hvector(blocks, 2, -(MPI_Aint)(3 * sizeof(int)), MPI_INT, &backwards);
    MPI_Aint place = (MPI_Aint)(3 * sizeof(int)) * (blocks - 1);
    MPI_Type_create_struct(1, lengths, &place, &backwards, &layout.type);
    MPI_Type_free(&backwards);
    for (int block = blocks - 1; block >= 0; block--)
        for (int i = 0; i < 2; i++)
            add(&layout, sizeof(int) * (size_t)(3 * block + i));
    layout.extent = sizeof(int) * (size_t)(3 * (blocks - 1) + 2);
    return layout;
}

static struct layout indexed(int blocks)
{
    struct layout layout = of_ints("indexed", 4 * blocks);
    int *lengths = memory((size_t)blocks * sizeof *lengths), *places = memory((size_t)blocks * sizeof *places), place = 0;
    for (int block = 0; block < blocks; block++) {
        lengths[block] = block % 5;
        places[block] = place;
        for (int i = 0; i < lengths[block]; i++)
            add(&layout, sizeof(int) * (size_t)(place + i));
        place += lengths[block] + block % 3;
    }
    MPI_Type_indexed(blocks, lengths, places, MPI_INT, &layout.type);
    layout.extent = sizeof(int) * (size_t)place;
    free(lengths);
    free(places);
    return layout;
}

static struct layout subarray(int side)
{
    struct layout layout = of_ints("subarray", side * side * 2);
    int sizes[3] = {side + 3, side + 1, 4}, part[3] = {side, side, 2}, from[3] = {2, 1, 1};
    MPI_Type_create_subarray(3, sizes, part, from, MPI_ORDER_C, MPI_INT, &layout.type);
    for (int a = 0; a < part[0]; a++)
        for (int b = 0; b < part[1]; b++)
            for (int c = 0; c < part[2]; c++)
                add(&layout, sizeof(int) * (size_t)(((a + from[0]) * sizes[1] + b + from[1]) * sizes[2] + c + from[2]));
    layout.extent = sizeof(int) * (size_t)(sizes[0] * sizes[1] * sizes[2]);
    return layout;
}

static struct layout resized(int count)
{
    struct layout layout = of_ints("resized", count);
    MPI_Datatype wide;
    MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &wide);
    MPI_Type_contiguous(count, wide, &layout.type);
    MPI_Type_free(&wide);
    for (int i = 0; i < count; i++)
        add(&layout, sizeof(int) * (size_t)(3 * i));
    layout.extent = sizeof(int) * (size_t)(3 * count);
    return layout;
}

static struct layout contiguous(int count)
{
    struct layout layout = of_ints("contiguous", count);
    MPI_Type_contiguous(count, MPI_INT, &layout.type);
    for (int i = 0; i < count; i++)
        add(&layout, sizeof(int) * (size_t)i);
    layout.extent = sizeof(int) * (size_t)count;
    return layout;
}

#define LAYOUTS 6
static struct layout make(int kind, int size)
{
    switch (kind) {
    case 0: return vector(size);
    case 1: return hvector(size);
    case 2: return indexed(size);
    case 3: return subarray(size < 40 ? size : 40);
    case 4: return resized(size);
    default: return contiguous(size);
    }
}

/* Sends with one layout, receives with another; elements beyond the shorter one are left alone. */
static void exchange(struct layout *from, struct layout *to)
{
    size_t count = (size_t)(from->count < to->count ? from->count : to->count), extent = to->extent + 64;
    char *out = memory(from->extent), *in = memory(extent), *untouched = memory(extent);
    MPI_Status status;
    int got;
    if (from->count > to->count)
        return free(out), free(in), free(untouched);
    memset(out, 0xee, from->extent);
    memset(in, 0x77, extent);
    memset(untouched, 0x77, extent);
    for (size_t i = 0; i < (size_t)from->count; i++)
        fill(out + from->places[i], sizeof(int), i + (size_t)rank);
    MPI_Sendrecv(out, 1, from->type, right, 1, in, 1, to->type, left, 1, MPI_COMM_WORLD, &status);
    MPI_Get_elements(&status, to->type, &got);
    CHECK(got == from->count, "%s to %s: %d elements instead of %d", from->name, to->name, got, from->count);
    for (size_t i = 0; i < count; i++) {
        check_content(in + to->places[i], sizeof(int), i + (size_t)left, to->name);
        memset(in + to->places[i], 0x77, sizeof(int));
    }
    CHECK(memcmp(in, untouched, extent) == 0, "%s to %s: bytes between the elements have changed", from->name, to->name);
    free(out);
    free(in);
    free(untouched);
}

static void layouts(int size)
{
    struct layout all[LAYOUTS];
    for (int kind = 0; kind < LAYOUTS; kind++) {
        all[kind] = make(kind, size + kind);
        MPI_Type_commit(&all[kind].type);
    }
    for (int from = 0; from < LAYOUTS; from++)
        for (int to = 0; to < LAYOUTS; to++)
            exchange(&all[from], &all[to]);
    for (int kind = 0; kind < LAYOUTS; kind++) {
        MPI_Type_free(&all[kind].type);
        free(all[kind].places);
    }
}

struct particle {
    char kind;
    double place[3];
    int16_t charge;
    int64_t number;
};

static MPI_Datatype particle_type(void)
{
    struct particle p;
    int lengths[4] = {1, 3, 1, 1};
    MPI_Aint begin, places[4];
    MPI_Datatype types[4] = {MPI_CHAR, MPI_DOUBLE, MPI_INT16_T, MPI_INT64_T}, bare, type;
    MPI_Get_address(&p, &begin);
    MPI_Get_address(&p.kind, &places[0]);
    MPI_Get_address(p.place, &places[1]);
    MPI_Get_address(&p.charge, &places[2]);
    MPI_Get_address(&p.number, &places[3]);
    for (int i = 0; i < 4; i++)
        places[i] -= begin;
    MPI_Type_create_struct(4, lengths, places, types, &bare);
    MPI_Type_create_resized(bare, 0, sizeof p, &type);
    MPI_Type_free(&bare);
    MPI_Type_commit(&type);
    return type;
}

static struct particle particle(int process, int i)
{
    return (struct particle){(char)(i % 100), {process, i, process + i}, (int16_t)(i - 50), (int64_t)i * process};
}

/* Structures with gaps, point to point and by a collective, and packed by hand. */
static void structures(int count)
{
    MPI_Datatype type = particle_type();
    struct particle *out = memory((size_t)count * sizeof *out), *in = memory((size_t)(count * ranks) * sizeof *in);
    int bytes, place = 0;
    for (int i = 0; i < count; i++)
        out[i] = particle(rank, i);
    MPI_Allgather(out, count, type, in, count, type, MPI_COMM_WORLD);
    for (int i = 0; i < count * ranks; i++) {
        struct particle p = particle(i / count, i % count), *q = &in[i];
        CHECK(q->kind == p.kind && q->charge == p.charge && q->number == p.number &&
                  memcmp(q->place, p.place, sizeof p.place) == 0,
              "structure %d of process %d is wrong", i % count, i / count);
    }
    MPI_Pack_size(count, type, MPI_COMM_WORLD, &bytes);
    char *packed = memory((size_t)bytes), *received = memory((size_t)bytes);
    MPI_Pack(out, count, type, packed, bytes, &place, MPI_COMM_WORLD);
    MPI_Sendrecv(packed, place, MPI_PACKED, right, 2, received, bytes, MPI_PACKED, left, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    place = 0;
    for (int i = 0; i < count; i++) {
        struct particle p = particle(left, i), q;
        MPI_Unpack(received, bytes, &place, &q, 1, type, MPI_COMM_WORLD);
        CHECK(q.number == p.number && q.place[2] == p.place[2], "packed structure %d is wrong", i);
    }
    free(packed);
    free(received);
    free(out);
    free(in);
    MPI_Type_free(&type);
}

/* The matrix is sent by rows and received by columns. */
static void transpose(int side)
{
    MPI_Datatype column, columns;
    int *out = memory((size_t)(side * side) * sizeof *out), *in = memory((size_t)(side * side) * sizeof *in);
    for (int i = 0; i < side * side; i++)
        out[i] = i + rank;
    MPI_Type_vector(side, 1, side, MPI_INT, &column);
    MPI_Type_create_resized(column, 0, sizeof(int), &columns);
    MPI_Type_commit(&columns);
    MPI_Sendrecv(out, side * side, MPI_INT, right, 3, in, side, columns, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int row = 0; row < side; row++)
        for (int c = 0; c < side; c++)
            CHECK(in[row * side + c] == c * side + row + left, "a transposed matrix is wrong in row %d", row);
    MPI_Type_free(&column);
    MPI_Type_free(&columns);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    static const int lengths[] = {1, 4, 100, 3000, 30000};
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        for (int i = 0; i < 5; i++)
            layouts(lengths[i] + round);
        passed("vector, indexed, subarray, resized, contiguous, each to each");
        for (int i = 0; i < 4; i++)
            structures(lengths[i]);
        passed("structures, gathered and packed");
        for (int side = 1; side < 600; side = side * 3 + 1)
            transpose(side);
        passed("rows received as columns");
    }
    return finish();
}
