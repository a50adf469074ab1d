/* attn_order.h - the order of summation of a score in the portable variants of attn and
 * attn_score: 8 lanes along d, k1 then k2 in the same lanes, joined pairwise. */
#ifndef NB_KERNEL_ATTN_ORDER_H
#define NB_KERNEL_ATTN_ORDER_H
#include <stddef.h>

enum { NB_ATTN_LANE = 8 };

static inline void nb_attn_dot_lanes(float *lane, const float *p, const float *q, size_t n)
{
    size_t i = 0;
    for (; i + NB_ATTN_LANE <= n; i += NB_ATTN_LANE)
        for (size_t j = 0; j < NB_ATTN_LANE; j++) lane[j] += p[i + j] * q[i + j];
    for (size_t j = 0; i + j < n; j++) lane[j] += p[i + j] * q[i + j];
}

static inline float nb_attn_join_lanes(const float *s)
{
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* q . (k1 | k2), before the scale; k2 unused when d2 == 0. */
static inline float nb_attn_dot(const float *q, const float *k1, size_t d1, const float *k2,
                                size_t d2)
{
    float lane[NB_ATTN_LANE] = { 0 };
    nb_attn_dot_lanes(lane, q, k1, d1);
    if (d2) nb_attn_dot_lanes(lane, q + d1, k2, d2);
    return nb_attn_join_lanes(lane);
}

#endif
