/* flashmla_check.cu - compares FlashMLA's results with a reference in double, which generates the data again. */
#include "flashmla.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

static float e4m3(uint8_t c)
{
    const int e = c >> 3 & 15, m = c & 7;
    const float v = e ? ldexpf(1 + (float)m / 8, e - 7) : ldexpf((float)m, -9);
    return c & 128 ? -v : v;
}

struct state {
    double m = -INFINITY, l = 0, o[LATENT] = {};
};

static void join(state *a, const state *b)
{
    if (b->l == 0) return;
    const double m = std::max(a->m, b->m);
    const double fa = a->l > 0 ? exp(a->m - m) : 0, fb = exp(b->m - m);
    for (int d = 0; d < LATENT; d++) a->o[d] = a->o[d] * fa + b->o[d] * fb;
    a->l = a->l * fa + b->l * fb;
    a->m = m;
}

static void token_row(const peer *p, size_t at, float *row)
{
    const uint64_t values = base(p->seed, OF_VALUE), codes = base(p->seed, OF_CODE);
    const uint64_t scales = base(p->seed, OF_SCALE);
    for (int d = 0; d < VALUES; d++) {
        if (!p->fp8)
            row[d] = (float)value(values, at * VALUES + (size_t)d);
        else if (d < LATENT)
            row[d] = e4m3(code(codes, at * LATENT + (size_t)d)) *
                     tile_scale(scales, at * (LATENT / FP8_TILE) + (size_t)(d / FP8_TILE));
        else
            row[d] = (float)value(values, at * ROPE + (size_t)(d - LATENT));
    }
}

/* Tokens [from, to) of sequence i, one head; q: its 576 values. */
static void attend(const peer *p, const int *page, const float *q, size_t from, size_t to, state *x)
{
    float row[VALUES];
    for (size_t t = from; t < to; t++) {
        token_row(p, (size_t)page[t / PAGE] * PAGE + t % PAGE, row);
        double dot = 0;
        for (int d = 0; d < VALUES; d++) dot += (double)q[d] * (double)row[d];
        dot *= (double)SCALE;
        if (dot > x->m) {
            const double f = exp(x->m - dot);
            for (double &o : x->o) o *= f;
            x->l *= f;
            x->m = dot;
        }
        const double w = exp(dot - x->m);
        x->l += w;
        for (int d = 0; d < LATENT; d++) x->o[d] += w * (double)row[d];
    }
}

/* |got - want| / |want| of one head's values in the results of set `set`. */
static double error_of(const peer *p, size_t set, size_t seq, size_t head, const bf16 *got)
{
    const size_t s = (size_t)p->s.context, pages = s / PAGE;
    const size_t n_thread = std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), 16);
    const int *page = p->table.data() + set * p->n_page + seq * pages;
    const size_t row = seq * (size_t)p->s.heads + head;
    std::vector<float> q(VALUES);
    std::vector<state> x(n_thread);
    std::vector<std::thread> worker;
    for (size_t d = 0; d < VALUES; d++)
        q[d] = (float)value(base(p->seed, OF_QUERY), row * VALUES + d);
    for (size_t i = 0; i < n_thread; i++)
        worker.emplace_back(attend, p, page, q.data(), s * i / n_thread, s * (i + 1) / n_thread,
                            &x[i]);
    for (std::thread &w : worker) w.join();
    for (size_t i = 1; i < n_thread; i++) join(&x[0], &x[i]);
    double bad = 0, all = 0;
    for (size_t d = 0; d < LATENT; d++) {
        const double want = x[0].o[d] / x[0].l, diff = (double)(float)got[row * LATENT + d] - want;
        bad += diff * diff;
        all += want * want;
    }
    return std::isfinite(bad) ? sqrt(bad / all) : INFINITY;
}

double check_peer(const peer *p)
{
    const size_t n = (size_t)p->s.batch * (size_t)p->s.heads * LATENT, set = p->n_set - 1;
    const size_t last = (size_t)p->s.batch - 1, heads = (size_t)p->s.heads;
    std::vector<bf16> got(n), again(n);
    CHECK(cudaMemcpy(got.data(), p->out.p, n * sizeof(bf16), cudaMemcpyDeviceToHost));
    CHECK(cudaMemset(p->out.p, 0xff, n * sizeof(bf16)));
    launch(p, set);
    CHECK(cudaStreamSynchronize(p->stream));
    CHECK(cudaMemcpy(again.data(), p->out.p, n * sizeof(bf16), cudaMemcpyDeviceToHost));
    if (memcmp(got.data(), again.data(), n * sizeof(bf16)) != 0) {
        (void)printf("FAIL h=%d b=%d s=%d: another run has other bits\n", p->s.heads, p->s.batch,
                     p->s.context);
        return INFINITY;
    }
    double worst = error_of(p, set, 0, 0, got.data());
    worst = std::max(worst, error_of(p, set, last, heads - 1, got.data()));
    return std::max(worst, error_of(p, set, last / 2, heads / 2, got.data()));
}
