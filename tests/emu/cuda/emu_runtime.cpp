/* emu_runtime.cpp - the runtime's functions of cu_emu_rt.h, and launches. */
#include "emu/cuda/emu.h"

#include <chrono>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{
/* A step of the stream: a call, a copy or a fill. */
struct node {
    node *next;
    nb_emu_call *call;
    void *dst;
    const void *src; /* NULL: fill */
    size_t n_bytes;
    int byte;
};
struct limit {
    limit *next;
    const void *kernel;
    size_t n_bytes;
};
std::mutex lock; /* one kernel at a time: the emulation has one block */
limit *limits;
unsigned n_launch;
const unsigned AGAIN_US = 50;
const size_t PAGE = 4096, FILL_BYTES = 16 << 20;
} // namespace

struct nb_emu_graph {
    node *first, **last;
};
struct nb_emu_stream {
    nb_emu_graph *capture; /* or NULL */
    cudaError_t error;
    char why[320];
};
struct nb_emu_event {
    std::chrono::steady_clock::time_point when;
};

/* ---- launches ---- */

static const char *refused(const nb_emu_call *c, size_t limit_bytes)
{
    const dim3 &g = c->grid, &t = c->block;
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535) return "grid";
    if (!t.x || !t.y || !t.z || t.z > 64 || (uint64_t)t.x * t.y * t.z > 1024) return "block";
    if (c->shared_bytes > limit_bytes) return "shared memory beyond NB_SHARED_LIMIT";
    return NULL;
}
static size_t limit_of(const void *kernel)
{
    for (const limit *x = limits; x; x = x->next)
        if (x->kernel == kernel) return x->n_bytes;
    return NB_EMU_SHARED_DEFAULT;
}
static cudaError_t run_call(nb_emu_stream *s, const nb_emu_call *c)
{
    const auto start = std::chrono::steady_clock::now();
    for (;; usleep(AGAIN_US)) {
        const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
        bool again = false;
        std::lock_guard<std::mutex> hold(lock);
        const char *why = nb_emu_run(c, n_launch++, waited.count(), &again);
        if (!why && again) continue;
        if (!why) return cudaSuccess;
        if (!s->error) {
            s->error = cudaErrorLaunchFailure;
            snprintf(s->why, sizeof s->why, "%s", why);
        }
        return cudaErrorLaunchFailure;
    }
}

static void record(nb_emu_graph *x, const node &n)
{
    node *copy = new node(n);
    copy->next = NULL;
    *x->last = copy;
    x->last = &copy->next;
}

void nb_emu_launch(nb_cuda *g, cudaStream_t s, nb_emu_call *c, const void *kernel)
{
    const char *why = NULL;
    if (g->error == cudaSuccess) {
        size_t most;
        {
            std::lock_guard<std::mutex> hold(lock);
            most = limit_of(kernel);
        }
        why = refused(c, most);
    }
    if (g->error == cudaSuccess && !why && s->capture) {
        record(s->capture, node{ NULL, c, NULL, NULL, 0, 0 });
        return;
    }
    if (why) {
        char what[200];
        snprintf(what, sizeof what, "%.60s: %s (grid %u,%u,%u block %u,%u,%u shared %zu)", c->name,
                 why, c->grid.x, c->grid.y, c->grid.z, c->block.x, c->block.y, c->block.z,
                 c->shared_bytes);
        nb_cuda_check(g, cudaErrorInvalidConfiguration, what);
    } else if (g->error == cudaSuccess && run_call(s, c)) {
        nb_cuda_check(g, s->error, s->why);
    }
    c->destroy(c);
}

void nb_emu_shared_limit(nb_cuda *g, const char *name, const void *kernel, size_t n_bytes)
{
    if (n_bytes > NB_EMU_SHARED_MAX) return nb_cuda_check(g, cudaErrorInvalidValue, name);
    std::lock_guard<std::mutex> hold(lock);
    limit *x = limits;
    while (x && x->kernel != kernel) x = x->next;
    if (!x) limits = x = new limit{ limits, kernel, 0 };
    x->n_bytes = n_bytes;
}

/* ---- errors and devices ---- */

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaSuccess                     ? "cudaSuccess"
           : e == cudaErrorMemoryAllocation     ? "cudaErrorMemoryAllocation"
           : e == cudaErrorInvalidValue         ? "cudaErrorInvalidValue"
           : e == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
           : e == cudaErrorLaunchFailure        ? "cudaErrorLaunchFailure"
                                                : "cudaErrorUnknown";
}
const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "out of memory" : "refused by the emulation";
}
cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}
cudaError_t cudaPeekAtLastError()
{
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int index)
{
    return index ? cudaErrorInvalidDevice : cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
    *can = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    snprintf(p->name, sizeof p->name, "emulation on the processor");
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr a, int)
{
    *value = a == cudaDevAttrMultiProcessorCount            ? 4
             : a == cudaDevAttrL2CacheSize                  ? 1 << 20
             : a == cudaDevAttrComputeCapabilityMajor       ? 8
             : a == cudaDevAttrMaxSharedMemoryPerBlockOptin ? (int)NB_EMU_SHARED_MAX
                                                            : 0;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v)
{
    *v = 12000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    return cudaDriverGetVersion(v);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    *free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return cudaSuccess;
}

/* ---- memory ---- */

/* [guard page | ... where the mapping is | the bytes, at first 0xff | guard page]: their end, rounded up to
 * 256, is at the second guard. */
cudaError_t cudaMalloc(void **p, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE) > PAGE ? (size_t)sysconf(_SC_PAGESIZE) : PAGE;
    if (n_bytes > SIZE_MAX / 2) return cudaErrorMemoryAllocation;
    const size_t body = (n_bytes + 256 + 255) / 256 * 256; /* with 256 for the length */
    const size_t map = (body + page - 1) / page * page + 2 * page;
    unsigned char *m =
        (unsigned char *)mmap(NULL, map, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return cudaErrorMemoryAllocation;
    if (mprotect(m + page, map - 2 * page, PROT_READ | PROT_WRITE)) {
        munmap(m, map);
        return cudaErrorMemoryAllocation;
    }
    unsigned char *x = m + map - page - body + 256;
    memcpy(x - 16, &m, sizeof m);
    memcpy(x - 8, &map, sizeof map);
    memset(x, 0xff, n_bytes < FILL_BYTES ? n_bytes : FILL_BYTES);
    *p = x;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
    if (!p) return cudaSuccess;
    unsigned char *m;
    size_t map;
    memcpy(&m, (unsigned char *)p - 16, sizeof m);
    memcpy(&map, (unsigned char *)p - 8, sizeof map);
    return munmap(m, map) ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t n_bytes)
{
    *p = malloc(n_bytes ? n_bytes : 1);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}
static void run_node(const node *n)
{
    if (!n->n_bytes) return;
    if (n->src)
        memmove(n->dst, n->src, n->n_bytes);
    else
        memset(n->dst, n->byte, n->n_bytes);
}
static cudaError_t give(cudaStream_t s, const node &n)
{
    if (s->error) return s->error;
    if (s->capture)
        record(s->capture, n);
    else
        run_node(&n);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind, cudaStream_t s)
{
    return give(s, node{ NULL, NULL, dst, src, n, 0 });
}
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t n_bytes, cudaStream_t s)
{
    return give(s, node{ NULL, NULL, dst, NULL, n_bytes, byte });
}

/* ---- streams, events, graphs ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new nb_emu_stream();
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    return s->error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new nb_emu_event();
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (!s->capture) e->when = std::chrono::steady_clock::now();
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    if (s->capture) return cudaErrorStreamCaptureUnsupported;
    s->capture = new nb_emu_graph();
    s->capture->last = &s->capture->first;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *x)
{
    *x = s->capture;
    s->capture = NULL;
    return *x ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t x, unsigned long long)
{
    *e = new nb_emu_graph(*x); /* takes the steps over */
    x->first = NULL;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    for (const node *n = e->first; n && !s->error; n = n->next) {
        if (n->call)
            run_call(s, n->call);
        else
            run_node(n);
    }
    return s->error;
}
cudaError_t cudaGraphDestroy(cudaGraph_t x)
{
    while (x && x->first) {
        node *n = x->first;
        x->first = n->next;
        if (n->call) n->call->destroy(n->call);
        delete n;
    }
    delete x;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    return cudaGraphDestroy(e);
}

/* The line of a stream's error. */
const char *nb_emu_why(cudaStream_t s)
{
    return s->why[0] ? s->why : NULL;
}
