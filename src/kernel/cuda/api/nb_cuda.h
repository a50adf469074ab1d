/* nb_cuda.h - the interface of the shared object libnibble-cuda.so: a device, its memory and streams, and one
 * function per operation (nb_cuda_ops.h).
 *
 * No CUDA type appears here, so the rest of nibble compiles without CUDA.  The library is loaded if it is installed
 * (dev/gpu.h).  A second build of the same sources, libnibble-cuda-emu.so, runs the kernels on the CPU, for tests on
 * machines without a GPU.
 *
 * Errors are sticky: after the first one every function does nothing, and sync returns it with its error line until the
 * device is closed.  Operations return nothing; the planner of a step has checked their arguments.  An nb_cuda
 * is owned by one thread at a time.
 *
 * All work goes to one stream in order (an operation may fork and join internally).  Nothing allocates or waits between
 * graph_begin and graph_end, nor in any operation. */
#ifndef NB_KERNEL_CUDA_API_NB_CUDA_H
#define NB_KERNEL_CUDA_API_NB_CUDA_H
#include "base/status.h"
#include "kernel/cuda/api/nb_cuda_csa.h"

enum { NB_CUDA_VERSION = 11 };

typedef struct nb_cuda_info {
    char name[96];  /* "NVIDIA H100 80GB HBM3" */
    char what[160]; /* "CUDA 13.0, cuBLASLt 13.1, sm_80 sm_90a" */
    int cc;         /* compute capability: 90; the emulation says 80 */
    bool emulated;
    size_t n_sm, shared_bytes, l2_bytes; /* shared: the most that one block can have */
    uint64_t memory_bytes, free_bytes;   /* free: at this moment */
} nb_cuda_info;

typedef struct nb_cuda_api {
    uint32_t version, api_bytes; /* NB_CUDA_VERSION, sizeof(nb_cuda_api): checked by the loader */
    /* Number of devices that can be opened; 0 with a line in err if there is no driver or no device. */
    int (*n_device)(nb_error *err);
    nb_status (*open)(int index, nb_cuda **out, nb_error *err);
    void (*close)(nb_cuda *g); /* NULL does nothing; memory from alloc is not freed */
    void (*get_info)(nb_cuda *g, nb_cuda_info *info);
    /* g's kernels may read and write the memory of other from now on.  NB_ERR_UNSUPPORTED: the two have no way. */
    nb_status (*see)(nb_cuda *g, nb_cuda *other, nb_error *err);

    /* Device memory, aligned to 256; NULL if refused (not sticky).  free waits for the device. */
    void *(*alloc)(nb_cuda *g, size_t n_bytes);
    void (*free)(nb_cuda *g, void *p);
    void *(*host_alloc)(nb_cuda *g, size_t n_bytes); /* pinned host memory; NULL if refused */
    void (*host_free)(nb_cuda *g, void *p);
    /* In stream order.  upload and download do not wait with pinned memory, so the host's bytes must stay until a sync.
     * With other host memory they are complete on return. */
    void (*upload)(nb_cuda *g, void *dst, const void *src, size_t n_bytes);
    void (*download)(nb_cuda *g, void *dst, const void *src, size_t n_bytes);
    void (*copy)(nb_cuda *g, void *dst, const void *src, size_t n_bytes); /* device to device */
    void (*fill)(nb_cuda *g, void *dst, int byte, size_t n_bytes);
    /* Waits for everything; returns the sticky error (NB_ERR_INTERNAL with a line) or NB_OK. */
    nb_status (*sync)(nb_cuda *g, nb_error *err);
    nb_status (*error)(nb_cuda *g, nb_error *err); /* the same without waiting */

    /* Launches between begin and end become a graph instead of running; NULL if that failed (sticky).  The emulation
     * records the calls. */
    void (*graph_begin)(nb_cuda *g);
    nb_cuda_graph *(*graph_end)(nb_cuda *g);
    void (*graph_launch)(nb_cuda *g, nb_cuda_graph *x);
    void (*graph_destroy)(nb_cuda *g, nb_cuda_graph *x);
    /* The side stream.  Operations between begin and end need only what came before begin, and operations after end do
     * not need them until join; so both may run at once.  Not nested; each end is joined before the next begin.
     * early: the first operation after begin, and after join, may start before the operations that it waits for
     * have ended.  That is faster for grids of few blocks; blocks that fill the device keep others from working. */
    void (*side_begin)(nb_cuda *g, bool early);
    void (*side_end)(nb_cuda *g);
    void (*side_join)(nb_cuda *g);
    /* Timing: sets mark i (0..63) in the stream; returns the seconds between two marks, after a sync. */
    void (*mark)(nb_cuda *g, int i);
    double (*elapsed_s)(nb_cuda *g, int from, int to);
    /* sync, but only for the work before mark i. */
    nb_status (*wait)(nb_cuda *g, int i, nb_error *err);

    /* Operations with one variant. */
    void (*embed)(nb_cuda *g, const nb_cuda_embed_args *a);
    void (*norm)(nb_cuda *g, const nb_cuda_norm_args *a);
    void (*rope_table)(nb_cuda *g, const nb_cuda_rope_table_args *a);
    void (*mla_finish)(nb_cuda *g, const nb_cuda_mla_finish_args *a);
    void (*gqa_finish)(nb_cuda *g, const nb_cuda_gqa_finish_args *a);
    void (*swiglu)(nb_cuda *g, const nb_cuda_swiglu_args *a);
    void (*split)(nb_cuda *g, const nb_cuda_split_args *a);
    void (*quantise)(nb_cuda *g, const nb_cuda_quantise_args *a);
    void (*route)(nb_cuda *g, const nb_cuda_route_args *a);
    void (*moe_sum)(nb_cuda *g, const nb_cuda_moe_sum_args *a);
    void (*zero_experts)(nb_cuda *g, const nb_cuda_zero_experts_args *a);
    void (*kv_append)(nb_cuda *g, const nb_cuda_kv_append_args *a);
    void (*kv_decode)(nb_cuda *g, const nb_cuda_kv_decode_args *a);
    void (*mla_tail)(nb_cuda *g, const nb_cuda_mla_args *a);
    void (*mla_combine)(nb_cuda *g, const nb_cuda_mla_args *a);
    void (*thrift)(nb_cuda *g, const nb_cuda_thrift_args *a);
    void (*gqa)(nb_cuda *g, const nb_cuda_gqa_args *a);
    void (*prefill)(nb_cuda *g, const nb_cuda_prefill_args *a);
    void (*index_finish)(nb_cuda *g, const nb_cuda_index_finish_args *a);
    void (*index_topk)(nb_cuda *g, const nb_cuda_index_topk_args *a);
    void (*gather)(nb_cuda *g, const nb_cuda_gather_args *a);
    void (*csa_turn)(nb_cuda *g, const nb_cuda_csa_turn_args *a);
    void (*csa_append)(nb_cuda *g, const nb_cuda_csa_append_args *a);
    void (*csa_keep)(nb_cuda *g, const nb_cuda_csa_keep_args *a);
    void (*streams)(nb_cuda *g, const nb_cuda_streams_args *a);
    void (*sample)(nb_cuda *g, const nb_cuda_sample_args *a);
    void (*exchange)(nb_cuda *g, const nb_cuda_exchange_args *a);
    /* Operations with several variants: rows, best first, terminated by name == NULL. */
    const nb_cuda_linear_row *linear;
    const nb_cuda_experts_row *experts;
    const nb_cuda_mla_row *mla;
    const nb_cuda_index_row *index_score;
    const nb_cuda_csa_row *csa_attend;
    /* Whether the operations support a record.  They accept no other record. */
    bool (*can_cache)(const nb_record *r);
} nb_cuda_api;

/* The library's only symbol. */
#define NB_CUDA_SYMBOL "nb_cuda_get_api"
typedef const nb_cuda_api *nb_cuda_get_api_fn(void);

#endif
