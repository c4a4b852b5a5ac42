/* The routines of linpack.idl, which the server offers; the program has the first too, to compare. */
#ifndef LINPACK_SOLVE_H
#define LINPACK_SOLVE_H

/* Solves a x = b for n equations; x in b, the factors in a (by rows). info: 0, or the first column in which there is no pivot,
 * from 1. */
void linpack(int n, double *a, double *b, int *pivots, int *info);

/* Does nothing. */
void noop(void);

#endif
