/* check_cuda_streams.c - residual streams that are mixed, on a device, against their definition in double
 * (cpu_streams.c has the formulas). */
#include "check/check_cuda.h"

typedef struct mixing {
    size_t s, n, tok; /* streams, values, tokens */
    bool first, last, row;
} mixing;

static float *normals(chk *t, size_t n, float by)
{
    float *x = chk_raw(t, (n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = by * (float)(chk_unit(t) * 4 - 2);
    return x;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* C from its logits, in place. */
static void sinkhorn(double *c, size_t s, size_t n, double e)
{
    for (size_t i = 0; i < s; i++) {
        double top = -INFINITY, sum = 0;
        for (size_t j = 0; j < s; j++) top = fmax(top, c[i * s + j]);
        for (size_t j = 0; j < s; j++) sum += c[i * s + j] = exp(c[i * s + j] - top);
        for (size_t j = 0; j < s; j++) c[i * s + j] = c[i * s + j] / sum + e;
    }
    for (size_t k = 0; k < 2 * n; k++) { /* rows at odd places, columns at even ones */
        if (k == 2 * n - 1) break;
        for (size_t i = 0; i < s; i++) {
            const size_t a = k % 2 ? s : 1, b = k % 2 ? 1 : s;
            double sum = e;
            for (size_t j = 0; j < s; j++) sum += c[i * a + j * b];
            for (size_t j = 0; j < s; j++) c[i * a + j * b] /= sum;
        }
    }
}

static void near(chk *t, const char *what, size_t row, const float *got, const double *want, size_t n)
{
    double top = 1e-30;
    for (size_t i = 0; i < n; i++) top = fmax(top, fabs(want[i]));
    for (size_t i = 0; i < n; i++) {
        const double off = fabs((double)got[i] - want[i]) / top;
        chk_worst(t, off / 0x1p-16);
        if (off <= 0x1p-16) continue;
        chk_fail(t, "%s of token %zu, value %zu: %g instead of %g", what, row, i, (double)got[i], want[i]);
        return;
    }
}

static void one(chk *t, const mixing *m)
{
    const size_t s = m->s, n = m->n, n_out = m->last ? s : (2 + s) * s, n_w = s + s * s, stride = s * n + (n % 4 ? 3 : 4), it = 20;
    const bool branch = !m->first && !m->row;
    float *x = normals(t, m->tok * stride, 1), *b = normals(t, m->tok * n, 1), *weight = normals(t, m->tok * n_w, 0.5f);
    float *fn = normals(t, n_out * s * n, 0.5f / sqrtf((float)(s * n))), *base = normals(t, n_out, 0.3f), *w = normals(t, n, 1);
    const float scale[3] = { 0.7f, 1.2f, 0.9f };
    uint32_t row[64];
    for (size_t i = 0; i < m->tok; i++) row[i] = (uint32_t)(m->tok - 1 - i);
    nb_cuda_streams_args a = { .x = chk_gpu_inout(t, x, m->tok * stride * sizeof *x),
                               .branch = branch ? chk_gpu_in(t, b, m->tok * n * sizeof *b) : NULL,
                               .fn = chk_gpu_in(t, fn, n_out * s * n * sizeof *fn),
                               .base = chk_gpu_in(t, base, n_out * sizeof *base),
                               .scale = chk_gpu_in(t, scale, sizeof scale),
                               .w = chk_gpu_in(t, w, n * sizeof *w),
                               .row = m->row ? chk_gpu_in(t, row, m->tok * sizeof *row) : NULL,
                               .weight = chk_gpu_inout(t, weight, m->tok * n_w * sizeof *weight),
                               .part = chk_gpu_out(t, m->tok * NB_CUDA_MIX_SLICES(n) * NB_CUDA_MIX_SUMS(s) * sizeof(float)),
                               .y = chk_gpu_out_rows(t, m->tok, (n + 7) / 8 * 8, 2),
                               .n_tok = m->tok,
                               .n_stream = s,
                               .dim = n,
                               .x_stride = stride,
                               .n_sinkhorn = it,
                               .eps = 1e-6f,
                               .stream_eps = 1e-6f,
                               .y_factor = 1,
                               .first = m->first,
                               .last = m->last };
    chk_gpu_call(t, chk_gpu_api(t)->streams(chk_gpu(t), &a));
    const nb_cuda_rows y = chk_gpu_get_rows(t, &a.y, m->tok);
    chk_gpu_parts(t, &y, m->tok, n);
    float *gx = chk_raw(t, m->tok * stride * sizeof *gx), *gw = chk_raw(t, m->tok * n_w * sizeof *gw);
    chk_gpu_get(t, gx, a.x, m->tok * stride * sizeof *gx);
    chk_gpu_get(t, gw, a.weight, m->tok * n_w * sizeof *gw);
    double *u = chk_f64(t, s * n), *out = chk_f64(t, n), *p = chk_f64(t, n_out), *c = chk_f64(t, n_w);
    for (size_t i = 0; i < m->tok; i++) {
        const size_t at = m->row ? row[i] : i;
        const float *old = x + at * stride, *ow = weight + i * n_w;
        double squares = 0, sum = 0;
        for (size_t j = 0; j < s; j++)
            for (size_t k = 0; k < n; k++) {
                double v = (double)old[(m->first ? 0 : j) * n + k];
                if (branch) {
                    v = (double)ow[j] * (double)b[i * n + k];
                    for (size_t q = 0; q < s; q++) v += (double)ow[s + q * s + j] * (double)old[q * n + k];
                }
                u[j * n + k] = v;
                squares += v * v;
            }
        near(t, "streams", i, gx + at * stride, u, s * n);
        const double inv = 1 / sqrt(squares / (double)(s * n) + 1e-6);
        for (size_t r = 0; r < n_out; r++) {
            p[r] = 0;
            for (size_t k = 0; k < s * n; k++) p[r] += (double)fn[r * s * n + k] * u[k];
            p[r] = p[r] * inv * (double)scale[r < s ? 0 : r < 2 * s ? 1 : 2] + (double)base[r];
        }
        for (size_t k = 0; k < n; k++) {
            out[k] = 0;
            for (size_t j = 0; j < s; j++) out[k] += (sigmoid(p[j]) + 1e-6) * u[j * n + k];
            sum += out[k] * out[k];
        }
        for (size_t k = 0; k < n; k++) out[k] = out[k] / sqrt(sum / (double)n + 1e-6) * (double)w[k];
        near(t, "the sum", i, y.f + i * y.stride, out, n);
        if (m->last) {
            if (memcmp(gw + i * n_w, ow, n_w * sizeof *gw) != 0) chk_fail(t, "wrote weights of the last place");
            continue;
        }
        for (size_t j = 0; j < s; j++) c[j] = 2 * sigmoid(p[s + j]);
        for (size_t j = 0; j < s * s; j++) c[s + j] = p[2 * s + j];
        sinkhorn(c + s, s, it, 1e-6);
        near(t, "the weights", i, gw + i * n_w, c, n_w);
    }
}

static void test(chk *t, const chk_row *row)
{
    static const mixing cases[] = {
        { 4, 64, 1, true, false, false },   { 4, 200, 3, false, false, false }, { 4, 129, 6, false, false, false },
        { 1, 64, 2, false, false, false },  { 7, 70, 5, false, false, false },  { 16, 33, 4, true, false, false },
        { 4, 130, 5, false, true, true },   { 4, 4096, 1, false, false, false }, { 3, 64, 2, false, true, false },
        { 4, 7168, 2, false, false, false }, { 4, 512, 2, true, false, false },
    };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(cases); i++)
        if (chk_case(t, "%zu streams of %zu, %zu tokens%s%s", cases[i].s, cases[i].n, cases[i].tok,
                     cases[i].first ? ", first" : "", cases[i].last ? ", last" : ""))
            one(t, &cases[i]);
}

typedef struct job {
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_streams_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->api->streams(j->g, &j->a);
}

static void bench(chk *t, const chk_row *row)
{
    static const size_t toks[] = { 1, 8, 512 };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(toks); i++) {
        enum { S = 4, N = 4096, OUT = 24 };
        const size_t n = toks[i];
        char label[64];
        if (!chk_case(t, "bench %zu", i)) continue;
        const float *some = chk_gpu_in(t, normals(t, OUT * S * N, 0.01f), OUT * S * N * sizeof(float));
        job j = { chk_gpu_api(t),
                  chk_gpu(t),
                  { .x = chk_gpu_inout(t, normals(t, n * S * N, 1), n * S * N * sizeof(float)),
                    .branch = chk_gpu_in(t, normals(t, n * N, 1), n * N * sizeof(float)),
                    .fn = some,
                    .base = some,
                    .scale = some,
                    .w = some,
                    .weight = chk_gpu_inout(t, normals(t, n * 20, 0.1f), n * 20 * sizeof(float)),
                    .part = chk_gpu_out(t, n * NB_CUDA_MIX_SLICES(N) * NB_CUDA_MIX_SUMS(S) * sizeof(float)),
                    .y = chk_gpu_out_rows(t, n, N, 2),
                    .n_tok = n,
                    .n_stream = S,
                    .dim = N,
                    .x_stride = S * N,
                    .n_sinkhorn = 20,
                    .eps = 1e-6f,
                    .stream_eps = 1e-6f,
                    .y_factor = 1 } };
        (void)snprintf(label, sizeof label, "%zu tokens, 4 streams of 4,096", n);
        chk_gpu_time(t, label, 4.0 * (double)(OUT * S * N + n * (2 * S + 2) * N), 0, call, &j);
    }
}

/* ---- planted bugs ---- */

static void no_branch(nb_cuda *g, const nb_cuda_streams_args *a)
{
    nb_cuda_streams_args b = *a;
    b.branch = NULL;
    chk_gpu_api(NULL)->streams(g, &b);
}
static void one_iteration(nb_cuda *g, const nb_cuda_streams_args *a)
{
    nb_cuda_streams_args b = *a;
    b.n_sinkhorn = 1;
    chk_gpu_api(NULL)->streams(g, &b);
}
static void other_factor(nb_cuda *g, const nb_cuda_streams_args *a)
{
    nb_cuda_streams_args b = *a;
    b.y_factor *= 1.0001f;
    chk_gpu_api(NULL)->streams(g, &b);
}
static void plant_no_branch(nb_cuda_api *api)
{
    api->streams = no_branch;
}
static void plant_one_iteration(nb_cuda_api *api)
{
    api->streams = one_iteration;
}
static void plant_other_factor(nb_cuda_api *api)
{
    api->streams = other_factor;
}
static const chk_broken broken[] = {
    CHK_GPU_BUG("the branch is not added", "streams of token", plant_no_branch),
    CHK_GPU_BUG("C after one iteration", "the weights", plant_one_iteration),
    CHK_GPU_BUG("the sum is 1e-4 too large", "the sum", plant_other_factor),
    { 0 },
};

const chk_op chk_cuda_streams = { "cuda_streams", chk_gpu_row, test, bench, broken };
