/* Molecular dynamics with forces between all pairs of molecules, in the manner of
 * the n-squared Water program: the forces of a pair change two molecules, which
 * may belong to two ranks, so they are added up under locks.
 *
 * Molecules are points that repel each other when close and attract each other
 * when not (Lennard-Jones), in a bowl that holds them together.  They move by
 * velocity Verlet steps.  The energy must stay, and the places must be those that
 * one process computes. */
#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIME_STEP 0.002
#define BOWL 0.05 /* force of the bowl per distance from its middle */

enum { ENERGY_LOCK, FORCE_LOCKS };

static long size = 64, steps = 10;

static const struct option options[] = {
	{ "size", &size, 1, 100000, NULL, "--size takes 1 to 100000 molecules" },
	{ "steps", &steps, 0, 1000000, NULL, "--steps takes 0 to 1000000" },
	{ 0 },
};

typedef double vector[3];

/* Places, velocities and forces of all molecules; kinetic and potential energy at
 * the begin and at the end. */
struct liquid {
	vector *place, *velocity, *force;
	double *energy; /* begin, end */
};

/* The molecules of a rank. */
struct part {
	int me, ranks;
	long first, end;
};

static struct part part_of(int me, int ranks)
{
	return (struct part){ me, ranks, first_of(size, ranks, me),
		              first_of(size, ranks, me + 1) };
}

/* A cubic lattice, each molecule with a small velocity of its own. */
static void fill(struct liquid *l, const struct part *part)
{
	long side = 1;

	while (side * side * side < size)
		side++;
	for (long i = part->first; i < part->end; i++) {
		long at[3] = { i % side, i / side % side, i / side / side };

		for (int d = 0; d < 3; d++) {
			uint64_t bits = mix((uint64_t)(3 * i + d));

			l->place[i][d] = 1.15 * ((double)at[d] -
			                         0.5 * (double)(side - 1));
			l->velocity[i][d] = (double)(bits % 1000) * 1e-3 - 0.5;
		}
	}
}

/* Adds the forces between molecules i and j to `force`; returns the pair's
 * energy. */
static double attract(const vector *place, vector *force, long i, long j)
{
	double apart[3], square = 0.0, sixth, strength;

	for (int d = 0; d < 3; d++) {
		apart[d] = place[i][d] - place[j][d];
		square += apart[d] * apart[d];
	}
	sixth = 1.0 / (square * square * square);
	strength = 24.0 * (2.0 * sixth * sixth - sixth) / square;
	for (int d = 0; d < 3; d++) {
		force[i][d] += strength * apart[d];
		force[j][d] -= strength * apart[d];
	}
	return 4.0 * (sixth * sixth - sixth);
}

/* Adds the forces on and by this rank's molecules to `force`, an array of this
 * process; returns their energy.  Molecule i meets the half of the others that
 * follows it, so all ranks have the same number of pairs. */
static double forces(const struct liquid *l, vector *force,
                     const struct part *part)
{
	double energy = 0.0;

	for (long i = part->first; i < part->end; i++) {
		for (long k = 1; k <= size / 2; k++)
			/* With an even number, opposite ones meet once. */
			if (2 * k < size || i < size / 2)
				energy += attract(l->place, force, i,
				                  (i + k) % size);
		for (int d = 0; d < 3; d++) {
			force[i][d] -= BOWL * l->place[i][d];
			energy += 0.5 * BOWL * l->place[i][d] * l->place[i][d];
		}
	}
	return energy;
}

/* The first half of a step: new places; and forces, which are added up anew,
 * begin with nothing. */
static void move(struct liquid *l, const struct part *part, double time)
{
	for (long i = part->first; i < part->end; i++)
		for (int d = 0; d < 3; d++) {
			l->velocity[i][d] += 0.5 * time * l->force[i][d];
			l->place[i][d] += time * l->velocity[i][d];
			l->force[i][d] = 0.0;
		}
}

/* The second half, with the new forces.  Returns the kinetic energy. */
static double accelerate(struct liquid *l, const struct part *part, double time)
{
	double energy = 0.0;

	for (long i = part->first; i < part->end; i++)
		for (int d = 0; d < 3; d++) {
			l->velocity[i][d] += 0.5 * time * l->force[i][d];
			energy += 0.5 * l->velocity[i][d] * l->velocity[i][d];
		}
	return energy;
}

/* How forces and energies of this rank come to those of all. */
struct sharing {
	void (*add_forces)(struct liquid *, const vector *,
	                   const struct part *);
	void (*add_energy)(double *to, double energy);
	void (*barrier)(void);
};

static void simulate(struct liquid *l, const struct part *part,
                     const struct sharing *sharing)
{
	vector *own = private_memory((size_t)size * sizeof *own);

	/* Step 0 takes no time: it computes forces and energy. */
	for (long step = 0; step <= steps; step++) {
		double time = step == 0 ? 0.0 : TIME_STEP, energy;

		move(l, part, time);
		memset(own, 0, (size_t)size * sizeof *own);
		/* Everybody needs all places, and forces that are 0. */
		sharing->barrier();
		energy = forces(l, own, part);
		sharing->add_forces(l, own, part);
		sharing->barrier();
		energy += accelerate(l, part, time);
		if (step == 0)
			sharing->add_energy(&l->energy[0], energy);
		if (step == steps)
			sharing->add_energy(&l->energy[1], energy);
	}
	sharing->barrier();
	free(own);
}

static void add_all_forces(struct liquid *l, const vector *own,
                           const struct part *part)
{
	(void)part;
	for (long i = 0; i < size; i++)
		for (int d = 0; d < 3; d++)
			l->force[i][d] += own[i][d];
}

static void add(double *to, double energy)
{
	*to += energy;
}

static void no_barrier(void)
{
}

static struct liquid in_private_memory(void)
{
	size_t bytes = (size_t)size * sizeof(vector);

	return (struct liquid){ private_memory(bytes), private_memory(bytes),
		                private_memory(bytes),
		                private_memory(2 * sizeof(double)) };
}

static void free_liquid(struct liquid *l)
{
	free(l->place);
	free(l->velocity);
	free(l->force);
	free(l->energy);
}

/* The energy may waver by the error of the steps. */
static int energy_stayed(const struct liquid *l)
{
	double scale = fabs(l->energy[0]) + (double)size;

	return fabs(l->energy[1] - l->energy[0]) <= 1e-4 * scale;
}

/* Without the clock, which all ranks start together. */
static struct liquid simulate_alone(void)
{
	static const struct sharing alone = { add_all_forces, add, no_barrier };
	struct part part = part_of(0, 1);
	struct liquid l = in_private_memory();

	fill(&l, &part);
	simulate(&l, &part, &alone);
	return l;
}

static struct outcome sequential(void)
{
	struct outcome result;
	struct liquid l;

	start_clock();
	l = simulate_alone();
	result.seconds = stop_clock();
	result.right = energy_stayed(&l);
	free_liquid(&l);
	return result;
}

/* The forces on one rank's molecules have one lock.  Ranks begin with their own
 * and go around, so they rarely wait for each other. */
static void add_forces(struct liquid *l, const vector *own,
                       const struct part *part)
{
	for (int turn = 0; turn < part->ranks; turn++) {
		int to = (part->me + turn) % part->ranks;
		struct part those = part_of(to, part->ranks);

		if (those.first == those.end)
			continue;
		CHECK(kumi_dsm_lock((uint32_t)(FORCE_LOCKS + to)));
		for (long i = those.first; i < those.end; i++)
			for (int d = 0; d < 3; d++)
				l->force[i][d] += own[i][d];
		CHECK(kumi_dsm_unlock((uint32_t)(FORCE_LOCKS + to)));
	}
}

static void add_energy(double *to, double energy)
{
	CHECK(kumi_dsm_lock(ENERGY_LOCK));
	*to += energy;
	CHECK(kumi_dsm_unlock(ENERGY_LOCK));
}

static void memory_barrier(void)
{
	CHECK(kumi_dsm_barrier());
}

/* Sums of several ranks differ in the last bits, which grow from step to step. */
static int same_places(const struct liquid *l, const struct liquid *expected)
{
	double worst = 0.0;

	for (long i = 0; i < size; i++)
		for (int d = 0; d < 3; d++)
			worst = fmax(worst, fabs(l->place[i][d] -
			                         expected->place[i][d]));
	return worst <= 1e-9;
}

static struct outcome dsm(void)
{
	static const struct sharing shared = { add_forces, add_energy,
		                               memory_barrier };
	struct part part = part_of(kumi_rank(), kumi_size());
	size_t bytes = (size_t)size * sizeof(vector);
	/* The allocations are cut where the molecules are, up to a page. */
	struct liquid l = { shared_memory(bytes, kumi_dsm_blocks()),
		            shared_memory(bytes, kumi_dsm_blocks()),
		            shared_memory(bytes, kumi_dsm_blocks()),
		            shared_memory(2 * sizeof(double),
		                          kumi_dsm_at(ENERGY_LOCK)) };
	struct outcome result = { .right = 1 };

	fill(&l, &part);
	start_clock();
	simulate(&l, &part, &shared);
	result.seconds = stop_clock();
	if (part.me == part.ranks - 1) {
		struct liquid alone = simulate_alone();

		result.right = energy_stayed(&l) && same_places(&l, &alone);
		free_liquid(&alone);
	}
	return result;
}

int main(int argc, char **argv)
{
	static const struct example water = {
		"water", "moves molecules", options, &size, sequential, dsm,
		NULL,
	};

	return example_main(&water, argc, argv);
}
