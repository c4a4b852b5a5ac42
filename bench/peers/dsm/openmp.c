/* Relaxation of a grid and the product of two matrices by threads of one process: the same arithmetic, in the same order, as
 * examples/dsm do.  openmp mm|sor SIZE STEPS; the number of threads is OMP_NUM_THREADS.  Prints "seconds S". */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OMEGA 1.2

static double *zeros(long count)
{
	double *memory = calloc((size_t)count, sizeof *memory);

	if (memory == NULL) {
		fprintf(stderr, "openmp: no memory\n");
		exit(1);
	}
	return memory;
}

static void relax(double *row, long size, long number, int colour)
{
	const double *above = row - (size + 2), *below = row + (size + 2);

	for (long j = 1 + (number + 1 + colour) % 2; j <= size; j += 2)
		row[j] = (1.0 - OMEGA) * row[j] + OMEGA / 4.0 * (above[j] + below[j] + row[j - 1] + row[j + 1]);
}

static double sor(long size, long steps)
{
	long width = size + 2;
	double *grid = zeros(width * width), begin;

#pragma omp parallel for schedule(static)
	for (long i = 1; i <= size; i++)
		for (long j = 1; j <= size; j++)
			grid[i * width + j] = (double)((i * 31 + j * 17) % 101);
	begin = omp_get_wtime();
#pragma omp parallel
	for (long s = 0; s < steps; s++)
		for (int c = 0; c < 2; c++) {
#pragma omp for schedule(static)
			for (long i = 1; i <= size; i++)
				relax(grid + i * width, size, i, c);
		}
	return omp_get_wtime() - begin;
}

static double mm(long size)
{
	double *a = zeros(size * size), *b = zeros(size * size), *c = zeros(size * size), begin;

#pragma omp parallel for schedule(static)
	for (long i = 0; i < size * size; i++)
		a[i] = (double)(i % 9) - 4.0, b[i] = (double)(i % 7) - 3.0;
	begin = omp_get_wtime();
#pragma omp parallel for schedule(static)
	for (long i = 0; i < size; i++)
		for (long k = 0; k < size; k++)
			for (long j = 0; j < size; j++)
				c[i * size + j] += a[i * size + k] * b[k * size + j];
	return omp_get_wtime() - begin;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: openmp mm|sor SIZE STEPS\n");
		return 64;
	}
	printf("seconds %.6f\n", strcmp(argv[1], "sor") == 0 ? sor(atol(argv[2]), atol(argv[3])) : mm(atol(argv[2])));
	return 0;
}
