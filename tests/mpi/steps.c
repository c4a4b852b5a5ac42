/*
 * Steps on which all ranks agree, until somebody makes a file:   steps [WAY] --folder DIR
 *
 * Each rank prints a line for each step. Once all have seen the file `stop` in the folder each makes `stopped-RANK` there, and
 * the last rank goes its way:
 *
 * abort      it calls MPI_Abort with code 7
 * leave      it exits with code 0 without MPI_Finalize
 *
 * Without one, all finish.
 */
#include "check.h"
#include <unistd.h>

static int is_stopped(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/stop", test.folder);
    return access(path, F_OK) == 0;
}

static void stopped(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/stopped-%d", test.folder, rank);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fclose(file) == 0, "%s cannot be made", path);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int step = 0;; step++) {
        int own[2] = {step, is_stopped()}, all[2];
        MPI_Allreduce(own, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(all[0] == step * ranks, "step %d: the sum is %d", step, all[0]);
        printf("rank %d step %d\n", rank, step);
        fflush(stdout);
        if (all[1] == ranks)
            break;
        usleep(20000);
    }
    const char *folder = getenv("PMIX_SERVER_TMPDIR");
    printf("rank %d stops%s%s\n", rank, folder == NULL ? "" : " with ", folder == NULL ? "" : folder);
    fflush(stdout);
    stopped();
    if (rank == ranks - 1 && test.word != NULL && strcmp(test.word, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (rank == ranks - 1 && test.word != NULL && strcmp(test.word, "leave") == 0)
        _exit(0);
    MPI_Finalize();
    return 0;
}
