/* LU factorisation without pivoting, in blocks: written to the published macros,
 * with what programs of that time do: ids by a lock, pointers in shared memory,
 * static data set before CREATE, data set by the first process after it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

MAIN_ENV

struct GlobalMemory {
	double *finished;
	int id;
	BARDEC(start)
	LOCKDEC(idlock)
} *Global;

int n = 64, P = 1, block_size = 8, nblocks;
double **a; /* one pointer for each block */
double *rhs;
char *title = "unset";
unsigned long start;

static double *block(int i, int j)
{
	return a[i * nblocks + j];
}

static double element(int i, int j)
{
	return i == j ? 2.0 * n : 1.0 / (1 + i + 2 * j);
}

static int owner(int i, int j)
{
	return (i + j) % P;
}

static void fill(void)
{
	for (int i = 0; i < n; i++) {
		rhs[i] = 0;
		for (int j = 0; j < n; j++) {
			block(i / block_size, j / block_size)
			[i % block_size * block_size + j % block_size] =
			        element(i, j);
			rhs[i] += element(i, j);
		}
	}
}

static void factor(double *d)
{
	for (int k = 0; k < block_size; k++)
		for (int i = k + 1; i < block_size; i++) {
			d[i * block_size + k] /= d[k * block_size + k];
			for (int j = k + 1; j < block_size; j++)
				d[i * block_size + j] -= d[i * block_size + k] *
				                         d[k * block_size + j];
		}
}

static void row(const double *d, double *b)
{
	for (int k = 0; k < block_size; k++)
		for (int i = k + 1; i < block_size; i++)
			for (int j = 0; j < block_size; j++)
				b[i * block_size + j] -= d[i * block_size + k] *
				                         b[k * block_size + j];
}

static void column(const double *d, double *b)
{
	for (int k = 0; k < block_size; k++)
		for (int i = 0; i < block_size; i++) {
			b[i * block_size + k] /= d[k * block_size + k];
			for (int j = k + 1; j < block_size; j++)
				b[i * block_size + j] -= b[i * block_size + k] *
				                         d[k * block_size + j];
		}
}

static void inner(const double *l, const double *u, double *b)
{
	for (int i = 0; i < block_size; i++)
		for (int k = 0; k < block_size; k++)
			for (int j = 0; j < block_size; j++)
				b[i * block_size + j] -= l[i * block_size + k] *
				                         u[k * block_size + j];
}

static void lu(int me)
{
	for (int k = 0; k < nblocks; k++) {
		if (owner(k, k) == me)
			factor(block(k, k));
		BARRIER(Global->start, P)
		for (int i = k + 1; i < nblocks; i++) {
			if (owner(k, i) == me)
				row(block(k, k), block(k, i));
			if (owner(i, k) == me)
				column(block(k, k), block(i, k));
		}
		BARRIER(Global->start, P)
		for (int i = k + 1; i < nblocks; i++)
			for (int j = k + 1; j < nblocks; j++)
				if (owner(i, j) == me)
					inner(block(i, k), block(k, j),
					      block(i, j));
		BARRIER(Global->start, P)
	}
}

void SlaveStart(void)
{
	int MyNum;

	LOCK(Global->idlock)
	MyNum = Global->id;
	Global->id++;
	UNLOCK(Global->idlock)
	BARINCLUDE(Global->start)
	BARRIER(Global->start, P)
	lu(MyNum);
	Global->finished[MyNum] = MyNum + 1;
	if (title[0] != 'L')
		printf("process %d has no title\n", MyNum);
}

/* The solution of the system whose right side is the sums of its rows: all ones. */
static double solve(void)
{
	double worst = 0;

	for (int i = 0; i < n; i++)
		for (int j = 0; j < i; j++)
			rhs[i] -= rhs[j] * block(i / block_size, j / block_size)
			                        [i % block_size * block_size +
			                         j % block_size];
	for (int i = n - 1; i >= 0; i--) {
		for (int j = i + 1; j < n; j++)
			rhs[i] -= rhs[j] * block(i / block_size, j / block_size)
			                        [i % block_size * block_size +
			                         j % block_size];
		rhs[i] /= block(i / block_size, i / block_size)
		        [i % block_size * (block_size + 1)];
		worst = fmax(worst, fabs(rhs[i] - 1));
	}
	return worst;
}

int main(int argc, char *argv[])
{
	int option, finished = 0;
	unsigned long finish;

	CLOCK(start)
	while ((option = getopt(argc, argv, "n:p:")) != -1) {
		if (option == 'n')
			n = atoi(optarg);
		else
			P = atoi(optarg);
	}
	MAIN_INITENV(,150000000)
	nblocks = n / block_size;
	title = "LU";
	a = (double **)G_MALLOC(nblocks * nblocks * sizeof(double *))
	for (int i = 0; i < nblocks * nblocks; i++)
		a[i] = (double *)G_MALLOC(block_size * block_size *
		                          sizeof(double))
	rhs = (double *)G_MALLOC(n * sizeof(double))
	Global = (struct GlobalMemory *)G_MALLOC(sizeof(struct GlobalMemory))
	Global->finished = (double *)G_MALLOC(P * sizeof(double) + PAGE_SIZE)
	BARINIT(Global->start)
	LOCKINIT(Global->idlock)
	Global->id = 0;
	for (int i = 1; i < P; i++) {
		CREATE(SlaveStart)
	}
	fill();
	SlaveStart();
	WAIT_FOR_END(P - 1)
	for (int i = 0; i < P; i++)
		finished += Global->finished[i] == i + 1;
	CLOCK(finish)
	printf("%s: %d processes, %s\n", title, finished,
	       solve() < 1e-9 && finish >= start ? "right" : "wrong");
	MAIN_END
}
