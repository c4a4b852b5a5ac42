/* An MPI program that begins and ends in the way that its argument names. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

/* Says who this rank is, after all have added one. */
static void hello(void)
{
    int one = 1, sum = 0, local = 0;
    MPI_Comm node;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &local);
    MPI_Comm_free(&node);
    const char *known = getenv("OMPI_COMM_WORLD_RANK");
    printf("rank %d of %d, sum %d, %d on its node, known as %s\n", rank, size, sum, local, known ? known : "nobody");
}

/* The last rank spawns another program, which is refused. */
static void spawn(void)
{
    MPI_Comm other;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (rank == size - 1) {
        int result = MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other, MPI_ERRCODES_IGNORE);
        printf("spawn: %s\n", result == MPI_SUCCESS ? "done" : "refused");
    }
}

/* The last rank publishes a name, all look it up. */
static void names(void)
{
    char port[MPI_MAX_PORT_NAME] = "kumi:port", found[MPI_MAX_PORT_NAME] = "";
    if (rank == size - 1)
        MPI_Publish_name("service", MPI_INFO_NULL, port);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Lookup_name("service", MPI_INFO_NULL, found);
    printf("rank %d found %s\n", rank, found);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1)
        MPI_Unpublish_name("service", MPI_INFO_NULL, port);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "hello";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int last = rank == size - 1;
    if (!strcmp(how, "hello"))
        hello();
    else if (!strcmp(how, "spawn"))
        spawn();
    else if (!strcmp(how, "names"))
        names();
    else if (!strcmp(how, "abort") && last)
        MPI_Abort(MPI_COMM_WORLD, 7);
    else if (!strcmp(how, "leave") && last)
        exit(0);
    else if (!strcmp(how, "signal") && last)
        raise(atoi(argv[2]));
    else if (!strcmp(how, "folder") && last)
        printf("%s\n", getenv("PMIX_SERVER_TMPDIR"));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
