#include "cg_matrix.h"

#include <math.h>
#include <stdlib.h>

#include "npb.h"

/* Reciprocal of the matrix's condition number. */
#define CG_RCOND 0.1

/* The generating vectors: vector i has the entries i * width .. + length[i]-1. */
struct vectors {
	int width;
	int *length;
	int *index;
	double *entry;
};

/* Elements of the wanted rows in the order in which they are generated. */
struct elements {
	int *start; /* per row, and the end */
	int *column;
	double *value;
};

static const struct cg_class classes[] = {
	{ 'S', 1400, 7, 15, 10.0, 8.5971775078648 },
	{ 'W', 7000, 8, 15, 12.0, 10.362595087124 },
	{ 'A', 14000, 11, 15, 20.0, 17.130235054029 },
};

const struct cg_class *cg_class_find(char name)
{
	for (unsigned i = 0; i < sizeof classes / sizeof classes[0]; i++)
		if (classes[i].name == name)
			return &classes[i];
	return NULL;
}

/* Draws vector i: `nonzeros` random values at distinct random places, and 0.5
 * at place i. */
static void draw_vector(const struct cg_class *class, int i, uint64_t *seed,
                        int *marked_by, struct vectors *vectors)
{
	int *index = vectors->index + (size_t)i * vectors->width;
	double *entry = vectors->entry + (size_t)i * vectors->width;
	int power = 1;
	int length = 0;

	while (power < class->order)
		power *= 2;
	while (length < class->nonzeros) {
		double value = npb_random(seed);
		int place = (int)(power * npb_random(seed));

		if (place >= class->order || marked_by[place] == i)
			continue;
		marked_by[place] = i;
		index[length] = place;
		entry[length] = value;
		length++;
	}
	for (int k = 0; k < length; k++) {
		if (index[k] == i) {
			entry[k] = 0.5;
			vectors->length[i] = length;
			return;
		}
	}
	index[length] = i;
	entry[length] = 0.5;
	vectors->length[i] = length + 1;
}

static struct vectors draw_vectors(const struct cg_class *class)
{
	size_t order = (size_t)class->order;
	struct vectors vectors = { .width = class->nonzeros + 1 };
	int *marked_by = npb_allocate(order, sizeof *marked_by);
	uint64_t seed = NPB_SEED;

	vectors.length = npb_allocate(order, sizeof *vectors.length);
	vectors.index = npb_allocate(order * vectors.width, sizeof(int));
	vectors.entry = npb_allocate(order * vectors.width, sizeof(double));
	for (int i = 0; i < class->order; i++)
		marked_by[i] = -1;
	/* The specification draws one number before the matrix. */
	npb_random(&seed);
	for (int i = 0; i < class->order; i++)
		draw_vector(class, i, &seed, marked_by, &vectors);
	free(marked_by);
	return vectors;
}

/* The wanted rows of sum over i of ratio^i * v_i * v_i^T, plus rcond - shift on
 * the diagonal; equal places not yet added up. */
static struct elements expand(const struct cg_class *class,
                              const struct vectors *vectors, int first_row,
                              int rows)
{
	double ratio = pow(CG_RCOND, 1.0 / class->order);
	double size = 1.0;
	struct elements all;
	int *next = npb_allocate((size_t)rows + 1, sizeof *next);

	all.start = npb_allocate((size_t)rows + 1, sizeof *all.start);
	for (int i = 0; i < class->order; i++) {
		const int *index = vectors->index + (size_t)i * vectors->width;

		for (int k = 0; k < vectors->length[i]; k++) {
			int row = index[k] - first_row;

			if (row >= 0 && row < rows)
				all.start[row + 1] += vectors->length[i];
		}
	}
	for (int row = 0; row < rows; row++) {
		all.start[row + 1] += all.start[row];
		next[row] = all.start[row];
	}
	all.column = npb_allocate((size_t)all.start[rows], sizeof(int));
	all.value = npb_allocate((size_t)all.start[rows], sizeof(double));
	for (int i = 0; i < class->order; i++) {
		const int *index = vectors->index + (size_t)i * vectors->width;
		const double *entry = vectors->entry + (size_t)i * vectors->width;

		for (int k = 0; k < vectors->length[i]; k++) {
			int row = index[k] - first_row;
			double scale = size * entry[k];

			if (row < 0 || row >= rows)
				continue;
			for (int l = 0; l < vectors->length[i]; l++) {
				double value = entry[l] * scale;

				if (index[l] == i && index[k] == i)
					value += CG_RCOND - class->shift;
				all.column[next[row]] = index[l];
				all.value[next[row]] = value;
				next[row]++;
			}
		}
		size *= ratio;
	}
	free(next);
	return all;
}

static int compare_int(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

/* Adds up equal places of each row and puts its columns in order. */
static void compress(const struct elements *all, int order,
                     struct cg_matrix *matrix)
{
	double *sum = npb_allocate((size_t)order, sizeof *sum);
	int *seen_in = npb_allocate((size_t)order, sizeof *seen_in);
	int used = 0;

	for (int row = 0; row < matrix->rows; row++) {
		int first = used;

		matrix->start[row] = used;
		for (int k = all->start[row]; k < all->start[row + 1]; k++) {
			int column = all->column[k];

			if (seen_in[column] != row + 1) {
				seen_in[column] = row + 1;
				sum[column] = 0.0;
				matrix->column[used++] = column;
			}
			sum[column] += all->value[k];
		}
		qsort(matrix->column + first, (size_t)(used - first),
		      sizeof(int), compare_int);
		for (int k = first; k < used; k++)
			matrix->value[k] = sum[matrix->column[k]];
	}
	matrix->start[matrix->rows] = used;
	free(sum);
	free(seen_in);
}

struct cg_matrix cg_matrix_make(const struct cg_class *class, int first_row,
                                int end_row)
{
	struct cg_matrix matrix = { .first_row = first_row,
		                    .rows = end_row - first_row };
	struct vectors vectors = draw_vectors(class);
	struct elements all = expand(class, &vectors, first_row, matrix.rows);
	size_t most = (size_t)all.start[matrix.rows];

	free(vectors.length);
	free(vectors.index);
	free(vectors.entry);
	matrix.start = npb_allocate((size_t)matrix.rows + 1, sizeof(int));
	matrix.column = npb_allocate(most, sizeof(int));
	matrix.value = npb_allocate(most, sizeof(double));
	compress(&all, class->order, &matrix);
	free(all.start);
	free(all.column);
	free(all.value);
	return matrix;
}

void cg_matrix_free(struct cg_matrix *matrix)
{
	free(matrix->start);
	free(matrix->column);
	free(matrix->value);
	matrix->start = NULL;
	matrix->column = NULL;
	matrix->value = NULL;
}

void cg_matrix_multiply(const struct cg_matrix *matrix,
                        const double *restrict vector, double *restrict out)
{
	const int *restrict column = matrix->column;
	const double *restrict value = matrix->value;

	for (int row = 0; row < matrix->rows; row++) {
		/* Two sums, so that an addition need not wait for the last. */
		double even = 0.0, odd = 0.0;
		int k = matrix->start[row];
		int end = matrix->start[row + 1];

		for (; k + 1 < end; k += 2) {
			even += value[k] * vector[column[k]];
			odd += value[k + 1] * vector[column[k + 1]];
		}
		if (k < end)
			even += value[k] * vector[column[k]];
		out[row] = even + odd;
	}
}
