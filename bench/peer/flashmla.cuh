/* flashmla.cuh - a case of FlashMLA's decode attention: its data, launches and reference. */
#ifndef NB_BENCH_PEER_FLASHMLA_CUH
#define NB_BENCH_PEER_FLASHMLA_CUH
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <cuda_runtime.h>
#include <cutlass/bfloat16.h>

#include <params.h>

typedef cutlass::bfloat16_t bf16;

enum {
    LATENT = 512,
    ROPE = 64,
    VALUES = LATENT + ROPE,
    PAGE = 64,
    FP8_BYTES = 656,
    FP8_TILE = 128
};
enum { MAX_LAUNCH = 4096 }; /* of a graph; sets of pages */
static const size_t SET_BYTES = (size_t)2 << 30;
static const float SCALE = 0.07216878f; /* 1 / sqrt(192) */

/* Prints an error line and exits. */
[[noreturn]] void fail(const char *format, ...);

#define CHECK(call) check((call), #call, __LINE__)
static inline void check(cudaError_t e, const char *what, int line)
{
    if (e != cudaSuccess) fail("line %d: %s: %s", line, what, cudaGetErrorString(e));
}

/* ---- data: a function of the index, the same on both sides ---- */

__host__ __device__ static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Where the numbers of an array begin. */
enum { OF_QUERY, OF_VALUE, OF_CODE, OF_SCALE };

__host__ __device__ static inline uint64_t base(uint64_t seed, int array)
{
    return mix(mix(seed) + (uint64_t)array);
}

/* Value i of a BF16 array: uniform in [-1, 1). */
__host__ __device__ static inline bf16 value(uint64_t from, uint64_t i)
{
    return bf16((float)(int32_t)(mix(from + i) >> 32) * 0x1p-31f);
}

/* Byte i of the codes: E4M3 below 2, no NaN. */
__host__ __device__ static inline uint8_t code(uint64_t from, uint64_t i)
{
    return (uint8_t)(mix(from + i) & 0xbf);
}

__host__ __device__ static inline float tile_scale(uint64_t from, uint64_t i)
{
    return mix(from + i) & 1 ? 1.0f : 0.5f;
}

template <typename T> struct dev {
    T *p = nullptr;
    void alloc(size_t n)
    {
        CHECK(cudaMalloc(&p, (n ? n : 1) * sizeof(T)));
    }
    void upload(const std::vector<T> &x)
    {
        alloc(x.size());
        CHECK(cudaMemcpy(p, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    dev() = default;
    dev(const dev &) = delete;
    dev &operator=(const dev &) = delete;
    ~dev()
    {
        (void)cudaFree(p);
    }
};

struct shape {
    int heads, batch, context;
};

struct peer {
    shape s;
    bool fp8, plan; /* plan: the planning kernel in front of every launch */
    uint64_t seed;
    size_t n_set, n_page; /* pages of a set */
    int n_part;           /* thread blocks that share the work */
    cudaStream_t stream;
    std::vector<int> table;    /* [n_set][batch][pages of a sequence] */
    dev<bf16> q, kv, out;      /* [batch][heads][576], pages, [batch][heads][512] */
    dev<int> page, token, len; /* table; with fp8 instead each token's place */
    dev<float> lse, lse_accum, o_accum;
    dev<DecodingSchedMeta> meta;
    dev<int> split;
};

/* n_sm: SMs to split the work for. */
std::unique_ptr<peer> make_peer(shape s, bool fp8, uint64_t seed, int n_sm, cudaStream_t stream);
/* Plans the split; without `plan` it runs once, before the launches. */
void launch_plan(const peer *p);
/* Launches one layer on the pages of a set. */
void launch(const peer *p, size_t set);

/* The largest |got - want| / |want| of a head's values, among the first and last head of the first and
 * last sequence and one in the middle, of what the last set left in `out`; a line and infinity when
 * another launch leaves other bits. */
double check_peer(const peer *p);

#endif
