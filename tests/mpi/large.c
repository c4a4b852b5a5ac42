/* Messages of more than 2 GiB, by a type of a megabyte. Without --large the same with a few megabytes. */
#include "check.h"

#define UNIT (1 << 20)

static uint8_t mark(size_t unit, int sender)
{
    return (uint8_t)(unit * 7 + (size_t)sender * 3 + (unit >> 8) + 1);
}

/* The first, the last and one more byte of each unit are written and read: all of them would take long. */
static void write_marks(char *data, size_t bytes)
{
    for (size_t unit = 0; unit * UNIT < bytes; unit++) {
        size_t end = (unit + 1) * UNIT < bytes ? (unit + 1) * UNIT : bytes;
        data[unit * UNIT] = data[end - 1] = data[unit * UNIT + (end - unit * UNIT) / 2] = (char)mark(unit, rank);
    }
}

static void check_marks(const char *data, size_t bytes, int sender)
{
    for (size_t unit = 0; unit * UNIT < bytes; unit++) {
        size_t end = (unit + 1) * UNIT < bytes ? (unit + 1) * UNIT : bytes;
        uint8_t wanted = mark(unit, sender);
        CHECK((uint8_t)data[unit * UNIT] == wanted && (uint8_t)data[end - 1] == wanted &&
                  (uint8_t)data[unit * UNIT + (end - unit * UNIT) / 2] == wanted,
              "megabyte %zu of a message of %zu bytes is wrong", unit, bytes);
    }
}

/* `units` megabytes and 3 bytes, as one element of one type. */
static MPI_Datatype long_type(int units)
{
    MPI_Datatype unit, type;
    MPI_Type_contiguous(UNIT, MPI_BYTE, &unit);
    MPI_Aint places[2] = {0, (MPI_Aint)units * UNIT};
    int lengths[2] = {units, 3};
    MPI_Datatype types[2] = {unit, MPI_BYTE};
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&unit);
    return type;
}

/* Ranks go in pairs; the even one sends, and the odd one sends it back. */
static void there_and_back(int units)
{
    size_t bytes = (size_t)units * UNIT + 3;
    MPI_Datatype type = long_type(units);
    MPI_Status status;
    MPI_Count got, elements;
    int partner = rank ^ 1;
    if (partner < ranks) {
        char *data = memory(bytes);
        if (rank % 2 == 0) {
            write_marks(data, bytes);
            MPI_Send(data, 1, type, partner, 1, MPI_COMM_WORLD);
            memset(data, 0, bytes);
        }
        MPI_Recv(data, 1, type, partner, 1, MPI_COMM_WORLD, &status);
        check_marks(data, bytes, rank % 2 == 0 ? rank : partner);
        MPI_Get_elements_x(&status, type, &got);
        MPI_Type_size_x(type, &elements);
        CHECK((size_t)got == bytes && (size_t)elements == bytes, "%lld elements instead of %zu", (long long)got, bytes);
        if (rank % 2 == 1)
            MPI_Send(data, 1, type, partner, 1, MPI_COMM_WORLD);
        free(data);
    }
    MPI_Type_free(&type);
}

/* The same count of units by a broadcast. */
static void broadcast(int units)
{
    size_t bytes = (size_t)units * UNIT;
    char *data = memory(bytes);
    MPI_Datatype unit;
    MPI_Type_contiguous(UNIT, MPI_BYTE, &unit);
    MPI_Type_commit(&unit);
    if (rank == 0)
        write_marks(data, bytes);
    MPI_Bcast(data, units, unit, 0, MPI_COMM_WORLD);
    check_marks(data, bytes, 0);
    MPI_Type_free(&unit);
    free(data);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        there_and_back(test.large ? 2049 : 5);
        passed(test.large ? "2049 megabytes and 3 bytes, there and back" : "5 megabytes and 3 bytes, there and back");
        broadcast(test.large ? 2100 : 7);
        passed(test.large ? "2100 megabytes to all" : "7 megabytes to all");
    }
    return finish();
}
