/* The problem of the NAS kernel CG: its classes and its random sparse
 * symmetric matrix (NAS report RNR-94-007, section 2.2.4). */
#ifndef CG_MATRIX_H
#define CG_MATRIX_H

struct cg_class {
	char name;
	int order;     /* rows of the matrix */
	int nonzeros;  /* random nonzeros of each generating vector */
	int iterations;
	double shift;
	double zeta;   /* the verified result */
};

/* The class, or NULL if there is none of that name. */
const struct cg_class *cg_class_find(char name);

/* Some rows of the matrix in compressed form: row i (counted from
 * `first_row`) has the elements start[i] .. start[i+1]-1. */
struct cg_matrix {
	int first_row;
	int rows;
	int *start;
	int *column;
	double *value;
};

/* Makes rows first_row .. end_row-1.  The matrix is a sum of outer products of
 * random vectors; every rank draws all vectors and keeps its rows. */
struct cg_matrix cg_matrix_make(const struct cg_class *class, int first_row,
                                int end_row);

void cg_matrix_free(struct cg_matrix *matrix);

/* out = matrix * vector; `vector` is whole, `out` has the matrix's rows. */
void cg_matrix_multiply(const struct cg_matrix *matrix, const double *vector,
                        double *out);

#endif
