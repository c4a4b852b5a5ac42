/* Groups of ranks: communicators made in all ways, messages and collectives in them and between two of them. */
#include "check.h"

/* All members of a communicator agree about it: the sum of their numbers in the world. */
static void check_sum(MPI_Comm comm, int expected, const char *what)
{
    int sum;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == expected, "%s: the sum over the group is %d, not %d", what, sum, expected);
}

static int sum_of(int from, int step)
{
    int sum = 0;
    for (int i = from; i < ranks; i += step)
        sum += i;
    return sum;
}

static void compare(MPI_Comm a, MPI_Comm b, int wanted, const char *what)
{
    int result;
    MPI_Comm_compare(a, b, &result);
    CHECK(result == wanted, "%s: comparing gives %d, not %d", what, result, wanted);
}

static void split(void)
{
    MPI_Comm part, reversed, none, copy;
    MPI_Request request;
    int me, size;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 3, -rank, &part);
    MPI_Comm_rank(part, &me);
    MPI_Comm_size(part, &size);
    CHECK(size == (ranks - rank % 3 + 2) / 3, "a third of %d ranks has %d", ranks, size);
    CHECK(me == size - 1 - rank / 3, "a key of %d gives place %d", -rank, me);
    check_sum(part, sum_of(rank % 3, 3), "split");
    MPI_Comm_free(&part);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    compare(MPI_COMM_WORLD, reversed, ranks == 1 ? MPI_CONGRUENT : MPI_SIMILAR, "reversed");
    MPI_Comm_free(&reversed);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, 0, &none);
    CHECK((none == MPI_COMM_NULL) == (rank == 0), "a rank without colour is in a communicator, or another is not");
    if (none != MPI_COMM_NULL) {
        check_sum(none, sum_of(1, 1), "all but the first");
        MPI_Comm_free(&none);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    compare(MPI_COMM_WORLD, copy, MPI_CONGRUENT, "duplicate");
    MPI_Comm_free(&copy);
    MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sum(copy, sum_of(0, 1), "nonblocking duplicate");
    MPI_Comm_free(&copy);
}

static void groups(void)
{
    MPI_Group world, odd, even, both, translated;
    MPI_Comm made;
    int range[1][3] = {{1, ranks - 1, 2}}, size, result, zero = 0, place;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, ranks > 1 ? 1 : 0, range, &odd);
    MPI_Group_difference(world, odd, &even);
    MPI_Group_union(even, odd, &both);
    MPI_Group_size(even, &size);
    CHECK(size == (ranks + 1) / 2, "there are %d even ranks of %d", size, ranks);
    MPI_Group_compare(world, both, &result);
    CHECK(result == (ranks > 2 ? MPI_SIMILAR : MPI_IDENT), "even and odd ranks together compare as %d", result);
    MPI_Group_translate_ranks(even, 1, &zero, world, &place);
    CHECK(place == 0, "the first even rank is %d", place);
    MPI_Group_intersection(even, odd, &translated);
    CHECK(translated == MPI_GROUP_EMPTY, "even and odd ranks have members in common");
    MPI_Comm_create(MPI_COMM_WORLD, even, &made);
    CHECK((made != MPI_COMM_NULL) == (rank % 2 == 0), "a communicator has other members than its group");
    if (made != MPI_COMM_NULL) {
        check_sum(made, sum_of(0, 2), "even");
        MPI_Comm_free(&made);
    }
    /* Made by its members only. */
    if (rank % 2 == 1) {
        MPI_Comm_create_group(MPI_COMM_WORLD, odd, 5, &made);
        check_sum(made, sum_of(1, 2), "odd");
        MPI_Comm_free(&made);
    }
    MPI_Group_free(&world);
    MPI_Group_free(&odd);
    MPI_Group_free(&even);
    MPI_Group_free(&both);
}

/* Even and odd ranks see each other as remote groups. */
static void between(void)
{
    MPI_Comm own, inter, merged;
    int me, remote, got = -1, sum = -1, is_inter, size, last;
    if (ranks < 2)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &own);
    MPI_Comm_rank(own, &me);
    MPI_Comm_size(own, &size);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, rank % 2 ? 0 : 1, 7, &inter);
    MPI_Comm_test_inter(inter, &is_inter);
    MPI_Comm_remote_size(inter, &remote);
    CHECK(is_inter && remote == (rank % 2 ? (ranks + 1) / 2 : ranks / 2), "the remote group has %d members", remote);
    /* With the remote rank of the same number, and the last one of the greater group alone. */
    MPI_Request request = MPI_REQUEST_NULL;
    if (me < remote) {
        MPI_Isend(&rank, 1, MPI_INT, me, 1, inter, &request);
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 1, inter, MPI_STATUS_IGNORE);
        CHECK(got == (rank ^ 1), "%d came from the other group instead of %d", got, rank ^ 1);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == sum_of(1 - rank % 2, 2), "the sum of the other group is %d", sum);
    int data = rank % 2 == 0 && me == 0 ? 4711 : 0;
    MPI_Bcast(&data, 1, MPI_INT, rank % 2 ? 0 : me == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
    CHECK(data == (rank % 2 || me == 0 ? 4711 : 0), "a broadcast to the other group gives %d", data);
    int *all = memory((size_t)remote * sizeof *all);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int i = 0; i < remote; i++)
        CHECK(all[i] == 2 * i + (1 - rank % 2), "rank %d of the other group is %d", i, all[i]);
    free(all);
    MPI_Barrier(inter);
    MPI_Intercomm_merge(inter, rank % 2, &merged);
    MPI_Comm_rank(merged, &last);
    CHECK(last == me + (rank % 2 ? (ranks + 1) / 2 : 0), "the merged groups are in another order: %d", last);
    check_sum(merged, sum_of(0, 1), "merged");
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&own);
}

/* Many communicators, alive together and one after the other: messages stay in theirs. */
static void many(void)
{
    enum { MANY = 40 };
    MPI_Comm made[MANY];
    MPI_Request requests[MANY];
    int out[MANY];
    for (int i = 0; i < MANY; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &made[i]);
    for (int i = 0; i < MANY; i++) {
        out[i] = 100 * rank + i;
        MPI_Isend(&out[i], 1, MPI_INT, right, 1, made[i], &requests[i]);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        int got;
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, made[i], MPI_STATUS_IGNORE);
        CHECK(got == 100 * left + i, "communicator %d has message %d", i, got);
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        MPI_Comm_free(&made[i]);
    for (int i = 0; i < 200; i++) {
        MPI_Comm_dup(i % 2 ? MPI_COMM_SELF : MPI_COMM_WORLD, &made[0]);
        MPI_Barrier(made[0]);
        MPI_Comm_free(&made[0]);
    }
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int round = 0; round < test.rounds; round++) {
        split();
        passed("split and duplicate");
        groups();
        passed("groups and communicators of them");
        between();
        passed("between two groups");
        many();
        passed("many communicators");
    }
    return finish();
}
