/* Reductions: all predefined operations, own ones whose order matters, in place too; blocking and not. */
#include "collective.h"

/* The sum of element `index` over processes 0 to before `end`. */
static int sum(int end, int index)
{
    int total = 0;
    for (int process = 0; process < end; process++)
        total += value(process, index);
    return total;
}

static void check_sums(const int *data, int end, int from, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        CHECK(data[i] == sum(end, from + i), "%s: element %d of %d over %d of %d processes is %d, not %d", what, i, count,
              end, size, data[i], sum(end, from + i));
}

/* Own values, and where the result goes: over them if in place. */
static int *own, *result;

static void prepare(int count, int in_place)
{
    own = values(me, 0, count);
    result = zeros(count);
    if (in_place)
        memcpy(result, own, (size_t)count * sizeof *own);
}

static void done(int count, const char *what)
{
    check_end(result, count, what);
    free(own);
    free(result);
}

static void reduce(int count)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        int root = size - 1;
        prepare(count, in_place);
        CALL(Reduce, reduce, in_place && me == root ? MPI_IN_PLACE : own, result, count, MPI_INT, MPI_SUM, root, comm);
        if (me == root)
            check_sums(result, size, 0, count, "reduce");
        done(count, "reduce");
    }
}

static void allreduce(int count)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        prepare(count, in_place);
        CALL(Allreduce, allreduce, in_place ? MPI_IN_PLACE : own, result, count, MPI_INT, MPI_SUM, comm);
        check_sums(result, size, 0, count, "allreduce");
        done(count, "allreduce");
    }
}

static void reduce_scatter(int count)
{
    int counts[64], total = 0, place = 0;
    for (int process = 0; process < size; process++) {
        counts[process] = process % 3 == 1 ? 0 : count + process;
        place += process < me ? counts[process] : 0;
        total += counts[process];
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        prepare(total, in_place);
        CALL(Reduce_scatter, reduce_scatter, in_place ? MPI_IN_PLACE : own, result, counts, MPI_INT, MPI_SUM, comm);
        check_sums(result, size, place, counts[me], "reduce_scatter");
        done(total, "reduce_scatter");
        prepare(count * size, in_place);
        CALL(Reduce_scatter_block, reduce_scatter_block, in_place ? MPI_IN_PLACE : own, result, count, MPI_INT, MPI_SUM,
             comm);
        check_sums(result, size, me * count, count, "reduce_scatter_block");
        done(count * size, "reduce_scatter_block");
    }
}

static void scan(int count)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        prepare(count, in_place);
        CALL(Scan, scan, in_place ? MPI_IN_PLACE : own, result, count, MPI_INT, MPI_SUM, comm);
        check_sums(result, me + 1, 0, count, "scan");
        done(count, "scan");
        prepare(count, in_place);
        CALL(Exscan, exscan, in_place ? MPI_IN_PLACE : own, result, count, MPI_INT, MPI_SUM, comm);
        if (me > 0)
            check_sums(result, me, 0, count, "exscan");
        done(count, "exscan");
    }
}

/* x -> a x + b modulo 10007: first this map, then the other. The order matters. */
#define MODULUS 10007
struct map {
    int a, b;
};

static struct map then(struct map first, struct map second)
{
    return (struct map){first.a * second.a % MODULUS, (second.a * first.b + second.b) % MODULUS};
}

static void compose(void *in, void *inout, int *count, MPI_Datatype *type)
{
    struct map *first = in, *second = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        second[i] = then(first[i], second[i]);
}

static struct map map_of(int process, int index)
{
    return (struct map){1 + value(process, index) % 100, value(process, index + 1)};
}

static void check_maps(const struct map *data, int end, int count, const char *what)
{
    for (int i = 0; i < count; i++) {
        struct map expected = map_of(0, i);
        for (int process = 1; process < end; process++)
            expected = then(expected, map_of(process, i));
        CHECK(data[i].a == expected.a && data[i].b == expected.b, "%s in order: element %d of %d is (%d, %d), not (%d, %d)",
              what, i, count, data[i].a, data[i].b, expected.a, expected.b);
    }
}

static void own_operation(int count)
{
    struct map *in = memory((size_t)count * sizeof *in), *out = memory((size_t)count * sizeof *out);
    MPI_Datatype type;
    MPI_Op operation;
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose, 0, &operation);
    for (int i = 0; i < count; i++)
        in[i] = map_of(me, i);
    CALL(Reduce, reduce, in, out, count, type, operation, size / 2, comm);
    if (me == size / 2)
        check_maps(out, size, count, "reduce");
    CALL(Allreduce, allreduce, in, out, count, type, operation, comm);
    check_maps(out, size, count, "allreduce");
    CALL(Scan, scan, in, out, count, type, operation, comm);
    check_maps(out, me + 1, count, "scan");
    CALL(Exscan, exscan, in, out, count, type, operation, comm);
    if (me > 0)
        check_maps(out, me, count, "exscan");
    MPI_Op_free(&operation);
    MPI_Type_free(&type);
    free(in);
    free(out);
}

/* What a predefined operation does to two numbers. */
static int64_t apply(int operation, int64_t a, int64_t b)
{
    switch (operation) {
    case 0: return a > b ? a : b;
    case 1: return a < b ? a : b;
    case 2: return a + b;
    case 3: return a * b;
    case 4: return a && b;
    case 5: return a || b;
    case 6: return !a != !b;
    case 7: return a & b;
    case 8: return a | b;
    default: return a ^ b;
    }
}

#define OPERATIONS 10

/* All operations on a type of integers. Unsigned and short types wrap as C's do. */
#define INTEGERS(name, type, handle)                                                                                   \
    static void name(int count)                                                                                        \
    {                                                                                                                  \
        const MPI_Op operations[OPERATIONS] = {MPI_MAX, MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,                         \
                                               MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR,  MPI_BXOR};                       \
        type *in = memory((size_t)count * sizeof *in), *out = memory((size_t)count * sizeof *out);                     \
        for (int i = 0; i < count; i++)                                                                                \
            in[i] = (type)(value(me, i) % 5);                                                                          \
        for (int operation = 0; operation < OPERATIONS; operation++) {                                                 \
            CALL(Allreduce, allreduce, in, out, count, handle, operations[operation], comm);                           \
            for (int i = 0; i < count; i++) {                                                                          \
                type expected = (type)(value(0, i) % 5);                                                               \
                for (int process = 1; process < size; process++)                                                       \
                    expected = (type)apply(operation, expected, (type)(value(process, i) % 5));                        \
                CHECK(out[i] == expected, #handle ", operation %d: element %d is wrong", operation, i);                \
            }                                                                                                          \
        }                                                                                                              \
        free(in);                                                                                                      \
        free(out);                                                                                                     \
    }

INTEGERS(bytes, uint8_t, MPI_UINT8_T)
INTEGERS(shorts, int16_t, MPI_INT16_T)
INTEGERS(integers, int, MPI_INT)
INTEGERS(longs, int64_t, MPI_INT64_T)
INTEGERS(unsigned_integers, uint32_t, MPI_UINT32_T)

/* Sums and extremes of floating-point numbers that are whole, and where the extremes are. */
static void floating(int count)
{
    struct {
        double value;
        int place;
    } *in = memory((size_t)count * sizeof *in), *out = memory((size_t)count * sizeof *out);
    double *numbers = memory((size_t)count * sizeof *numbers), *total = memory((size_t)count * sizeof *total);
    for (int i = 0; i < count; i++) {
        in[i].value = numbers[i] = value(me, i);
        in[i].place = me;
    }
    CALL(Allreduce, allreduce, numbers, total, count, MPI_DOUBLE, MPI_SUM, comm);
    CALL(Allreduce, allreduce, in, out, count, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
    for (int i = 0; i < count; i++) {
        int best = 0;
        for (int process = 1; process < size; process++)
            best = value(process, i) > value(best, i) ? process : best;
        CHECK(total[i] == sum(size, i), "the sum of doubles is %g, not %d", total[i], sum(size, i));
        CHECK(out[i].place == best && out[i].value == value(best, i), "the greatest is at %d, not at %d", out[i].place,
              best);
    }
    free(in);
    free(out);
    free(numbers);
    free(total);
}

/* Many operations: a few lengths are enough. */
static void predefined(int count)
{
    if (count != 17 && count != 4099)
        return;
    bytes(count);
    shorts(count);
    integers(count);
    longs(count);
    unsigned_integers(count);
    floating(count);
}

static const struct collective all[] = {
    {"reduce", reduce},
    {"allreduce", allreduce},
    {"reduce_scatter", reduce_scatter},
    {"scan and exscan", scan},
    {"own operation, in order", own_operation},
    {"predefined operations", predefined},
};

int main(int argc, char **argv)
{
    start(argc, argv);
    check_all(all, sizeof all / sizeof *all);
    return finish();
}
