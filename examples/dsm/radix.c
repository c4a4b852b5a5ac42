/* Radix sort: four passes, each by eight bits of the keys.  In a pass each rank
 * counts its keys by digit, all learn all counts, and each rank moves its keys to
 * their places in the other array.  These places are anywhere, so here ranks
 * write to each other's parts, where other examples only read. */
#include "common.h"
#include "keys.h"

#include <stdlib.h>
#include <string.h>

#define DIGITS 256
#define PASSES 4

static long size = 20000;

static const struct option options[] = {
	{ "size", &size, 1, 1L << 30, NULL, "--size takes 1 to 2^30 keys" },
	{ 0 },
};

/* The keys of a rank. */
struct part {
	int me, ranks;
	long first, count;
};

static struct part part_of(int me, int ranks)
{
	long first = first_of(size, ranks, me);

	return (struct part){ me, ranks, first,
		              first_of(size, ranks, me + 1) - first };
}

static unsigned digit(uint32_t one, int pass)
{
	return one >> (8 * pass) & (DIGITS - 1);
}

static void fill(uint32_t *keys, const struct part *part)
{
	for (long i = 0; i < part->count; i++)
		keys[i] = key(part->first + i);
}

/* counts[d] becomes how many keys have digit d. */
static void count_digits(uint64_t *counts, const uint32_t *keys,
                         const struct part *part, int pass)
{
	memset(counts, 0, DIGITS * sizeof *counts);
	for (long i = 0; i < part->count; i++)
		counts[digit(keys[i], pass)]++;
}

/* places[d] becomes where this rank's first key with digit d goes: after all keys
 * with smaller digits, and those of this digit that lower ranks have. */
static void find_places(uint64_t *places, const uint64_t *counts,
                        const struct part *part)
{
	uint64_t place = 0;

	for (int d = 0; d < DIGITS; d++)
		for (int r = 0; r < part->ranks; r++) {
			if (r == part->me)
				places[d] = place;
			place += counts[r * DIGITS + d];
		}
}

/* Moves keys to their places, which it counts on. */
static void move(uint32_t *to, uint64_t *places, const uint32_t *keys,
                 const struct part *part, int pass)
{
	for (long i = 0; i < part->count; i++)
		to[places[digit(keys[i], pass)]++] = keys[i];
}

/* All arrays lie in memory that every rank sees; the keys, in `one`, are there
 * in order in the end. */
static void sort(uint32_t *one, uint32_t *two, uint64_t *counts,
                 const struct part *part, void (*barrier)(void))
{
	uint64_t places[DIGITS];

	for (int pass = 0; pass < PASSES; pass++) {
		uint32_t *from = pass % 2 == 0 ? one : two;
		uint32_t *to = pass % 2 == 0 ? two : one;

		count_digits(counts + part->me * DIGITS, from + part->first,
		             part, pass);
		barrier();
		find_places(places, counts, part);
		move(to, places, from + part->first, part, pass);
		barrier();
	}
}

static void no_barrier(void)
{
}

static struct outcome sequential(void)
{
	struct part part = part_of(0, 1);
	size_t bytes = (size_t)size * sizeof(uint32_t);
	uint32_t *one = private_memory(bytes), *two = private_memory(bytes);
	uint64_t counts[DIGITS];
	struct outcome result;

	fill(one, &part);
	start_clock();
	sort(one, two, counts, &part, no_barrier);
	result.seconds = stop_clock();
	result.right = sorted(one, size);
	free(one);
	free(two);
	return result;
}

static void memory_barrier(void)
{
	CHECK(kumi_dsm_barrier());
}

static struct outcome dsm(void)
{
	struct part part = part_of(kumi_rank(), kumi_size());
	size_t bytes = (size_t)size * sizeof(uint32_t);
	/* A rank reads its part in the next pass, so it lives there.  First
	 * touch would bring pages to the rank that happens to move the first
	 * key to them. */
	uint32_t *one = shared_memory(bytes, kumi_dsm_blocks());
	uint32_t *two = shared_memory(bytes, kumi_dsm_blocks());
	uint64_t *counts = shared_memory((size_t)part.ranks * DIGITS *
	                                 sizeof *counts, kumi_dsm_blocks());
	struct outcome result = { .right = 1 };

	fill(one + part.first, &part);
	start_clock();
	sort(one, two, counts, &part, memory_barrier);
	result.seconds = stop_clock();
	if (part.me == part.ranks - 1)
		result.right = sorted(one, size);
	return result;
}

/* Windows: both arrays of this rank's keys, and the counts of all ranks. */
struct windows {
	struct part part;
	kumi_window *keys, *counts;
	uint32_t *base, *run; /* own keys, and these by digit */
	uint64_t *all;
};

/* Where the keys of array 0 or 1 begin in every rank's piece, in keys. */
static long begin(const struct part *part, int array)
{
	return array * (size / part->ranks + 1);
}

/* Each rank puts its counts into the row with its number, at all ranks. */
static void share_counts(const struct windows *w, int array, int pass)
{
	uint64_t own[DIGITS];

	count_digits(own, w->base + begin(&w->part, array), &w->part, pass);
	for (int r = 0; r < w->part.ranks; r++)
		CHECK(kumi_window_put(w->counts, r,
		                      (size_t)w->part.me * sizeof own, own,
		                      sizeof own));
	CHECK(kumi_flush(KUMI_ALL));
	CHECK(kumi_barrier());
}

/* Puts keys that follow each other to their places from `place` on, which may
 * lie at several ranks. */
static void put_run(const struct windows *w, int array, const uint32_t *keys,
                    uint64_t count, uint64_t place)
{
	const struct part *part = &w->part;

	while (count > 0) {
		int to = owner_of(size, part->ranks, (long)place);
		long first = first_of(size, part->ranks, to);
		uint64_t room = (uint64_t)first_of(size, part->ranks, to + 1) -
		                place;
		uint64_t now = count < room ? count : room;
		long at = begin(part, array) + (long)place - first;

		CHECK(kumi_window_put(w->keys, to, (size_t)at * sizeof *keys,
		                      keys, now * sizeof *keys));
		keys += now;
		place += now;
		count -= now;
	}
}

/* One put for each digit, rather than for each key: first the keys are brought
 * into the order of their digits here. */
static void exchange(const struct windows *w, int from, int pass)
{
	const struct part *part = &w->part;
	const uint64_t *own = w->all + part->me * DIGITS;
	uint64_t places[DIGITS], here[DIGITS], run = 0;

	find_places(places, w->all, part);
	for (int d = 0; d < DIGITS; d++) {
		here[d] = run;
		run += own[d];
	}
	move(w->run, here, w->base + begin(part, from), part, pass);
	/* Now here[d] is where the keys with digit d end. */
	for (int d = 0; d < DIGITS; d++)
		put_run(w, !from, w->run + here[d] - own[d], own[d], places[d]);
	CHECK(kumi_flush(KUMI_ALL));
	CHECK(kumi_barrier());
}

static struct windows make_windows(void)
{
	struct windows w = { .part = part_of(kumi_rank(), kumi_size()) };
	size_t bytes = (size_t)begin(&w.part, 2) * sizeof(uint32_t);

	CHECK(kumi_window_create(bytes, &w.keys));
	CHECK(kumi_window_create((size_t)w.part.ranks * DIGITS *
	                         sizeof(uint64_t), &w.counts));
	w.base = kumi_window_base(w.keys);
	w.all = kumi_window_base(w.counts);
	w.run = private_memory(bytes / 2);
	fill(w.base, &w.part);
	return w;
}

static int right_by_gets(const struct windows *w)
{
	uint32_t *keys = private_memory((size_t)size * sizeof *keys);
	int good;

	for (int r = 0; r < w->part.ranks; r++) {
		struct part part = part_of(r, w->part.ranks);

		CHECK(kumi_window_get(w->keys, r, 0,
		                      (size_t)part.count * sizeof *keys,
		                      keys + part.first));
	}
	good = sorted(keys, size);
	free(keys);
	return good;
}

static struct outcome putget(void)
{
	struct windows w = make_windows();
	struct outcome result = { .right = 1 };

	start_clock();
	for (int pass = 0; pass < PASSES; pass++) {
		share_counts(&w, pass % 2, pass);
		exchange(&w, pass % 2, pass);
	}
	result.seconds = stop_clock();
	if (w.part.me == w.part.ranks - 1)
		result.right = right_by_gets(&w);
	CHECK(kumi_barrier());
	CHECK(kumi_window_free(w.keys));
	CHECK(kumi_window_free(w.counts));
	free(w.run);
	return result;
}

int main(int argc, char **argv)
{
	static const struct example radix = {
		"radix", "sorts keys by their digits", options, &size,
		sequential, dsm, putget,
	};

	return example_main(&radix, argc, argv);
}
