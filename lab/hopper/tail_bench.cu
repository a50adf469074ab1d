/* tail_bench.cu - checks the states of both forms of mla_tail against double, compares bits between runs and
 * block shapes, and times both alone and after the pages of mla_many.cu.
 *
 * tail_bench check | time | beside | one HEADS ROWS OPEN [few|many]
 *
 * Times alone come from graphs of 24 launches over the open pages of 8 layers, so that tokens do not stay in L2.
 * OPEN tokens precede the query in its page, so OPEN + 1 are visible. */
#include "kernel/cuda/api/nb_cuda_items.h"
#include "kernel/cuda/sm80/mla_tail_many.cu"
#include "driver.cuh"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace
{

enum { LAYERS = 8, REPS = 24, TOKENS = 64, N = 576, LORA = 512 };

uint64_t rng_state;
uint32_t rnd()
{
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 16);
}
float uniform()
{
    return ((int)(rnd() % 20001) - 10000) / 5000.f;
}

/* The forms: few, many with the launcher's block shape, then blocks of 16 WM heads with WN warps per 16 heads. */
typedef void form_fn(nb_cuda *, const nb_cuda_mla_args *);
template <nb_cuda_tail T> void by_table(nb_cuda *g, const nb_cuda_mla_args *a)
{
    nb_cuda_mla_args x = *a;
    x.tail = T;
    nb_cuda_mla_tail(g, &x);
}
const struct {
    const char *name;
    form_fn *fn;
} forms[] = { { "few", by_table<NB_CUDA_TAIL_FEW> }, { "many", by_table<NB_CUDA_TAIL_MANY> },
              { "1x4", launch_shape<1, 4> },         { "2x4", launch_shape<2, 4> },
              { "4x1", launch_shape<4, 1> },         { "4x2", launch_shape<4, 2> },
              { "4x4", launch_shape<4, 4> },         { "8x1", launch_shape<8, 1> },
              { "8x2", launch_shape<8, 2> } };
enum { N_FORM = sizeof forms / sizeof *forms };

struct world {
    nb_cuda *g;
    nb_cuda_mla_args a = {};
    std::vector<float> tok, q; /* of one layer, on the host */
    std::vector<uint32_t> first;
    std::vector<void *> mem;
    size_t n_part = 0;
    void *get(size_t n)
    {
        void *p;
        CK(cudaMalloc(&p, n + 256));
        CK(cudaMemset(p, 0xff, n + 256));
        mem.push_back(p);
        return p;
    }
    template <class T> T *up(const std::vector<T> &v)
    {
        T *p = (T *)get(v.size() * sizeof(T));
        CK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
        return p;
    }
    ~world()
    {
        for (void *p : mem) cudaFree(p);
    }
};

/* n_row sequences of n_page complete pages and `open` more tokens, one query each. */
void make_world(world &w, nb_cuda *g, int nh, int n_row, int open, uint32_t n_page)
{
    rng_state = 88172645463325252ull;
    w.g = g;
    const size_t rows = (size_t)TOKENS * N;
    w.tok.resize(n_row * rows);
    for (auto &v : w.tok) {
        const float x = uniform();
        uint32_t u;
        memcpy(&u, &x, 4);
        u &= 0xffff0000u;
        memcpy(&v, &u, 4);
    }
    float *tails = (float *)w.get(LAYERS * n_row * rows * sizeof(float));
    for (int r = 0; r < n_row; r++)
        for (int l = 0; l < LAYERS; l++)
            CK(cudaMemcpy(tails + ((size_t)r * LAYERS + l) * rows, &w.tok[r * rows], rows * 4,
                          cudaMemcpyHostToDevice));
    std::vector<nb_cuda_chunk> chunk(n_row);
    std::vector<uint32_t> rc(n_row);
    w.first.push_back(0);
    for (int r = 0; r < n_row; r++) {
        chunk[r] = {};
        chunk[r].row0 = r, chunk[r].n_tok = 1, chunk[r].block0 = r * n_page;
        chunk[r].pos0 = n_page * 64 + open, chunk[r].tail = tails + (size_t)r * LAYERS * rows;
        rc[r] = r;
        w.first.push_back(w.first.back() + nb_cuda_n_unit(NB_CUDA_MLA_MANY_UNITS, n_page) + 1);
    }
    w.n_part = w.first.back();
    w.q.resize((size_t)n_row * nh * N);
    for (auto &v : w.q) v = uniform();
    nb_cuda_mla_args &a = w.a;
    a.cache.chunk = w.up(chunk), a.cache.n_chunk = n_row;
    a.cache.record.type = NB_KV_NVFP4;
    a.q = w.up(w.q), a.q_stride = nh * N, a.q_head = N;
    a.part_o = (float *)w.get(w.n_part * nh * LORA * 4);
    a.part_m = (float *)w.get(w.n_part * nh * 4), a.part_l = (float *)w.get(w.n_part * nh * 4);
    a.part_first = w.up(w.first), a.row_chunk = w.up(rc);
    a.n_row = n_row, a.n_head = nh, a.lora = LORA, a.d_rope = N - LORA;
    a.scale = 1 / sqrtf(192.f);
}

struct states {
    std::vector<float> o, m, l;
    bool operator==(const states &b) const
    {
        return !memcmp(o.data(), b.o.data(), o.size() * 4) &&
               !memcmp(m.data(), b.m.data(), m.size() * 4) &&
               !memcmp(l.data(), b.l.data(), l.size() * 4);
    }
};
states run_form(world &w, int form)
{
    const size_t n = w.n_part * w.a.n_head;
    CK(cudaMemset(w.a.part_o, 0xff, n * LORA * 4));
    forms[form].fn(w.g, &w.a);
    CK(cudaStreamSynchronize(w.g->stream));
    states s = { std::vector<float>(n * LORA), std::vector<float>(n), std::vector<float>(n) };
    CK(cudaMemcpy(s.o.data(), w.a.part_o, n * LORA * 4, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(s.m.data(), w.a.part_m, n * 4, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(s.l.data(), w.a.part_l, n * 4, cudaMemcpyDeviceToHost));
    return s;
}

/* Largest error over some heads: o / l by norm, l relative, m absolute. */
double error_of(const world &w, const states &s, int n_vis)
{
    double worst = 0;
    const int nh = (int)w.a.n_head, n_row = (int)w.a.n_row;
    for (int k = 0; k < 24; k++) {
        const int row = (int)((int64_t)k * (n_row - 1) / 23), h = (k * 29 + 7) % nh;
        const float *q = &w.q[((size_t)row * nh + h) * N], *x = &w.tok[(size_t)row * TOKENS * N];
        double sc[TOKENS], top = -1e300, l = 0, err = 0, norm = 0;
        for (int t = 0; t < n_vis; t++) {
            sc[t] = 0;
            for (int d = 0; d < N; d++) sc[t] += (double)q[d] * x[t * N + d];
            sc[t] *= w.a.scale * 1.4426950408889634;
            top = std::max(top, sc[t]);
        }
        for (int t = 0; t < n_vis; t++) l += exp2(sc[t] - top);
        const size_t at = (size_t)(w.first[row + 1] - 1) * nh + h;
        for (int d = 0; d < LORA; d++) {
            double y = 0;
            for (int t = 0; t < n_vis; t++) y += exp2(sc[t] - top) * x[t * N + d];
            const double e = (double)s.o[at * LORA + d] / s.l[at] - y / l;
            err += e * e, norm += y / l * y / l;
        }
        const double e =
            std::max(sqrt(err / norm), std::max(fabs(s.m[at] - top), fabs(s.l[at] / l - 1)));
        worst = e > worst || e != e ? e : worst;
    }
    return worst;
}

bool fits(const nb_cuda *g, int form)
{
    const size_t wm = forms[form].name[0] - '0';
    return form < 2 || wm * sizeof(heads16) + TOKENS * (N + 8) * 2 <= g->shared_bytes;
}

int check(nb_cuda *g)
{
    int bad = 0;
    for (int nh : { 16, 20, 64, 128 })
        for (int n_row : { 1, 37, 70 })
            for (int open : { 0, 30, 31, 32, 62, 63 }) {
                world w;
                make_world(w, g, nh, n_row, open, 0);
                const states few = run_form(w, 0), many = run_form(w, 1);
                int other = 0, shape = 0;
                for (int i = 0; i < 5; i++) other += !(run_form(w, 1) == many);
                for (int f = 2; f < N_FORM; f++) shape += fits(g, f) && !(run_form(w, f) == many);
                const double e0 = error_of(w, few, open + 1), e1 = error_of(w, many, open + 1);
                const bool good = e1 < 1e-4 && other == 0 && shape == 0;
                bad += !good;
                if (!good || (n_row == 37 && open == 63))
                    printf("h=%-3d rows %-3d open %-2d error few %.1e many %.1e; other bits: runs "
                           "%d of 5, shapes %d of %d\n",
                           nh, n_row, open, e0, e1, other, shape, N_FORM - 2);
                if (g->error != cudaSuccess) return 1;
            }
    printf("check: %d of 72 bad\n", bad);
    return bad;
}

/* us of one of `reps` steps in a graph. */
template <class F> double time_us(nb_cuda *g, int reps, F step)
{
    cudaGraph_t graph;
    cudaGraphExec_t ex;
    cudaEvent_t e0, e1;
    CK(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < reps; i++) step(i);
    CK(cudaStreamEndCapture(g->stream, &graph));
    CK(cudaGraphInstantiate(&ex, graph, 0));
    cudaEventCreate(&e0), cudaEventCreate(&e1);
    std::vector<float> ms;
    for (int i = 0; i < 9; i++) {
        cudaEventRecord(e0, g->stream);
        CK(cudaGraphLaunch(ex, g->stream));
        cudaEventRecord(e1, g->stream);
        CK(cudaEventSynchronize(e1));
        float v;
        cudaEventElapsedTime(&v, e0, e1);
        if (i > 1) ms.push_back(v / reps);
    }
    std::sort(ms.begin(), ms.end());
    cudaGraphExecDestroy(ex), cudaGraphDestroy(graph);
    cudaEventDestroy(e0), cudaEventDestroy(e1);
    return ms[ms.size() / 2] * 1e3;
}

void time_alone(nb_cuda *g)
{
    printf("us %15s", "");
    for (auto &f : forms) printf(" %6s", f.name);
    printf("\n");
    for (int nh : { 16, 32, 64, 128 })
        for (int n_row : { 1, 32, 128 })
            for (int open : { 63, 1 }) {
                world w;
                make_world(w, g, nh, n_row, open, 0);
                printf("h=%-3d %3d open %-2d", nh, n_row, open);
                for (int f = 0; f < N_FORM; f++) {
                    const double us = fits(g, f) ? time_us(g, REPS,
                                                           [&](int i) {
                                                               w.a.cache.tail_off =
                                                                   i % LAYERS * (TOKENS * N);
                                                               forms[f].fn(g, &w.a);
                                                           })
                                                 : 0;
                    printf(" %6.1f", us);
                }
                printf("\n");
                fflush(stdout);
            }
}

} // namespace

/* The pages before the open one: nvfp4 with an int8 rope key, arbitrary codes. */
static void time_beside(nb_cuda *g, int nh, int n_row, int n_tok)
{
    world w;
    const uint32_t n_page = n_tok / 64;
    make_world(w, g, nh, n_row, 63, n_page);
    nb_cuda_mla_args &a = w.a;
    nb_record &r = a.cache.record;
    r.n_seg = 2, r.page_bytes = 22656;
    nb_record_seg *s = r.seg;
    s[0].dim = LORA, s[1].dim = N - LORA, s[0].n_vec = s[1].n_vec = 1;
    s[0].fmt = NB_SEG_NVFP4, s[0].code_stride = 256, s[0].scale_off = 16384, s[0].scale_stride = 32;
    s[1].fmt = NB_SEG_INT8, s[1].code_stride = 64, s[1].code_off = 18432;
    s[0].outer_off = 22528, s[1].outer_off = 22592, s[0].outer_stride = s[1].outer_stride = 1;
    const size_t n_pool = (1ull << 30) / r.page_bytes;
    std::vector<unsigned char> page(64 * r.page_bytes);
    for (size_t i = 0; i < page.size(); i++) {
        const size_t at = i % r.page_bytes;
        page[i] = at < 16384 ? rnd() : at < 18432 ? 0x38 + rnd() % 16 : at < 22528 ? rnd() : 118;
    }
    unsigned char *pool = (unsigned char *)w.get(n_pool * r.page_bytes);
    for (size_t i = 0; i < n_pool; i += 64)
        CK(cudaMemcpy(pool + i * r.page_bytes, page.data(),
                      std::min<size_t>(64, n_pool - i) * r.page_bytes, cudaMemcpyHostToDevice));
    std::vector<uint32_t> block(n_row * n_page);
    for (size_t i = 0; i < block.size(); i++) block[i] = (uint32_t)((i * 7919 + 13) % n_pool);
    std::vector<nb_cuda_group> group(n_row);
    for (int i = 0; i < n_row; i++) group[i] = { (uint32_t)i, (uint32_t)i, 1, n_page };
    a.units = NB_CUDA_MLA_MANY_UNITS;
    std::vector<nb_cuda_item> item(w.n_part + 8);
    const size_t n_item =
        nb_cuda_items(group.data(), n_row, a.units, g->n_sm, a.n_head, true, w.first.data(), item.data());
    a.cache.pool = pool, a.cache.block_bytes = r.page_bytes, a.cache.block = w.up(block);
    a.item = w.up(item), a.max_item = n_item;
    a.n_item = w.up(std::vector<uint32_t>{ (uint32_t)n_item });
    a.scratch = w.get(nb_cuda_mla_many_scratch(&r, nh, n_row));
    a.y.f = (float *)w.get((size_t)n_row * nh * LORA * 4), a.y.stride = nh * LORA;
    a.beside = true;
    if (!nb_cuda_mla_many_can(&r, nh)) printf("nb_cuda_mla_many_can refuses this record\n");
    printf("h=%-3d b=%-3d s=%-6d", nh, n_row, n_tok);
    for (int f = -1; f < 2; f++)
        printf(" %s %7.1f us", f < 0 ? "pages and join" : forms[f].name, time_us(g, 8, [&](int i) {
                   a.cache.tail_off = i % LAYERS * (TOKENS * N);
                   nb_cuda_mla_many(g, &a);
                   if (f >= 0) forms[f].fn(g, &a);
                   nb_cuda_mla_combine(g, &a);
               }));
    printf("\n");
    fflush(stdout);
}

int main(int n_arg, char **arg)
{
    nb_cuda gg;
    memset((void *)&gg, 0, sizeof gg);
    nb_cuda *g = &gg;
    cudaDeviceProp pr;
    CK(cudaGetDeviceProperties(&pr, 0));
    g->n_sm = pr.multiProcessorCount;
    g->cc = 10 * pr.major + pr.minor;
    g->shared_bytes = pr.sharedMemPerBlockOptin;
    CK(cudaStreamCreate(&g->stream));
    const char *what = n_arg > 1 ? arg[1] : "check";
    if (!strcmp(what, "check")) return check(g) != 0;
    if (!strcmp(what, "time")) time_alone(g);
    if (!strcmp(what, "beside"))
        for (int nh : { 64, 128 })
            for (auto &z : { std::pair<int, int>{ 128, 1024 },
                             { 128, 4096 },
                             { 32, 4096 },
                             { 1, 4096 },
                             { 1, 32768 } })
                time_beside(g, nh, z.first, z.second);
    if (!strcmp(what, "one") && n_arg > 4) {
        world w;
        make_world(w, g, atoi(arg[2]), atoi(arg[3]), atoi(arg[4]), 0);
        run_form(w, n_arg > 5 && !strcmp(arg[5], "few") ? 0 : 1);
    }
    return g->error != cudaSuccess;
}
