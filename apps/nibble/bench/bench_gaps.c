/* bench_gaps.c - times between tokens of sequences that are generated side by side. */
#include "bench_points.h"

bool bench_depth_gaps(const depth_times *seq, size_t n_seq, double *gap, nb_kbench_spread *s)
{
    double from = 0, to = 0;
    size_t n = 0;
    for (size_t i = 0; i < n_seq; i++) {
        if (seq[i].n < 2) return false;
        if (i == 0 || seq[i].at_s[0] > from) from = seq[i].at_s[0];
        if (i == 0 || seq[i].at_s[seq[i].n - 1] < to) to = seq[i].at_s[seq[i].n - 1];
    }
    for (size_t i = 0; i < n_seq; i++)
        for (size_t k = 1; k < seq[i].n; k++)
            if (seq[i].at_s[k - 1] >= from && seq[i].at_s[k] <= to)
                gap[n++] = seq[i].at_s[k] - seq[i].at_s[k - 1];
    if (n == 0) return false;
    nb_kbench_spread_of(gap, n, s);
    return true;
}
