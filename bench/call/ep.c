/* Pairs of Gaussian deviates by the polar method: much work for few bytes. */
#include <math.h>
#include <stdint.h>

void ep(int64_t count, double *sum)
{
    uint64_t state = 271828183;
    *sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double at[2];
        for (int k = 0; k < 2; k++) {
            state = state * UINT64_C(1220703125) & ((UINT64_C(1) << 46) - 1);
            at[k] = 2 * (double)state / 70368744177664.0 - 1;
        }
        double t = at[0] * at[0] + at[1] * at[1];
        if (t <= 1 && t > 0)
            *sum += at[0] * sqrt(-2 * log(t) / t);
    }
}
