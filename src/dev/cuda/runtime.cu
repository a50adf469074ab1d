/* runtime.cu - the device: memory, one stream, graphs, errors (contracts: nb_cuda.h).
 *
 * The same source serves a GPU and the emulation, whose stand-ins have the runtime's names.  The
 * runtime is linked statically and finds the driver by itself, so the library loads on machines
 * without one, and n_device says what is missing.  cuBLASLt is opened at run
 * time (cublaslt.cu).
 *
 * A graph is what the stream captured: its kernels' arguments are fixed, so what changes from step to step
 * is in device memory.  Launching one costs the host a few microseconds whatever it holds, which is what
 * makes a decode step of some hundred small kernels as fast as the kernels are. */
#include "dev/cuda/runtime.cuh"
#include "kernel/cuda/common/ops.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace
{

const int N_MARK = 64;

/* As nb_fail, which is not in this library. */
__attribute__((format(printf, 3, 4))) nb_status fail(nb_error *err, nb_status s, const char *fmt,
                                                     ...)
{
    if (!err) return s;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    err->status = s;
    return s;
}

/* Is there code for this device? */
__global__ void probe(int *x)
{
    if (x) *x = 1;
}
cudaError_t has_code()
{
#if NB_CUDA_EMULATED
    (void)probe;
    return cudaSuccess;
#else
    cudaFuncAttributes a;
    return cudaFuncGetAttributes(&a, probe);
#endif
}

int attribute(cudaDeviceAttr a, int index)
{
    int x = 0;
    return cudaDeviceGetAttribute(&x, a, index) == cudaSuccess ? x : 0;
}

bool usable(nb_cuda *g)
{
    if (g->error == cudaSuccess) nb_cuda_check(g, cudaSetDevice(g->index), "cudaSetDevice");
    return g->error == cudaSuccess;
}

nb_status report(nb_cuda *g, nb_error *err)
{
    if (g->error == cudaSuccess) return NB_OK;
    return fail(err, NB_ERR_INTERNAL, "%s", g->why);
}

} // namespace

void nb_cuda_check(nb_cuda *g, cudaError_t e, const char *what)
{
    if (e == cudaSuccess || g->error != cudaSuccess) return;
    g->error = e;
    cudaGetLastError(); /* not again */
#if NB_CUDA_EMULATED
    if (g->stream && nb_emu_why(g->stream)) what = nb_emu_why(g->stream);
#endif
    snprintf(g->why, sizeof g->why, "GPU %d: %.240s: %s", g->index, what, cudaGetErrorString(e));
}

int nb_cuda_rt_n_device(nb_error *err)
{
    int n = 0, driver = 0, runtime = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n > 0) return n;
    cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    cudaRuntimeGetVersion(&runtime);
    if (!driver)
        fail(err, NB_ERR_NOT_FOUND, "there is no NVIDIA driver (libcuda.so.1)");
    else if (e == cudaErrorInsufficientDriver)
        fail(err, NB_ERR_UNSUPPORTED,
             "the NVIDIA driver is too old: it supports CUDA %d.%d, and this build needs %d.%d",
             driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (e == cudaSuccess || e == cudaErrorNoDevice)
        fail(err, NB_ERR_NOT_FOUND, "the NVIDIA driver shows no GPU");
    else
        fail(err, NB_ERR_INTERNAL, "the NVIDIA driver does not work: %s", cudaGetErrorString(e));
    return 0;
}

/* ---- opening ---- */

static void describe(nb_cuda *g)
{
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, g->index) == cudaSuccess)
        snprintf(g->name, sizeof g->name, "%.90s", p.name);
    g->cc = 10 * attribute(cudaDevAttrComputeCapabilityMajor, g->index) +
            attribute(cudaDevAttrComputeCapabilityMinor, g->index);
    g->n_sm = attribute(cudaDevAttrMultiProcessorCount, g->index);
    g->l2_bytes = (size_t)attribute(cudaDevAttrL2CacheSize, g->index);
    g->shared_bytes = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, g->index);
}

static void make_streams(nb_cuda *g)
{
    nb_cuda_check(g, cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking), "stream");
#if NB_CUDA_EMULATED
    g->side = g->stream; /* work beside the stream is captured with it */
#else
    nb_cuda_check(g, cudaStreamCreateWithFlags(&g->side, cudaStreamNonBlocking), "stream");
#endif
    nb_cuda_check(g, cudaEventCreateWithFlags(&g->fork, cudaEventDisableTiming), "event");
    nb_cuda_check(g, cudaEventCreateWithFlags(&g->join, cudaEventDisableTiming), "event");
    for (int i = 0; i < N_MARK; i++)
        nb_cuda_check(g, cudaEventCreateWithFlags(&g->mark[i], 0), "event");
}

nb_status nb_cuda_rt_open(int index, nb_cuda **out, nb_error *err)
{
    const int n = nb_cuda_rt_n_device(err);
    if (n == 0) return err ? err->status : NB_ERR_NOT_FOUND;
    if (index < 0 || index >= n)
        return fail(err, NB_ERR_RANGE, "GPU %d: there is no such device (GPUs: 0 to %d)", index,
                    n - 1);
    nb_cuda *g = (nb_cuda *)calloc(1, sizeof *g);
    if (!g) return fail(err, NB_ERR_NOMEM, "GPU %d: out of memory", index);
    g->index = index;
    nb_cuda_check(g, cudaSetDevice(index), "cudaSetDevice");
    nb_status s = NB_OK;
    if (g->error == cudaSuccess) {
        describe(g);
        if (has_code() != cudaSuccess) {
            cudaGetLastError();
            s = fail(err, NB_ERR_UNSUPPORTED,
                     "GPU %d (%s) has compute capability %d.%d, for which this build has no code",
                     index, g->name, g->cc / 10, g->cc % 10);
        } else {
            make_streams(g);
#if !NB_CUDA_EMULATED
            nb_cuda_blas_open(g);
#endif
        }
    }
    if (s == NB_OK) s = report(g, err);
    if (s != NB_OK) {
        nb_cuda_rt_close(g);
        return s;
    }
    *out = g;
    return NB_OK;
}

void nb_cuda_rt_close(nb_cuda *g)
{
    if (!g) return;
    cudaSetDevice(g->index);
    if (g->stream) cudaStreamSynchronize(g->stream);
#if !NB_CUDA_EMULATED
    nb_cuda_blas_close(g);
#endif
    for (int i = 0; i < N_MARK; i++)
        if (g->mark[i]) cudaEventDestroy(g->mark[i]);
    if (g->fork) cudaEventDestroy(g->fork);
    if (g->join) cudaEventDestroy(g->join);
    if (g->side && g->side != g->stream) cudaStreamDestroy(g->side);
    if (g->stream) cudaStreamDestroy(g->stream);
    cudaGetLastError();
    free(g);
}

void nb_cuda_rt_get_info(nb_cuda *g, nb_cuda_info *info)
{
    int runtime = 0, driver = 0;
    size_t free_bytes = 0, total_bytes = 0;
    memset(info, 0, sizeof *info);
    cudaSetDevice(g->index);
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) cudaGetLastError();
    snprintf(info->name, sizeof info->name, "%s", g->name);
#if NB_CUDA_EMULATED
    snprintf(info->what, sizeof info->what, "emulation of sm_80");
    info->emulated = true;
#else
    snprintf(info->what, sizeof info->what, "CUDA %d.%d, driver %d.%d, sm_80 sm_90a",
             runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
    const size_t blas = nb_cuda_blas_version(g), n = strlen(info->what);
    if (blas)
        snprintf(info->what + n, sizeof info->what - n, ", cuBLASLt %zu.%zu", blas / 10000,
                 blas / 100 % 100);
#endif
    info->cc = g->cc;
    info->n_sm = (size_t)g->n_sm;
    info->shared_bytes = g->shared_bytes;
    info->l2_bytes = g->l2_bytes;
    info->memory_bytes = total_bytes;
    info->free_bytes = free_bytes;
}

nb_status nb_cuda_rt_see(nb_cuda *g, nb_cuda *other, nb_error *err)
{
    int can = 0;
    if (!usable(g) || g->index == other->index) return report(g, err);
    if (cudaDeviceCanAccessPeer(&can, g->index, other->index) != cudaSuccess) can = 0;
    cudaGetLastError();
    if (!can)
        return fail(err, NB_ERR_UNSUPPORTED,
                    "GPU %d cannot read the memory of GPU %d (NVLink, or PCIe without isolation)",
                    g->index, other->index);
    const cudaError_t e = cudaDeviceEnablePeerAccess(other->index, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
    else
        nb_cuda_check(g, e, "cudaDeviceEnablePeerAccess");
    return report(g, err);
}

/* ---- memory ---- */

void *nb_cuda_rt_alloc(nb_cuda *g, size_t n_bytes)
{
    void *p = NULL;
    if (!usable(g)) return NULL;
    if (cudaMalloc(&p, n_bytes ? n_bytes : 1) == cudaSuccess) return p;
    cudaGetLastError();
    return NULL;
}
void nb_cuda_rt_free(nb_cuda *g, void *p)
{
    if (!p) return;
    cudaSetDevice(g->index);
    cudaStreamSynchronize(g->stream);
    cudaFree(p);
    cudaGetLastError(); /* of a device that has failed */
}
void *nb_cuda_rt_host_alloc(nb_cuda *g, size_t n_bytes)
{
    void *p = NULL;
    if (!usable(g)) return NULL;
    if (cudaMallocHost(&p, n_bytes ? n_bytes : 1) == cudaSuccess) return p;
    cudaGetLastError();
    return NULL;
}
void nb_cuda_rt_host_free(nb_cuda *g, void *p)
{
    if (!p) return;
    cudaSetDevice(g->index);
    cudaFreeHost(p);
    cudaGetLastError();
}
void nb_cuda_rt_upload(nb_cuda *g, void *dst, const void *src, size_t n_bytes)
{
    if (n_bytes && usable(g))
        nb_cuda_check(g, cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyHostToDevice, g->stream),
                      "upload");
}
void nb_cuda_rt_download(nb_cuda *g, void *dst, const void *src, size_t n_bytes)
{
    if (n_bytes && usable(g))
        nb_cuda_check(g, cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyDeviceToHost, g->stream),
                      "download");
}
void nb_cuda_rt_copy(nb_cuda *g, void *dst, const void *src, size_t n_bytes)
{
    if (n_bytes && usable(g))
        nb_cuda_check(g, cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyDeviceToDevice, g->stream),
                      "copy");
}
void nb_cuda_rt_fill(nb_cuda *g, void *dst, int byte, size_t n_bytes)
{
    if (n_bytes && usable(g))
        nb_cuda_check(g, cudaMemsetAsync(dst, byte, n_bytes, g->stream), "fill");
}

nb_status nb_cuda_rt_sync(nb_cuda *g, nb_error *err)
{
    if (usable(g)) nb_cuda_check(g, cudaStreamSynchronize(g->stream), "the work before this");
    return report(g, err);
}
nb_status nb_cuda_rt_error(nb_cuda *g, nb_error *err)
{
    return report(g, err);
}

/* ---- graphs and times ---- */

void nb_cuda_rt_graph_begin(nb_cuda *g)
{
    if (!usable(g) || g->capturing) return;
    nb_cuda_check(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal),
                  "beginning of a graph");
    g->capturing = g->error == cudaSuccess;
}
nb_cuda_graph *nb_cuda_rt_graph_end(nb_cuda *g)
{
    cudaGraph_t x = NULL;
    cudaGraphExec_t exec = NULL;
    if (!g->capturing) {
        nb_cuda_check(g, cudaErrorInvalidValue, "the end of a graph that was not begun");
        return NULL;
    }
    g->capturing = false;
    cudaSetDevice(g->index);
    nb_cuda_check(g, cudaStreamEndCapture(g->stream, &x),
                  "end of a graph"); /* also after an error */
    if (g->error == cudaSuccess) nb_cuda_check(g, cudaGraphInstantiate(&exec, x, 0), "graph");
    if (x) cudaGraphDestroy(x);
    return g->error == cudaSuccess ? (nb_cuda_graph *)exec : NULL;
}
void nb_cuda_rt_graph_launch(nb_cuda *g, nb_cuda_graph *x)
{
    if (x && usable(g))
        nb_cuda_check(g, cudaGraphLaunch((cudaGraphExec_t)x, g->stream), "launch of a graph");
}
void nb_cuda_rt_graph_destroy(nb_cuda *g, nb_cuda_graph *x)
{
    if (!x) return;
    cudaSetDevice(g->index);
    cudaStreamSynchronize(g->stream);
    cudaGraphExecDestroy((cudaGraphExec_t)x);
    cudaGetLastError();
}

/* ---- work beside the stream ---- */

#if NB_CUDA_EMULATED /* in order */
void nb_cuda_rt_side_begin(nb_cuda *g, bool early)
{
    (void)g, (void)early;
}
void nb_cuda_rt_side_end(nb_cuda *g)
{
    (void)g;
}
void nb_cuda_rt_side_join(nb_cuda *g)
{
    (void)g;
}
#else
/* What an attribute of the launch does for a kernel behind one other, dependencies of the capture do for one behind a
 * fork or a join.  Outside of a capture, and behind copies, it begins when the others have ended. */
void nb_cuda_soften(nb_cuda *g)
{
#if CUDART_VERSION >= 13000
    enum { MOST = 4 };
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *from;
    const cudaGraphEdgeData *how;
    cudaGraphNode_t node[MOST];
    cudaGraphEdgeData early[MOST] = {};
    size_t n = 0;
    nb_cuda_check(g, cudaStreamGetCaptureInfo(g->stream, &status, NULL, NULL, &from, &how, &n),
                  "capture");
    if (g->error != cudaSuccess || status != cudaStreamCaptureStatusActive || n > MOST) return;
    for (size_t i = 0; i < n; i++) {
        cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
        nb_cuda_check(g, cudaGraphNodeGetType(from[i], &type), "capture");
        if (type != cudaGraphNodeTypeKernel) return;
        node[i] = from[i];
        early[i].from_port = cudaGraphKernelNodePortProgrammatic;
        early[i].type = cudaGraphDependencyTypeProgrammatic;
    }
    if (n)
        nb_cuda_check(g,
                      cudaStreamUpdateCaptureDependencies(g->stream, node, early, n,
                                                          cudaStreamSetCaptureDependencies),
                      "capture");
#else
    (void)g;
#endif
}
static void swap_streams(nb_cuda *g)
{
    const cudaStream_t s = g->stream;
    g->stream = g->side;
    g->side = s;
}
void nb_cuda_rt_side_begin(nb_cuda *g, bool early)
{
    g->early = early;
    if (!usable(g)) return;
    nb_cuda_check(g, cudaEventRecord(g->fork, g->stream), "fork");
    nb_cuda_check(g, cudaStreamWaitEvent(g->side, g->fork, 0), "fork");
    swap_streams(g);
    g->whole = g->aside = true;
}
void nb_cuda_rt_side_end(nb_cuda *g)
{
    if (!g->aside) return;
    nb_cuda_check(g, cudaEventRecord(g->join, g->stream), "join");
    swap_streams(g);
    g->whole = g->aside = false;
}
void nb_cuda_rt_side_join(nb_cuda *g)
{
    if (!usable(g)) return;
    nb_cuda_check(g, cudaStreamWaitEvent(g->stream, g->join, 0), "join");
    g->whole = true;
}
#endif

void nb_cuda_rt_mark(nb_cuda *g, int i)
{
    if (i >= 0 && i < N_MARK && usable(g))
        nb_cuda_check(g, cudaEventRecord(g->mark[i], g->stream), "mark");
}
double nb_cuda_rt_elapsed_s(nb_cuda *g, int from, int to)
{
    float ms = 0;
    if (from < 0 || from >= N_MARK || to < 0 || to >= N_MARK || !usable(g)) return NAN;
    if (cudaEventElapsedTime(&ms, g->mark[from], g->mark[to]) == cudaSuccess) return ms * 1e-3;
    cudaGetLastError();
    return NAN;
}
nb_status nb_cuda_rt_wait(nb_cuda *g, int i, nb_error *err)
{
#if NB_CUDA_EMULATED
    (void)i;
    return nb_cuda_rt_sync(g, err);
#else
    if (i >= 0 && i < N_MARK && usable(g))
        nb_cuda_check(g, cudaEventSynchronize(g->mark[i]), "the work before this");
    return report(g, err);
#endif
}
