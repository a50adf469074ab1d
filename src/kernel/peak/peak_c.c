/* peak_c.c - peak loops in portable C: what the compiler makes of plain loops, which is also what
 * the portable kernels are.  No fused multiply-add: the baseline has none. */
#include <string.h>

#include "kernel/peak/peak.h"

uint64_t nb_peak_read_c(const void *p, size_t n_bytes)
{
    const unsigned char *b = p;
    uint64_t s[8] = { 0 };
    for (size_t i = 0; i + 64 <= n_bytes; i += 64)
        for (size_t j = 0; j < 8; j++) {
            uint64_t v;
            memcpy(&v, b + i + 8 * j, 8);
            s[j] += v;
        }
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

double nb_peak_f32_c(size_t n_round, float *sink)
{
    enum { N = 32 }; /* enough to hide the latency of both, in vectors of 4 */
    float acc[N], sum = 0;
    for (size_t i = 0; i < N; i++) acc[i] = (float)i;
    for (size_t r = 0; r < n_round; r++)
        for (size_t i = 0; i < N; i++) acc[i] = acc[i] * 0.999f + 0.25f;
    for (size_t i = 0; i < N; i++) sum += acc[i];
    *sink = sum;
    return 2.0 * N * (double)n_round;
}
