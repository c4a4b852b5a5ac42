/* A routine for a server: C = A B. */
void dmmul(int n, const double *a, const double *b, double *c)
{
    for (int i = 0; i < n; i++) {
        double *row = c + (long)i * n;
        for (int j = 0; j < n; j++) {
            row[j] = 0;
        }
        for (int k = 0; k < n; k++) {
            for (int j = 0; j < n; j++) {
                row[j] += a[(long)i * n + k] * b[(long)k * n + j];
            }
        }
    }
}
