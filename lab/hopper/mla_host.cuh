/* mla_host.cuh - joins units, checks against double and times; include it after a kernel that defines KERNEL,
 * THREADS and SMEM. */
#pragma once
// One block per (request, head); joins units in order of position.
__global__ void mla_combine(const float *part_o, const float *part_m, const float *part_l,
                         const int *first, float *y)
{
    const int req = blockIdx.x, h = blockIdx.y, d = threadIdx.x * 4;
    const int b = first[req], e = first[req + 1];
    float m = -INFINITY, l = 0;
    float4 o = make_float4(0, 0, 0, 0);
    for (int i = b; i < e; i++) m = fmaxf(m, part_m[i * H + h]);
    for (int i = b; i < e; i++) {
        const float k = exp2f(part_m[i * H + h] - m);
        const float4 v = *(const float4 *)(part_o + ((size_t)i * H + h) * D + d);
        l += part_l[i * H + h] * k;
        o.x += v.x * k, o.y += v.y * k, o.z += v.z * k, o.w += v.w * k;
    }
    const float r = 1 / l;
    *(float4 *)(y + ((size_t)req * H + h) * D + d) =
        make_float4(o.x * r, o.y * r, o.z * r, o.w * r);
}

// ---- host ----

static uint64_t rng_state = 88172645463325252ull;
static uint32_t rnd()
{
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 16);
}
static double e2m1(int c)
{
    static const double v[8] = { 0, .5, 1, 1.5, 2, 3, 4, 6 };
    return c & 8 ? -v[c & 7] : v[c & 7];
}
static double e4m3(int b)
{
    const int e = b >> 3 & 15, m = b & 7;
    return e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
}

static void fill_page(unsigned char *p)
{
    for (int i = 0; i < 64 * 256; i++) p[i] = (unsigned char)rnd();
    for (int i = 0; i < 64 * 32; i++) p[OFF_SCALE + i] = (unsigned char)(rnd() % 40 ? 0x50 + rnd() % 40 : rnd() % 8);
    for (int i = 0; i < 64 * 64; i++) p[OFF_ROPE + i] = (unsigned char)((int)(rnd() % 255) - 127);
    for (int i = 0; i < 64; i++) p[OFF_OUT + i] = (unsigned char)(127 - 9 + rnd() % 3), p[OFF_ROUT + i] = (unsigned char)(127 - 6 + rnd() % 2);
}

static double reference(const std::vector<unsigned char> &pool, const int *table, int n_tok,
                        const float *q, double scale, const float *y, int h)
{
    std::vector<double> s(n_tok), o(D), c(D);
    double mx = -1e300, l = 0, err = 0, norm = 0;
    const float *qh = q + h * (D + R);
    auto latent = [&](int t) {
        const unsigned char *p = pool.data() + (size_t)table[t / 64] * PAGE;
        const int i = t % 64;
        const double f = ldexp(1.0, p[OFF_OUT + i] - 127);
        for (int d = 0; d < D; d++)
            c[d] = e2m1(p[i * 256 + d / 2] >> (d % 2 * 4) & 15) * e4m3(p[OFF_SCALE + i * 32 + d / 16]) * f;
    };
    for (int t = 0; t < n_tok; t++) {
        const unsigned char *p = pool.data() + (size_t)table[t / 64] * PAGE;
        latent(t);
        double v = 0, r = 0;
        for (int d = 0; d < D; d++) v += (double)qh[d] * c[d];
        for (int d = 0; d < R; d++) r += (double)qh[D + d] * (signed char)p[OFF_ROPE + t % 64 * 64 + d];
        s[t] = (v + r * ldexp(1.0, p[OFF_ROUT + t % 64] - 127)) * scale;
        mx = std::max(mx, s[t]);
    }
    for (int t = 0; t < n_tok; t++) {
        latent(t);
        const double w = exp(s[t] - mx);
        l += w;
        for (int d = 0; d < D; d++) o[d] += w * c[d];
    }
    for (int d = 0; d < D; d++) {
        const double e = y[h * D + d] - o[d] / l;
        err += e * e, norm += o[d] / l * o[d] / l;
    }
    return sqrt(err / norm);
}

static int run()
{
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    printf("%s, %d SMs\n", prop.name, prop.multiProcessorCount);
    CHECK(cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM));
    int per_sm = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, KERNEL, THREADS, SMEM));
    cudaFuncAttributes fa;
    CHECK(cudaFuncGetAttributes(&fa, KERNEL));
    printf("%d registers, %zu local, %d blocks an SM\n", fa.numRegs, fa.localSizeBytes, per_sm);
    const size_t n_page = (2ull << 30) / PAGE;
    std::vector<unsigned char> pool(n_page * PAGE);
    for (size_t i = 0; i < 512; i++) fill_page(&pool[i * PAGE]);
    for (size_t i = 512; i < n_page; i++) memcpy(&pool[i * PAGE], &pool[i % 512 * PAGE], PAGE);
    unsigned char *d_pool;
    CHECK(cudaMalloc(&d_pool, pool.size()));
    CHECK(cudaMemcpy(d_pool, pool.data(), pool.size(), cudaMemcpyHostToDevice));
    { // bandwidth of a copy of the pool
        unsigned char *d2;
        CHECK(cudaMalloc(&d2, pool.size() / 2));
        cudaEvent_t e0, e1;
        cudaEventCreate(&e0), cudaEventCreate(&e1);
        float best = 1e9f;
        for (int i = 0; i < 5; i++) {
            cudaEventRecord(e0);
            cudaMemcpyAsync(d2, d_pool, pool.size() / 2, cudaMemcpyDeviceToDevice);
            cudaEventRecord(e1);
            CHECK(cudaEventSynchronize(e1));
            float ms;
            cudaEventElapsedTime(&ms, e0, e1);
            best = std::min(best, ms);
        }
        printf("copy: %.2f TB/s\n", pool.size() / best / 1e9);
        cudaFree(d2);
    }
    const int shapes[][2] = { { 128, 4096 }, { 4, 131072 }, { 1, 131072 }, { 1, 32768 }, { 32, 32768 }, { 8, 512 }, { 1, 64 } };
    const double scale = 1 / sqrt(192.0);
    const char *few = getenv("SHAPES"); // limits the number of shapes
    int left = few ? atoi(few) : 99;
    for (auto &sh : shapes) {
        if (left-- <= 0) break;
        const int n_req = sh[0], len = sh[1], mp = len / TOK;
        const size_t sets = std::max<size_t>(1, n_page / ((size_t)n_req * mp)) > 8 ? 8 : std::max<size_t>(1, n_page / ((size_t)n_req * mp));
        std::vector<int> table(sets * n_req * mp), lens(n_req, len), ur, up, uo, first;
        for (size_t i = 0; i < table.size(); i++) table[i] = (int)((i * 7919ull + 13) % n_page);
        for (int r = 0; r < n_req; r++) {
            first.push_back((int)ur.size());
            for (int p = 0; p < mp; p += UNIT) ur.push_back(r), up.push_back(p), uo.push_back((int)uo.size());
        }
        first.push_back((int)ur.size());
        std::vector<float> q((size_t)n_req * H * (D + R));
        for (auto &v : q) v = (float)((int)(rnd() % 2001) - 1000) / 500.f;
        const int nu = (int)ur.size();
        Args a;
        int *d_first;
        float *d_y;
        auto up_i = [](const std::vector<int> &v) { int *p; cudaMalloc(&p, v.size() * 4); cudaMemcpy(p, v.data(), v.size() * 4, cudaMemcpyHostToDevice); return p; };
        a.pool = d_pool;
        int *d_table = up_i(table);
        a.len = up_i(lens), a.unit_req = up_i(ur), a.unit_page = up_i(up), a.unit_out = up_i(uo);
        d_first = up_i(first);
        float *d_q;
        CHECK(cudaMalloc(&d_q, q.size() * 4));
        CHECK(cudaMemcpy(d_q, q.data(), q.size() * 4, cudaMemcpyHostToDevice));
        a.q = d_q;
        CHECK(cudaMalloc(&a.part_o, (size_t)nu * H * D * 4));
        CHECK(cudaMalloc(&a.part_m, (size_t)nu * H * 4));
        CHECK(cudaMalloc(&a.part_l, (size_t)nu * H * 4));
        CHECK(cudaMalloc(&d_y, (size_t)n_req * H * D * 4));
        CHECK(cudaMemset(d_y, 0xff, (size_t)n_req * H * D * 4));
        a.max_page = mp;
        a.scale_log2 = (float)(scale * 1.4426950408889634);
        cudaStream_t st;
        EXTRA_SETUP
        CHECK(cudaStreamCreate(&st));
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        const int reps = 24;
        CHECK(cudaStreamBeginCapture(st, cudaStreamCaptureModeGlobal));
        for (int i = 0; i < reps; i++) {
            a.table = d_table + (i % sets) * n_req * mp;
            LAUNCH
            if (!getenv("NOJOIN")) mla_combine<<<dim3(n_req, H), D / 4, 0, st>>>(a.part_o, a.part_m, a.part_l, d_first, d_y);
        }
        CHECK(cudaStreamEndCapture(st, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        cudaEvent_t e0, e1;
        cudaEventCreate(&e0), cudaEventCreate(&e1);
        std::vector<float> ms;
        for (int i = 0; i < 9; i++) {
            cudaEventRecord(e0, st);
            CHECK(cudaGraphLaunch(exec, st));
            cudaEventRecord(e1, st);
            CHECK(cudaEventSynchronize(e1));
            float v;
            cudaEventElapsedTime(&v, e0, e1);
            if (i > 1) ms.push_back(v / reps);
        }
        std::sort(ms.begin(), ms.end());
        std::vector<float> y((size_t)n_req * H * D);
        CHECK(cudaMemcpy(y.data(), d_y, y.size() * 4, cudaMemcpyDeviceToHost));
        double worst = 0;
        const int *tb = &table[((reps - 1) % sets) * n_req * mp];
        for (int k = 0; k < 3; k++) {
            const int r = k * (n_req - 1) / 2, h = 5 * k + k % 2;
            worst = std::max(worst, reference(pool, tb + (size_t)r * mp, len, &q[(size_t)r * H * (D + R)], scale, &y[(size_t)r * H * D], h));
        }
        const double tok = (double)n_req * len, t = ms[ms.size() / 2];
        printf("h=16 b=%-4d s=%-7d %9.4f ms  %6.1f ps/token  %5.2f TB/s  units %d  error %.1e\n", n_req, len, t, t * 1e9 / tok, tok * 354 / t / 1e9, nu, worst);
        cudaFree(d_table), cudaFree(d_first), cudaFree(d_q), cudaFree(d_y), cudaFree(a.part_o), cudaFree(a.part_m), cudaFree(a.part_l);
        cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(st);
    }
    return 0;
}
