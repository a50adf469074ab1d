/* racecheck_probe.cu - which barriers compute-sanitizer's racecheck follows.  Only `planted` has a race.
 *
 *   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o probe racecheck_probe.cu
 *   for k in all named mbarrier uneven1 uneven2 uneven3 planted; do compute-sanitizer --tool racecheck ./probe $k; done
 *
 * Version 2025.3.1 on H100 and H200 reports nothing in all, named, mbarrier, uneven1 and uneven2, a hazard in planted,
 * and a false one in uneven3: there the halves of a block pass barriers of their own, one of them four times a round
 * and the other once, and then barriers of all threads, which separate a write from a read. */
#include <cstdint>
#include <cstdio>
#include <cstring>

__device__ inline void half_barrier(int half)
{
    asm volatile("bar.sync %0, 256;" ::"r"(1 + half) : "memory");
}

/* The second half writes and the first one reads, with barriers of all threads between. */
__device__ inline float hand_over(float *s, int t, float a)
{
    __syncthreads();
    if (t >= 256) s[t - 256] = a;
    __syncthreads();
    if (t < 256) a += s[t];
    __syncthreads();
    return a;
}

/* Each round: the halves pass their own barriers, the second one `extra` times more. */
__global__ void teams(float *y, int own, int extra)
{
    __shared__ float s[256], w[512];
    const int t = threadIdx.x, half = t / 256;
    float a = t;
    for (int r = 0; r < 4; r++) {
        for (int i = 0; i < own + (half ? extra : 0); i++) {
            w[t] = a;
            half_barrier(half);
            a += w[t ^ 1];
            half_barrier(half);
        }
        a = hand_over(s, t, a + r);
    }
    y[t] = a;
}

/* One warp produces and another consumes, through two mbarriers. */
__global__ void by_mbarrier(float *y)
{
    __shared__ float s[32];
    __shared__ uint64_t bar[2];
    const int t = threadIdx.x;
    const uint32_t full = (uint32_t)__cvta_generic_to_shared(bar), empty = full + 8;
    const auto wait = [](uint32_t b, int parity) {
        asm volatile(
            "{.reg .pred q; L: mbarrier.try_wait.parity.shared.b64 q, [%0], %1; @!q bra L;}" ::"r"(
                b),
            "r"(parity)
            : "memory");
    };
    const auto arrive = [](uint32_t b) {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(b) : "memory");
    };
    if (t < 2) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(full + 8 * t));
    __syncthreads();
    float a = t;
    for (int r = 0; r < 4; r++) {
        if (t < 32) {
            if (r) wait(empty, (r - 1) & 1);
            s[t] = a + r;
            arrive(full);
        } else {
            wait(full, r & 1);
            a += s[t - 32];
            arrive(empty);
        }
    }
    y[t] = a;
}

__global__ void planted(float *y)
{
    __shared__ float s[256];
    const int t = threadIdx.x;
    if (t >= 256) s[t - 256] = t;
    y[t] = t < 256 ? s[t] : t;
}

int main(int n_arg, char **arg)
{
    const char *k = n_arg > 1 ? arg[1] : "all";
    float *y;
    if (cudaMalloc(&y, 512 * sizeof *y) != cudaSuccess) return 1;
    if (!strcmp(k, "planted"))
        planted<<<1, 512>>>(y);
    else if (!strcmp(k, "mbarrier"))
        by_mbarrier<<<1, 64>>>(y);
    else if (!strncmp(k, "uneven", 6))
        teams<<<1, 512>>>(y, 1, k[6] - '0');
    else
        teams<<<1, 512>>>(y, !strcmp(k, "named"), 0);
    printf("%s: %s\n", k, cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
