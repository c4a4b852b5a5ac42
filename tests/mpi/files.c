/* Files that all ranks write and read, in --folder, which must be the same for all of them. */
#include "check.h"

#define BLOCK 1000

static char path[4096];

static MPI_File open_file(const char *name, int mode)
{
    MPI_File file;
    snprintf(path, sizeof path, "%s/kumi-test-%s-%llu", test.folder, name, (unsigned long long)test.seed);
    int code = MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file);
    CHECK(code == MPI_SUCCESS, "%s cannot be opened", path);
    return file;
}

static void close_and_delete(MPI_File file)
{
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_File_delete(path, MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

static int element(int process, int index)
{
    return process * 100003 + index;
}

static void check_block(const int *data, int process, const char *what)
{
    for (int i = 0; i < BLOCK; i++)
        CHECK(data[i] == element(process, i), "%s: element %d of rank %d is %d", what, i, process, data[i]);
}

/* Each rank writes its block, by itself or all together; each reads another one's. */
static void blocks(int together)
{
    int data[BLOCK];
    MPI_Status status;
    MPI_Offset size, place = (MPI_Offset)(rank * BLOCK * (int)sizeof(int));
    int got;
    MPI_File file = open_file("blocks", MPI_MODE_CREATE | MPI_MODE_RDWR);
    for (int i = 0; i < BLOCK; i++)
        data[i] = element(rank, i);
    if (together)
        MPI_File_write_at_all(file, place, data, BLOCK, MPI_INT, &status);
    else
        MPI_File_write_at(file, place, data, BLOCK, MPI_INT, &status);
    MPI_Get_count(&status, MPI_INT, &got);
    CHECK(got == BLOCK, "%d of %d elements were written", got, BLOCK);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    MPI_File_get_size(file, &size);
    CHECK(size == (MPI_Offset)(ranks * BLOCK * (int)sizeof(int)), "the file has %lld bytes", (long long)size);
    place = (MPI_Offset)(right * BLOCK * (int)sizeof(int));
    if (together)
        MPI_File_read_at_all(file, place, data, BLOCK, MPI_INT, &status);
    else
        MPI_File_read_at(file, place, data, BLOCK, MPI_INT, &status);
    check_block(data, right, together ? "collective file" : "file");
    close_and_delete(file);
}

/* The ranks' elements lie in turn; each sees its own only. */
static void views(void)
{
    int data[BLOCK], mixed[BLOCK];
    MPI_Datatype element_type;
    MPI_Request request;
    MPI_File file = open_file("views", MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)(ranks * (int)sizeof(int)), &element_type);
    MPI_Type_commit(&element_type);
    for (int i = 0; i < BLOCK; i++)
        data[i] = element(rank, i);
    MPI_File_set_view(file, (MPI_Offset)(rank * (int)sizeof(int)), MPI_INT, element_type, "native", MPI_INFO_NULL);
    MPI_File_write_all(file, data, BLOCK, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_iread_at(file, 0, mixed, BLOCK, MPI_INT, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < BLOCK; i++)
        CHECK(mixed[i] == element(i % ranks, i / ranks), "element %d of a mixed file is %d", i, mixed[i]);
    MPI_Type_free(&element_type);
    close_and_delete(file);
}

/* With one pointer for all, each block comes somewhere, and in rank order where that is asked for. */
static void shared_pointer(int ordered)
{
    int data[BLOCK], process;
    MPI_File file = open_file("shared", MPI_MODE_CREATE | MPI_MODE_RDWR);
    int *seen = memory((size_t)ranks * sizeof *seen);
    memset(seen, 0, (size_t)ranks * sizeof *seen);
    for (int i = 0; i < BLOCK; i++)
        data[i] = element(rank, i);
    if (ordered)
        MPI_File_write_ordered(file, data, BLOCK, MPI_INT, MPI_STATUS_IGNORE);
    else
        MPI_File_write_shared(file, data, BLOCK, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    for (int place = 0; place < ranks; place++) {
        MPI_File_read_at(file, (MPI_Offset)(place * BLOCK * (int)sizeof(int)), data, BLOCK, MPI_INT, MPI_STATUS_IGNORE);
        process = data[0] / 100003;
        CHECK(process >= 0 && process < ranks && (!ordered || process == place), "block %d is of rank %d", place, process);
        check_block(data, process, "shared pointer");
        seen[process]++;
    }
    for (int i = 0; i < ranks; i++)
        CHECK(seen[i] == 1, "block of rank %d is there %d times", i, seen[i]);
    free(seen);
    close_and_delete(file);
}

static void missing(void)
{
    MPI_File file;
    int class;
    snprintf(path, sizeof path, "%s/kumi-test-no-such-file", test.folder);
    MPI_Error_class(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), &class);
    CHECK(class == MPI_ERR_NO_SUCH_FILE, "a file that is not there gives error class %d", class);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        blocks(0);
        blocks(1);
        passed("blocks of all ranks");
        views();
        passed("views");
        shared_pointer(0);
        shared_pointer(1);
        passed("one pointer for all");
        missing();
        passed("a file that is not there");
    }
    return finish();
}
