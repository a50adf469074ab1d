/* few_bench.cu - checks mla_few.cu against double and times it from graphs; with -DCODES=1 it takes
 * mla_codes.cu instead. */
#include "kernel/cuda/api/nb_cuda_items.h"
#include "kernel/cuda/common/cu.cuh"
#include "driver.cuh"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#if defined CODES && CODES
#define nb_cuda_mla_few nb_cuda_mla_codes
#ifndef UNITS
#define UNITS 16, 4, 8, 32, 2, UINT32_MAX, 2
#endif
#else
#ifndef UNITS
#define UNITS 8, 8, 16, 64, 1, UINT32_MAX, 2
#endif
#endif
void nb_cuda_mla_few(nb_cuda *g, const nb_cuda_mla_args *a);
void nb_cuda_mla_combine(nb_cuda *g, const nb_cuda_mla_args *a);
static uint64_t rs = 88172645463325252ull;
static uint32_t rnd()
{
    rs ^= rs << 13, rs ^= rs >> 7, rs ^= rs << 17;
    return (uint32_t)(rs >> 16);
}
static double e2m1(int c)
{
    static const double v[8] = { 0, .5, 1, 1.5, 2, 3, 4, 6 };
    return c & 8 ? -v[c & 7] : v[c & 7];
}
static double e4m3(int b)
{
    const int e = b >> 3 & 15, m = b & 7;
    const double v = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
    return b & 128 ? -v : v;
}
static double bf(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
enum { NV, IF, F8, BF };
static const char *fname[4] = { "nvfp4", "if4", "fp8", "bf16" };
static size_t page_bytes(int f)
{
    return f == BF ? 73728 : f == F8 ? 36992 : 22656;
}
static void fill(int f, bool int8, unsigned char *p)
{
    if (f == BF) {
        uint16_t *q = (uint16_t *)p;
        for (int i = 0; i < 64 * 576; i++) {
            float x = ((int)(rnd() % 2001) - 1000) / 1000.f * 2;
            uint32_t u;
            memcpy(&u, &x, 4);
            q[i] = u >> 16;
        }
        return;
    }
    const int rope = f == F8 ? 32768 : 18432, out = rope + 4096;
    if (f == F8)
        for (int i = 0; i < 32768; i++) {
            p[i] = rnd();
            if ((p[i] & 127) == 127) p[i] ^= 1;
            if ((p[i] & 127) > 0x70) p[i] -= 16;
        }
    else {
        for (int i = 0; i < 16384; i++) p[i] = rnd();
        for (int i = 0; i < 2048; i++) {
            p[16384 + i] = rnd() % 40 ? 0x50 + rnd() % 40 : rnd() % 8;
            if (f == IF && rnd() % 2) p[16384 + i] |= 128;
        }
    }
    for (int i = 0; i < 4096; i++) {
        p[rope + i] = int8 ? (int)(rnd() % 255) - 127 : rnd();
        if (!int8 && (p[rope + i] & 127) > 0x70) p[rope + i] -= 16;
    }
    for (int i = 0; i < 64; i++)
        p[out + i] = 127 - (f == F8 ? 8 : 9) + rnd() % 3,
                p[out + 64 + i] = 127 - (int8 ? 6 : 7) + rnd() % 2;
    if (rnd() % 4 == 0) {
        const int i = rnd() % 64;
        p[out + i] = 0;
        if (f == F8)
            memset(p + 512 * i, 0, 512);
        else
            memset(p + 256 * i, 0, 256);
    }
}
static void decode(int f, bool int8, const unsigned char *p, int t, double *c)
{
    if (f == BF) {
        const uint16_t *q = (const uint16_t *)p;
        for (int d = 0; d < 512; d++) c[d] = bf(q[t * 512 + d]);
        for (int d = 0; d < 64; d++) c[512 + d] = bf(q[32768 + t * 64 + d]);
        return;
    }
    const int rope = f == F8 ? 32768 : 18432, out = rope + 4096;
    const double s = p[out + t] ? ldexp(1., p[out + t] - 127) : 0,
                 r = ldexp(1., p[out + 64 + t] - 127);
    for (int d = 0; d < 512; d++)
        if (f == F8)
            c[d] = e4m3(p[512 * t + d]) * s;
        else {
            const int n = p[256 * t + d / 2] >> (d % 2 * 4) & 15, sb = p[16384 + 32 * t + d / 16];
            const double m = f == IF && (sb & 128) ? (n & 8 ? -(n & 7) : n & 7) : e2m1(n);
            c[d] = m * e4m3(sb & 127) * s;
        }
    for (int d = 0; d < 64; d++)
        c[512 + d] = (int8 ? (signed char)p[rope + 64 * t + d] : e4m3(p[rope + 64 * t + d])) * r;
}
template <class T> static T *up(const std::vector<T> &v)
{
    T *p;
    CK(cudaMalloc(&p, v.size() * sizeof(T) + 16));
    CK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

#ifndef CODES
#define CODES 0
#endif
static const nb_cuda_units UN = { UNITS };
struct shape {
    int f;
    bool int8;
    int b, s, h, q;
    bool ragged;
    int time;
};
static std::vector<unsigned char> pool;
static unsigned char *d_pool;
static size_t n_block;
static int pool_f = -1, pool_r = -1;

static int run(nb_cuda *g, const shape &z)
{
    const size_t pb = page_bytes(z.f);
    if (pool_f != z.f || pool_r != z.int8) {
        if (d_pool) cudaFree(d_pool);
        const size_t bytes = getenv("SMALL") ? 64ull << 20 : 1ull << 30;
        n_block = bytes / pb;
        pool.resize(n_block * pb);
        for (size_t i = 0; i < 256; i++) fill(z.f, z.int8, &pool[i * pb]);
        for (size_t i = 256; i < n_block; i++) memcpy(&pool[i * pb], &pool[i % 256 * pb], pb);
        CK(cudaMalloc(&d_pool, pool.size()));
        CK(cudaMemcpy(d_pool, pool.data(), pool.size(), cudaMemcpyHostToDevice));
        pool_f = z.f, pool_r = z.int8;
    }
    const int H = z.h, n_row = z.b * z.q;
    const int reps = z.time;
    const size_t max_page = z.s / 64;
    const size_t sets = std::max<size_t>(1, std::min<size_t>(8, n_block / (z.b * max_page)));
    std::vector<uint32_t> table(sets * z.b * max_page);
    for (size_t i = 0; i < table.size(); i++) table[i] = (uint32_t)((i * 7919ull + 13) % n_block);
    std::vector<nb_cuda_chunk> ch(z.b);
    std::vector<nb_cuda_group> gr(z.b);
    std::vector<uint32_t> first(n_row + 1), rc(n_row);
    size_t total = 0, tok = 0;
    for (int r = 0; r < z.b; r++) {
        memset(&ch[r], 0, sizeof ch[r]);
        ch[r].row0 = r * z.q, ch[r].n_tok = z.q, ch[r].block0 = (uint32_t)(r * max_page);
        const uint32_t np = z.ragged ? 1 + rnd() % max_page : (uint32_t)max_page;
        gr[r] = { (uint32_t)r, (uint32_t)(r * z.q), (uint32_t)z.q, np };
        tok += np * 64ull;
        for (int i = 0; i < z.q; i++) {
            rc[r * z.q + i] = r;
            first[r * z.q + i] = (uint32_t)total;
            total += nb_cuda_n_unit(UN, np);
        }
    }
    first[n_row] = (uint32_t)total;
    std::vector<nb_cuda_item> it(total + 1);
    const size_t ni =
        nb_cuda_items(gr.data(), z.b, UN, g->n_sm, H, !getenv("NOFOLD"), first.data(), it.data());
    std::vector<float> q((size_t)n_row * H * 576);
    for (auto &v : q) v = (float)((int)(rnd() % 2001) - 1000) / 500.f;
    if (getenv("NANROW") && n_row > 1) q[5 * 576 + 3] = NAN;
    nb_cuda_mla_args a;
    memset(&a, 0, sizeof a);
    a.cache.pool = d_pool, a.cache.block_bytes = pb;
    a.cache.block = up(table), a.cache.chunk = up(ch), a.cache.n_chunk = z.b;
    nb_record &rec = a.cache.record;
    rec.n_seg = 2;
    rec.page_bytes = pb;
    rec.seg[0].fmt = z.f == BF   ? NB_SEG_BF16
                     : z.f == F8 ? NB_SEG_E4M3
                     : z.f == IF ? NB_SEG_IF4
                                 : NB_SEG_NVFP4;
    rec.seg[1].fmt = z.f == BF ? NB_SEG_BF16 : z.int8 ? NB_SEG_INT8 : NB_SEG_E4M3;
    rec.seg[0].dim = 512, rec.seg[1].dim = 64, rec.seg[0].n_vec = rec.seg[1].n_vec = 1;
    rec.seg[1].code_off = z.f == BF ? 65536 : z.f == F8 ? 32768 : 18432;
    a.q = up(q);
    a.q_stride = H * 576, a.q_head = 576;
    a.part_first = up(first), a.row_chunk = up(rc), a.item = up(it);
    std::vector<uint32_t> nv(1, (uint32_t)ni);
    a.n_item = up(nv);
    CK(cudaMalloc(&a.part_o, total * H * 512 * 4));
    CK(cudaMalloc(&a.part_m, total * H * 4));
    CK(cudaMalloc(&a.part_l, total * H * 4));
    CK(cudaMemset(a.part_o, 0xff, total * H * 512 * 4));
    CK(cudaMemset(a.part_m, 0xff, total * H * 4));
    CK(cudaMalloc(&a.y.f, (size_t)n_row * H * 512 * 4));
    CK(cudaMemset(a.y.f, 0xff, (size_t)n_row * H * 512 * 4));
    a.units = UN;
    a.y.stride = H * 512, a.n_row = n_row, a.n_head = H, a.lora = 512, a.d_rope = 64,
    a.max_item = ni, a.scale = 1 / sqrtf(192.f);
    const uint32_t *blk = a.cache.block;
    std::vector<float> P[2], M[2], Lq[2];
    nb_cuda_mla_few(g, &a);
    auto grab = [&](int w) {
        cudaStreamSynchronize(g->stream);
        P[w].resize(total * H * 512), M[w].resize(total * H), Lq[w].resize(total * H);
        cudaMemcpy(P[w].data(), a.part_o, total * H * 2048, cudaMemcpyDeviceToHost);
        cudaMemcpy(M[w].data(), a.part_m, total * H * 4, cudaMemcpyDeviceToHost);
        cudaMemcpy(Lq[w].data(), a.part_l, total * H * 4, cudaMemcpyDeviceToHost);
    };
    if (getenv("PARTS")) grab(0);
    nb_cuda_mla_combine(g, &a);
    cudaError_t e = cudaStreamSynchronize(g->stream);
    if (e != cudaSuccess || g->error != cudaSuccess) {
        printf("%s: FAILED %s\n", fname[z.f], cudaGetErrorString(e));
        return 1;
    }
    std::vector<float> y((size_t)n_row * H * 512), y2(y.size());
    CK(cudaMemcpy(y.data(), a.y.f, y.size() * 4, cudaMemcpyDeviceToHost));
    double worst = 0;
    for (int k = 0; k < (z.s > 8192 ? 0 : reps ? 1 : 4) && !getenv("NOREF"); k++) {
        const int row = (int)((int64_t)k * (n_row - 1) / 3), r = row / z.q, h = (5 * k + 1) % H,
                  n = gr[r].n_page * 64;
        const float *qh = &q[((size_t)row * H + h) * 576];
        std::vector<double> sc(n), o(512), c(576);
        double mx = -1e300, l = 0, er = 0, no = 0;
        for (int t = 0; t < n; t++) {
            decode(z.f, z.int8, &pool[table[r * max_page + t / 64] * pb], t % 64, c.data());
            double v = 0;
            for (int d = 0; d < 576; d++) v += qh[d] * c[d];
            sc[t] = v * a.scale;
            mx = std::max(mx, sc[t]);
        }
        for (int t = 0; t < n; t++) {
            decode(z.f, z.int8, &pool[table[r * max_page + t / 64] * pb], t % 64, c.data());
            const double w = exp(sc[t] - mx);
            l += w;
            for (int d = 0; d < 512; d++) o[d] += w * c[d];
        }
        for (int d = 0; d < 512; d++) {
            const double dd = y[((size_t)row * H + h) * 512 + d] - o[d] / l;
            er += dd * dd, no += o[d] / l * o[d] / l;
        }
        worst = std::max(worst, sqrt(er / no));
        if (!(er == er)) worst = NAN;
    }
    float t_med = 0;
    int same = 1;
    if (reps) {
        cudaGraph_t gp;
        cudaGraphExec_t ex;
        CK(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeGlobal));
        for (int i = 0; i < reps; i++) {
            a.cache.block = blk + (i % sets) * z.b * max_page;
            nb_cuda_mla_few(g, &a);
            if (!getenv("NOJOIN")) nb_cuda_mla_combine(g, &a);
        }
        CK(cudaStreamEndCapture(g->stream, &gp));
        CK(cudaGraphInstantiate(&ex, gp, 0));
        cudaEvent_t e0, e1;
        cudaEventCreate(&e0), cudaEventCreate(&e1);
        std::vector<float> ms;
        for (int i = 0; i < 7; i++) {
            cudaEventRecord(e0, g->stream);
            CK(cudaGraphLaunch(ex, g->stream));
            cudaEventRecord(e1, g->stream);
            CK(cudaEventSynchronize(e1));
            float v;
            cudaEventElapsedTime(&v, e0, e1);
            if (i > 1) ms.push_back(v / reps);
        }
        std::sort(ms.begin(), ms.end());
        t_med = ms[ms.size() / 2];
        cudaGraphExecDestroy(ex), cudaGraphDestroy(gp);
    }
    a.cache.block = blk;
    nb_cuda_mla_few(g, &a);
    if (getenv("PARTS")) {
        grab(1);
        size_t no = 0, nm = 0, nl = 0, fst = ~0ull;
        for (size_t i = 0; i < P[0].size(); i++)
            if (M[0][i / 512] != -INFINITY && memcmp(&P[0][i], &P[1][i], 4)) {
                no++;
                if (fst == ~0ull) fst = i;
            }
        for (size_t i = 0; i < M[0].size(); i++)
            nm += memcmp(&M[0][i], &M[1][i], 4) != 0, nl += memcmp(&Lq[0][i], &Lq[1][i], 4) != 0;
        printf("  parts: o %zu (first state %zu: %g %g) m %zu l %zu;", no,
               fst == ~0ull ? 0 : fst / 8192, fst == ~0ull ? 0. : P[0][fst],
               fst == ~0ull ? 0. : P[1][fst], nm, nl);
        for (int i = 0; i < z.b && i < 6; i++) printf(" %u", gr[i].n_page);
        printf(" first");
        for (int i = 0; i <= z.b && i < 7; i++) printf(" %u", first[i]);
        printf("\n");
    }
    nb_cuda_mla_combine(g, &a);
    CK(cudaStreamSynchronize(g->stream));
    CK(cudaMemcpy(y2.data(), a.y.f, y.size() * 4, cudaMemcpyDeviceToHost));
    same = !memcmp(y.data(), y2.data(), y.size() * 4);
    int other = 0;
    for (int i = 0; i < (getenv("REPEAT") ? atoi(getenv("REPEAT")) : 0); i++) {
        nb_cuda_mla_few(g, &a);
        nb_cuda_mla_combine(g, &a);
        CK(cudaStreamSynchronize(g->stream));
        CK(cudaMemcpy(y2.data(), a.y.f, y.size() * 4, cudaMemcpyDeviceToHost));
        other += memcmp(y.data(), y2.data(), y.size() * 4) != 0;
    }
    if (getenv("REPEAT")) printf("  others %d\n", other);
    if (!same) {
        size_t nd = 0;
        double md = 0;
        for (size_t i = 0; i < y.size(); i++)
            if (memcmp(&y[i], &y2[i], 4))
                nd++, printf(nd == 1 ? "  row %zu\n" : "", i / (H * 512)),
                    md = std::max(md, (double)fabs(y[i] - y2[i]));
        printf("  differ %zu of %zu by %g\n", nd, y.size(), md);
    }
    printf("%-5s %s h=%-2d q=%d b=%-3d s=%-6d%s", fname[z.f], z.int8 ? "i8" : "  ", H, z.q, z.b,
           z.s, z.ragged ? " ragged" : "");
    if (reps)
        printf(" %8.4f ms %6.1f ps/tok %5.2f TB/s", t_med, t_med * 1e9 / tok,
               tok * (pb / 64.) / t_med / 1e9);
    uint64_t hash = 14695981039346656037ull;
    for (size_t i = 0; i < y.size() * 4; i++)
        hash = (hash ^ ((const unsigned char *)y.data())[i]) * 1099511628211ull;
    printf("  err %.1e %s items %zu bits %08x\n", worst, same ? "same" : "OTHER BITS", ni,
           (unsigned)hash);
    fflush(stdout);
    cudaFree((void *)blk), cudaFree((void *)a.cache.chunk), cudaFree((void *)a.q),
        cudaFree((void *)a.part_first), cudaFree((void *)a.item), cudaFree(a.part_o),
        cudaFree(a.part_m), cudaFree(a.part_l), cudaFree(a.y.f);
    return !(worst < 4e-3) || !same;
}

#ifdef PROF
void few_prof_print(void);
#endif
int main(int n_arg, char **arg)
{
    nb_cuda gg;
    memset((void *)&gg, 0, sizeof gg);
    nb_cuda *g = &gg;
    cudaDeviceProp pr;
    CK(cudaGetDeviceProperties(&pr, 0));
    g->n_sm = pr.multiProcessorCount;
    g->cc = 90;
    g->shared_bytes = pr.sharedMemPerBlockOptin;
    CK(cudaStreamCreate(&g->stream));
    const char *what = n_arg > 1 ? arg[1] : "all";
    std::vector<shape> v;
    const bool ok = !strcmp(what, "check") || !strcmp(what, "all");
#if defined CODES && CODES
    const int fs[] = { NV, IF };
#else
    const int fs[] = { NV, IF, F8, BF };
#endif
    if (!strcmp(what, "one")) {
        v.push_back({ atoi(arg[2]), true, atoi(arg[3]), atoi(arg[4]), atoi(arg[5]), atoi(arg[6]),
                      false, atoi(arg[7]) });
    }
    if (ok)
        for (int f : fs) {
            v.push_back({ f, true, 1, 64, 16, 1, false, 0 });
            v.push_back({ f, true, 5, 2048, 16, 1, true, 0 });
            v.push_back({ f, true, 140, 4096, 16, 1, true, 0 });
            v.push_back({ f, true, 3, 3072, 16, 2, true, 0 });
            v.push_back({ f, true, 3, 2048, 16, 3, false, 0 });
            v.push_back({ f, true, 2, 2048, 8, 4, true, 0 });
            if (f != BF && !CODES) v.push_back({ f, true, 2, 2048, 24, 1, false, 0 });
            if (f != BF) v.push_back({ f, false, 3, 2048, 16, 1, true, 0 });
        }
    const int sh[][2] = { { 128, 4096 }, { 4, 131072 }, { 1, 131072 }, { 1, 32768 },
                          { 32, 32768 }, { 128, 1024 }, { 8, 512 } };
    if (!strcmp(what, "time") || !strcmp(what, "all"))
        for (int f : fs)
            for (auto &s : sh) v.push_back({ f, true, s[0], s[1], 16, 1, false, 16 });
    if (!strcmp(what, "time4")) {
        const int k = n_arg > 2 ? atoi(arg[2]) : 5;
        for (int i = 0; i < k; i++) v.push_back({ NV, true, sh[i][0], sh[i][1], 16, 1, false, 16 });
    }
    int bad = 0;
    for (auto &s : v) {
        if (run(g, s)) bad++;
        if (g->error != cudaSuccess) break;
    }
#ifdef PROF
    few_prof_print();
#endif
    printf("bad %d\n", bad);
    return bad != 0;
}
