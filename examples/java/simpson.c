/* A routine for a server, which calls a function of its client: the integral of f from a to b by Simpson's rule over n pieces. */
void simpson(double a, double b, int n, void (*f)(double x, double *y), double *integral)
{
    double width = (b - a) / n, left, middle, right;
    *integral = 0;
    f(a, &left);
    for (int i = 0; i < n; i++) {
        f(a + (i + 0.5) * width, &middle);
        f(a + (i + 1) * width, &right);
        *integral += width / 6 * (left + 4 * middle + right);
        left = right;
    }
}
