/* Bitonic sort.  Keys lie in blocks, a power of two of them.  Each block is sorted
 * once; then a fixed network compares blocks as it would single keys: of two
 * blocks one keeps the smaller half of all keys and the other the larger half.
 *
 * A block's owner reads its own block and the partner's from one array and writes
 * its half to the other array.  So nobody writes what another reads, one barrier
 * for each stage is enough, and all writes go to pages at home. */
#include "common.h"
#include "keys.h"

#include <stdlib.h>

static long size = 20000;

static const struct option options[] = {
	{ "size", &size, 1, 1L << 30, NULL, "--size takes 1 to 2^30 keys" },
	{ 0 },
};

/* How the keys are cut, and which blocks this rank has. */
struct cut {
	int ranks;
	long blocks, length; /* all of them, and the keys of each */
	long first, end;
};

/* At least one block a rank.  What is left of the last ones is filled with
 * KEY_NONE, which comes after all keys. */
static struct cut cut_keys(int me, int ranks)
{
	struct cut c = { .ranks = ranks, .blocks = 1 };

	while (c.blocks < ranks)
		c.blocks *= 2;
	c.length = (size + c.blocks - 1) / c.blocks;
	c.first = first_of(c.blocks, ranks, me);
	c.end = first_of(c.blocks, ranks, me + 1);
	return c;
}

static size_t bytes_of(const struct cut *cut, long blocks)
{
	return (size_t)(blocks * cut->length) * sizeof(uint32_t);
}

static int order(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Makes block number `number` and sorts it. */
static void fill(uint32_t *block, const struct cut *cut, long number)
{
	for (long i = 0; i < cut->length; i++) {
		long at = number * cut->length + i;

		block[i] = at < size ? key(at) : KEY_NONE;
	}
	qsort(block, (size_t)cut->length, sizeof *block, order);
}

/* to = the smallest or the largest half of the keys in a and b. */
static void keep(uint32_t *to, const uint32_t *a, const uint32_t *b,
                 long length, int small)
{
	long i = small ? 0 : length - 1, j = i;

	if (small)
		for (long k = 0; k < length; k++)
			to[k] = a[i] <= b[j] ? a[i++] : b[j++];
	else
		for (long k = length - 1; k >= 0; k--)
			to[k] = a[i] > b[j] ? a[i--] : b[j--];
}

/* A stage of the network: blocks `distance` apart are compared, and the order
 * turns every `run` blocks. */
struct stage {
	long run, distance;
};

static int next(struct stage *stage, const struct cut *cut)
{
	stage->distance /= 2;
	if (stage->distance == 0) {
		stage->run *= 2;
		stage->distance = stage->run / 2;
	}
	return stage->run <= cut->blocks;
}

static int keeps_small(const struct stage *stage, long block)
{
	int upwards = (block & stage->run) == 0;
	int is_lower = (block & stage->distance) == 0;

	return upwards == is_lower;
}

/* Both arrays lie in memory that every rank sees.  Returns the one with the
 * result. */
static uint32_t *sort(uint32_t *from, uint32_t *to, const struct cut *cut,
                      void (*barrier)(void))
{
	struct stage stage = { 1, 1 };

	for (long x = cut->first; x < cut->end; x++)
		fill(from + x * cut->length, cut, x);
	barrier();
	while (next(&stage, cut)) {
		uint32_t *swap = from;

		for (long x = cut->first; x < cut->end; x++)
			keep(to + x * cut->length, from + x * cut->length,
			     from + (x ^ stage.distance) * cut->length,
			     cut->length, keeps_small(&stage, x));
		barrier();
		from = to;
		to = swap;
	}
	return from;
}

static void no_barrier(void)
{
}

/* One block: the sequential version is qsort() alone. */
static struct outcome sequential(void)
{
	struct cut cut = cut_keys(0, 1);
	uint32_t *keys = private_memory(bytes_of(&cut, 1));
	struct outcome result;

	start_clock();
	sort(keys, NULL, &cut, no_barrier);
	result.seconds = stop_clock();
	result.right = sorted(keys, size);
	free(keys);
	return result;
}

static void memory_barrier(void)
{
	CHECK(kumi_dsm_barrier());
}

static struct outcome dsm(void)
{
	int me = kumi_rank();
	struct cut cut = cut_keys(me, kumi_size());
	/* Only owners write, and they are the first who do. */
	uint32_t *one = shared_memory(bytes_of(&cut, cut.blocks),
	                              kumi_dsm_first_touch());
	uint32_t *two = shared_memory(bytes_of(&cut, cut.blocks),
	                              kumi_dsm_first_touch());
	struct outcome result = { .right = 1 };
	uint32_t *keys;

	start_clock();
	keys = sort(one, two, &cut, memory_barrier);
	result.seconds = stop_clock();
	if (me == cut.ranks - 1)
		result.right = sorted(keys, size);
	return result;
}

/* The window holds both arrays of this rank's blocks. */
struct part {
	struct cut cut;
	kumi_window *window;
	uint32_t *base, *copy;
};

/* Where block `block` of array 0 or 1 lies in its owner's piece, in keys. */
static long place(const struct cut *cut, int owner, int array, long block)
{
	long first = first_of(cut->blocks, cut->ranks, owner);
	long end = first_of(cut->blocks, cut->ranks, owner + 1);

	return (array * (end - first) + block - first) * cut->length;
}

static void get(const struct part *part, int array, long block, uint32_t *to)
{
	const struct cut *cut = &part->cut;
	int owner = owner_of(cut->blocks, cut->ranks, block);

	CHECK(kumi_window_get(part->window, owner,
	                      (size_t)place(cut, owner, array, block) *
	                              sizeof *to,
	                      bytes_of(cut, 1), to));
}

/* Returns the number of the array with the result. */
static int sort_by_gets(const struct part *part)
{
	const struct cut *cut = &part->cut;
	struct stage stage = { 1, 1 };
	int me = kumi_rank(), from = 0;

	for (long x = cut->first; x < cut->end; x++)
		fill(part->base + place(cut, me, 0, x), cut, x);
	CHECK(kumi_barrier());
	while (next(&stage, cut)) {
		for (long x = cut->first; x < cut->end; x++) {
			get(part, from, x ^ stage.distance, part->copy);
			keep(part->base + place(cut, me, !from, x),
			     part->base + place(cut, me, from, x), part->copy,
			     cut->length, keeps_small(&stage, x));
		}
		CHECK(kumi_barrier());
		from = !from;
	}
	return from;
}

static int right_by_gets(const struct part *part, int array)
{
	uint32_t *keys = private_memory(bytes_of(&part->cut, part->cut.blocks));
	int good;

	for (long x = 0; x < part->cut.blocks; x++)
		get(part, array, x, keys + x * part->cut.length);
	good = sorted(keys, size);
	free(keys);
	return good;
}

static struct outcome putget(void)
{
	int me = kumi_rank();
	struct part part = { .cut = cut_keys(me, kumi_size()) };
	struct cut *cut = &part.cut;
	struct outcome result = { .right = 1 };
	int array;

	CHECK(kumi_window_create(2 * bytes_of(cut, cut->end - cut->first),
	                         &part.window));
	part.base = kumi_window_base(part.window);
	part.copy = private_memory(bytes_of(cut, 1));
	start_clock();
	array = sort_by_gets(&part);
	result.seconds = stop_clock();
	if (me == cut->ranks - 1)
		result.right = right_by_gets(&part, array);
	CHECK(kumi_barrier());
	CHECK(kumi_window_free(part.window));
	free(part.copy);
	return result;
}

int main(int argc, char **argv)
{
	static const struct example bitonic = {
		"bitonic", "sorts keys by a bitonic network", options, &size,
		sequential, dsm, putget,
	};

	return example_main(&bitonic, argc, argv);
}
