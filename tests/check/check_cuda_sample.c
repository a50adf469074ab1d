/* check_cuda_sample.c - sampling on a GPU: the tokens that the host's sampler draws, exactly. */
#include "check/check.h"
#include "check/check_cuda.h"
#include "sample/sample.h"

typedef struct kind {
    double temperature, top_p, min_p;
    size_t top_k;
} kind;

static const kind kinds[] = {
    { 0, 1, 0, 0 },         { 1, 1, 0, 0 },       { 0.7, 0.95, 0, 0 },  { 1, 1, 0, 40 },
    { 0.6, 0.9, 0, 50 },    { 1.3, 1, 0.05, 0 },  { 1, 0.5, 0.01, 0 },  { 2, 0.999, 0, 1500 },
    { 1e-6, 0.5, 0, 3 },    { 0.01, 0.99, 0, 0 }, { 100, 0.3, 0, 0 },   { 1, 1, 0, 1 },
    { 1, 1e-9, 0, 0 },      { 0.8, 0.97, 0, 2 },  { 1, 1, 0, 1000000 }, { 1e4, 1, 0.5, 1024 },
    { 1, 1 - 1e-12, 0, 0 },
};

enum { FLAT, PEAKED, TIES, STEP, EQUAL, HUGE_RANGE, N_SHAPE };
static const char *const shape_name[] = { "flat", "peaked", "ties", "step", "equal", "huge range" };

static void fill_row(chk *t, float *x, size_t n, unsigned shape)
{
    for (size_t i = 0; i < n; i++) {
        const double u = chk_unit(t), v = chk_unit(t), g = sqrt(-2 * log(1 - u)) * cos(6.28 * v);
        switch (shape) {
        case FLAT: x[i] = (float)g; break;
        case PEAKED: x[i] = (float)(3 * g); break;
        case TIES: x[i] = (float)(0.5 * (double)(chk_u64(t) % 9)) - 2; break;
        case STEP: x[i] = i % 7 ? -INFINITY : (float)g; break;
        case EQUAL: x[i] = i % 2 ? 0.0f : -0.0f; break;
        default: x[i] = (float)(g * (chk_u64(t) % 5 ? 1 : 1e38)); break;
        }
    }
    if (shape == PEAKED)
        for (size_t k = 0; k < 5; k++) x[chk_between(t, 0, n - 1)] += (float)(8 + k);
}

static uint32_t host_token(chk *t, const kind *k, const float *x, size_t n, uint64_t seed)
{
    nb_sample_params p;
    nb_sampler *s = NULL;
    nb_sample_scratch *c = NULL;
    nb_sample_out o = { .id = UINT32_MAX };
    nb_sample_params_default(&p);
    p.temperature = k->temperature;
    p.top_p = k->top_p;
    p.min_p = k->min_p;
    p.top_k = k->top_k;
    p.seed = seed;
    if (nb_sampler_create(&p, n, &s, NULL) != NB_OK ||
        nb_sample_scratch_create(n, &c, NULL) != NB_OK)
        chk_fail(t, "no sampler on the host");
    else if (nb_sampler_next(s, c, x, NULL, &o) != NB_OK)
        o.id = UINT32_MAX;
    nb_sampler_destroy(s);
    nb_sample_scratch_destroy(c);
    return o.id;
}

static void get_tokens(chk *t, const float *x, size_t stride, size_t n,
                       const nb_cuda_sample_row *row, size_t n_row, uint32_t *id)
{
    nb_cuda_sample_args a = { .n_row = n_row, .n_vocab = n, .stride = stride };
    a.logits = chk_gpu_in(t, x, ((n_row - 1) * stride + n) * sizeof *x);
    a.row = chk_gpu_in(t, row, n_row * sizeof *row);
    a.id = chk_gpu_out(t, n_row * sizeof *id);
    a.scratch = chk_gpu_out(t, n_row * NB_CUDA_SAMPLE_SCRATCH(n));
    chk_gpu_call(t, chk_gpu_api(t)->sample(chk_gpu(t), &a));
    chk_gpu_get(t, id, a.id, n_row * sizeof *id);
}

static nb_cuda_sample_row row_of(const kind *k, uint64_t seed)
{
    return (nb_cuda_sample_row){ .temperature = k->temperature,
                                 .top_p = k->top_p,
                                 .min_p = k->min_p,
                                 .top_k = (uint32_t)k->top_k,
                                 .u = nb_rng_unit(seed, 0) };
}

/* Rows of all kinds, side by side and alone. */
static void one_case(chk *t, size_t n, unsigned shape, size_t gap)
{
    enum { ROWS = NB_COUNT(kinds) };
    const size_t stride = n + gap;
    float *x = chk_raw(t, ROWS * stride * sizeof *x);
    nb_cuda_sample_row row[ROWS];
    uint64_t seed[ROWS];
    uint32_t id[ROWS], alone;
    for (size_t r = 0; r < ROWS; r++) {
        fill_row(t, x + r * stride, n, shape);
        seed[r] = chk_u64(t);
        row[r] = row_of(&kinds[r], seed[r]);
        for (size_t i = n; i < stride; i++) x[r * stride + i] = NAN;
    }
    get_tokens(t, x, stride, n, row, ROWS, id);
    for (size_t r = 0; r < ROWS; r++) {
        const uint32_t want = host_token(t, &kinds[r], x + r * stride, n, seed[r]);
        if (id[r] != want)
            chk_fail(t, "T %g top_k %zu top_p %g min_p %g: token %u, expected %u",
                     kinds[r].temperature, kinds[r].top_k, kinds[r].top_p, kinds[r].min_p, id[r],
                     want);
    }
    const size_t r = chk_between(t, 0, ROWS - 1);
    get_tokens(t, x + r * stride, stride, n, &row[r], 1, &alone);
    if (alone != id[r]) chk_fail(t, "token %u for a row alone, %u among others", alone, id[r]);
}

/* NaN, +inf and nothing at all: no token, and the neighbours have theirs. */
static void hostile_case(chk *t, size_t n)
{
    enum { ROWS = 8 };
    const size_t at = chk_between(t, 0, n - 1);
    float *x = chk_raw(t, ROWS * n * sizeof *x);
    nb_cuda_sample_row row[ROWS];
    uint32_t id[ROWS];
    for (size_t r = 0; r < ROWS; r++) {
        fill_row(t, x + r * n, n, FLAT);
        row[r] = row_of(&kinds[r], r);
    }
    x[at] = NAN;
    x[n + at] = INFINITY;
    x[4 * n + at] = NAN;
    for (size_t i = 0; i < n; i++) x[2 * n + i] = x[6 * n + i] = -INFINITY;
    x[6 * n + at] = 3;
    get_tokens(t, x, n, n, row, ROWS, id);
    for (size_t r = 0; r < ROWS; r++) {
        const uint32_t want = host_token(t, &kinds[r], x + r * n, n, r);
        if (id[r] != want) chk_fail(t, "row %zu: token %u, expected %u", r, id[r], want);
    }
}

static void test(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t sizes[] = { 1, 2, 63, 65, 1000, 4097, 9001 };
    const size_t n_size = NB_COUNT(sizes);
    for (size_t i = 0; i < n_size; i++) {
        for (unsigned s = 0; s < N_SHAPE; s++)
            if (chk_case(t, "%zu tokens, %s", sizes[i], shape_name[s]))
                one_case(t, sizes[i], s, s % 2 ? 0 : chk_between(t, 0, 5));
        if (chk_case(t, "%zu tokens, hostile", sizes[i])) hostile_case(t, sizes[i]);
    }
    for (unsigned s = 0; s < N_SHAPE && !chk_gpu_info(t)->emulated; s++)
        for (size_t k = 0; k < 4; k++)
            if (chk_case(t, "vocabulary, %s %zu", shape_name[s], k))
                one_case(t, k % 2 ? 129280 : 102400, s, 0);
}

typedef struct job {
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_sample_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->api->sample(j->g, &j->a);
}

static void bench(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t n_rows[] = { 1, 64, 256 }, which[] = { 0, 1, 2, 3, 5 };
    enum { N = 102400, MOST = 256 };
    for (size_t i = 0; i < NB_COUNT(n_rows) * NB_COUNT(which) * 2; i++) {
        const size_t n_row = n_rows[i / 2 / NB_COUNT(which)];
        const kind *k = &kinds[which[i / 2 % NB_COUNT(which)]];
        const unsigned shape = i % 2 ? PEAKED : FLAT;
        nb_cuda_sample_row rows[MOST];
        char label[96];
        chk_case(t, "bench");
        float *x = chk_raw(t, n_row * N * sizeof *x);
        for (size_t r = 0; r < n_row; r++) {
            if (r < 4) fill_row(t, x + r * N, N, shape);
            if (r >= 4) memcpy(x + r * N, x + r % 4 * N, N * sizeof *x);
            rows[r] = row_of(k, r);
        }
        job j = { chk_gpu_api(t), chk_gpu(t), { .n_row = n_row, .n_vocab = N, .stride = N } };
        j.a.logits = chk_gpu_in(t, x, n_row * N * sizeof *x);
        j.a.row = chk_gpu_in(t, rows, n_row * sizeof *rows);
        j.a.id = chk_gpu_out(t, n_row * sizeof(uint32_t));
        j.a.scratch = chk_gpu_out(t, n_row * NB_CUDA_SAMPLE_SCRATCH(N));
        snprintf(label, sizeof label, "%zu rows %s T %g top_k %zu top_p %g", n_row,
                 shape_name[shape], k->temperature, k->top_k, k->top_p);
        chk_gpu_time(t, label, 4.0 * (double)(n_row * N), 0, call, &j);
    }
}

const chk_op chk_cuda_sample = { "cuda_sample", chk_gpu_row, test, bench, NULL };
