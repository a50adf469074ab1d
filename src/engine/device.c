/* device.c - --device: whether the engine computes on a GPU, and the engine's memory there.
 *
 * With auto a GPU is used where there is one and neither options nor model need what it lacks.  Weights
 * and workspace go to the device first; what --gpu-memory-utilization leaves is the pool of blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "model/gpu_forward.h"

typedef struct wanted {
    enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA } kind;
    int index;
} wanted;

static nb_status parse(const char *s, wanted *w, nb_error *err)
{
    *w = (wanted){ DEVICE_AUTO, 0 };
    if (!s || !strcmp(s, "auto")) return NB_OK;
    w->kind = !strcmp(s, "cpu") ? DEVICE_CPU : DEVICE_CUDA;
    if (w->kind == DEVICE_CPU || !strcmp(s, "cuda")) return NB_OK;
    char *end = NULL;
    if (!strncmp(s, "cuda:", 5) && s[5] >= '0' && s[5] <= '9') {
        const long n = strtol(s + 5, &end, 10);
        if (*end == 0 && n <= 1023) {
            w->index = (int)n;
            return NB_OK;
        }
    }
    return nb_fail(err, NB_ERR_ARG, "--device %.60s: expected auto, cpu, cuda or cuda:N", s);
}

/* What the GPU part does not do; NULL: nothing of it is asked for. */
static const char *lacks(const nb_engine_options *o)
{
    if (o->kv_sinks) return "--kv-sinks";
    if (o->kv_thrift && !strcmp(o->kv_thrift, "block-mean")) return "--kv-thrift block-mean";
    if (o->kv_thrift && !strcmp(o->kv_thrift, "quest")) return "--kv-thrift quest";
    if (o->kv_thrift && !strcmp(o->kv_thrift, "block-prob")) return "--kv-thrift block-prob";
    if (o->weight_dtype && !strcmp(o->weight_dtype, "int8")) return "--weight-dtype int8";
    return NULL;
}

/* *gpu NULL: the CPU, and why says for which reason.  c NULL: whatever model. */
static nb_status find(const nb_engine_options *o, const nb_model_config *c, nb_gpu **gpu,
                      char why[NB_ERROR_MSG_BYTES], nb_error *err)
{
    wanted w;
    nb_error e = { 0 };
    *gpu = NULL;
    why[0] = 0;
    NB_TRY(parse(o->device, &w, err));
    if (w.kind == DEVICE_CPU) return NB_OK;
    const char *lack = lacks(o);
    if (lack && w.kind == DEVICE_CUDA)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s is not there on a GPU (--device cpu has it)",
                       lack);
    if (lack) {
        (void)snprintf(why, NB_ERROR_MSG_BYTES, "%s is there on the CPU only", lack);
        return NB_OK;
    }
    nb_status st = nb_gpu_open(o->cuda_library, w.index, gpu, &e);
    const bool opened = st == NB_OK;
    if (opened && c) st = nb_gpu_can_compute(*gpu, c, o->mla && !strcmp(o->mla, "absorbed"), &e);
    if (st == NB_OK) return NB_OK;
    if (opened) nb_gpu_close(*gpu);
    *gpu = NULL;
    if (w.kind == DEVICE_CUDA && opened) return nb_fail(err, st, "%s", e.msg);
    if (w.kind == DEVICE_CUDA) return nb_fail(err, st, "--device %s: %s", o->device, e.msg);
    (void)snprintf(why, NB_ERROR_MSG_BYTES, "%s", e.msg);
    return NB_OK;
}

nb_status nb_engine_find_device(const nb_engine_options *o, nb_device_info *out, nb_error *err)
{
    nb_device_info d = { 0 };
    char why[NB_ERROR_MSG_BYTES];
    nb_gpu *gpu;
    nb_model_config c;
    nb_error none = { 0 }; /* what is wrong with a config.json, the engine says */
    const bool known = o->model && nb_model_config_read_path(o->model, &c, &none) == NB_OK;
    NB_TRY(find(o, known ? &c : NULL, &gpu, why, err));
    (void)snprintf(d.why_cpu, sizeof d.why_cpu, "%.255s", why);
    if (gpu) {
        nb_cuda_info i;
        nb_gpu_api(gpu)->get_info(nb_gpu_handle(gpu), &i);
        d.is_gpu = true;
        (void)snprintf(d.name, sizeof d.name, "%s", i.name);
        d.memory_bytes = i.memory_bytes;
        d.free_bytes = i.free_bytes;
        nb_gpu_close(gpu);
    } else {
        (void)snprintf(d.name, sizeof d.name, "cpu");
    }
    *out = d;
    return NB_OK;
}

nb_status nb_engine_open_device(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    char why[NB_ERROR_MSG_BYTES];
    NB_TRY(find(o, &e->model.c, &e->gpu, why, err));
    (void)snprintf(e->device, sizeof e->device, "cpu");
    if (!e->gpu) return NB_OK;
    nb_cuda_info i;
    nb_gpu_api(e->gpu)->get_info(nb_gpu_handle(e->gpu), &i);
    (void)snprintf(e->device, sizeof e->device, "%s", i.name);
    return NB_OK;
}

/* ---- memory ---- */

void *nb_engine_gpu_alloc(nb_engine *e, size_t n_bytes)
{
    const nb_cuda_api *api = nb_gpu_api(e->gpu);
    void *p = api->alloc(nb_gpu_handle(e->gpu), n_bytes);
    if (p) api->fill(nb_gpu_handle(e->gpu), p, 0, n_bytes);
    return p;
}

void nb_engine_read(const nb_engine *e, void *dst, const void *src, size_t n_bytes)
{
    if (!e->gpu) {
        memcpy(dst, src, n_bytes);
        return;
    }
    const nb_cuda_api *api = nb_gpu_api(e->gpu);
    api->download(nb_gpu_handle(e->gpu), dst, src, n_bytes);
    if (api->sync(nb_gpu_handle(e->gpu), NULL) != NB_OK) memset(dst, 0, n_bytes);
}

void nb_engine_copy(nb_engine *e, void *dst, const void *src, size_t n_bytes)
{
    if (e->gpu)
        nb_gpu_api(e->gpu)->copy(nb_gpu_handle(e->gpu), dst, src, n_bytes);
    else
        memcpy(dst, src, n_bytes);
}

nb_status nb_engine_size_gpu(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t most = e->model.c.max_pos;
    if (o->max_model_len > most)
        return nb_fail(err, NB_ERR_RANGE, "--max-model-len %zu: the model's maximum is %zu",
                       o->max_model_len, most);
    if (o->max_model_len && o->max_model_len_auto)
        return nb_fail(err, NB_ERR_ARG, "--max-model-len %zu and auto exclude each other",
                       o->max_model_len);
    if (!(o->gpu_memory_utilization >= 0 && o->gpu_memory_utilization <= 1))
        return nb_fail(err, NB_ERR_RANGE, "--gpu-memory-utilization %g: expected 0 to 1",
                       o->gpu_memory_utilization);
    e->max_model_len = o->max_model_len ? o->max_model_len : most;
    return NB_OK;
}

/* Bytes for the pool, with everything else allocated. */
static nb_status pool_bytes(const nb_engine *e, const nb_engine_options *o, uint64_t *out,
                            nb_error *err)
{
    nb_cuda_info i;
    nb_gpu_api(e->gpu)->get_info(nb_gpu_handle(e->gpu), &i);
    const double used = (double)i.memory_bytes - (double)i.free_bytes;
    const double share = o->gpu_memory_utilization * (double)i.memory_bytes;
    const uint64_t n_page = (e->max_model_len + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
    if (o->kv_cache_bytes)
        *out = o->kv_cache_bytes;
    else if (o->gpu_memory_utilization > 0)
        *out = share > used ? (uint64_t)(share - used) : 0;
    else /* one request */
        *out = n_page * e->block_bytes < i.free_bytes / 10 * 9 ? n_page * e->block_bytes
                                                               : i.free_bytes / 10 * 9;
    if (*out > i.free_bytes)
        return nb_fail(err, NB_ERR_NOMEM,
                       "a KV cache of %.2f GiB does not fit: the GPU has %.2f GiB left of %.2f GiB",
                       (double)*out / (1 << 30), (double)i.free_bytes / (1 << 30),
                       (double)i.memory_bytes / (1 << 30));
    if (*out >= e->block_bytes) return NB_OK;
    return nb_fail(
        err, NB_ERR_NOMEM,
        "weights, workspace and open pages take %.2f of %.2f GiB: nothing is left for the KV "
        "cache (a larger --gpu-memory-utilization, or fewer --max-num-seqs or "
        "--max-num-batched-tokens)",
        used / (1 << 30), (double)i.memory_bytes / (1 << 30));
}

static nb_status fit_length(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t fit = e->n_block * NB_PAGE_TOK;
    if (e->max_model_len <= fit) return NB_OK;
    if (o->max_model_len)
        return nb_fail(
            err, NB_ERR_LIMIT,
            "one request of the maximum length %zu needs %.2f GiB of KV cache, and there "
            "are %.2f GiB: the estimated maximum model length is %zu (--max-model-len)",
            e->max_model_len,
            (double)e->max_model_len / NB_PAGE_TOK * (double)e->block_bytes / (1 << 30),
            (double)e->kv_bytes / (1 << 30), fit);
    if (!o->max_model_len_auto)
        nb_engine_warn(
            e, "context limited to %zu tokens by the GPU's memory (the model's maximum is %zu)",
            fit, e->max_model_len);
    e->max_model_len = fit;
    return NB_OK;
}

nb_status nb_engine_allocate_gpu(nb_engine *e, const nb_engine_options *o, nb_caps caps,
                                 nb_error *err)
{
    uint64_t pool;
    e->tails = nb_engine_gpu_alloc(e, e->max_num_seqs * e->tail_bytes);
    if (!e->tails)
        return nb_fail(err, NB_ERR_NOMEM,
                       "the GPU has no memory for the open pages of %zu requests (%zu MiB; "
                       "--max-num-seqs)",
                       e->max_num_seqs, e->max_num_seqs * e->tail_bytes >> 20);
    NB_TRY(nb_engine_create_forward(e, caps, err));
    NB_TRY(pool_bytes(e, o, &pool, err));
    const uint64_t n = pool / e->block_bytes;
    e->n_block = n < UINT32_MAX ? (size_t)n : UINT32_MAX - 1;
    e->kv_bytes = e->n_block * e->block_bytes;
    NB_TRY(fit_length(e, o, err));
    e->kv = nb_engine_gpu_alloc(e, e->kv_bytes);
    if (!e->kv)
        return nb_fail(err, NB_ERR_NOMEM, "the GPU has no memory for a KV cache of %zu MiB",
                       e->kv_bytes >> 20);
    NB_TRY(nb_engine_create_planes(e, err));
    e->logits = nb_gpu_api(e->gpu)->host_alloc(nb_gpu_handle(e->gpu), e->logits_bytes);
    if (!e->logits) return nb_fail(err, NB_ERR_NOMEM, "no memory for logits");
    return nb_gpu_api(e->gpu)->sync(nb_gpu_handle(e->gpu), err);
}

void nb_engine_release_gpu(nb_engine *e)
{
    if (!e->gpu) return;
    const nb_cuda_api *api = nb_gpu_api(e->gpu);
    api->free(nb_gpu_handle(e->gpu), e->kv);
    api->free(nb_gpu_handle(e->gpu), e->tails);
    api->host_free(nb_gpu_handle(e->gpu), e->logits);
    e->kv = NULL;
    e->tails = e->logits = NULL;
}
