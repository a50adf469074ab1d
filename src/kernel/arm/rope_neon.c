/* rope_neon.c - rope, 4 pairs at a time: LD2 and ST2 part interleaved pairs.  The pairs that are left
 * over go one by one. */
#include "kernel/rope/rope.h"

#include "kernel/arm/vec_neon.h"

static inline void turn(float32x4_t *a, float32x4_t *b, float32x4_t c, float32x4_t s)
{
    const float32x4_t x = vfmsq_f32(vmulq_f32(*a, c), *b, s);
    *b = vfmaq_f32(vmulq_f32(*b, c), *a, s);
    *a = x;
}

/* Pair j is (x[j * step], y[j * step]). */
static void rest(float *x, float *y, size_t step, const float *c, const float *s, size_t j,
                 size_t half)
{
    for (; j < half; j++) {
        const float a = x[j * step], b = y[j * step];
        x[j * step] = a * c[j] - b * s[j];
        y[j * step] = a * s[j] + b * c[j];
    }
}

static void interleaved(float *x, const float *c, const float *s, size_t half)
{
    size_t j = 0;
    for (; j + 4 <= half; j += 4) {
        float32x4x2_t v = vld2q_f32(x + 2 * j);
        turn(&v.val[0], &v.val[1], vld1q_f32(c + j), vld1q_f32(s + j));
        vst2q_f32(x + 2 * j, v);
    }
    rest(x, x + 1, 2, c, s, j, half);
}

static void half_split(float *x, const float *c, const float *s, size_t half)
{
    float *y = x + half;
    size_t j = 0;
    for (; j + 4 <= half; j += 4) {
        float32x4_t a = vld1q_f32(x + j), b = vld1q_f32(y + j);
        turn(&a, &b, vld1q_f32(c + j), vld1q_f32(s + j));
        vst1q_f32(x + j, a);
        vst1q_f32(y + j, b);
    }
    rest(x, y, 1, c, s, j, half);
}

void nb_rope_neon(const nb_rope_args *a)
{
    const size_t half = a->dim / 2;
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *c = a->cos_sin + t * a->dim;
        for (size_t h = 0; h < a->n_head; h++)
            (a->interleaved ? interleaved : half_split)(
                a->x + t * a->tok_stride + h * a->head_stride, c, c + half, half);
    }
}
