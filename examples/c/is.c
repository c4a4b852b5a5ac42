/* The NAS kernel IS: ranks of integer keys (NAS report RNR-94-007, section
 * 2.2.6), by a bucket sort over the ranks of the job.
 *
 * Each rank has a piece of the keys.  In every iteration the ranks count their
 * keys by bucket, add the counts up, agree on which rank gets which buckets so
 * that all get about as many keys, exchange the keys, and count their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kumi.h>

#include "is_keys.h"
#include "npb.h"

#define IS_MOST_RANKS 256

_Static_assert(sizeof(size_t) == 8, "counts are exchanged as KUMI_U64");

struct sorter {
	const struct is_class *class;
	int rank, ranks;
	int buckets, shift; /* a key's bucket is key >> shift */
	int64_t first, count; /* this rank's piece of the sequence */
	int32_t *keys, *by_bucket;
	int32_t *local, *global; /* keys per bucket; then the checked keys */
	int32_t *next;           /* where the bucket's next key goes */
	size_t *send_counts, *recv_counts;
	int32_t *mine;           /* the keys this rank got */
	int64_t mine_count, mine_capacity;
	int32_t low, span;       /* they are in low .. low+span-1 */
	int64_t lesser;          /* keys that ranks below this one got */
	int32_t *below;          /* see is_count_below() */
};

static int64_t first_key(const struct is_class *class, int r, int ranks)
{
	return ((int64_t)r << class->log2_keys) / ranks;
}

static void sorter_make(struct sorter *s, char class_name)
{
	memset(s, 0, sizeof *s);
	s->class = is_class_find(class_name);
	s->rank = kumi_rank();
	s->ranks = kumi_size();
	s->buckets = 1 << s->class->log2_buckets;
	s->shift = s->class->log2_max_key - s->class->log2_buckets;
	s->first = first_key(s->class, s->rank, s->ranks);
	s->count = first_key(s->class, s->rank + 1, s->ranks) - s->first;
	s->keys = npb_allocate((uint64_t)s->count, sizeof(int32_t));
	s->by_bucket = npb_allocate((uint64_t)s->count, sizeof(int32_t));
	s->local = npb_allocate((uint64_t)s->buckets + IS_CHECKS, sizeof(int32_t));
	s->global = npb_allocate((uint64_t)s->buckets + IS_CHECKS, sizeof(int32_t));
	s->next = npb_allocate((uint64_t)s->buckets, sizeof(int32_t));
	s->send_counts = npb_allocate((uint64_t)s->ranks, sizeof(size_t));
	s->recv_counts = npb_allocate((uint64_t)s->ranks, sizeof(size_t));
	s->below = npb_allocate((UINT64_C(1) << s->class->log2_max_key) + 1,
	                        sizeof(int32_t));
}

static void sorter_free(struct sorter *s)
{
	free(s->keys);
	free(s->by_bucket);
	free(s->local);
	free(s->global);
	free(s->next);
	free(s->send_counts);
	free(s->recv_counts);
	free(s->mine);
	free(s->below);
}

/* Counts this rank's keys by bucket, puts them in the buckets' order, and adds
 * the counts of all ranks up.  The keys at the places to check ride along:
 * the rank that has such a key adds it, the others add 0. */
static void sort_locally(struct sorter *s)
{
	size_t all = (size_t)s->buckets + IS_CHECKS;
	int32_t place = 0;

	memset(s->local, 0, all * sizeof *s->local);
	for (int64_t i = 0; i < s->count; i++)
		s->local[s->keys[i] >> s->shift]++;
	for (int c = 0; c < IS_CHECKS; c++) {
		int64_t i = s->class->check_place[c] - s->first;

		if (i >= 0 && i < s->count)
			s->local[s->buckets + c] = s->keys[i];
	}
	for (int b = 0; b < s->buckets; b++) {
		s->next[b] = place;
		place += s->local[b];
	}
	for (int64_t i = 0; i < s->count; i++)
		s->by_bucket[s->next[s->keys[i] >> s->shift]++] = s->keys[i];
	npb_check(kumi_allreduce(s->local, s->global, all, KUMI_I32, KUMI_SUM),
	          "kumi_allreduce");
}

/* Gives each rank the next buckets until it has its share.  Notes what this
 * rank sends to whom, and the range of keys that it gets itself. */
static void divide_buckets(struct sorter *s)
{
	int64_t assigned = 0; /* keys in the buckets given out so far */
	int bucket = 0;

	for (int r = 0; r < s->ranks; r++) {
		int64_t goal = first_key(s->class, r + 1, s->ranks);
		int first = bucket;

		if (r == s->rank)
			s->lesser = assigned;
		s->send_counts[r] = 0;
		while (bucket < s->buckets &&
		       (assigned < goal || r == s->ranks - 1)) {
			assigned += s->global[bucket];
			s->send_counts[r] += (size_t)s->local[bucket];
			bucket++;
		}
		if (r == s->rank) {
			s->low = (int32_t)first << s->shift;
			s->span = (int32_t)(bucket - first) << s->shift;
			s->mine_count = assigned - s->lesser;
		}
	}
}

static void exchange(struct sorter *s)
{
	npb_check(kumi_alltoall(s->send_counts, s->recv_counts, 1, KUMI_U64),
	          "kumi_alltoall");
	if (s->mine_count > s->mine_capacity) {
		free(s->mine);
		s->mine_capacity = s->mine_count + s->mine_count / 16;
		s->mine = npb_allocate((uint64_t)s->mine_capacity,
		                       sizeof(int32_t));
	}
	npb_check(kumi_alltoallv(s->by_bucket, s->send_counts, s->mine,
	                         s->recv_counts, KUMI_I32),
	          "kumi_alltoallv");
}

/* Counts the checked keys that are this rank's and whose rank is right. */
static int check_ranks(const struct sorter *s, int iteration)
{
	int right = 0;

	for (int c = 0; c < IS_CHECKS; c++) {
		int32_t key = s->global[s->buckets + c] - s->low;

		if (key < 0 || key >= s->span)
			continue;
		if (s->lesser + s->below[key] ==
		    is_expected_rank(s->class, c, iteration))
			right++;
		else
			fprintf(stderr, "is: iteration %d: check %d: rank %lld, "
			                "expected %lld\n", iteration, c,
			        (long long)(s->lesser + s->below[key]),
			        (long long)is_expected_rank(s->class, c, iteration));
	}
	return right;
}

/* One iteration; returns how many checks were right here. */
static int rank_keys(struct sorter *s, int iteration)
{
	if (s->rank == 0) {
		s->keys[iteration] = iteration;
		s->keys[iteration + IS_ITERATIONS] =
			(1 << s->class->log2_max_key) - iteration;
	}
	sort_locally(s);
	divide_buckets(s);
	exchange(s);
	is_count_below(s->mine, s->mine_count, s->low, s->span, s->below);
	return check_ranks(s, iteration);
}

/* Sorts this rank's keys by the ranks found, and tells whether they are in
 * order, within this rank and from each rank to the next, and all there. */
static int verify_order(struct sorter *s)
{
	int32_t *sorted = npb_allocate((uint64_t)s->mine_count, sizeof *sorted);
	int64_t edges[3] = { INT64_MAX, INT64_MIN, s->mine_count };
	int64_t *all = NULL;
	int32_t good = 1;

	for (int64_t i = 0; i < s->mine_count; i++)
		sorted[s->below[s->mine[i] - s->low]++] = s->mine[i];
	for (int64_t i = 1; i < s->mine_count; i++)
		if (sorted[i - 1] > sorted[i])
			good = 0;
	if (s->mine_count > 0) {
		edges[0] = sorted[0];
		edges[1] = sorted[s->mine_count - 1];
	}
	free(sorted);
	if (s->rank == 0)
		all = npb_allocate((uint64_t)s->ranks, sizeof edges);
	npb_check(kumi_gather(0, edges, all, 3, KUMI_I64), "kumi_gather");
	if (s->rank == 0) {
		int64_t highest = INT64_MIN, total = 0;

		for (int r = 0; r < s->ranks; r++) {
			const int64_t *edge = all + 3 * r;

			total += edge[2];
			if (edge[2] == 0)
				continue;
			if (edge[0] < highest)
				good = 0;
			highest = edge[1];
		}
		if (total != INT64_C(1) << s->class->log2_keys)
			good = 0;
		free(all);
	}
	npb_check(kumi_allreduce(&good, &good, 1, KUMI_I32, KUMI_MIN),
	          "kumi_allreduce");
	return good;
}

static int run(struct sorter *s, struct npb_options *options, double *seconds)
{
	int32_t right = 0;
	int ordered = 1;

	for (int i = 0; i < options->repeat; i++) {
		double begin;

		is_keys_make(s->class, s->first, s->count, s->keys);
		/* Once before the clock starts, to touch all memory, as the
		 * specification allows. */
		if (i == 0)
			rank_keys(s, 1);
		npb_check(kumi_barrier(), "kumi_barrier");
		begin = kumi_time();
		for (int step = 1; step <= IS_ITERATIONS; step++) {
			right += rank_keys(s, step);
			npb_step_done(options);
		}
		*seconds += npb_slowest(kumi_time() - begin);
		ordered &= verify_order(s);
	}
	npb_check(kumi_allreduce(&right, &right, 1, KUMI_I32, KUMI_SUM),
	          "kumi_allreduce");
	if (s->rank == 0)
		printf("checks right %d of %d, keys in order: %s\n", right,
		       IS_CHECKS * IS_ITERATIONS * options->repeat,
		       ordered ? "yes" : "no");
	return ordered && right == IS_CHECKS * IS_ITERATIONS * options->repeat;
}

int main(int argc, char **argv)
{
	struct npb_options options =
		npb_start(argc, argv, "is", "NAS kernel IS on 1 to 256 ranks");
	struct sorter sorter;
	double seconds = 0.0, operations;
	int verified;

	if (kumi_size() > IS_MOST_RANKS) {
		if (kumi_rank() == 0)
			fprintf(stderr, "is: %d ranks are too many, at most %d\n",
			        kumi_size(), IS_MOST_RANKS);
		npb_leave(NPB_EXIT_USAGE);
	}
	sorter_make(&sorter, options.class_name);
	verified = run(&sorter, &options, &seconds);
	operations = (double)IS_ITERATIONS * (1 << sorter.class->log2_keys);
	sorter_free(&sorter);
	npb_finish("IS", options, verified, seconds, operations);
}
