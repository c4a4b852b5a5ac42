/*
 * Ways in which a job ends badly:   ends WAY
 *
 * abort      the rank calls MPI_Abort with code 7
 * exit       it exits with code 0 without MPI_Finalize
 * code       it exits with code 9 without MPI_Finalize
 * segfault   it writes where there is no memory
 * killed     it kills itself
 * truncated  it receives a message that is too long, with the errors of MPI fatal
 * hang       it never sends what the others wait for
 * outlive    it ends well, some time after the others: nothing is wrong
 *
 * The rank is 1, or 0 if it is alone (not with `truncated`). The others wait for a message from it that never comes.
 */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static void end(const char *way)
{
    char byte = 0;
    if (strcmp(way, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 7);
    else if (strcmp(way, "exit") == 0)
        _exit(0);
    else if (strcmp(way, "code") == 0)
        _exit(9);
    else if (strcmp(way, "segfault") == 0)
        *(volatile char *)8 = byte;
    else if (strcmp(way, "killed") == 0)
        kill(getpid(), SIGKILL);
    else if (strcmp(way, "truncated") == 0)
        MPI_Recv(&byte, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(way, "hang") == 0)
        MPI_Recv(&byte, 1, MPI_BYTE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        fail("there is no way to end called %s", way);
}

int main(int argc, char **argv)
{
    char byte;
    start(argc, argv);
    if (test.word == NULL)
        fail("which way to end?");
    int ending = ranks > 1 ? 1 : 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("all %d ranks run\n", ranks);
        fflush(stdout);
    }
    if (strcmp(test.word, "outlive") == 0) {
        if (rank == ending)
            sleep(2);
        MPI_Finalize();
        return 0;
    }
    /* The line above is out before anything happens. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && ranks > 1 && strcmp(test.word, "truncated") == 0)
        MPI_Send("too long", 9, MPI_BYTE, ending, 1, MPI_COMM_WORLD);
    if (rank == ending)
        end(test.word);
    MPI_Recv(&byte, 1, MPI_BYTE, ending, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return finish();
}
