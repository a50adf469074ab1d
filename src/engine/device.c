/* device.c - --device: which device the engine computes on.
 *
 * With auto a GPU is used where there is one and neither options nor model need what it lacks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "model/kv_size.h"

typedef struct wanted {
    enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA } kind;
    int index[NB_ENGINE_MAX_RANK]; /* of each rank's GPU */
} wanted;

/* Numbers between commas; one: the first of neighbours. */
static bool parse_indices(const char *s, int index[NB_ENGINE_MAX_RANK], size_t *n)
{
    for (*n = 0; *n < NB_ENGINE_MAX_RANK; s++) {
        char *end = NULL;
        if (*s < '0' || *s > '9') return false;
        const long x = strtol(s, &end, 10);
        if (x > 1023) return false;
        index[(*n)++] = (int)x;
        s = end;
        if (*s != ',') break;
    }
    if (*s) return false;
    for (size_t k = 1; *n == 1 && k < NB_ENGINE_MAX_RANK; k++) index[k] = index[0] + (int)k;
    return true;
}

static nb_status parse(const char *s, size_t n_rank, wanted *w, nb_error *err)
{
    size_t n = 1;
    *w = (wanted){ .kind = DEVICE_AUTO };
    for (size_t k = 0; k < NB_ENGINE_MAX_RANK; k++) w->index[k] = (int)k;
    if (!s || !strcmp(s, "auto")) return NB_OK;
    w->kind = !strcmp(s, "cpu") ? DEVICE_CPU : DEVICE_CUDA;
    if (w->kind == DEVICE_CPU || !strcmp(s, "cuda")) return NB_OK;
    if (strncmp(s, "cuda:", 5) != 0 || !parse_indices(s + 5, w->index, &n))
        return nb_fail(err, NB_ERR_ARG,
                       "--device %.60s: expected auto, cpu, cuda or cuda:N (cuda:N,M,... with a GPU for each rank)", s);
    if (n > 1 && n != n_rank)
        return nb_fail(err, NB_ERR_ARG, "--device %.60s has %zu GPUs for %zu rank%s", s, n, n_rank,
                       n_rank > 1 ? "s" : "");
    return NB_OK;
}

/* What the GPU part does not do; NULL: nothing of it is asked for. */
static const char *lacks(const nb_engine_options *o)
{
    if (o->kv_sinks) return "--kv-sinks";
    if (o->decode_context_parallel_size > 1) return "--decode-context-parallel-size";
    if (o->kv_thrift && !strcmp(o->kv_thrift, "block-mean")) return "--kv-thrift block-mean";
    if (o->kv_thrift && !strcmp(o->kv_thrift, "quest")) return "--kv-thrift quest";
    if (o->kv_thrift && !strcmp(o->kv_thrift, "block-prob")) return "--kv-thrift block-prob";
    if (o->cpu_experts && strcmp(o->cpu_experts, "0") != 0) return NULL; /* the host's products have forms */
    if (o->activation_dtype && !strcmp(o->activation_dtype, "int16")) return "--activation-dtype int16";
    if (o->activation_dtype && !strcmp(o->activation_dtype, "int8")) return "--activation-dtype int8";
    return NULL;
}

/* The format that --kv-cache-dtype asks for; what a calibration chooses, nb_rank_create checks. */
static nb_status can_cache(const nb_gpu *gpu, const nb_engine_options *o, const nb_model_config *c,
                           nb_error *err)
{
    nb_kv_type t;
    nb_record r;
    if (!o->kv_cache_dtype || nb_kv_type_parse(o->kv_cache_dtype, &t) != NB_OK) return NB_OK;
    const nb_attn_config *a = nb_layer_attn(c, 0);
    const nb_rope_fmt rope = nb_attn_rope_fmt(a);
    if (nb_kv_record(a, t, rope, &r, NULL) != NB_OK || nb_gpu_api(gpu)->can_cache(&r)) return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED, "--kv-cache-dtype %s is supported on the CPU only",
                   nb_kv_type_name(t));
}

/* *gpu NULL: the CPU, and why says for which reason.  c NULL: whatever model. */
static nb_status find(const nb_engine_options *o, const nb_model_config *c, nb_gpu **gpu,
                      char why[NB_ERROR_MSG_BYTES], nb_error *err)
{
    wanted w;
    nb_error e = { 0 };
    *gpu = NULL;
    why[0] = 0;
    const size_t n_tensor = o->tensor_parallel_size ? o->tensor_parallel_size : 1;
    const size_t n_rank = n_tensor * (o->data_parallel_size ? o->data_parallel_size : 1);
    const bool absorbed_only = o->mla && !strcmp(o->mla, "absorbed");
    NB_TRY(parse(o->device, n_rank, &w, err));
    if (w.kind == DEVICE_CPU) return NB_OK;
    if (o->n_node > 1 && w.kind == DEVICE_CUDA)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "--device %s with --nnodes %zu: ranks in several processes compute on CPUs",
                       o->device, o->n_node);
    if (o->n_node > 1) {
        (void)snprintf(why, NB_ERROR_MSG_BYTES, "ranks in several processes compute on CPUs");
        return NB_OK;
    }
    const char *lack = lacks(o);
    if (lack && w.kind == DEVICE_CUDA)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s is not there on a GPU (--device cpu has it)",
                       lack);
    if (lack) {
        (void)snprintf(why, NB_ERROR_MSG_BYTES, "%s is there on the CPU only", lack);
        return NB_OK;
    }
    nb_status st = nb_gpu_open(o->cuda_library, w.index[0], gpu, &e);
    const bool opened = st == NB_OK;
    if (opened && c) st = nb_rank_can_on_gpus(c, absorbed_only, n_rank, n_tensor, &e);
    if (opened && c && st == NB_OK) st = nb_rank_can_compute(*gpu, c, absorbed_only, &e);
    if (opened && c && st == NB_OK) st = can_cache(*gpu, o, c, &e);
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
    char *path = NULL;
    const bool known = nb_model_find(o->model, &path, &none) == NB_OK &&
                       nb_model_config_read_path(path, &c, &none) == NB_OK;
    nb_free(path);
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

/* A GPU for each rank beside the first.  The emulation has one device, which they share. */
static nb_status open_others(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    wanted w;
    nb_cuda_info info;
    nb_gpu *gpu = e->rank[0].device.gpu;
    NB_TRY(parse(o->device, e->ranks.n, &w, err));
    nb_gpu_api(gpu)->get_info(nb_gpu_handle(gpu), &info);
    e->rank[0].gpu_index = w.index[0];
    for (size_t k = 1; k < e->ranks.n; k++) {
        e->rank[k].gpu_index = info.emulated ? w.index[0] : w.index[k];
        NB_TRY(nb_gpu_open(o->cuda_library, e->rank[k].gpu_index, &gpu, err));
        e->rank[k].device = nb_device_of(e->ranks.seat[k].dev, gpu);
        if (strcmp(e->rank[k].device.name, e->rank[0].device.name) != 0)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "ranks on different GPUs (%.60s, %.60s) would round differently",
                           e->rank[0].device.name, e->rank[k].device.name);
    }
    if (e->ranks.n > 2 && !info.emulated)
        nb_engine_warn(e, "more than two GPUs have been tested in emulation only (docs/several-gpus.md)");
    return NB_OK;
}

/* With --device auto, too few GPUs mean the CPU. */
static nb_status open_others_or_leave(nb_engine *e, const nb_engine_options *o,
                                      char why[NB_ERROR_MSG_BYTES], nb_error *err)
{
    nb_error few = { 0 };
    const nb_status st = open_others(e, o, &few);
    if (st == NB_OK) return NB_OK;
    if (o->device && strcmp(o->device, "auto") != 0) return nb_fail(err, st, "%s", few.msg);
    for (size_t k = 0; k < e->ranks.n; k++) nb_device_close(&e->rank[k].device);
    e->rank[0].device = nb_device_of(e->dev, NULL);
    (void)snprintf(why, NB_ERROR_MSG_BYTES, "%zu ranks: %.200s", e->ranks.n, few.msg);
    return NB_OK;
}

nb_status nb_engine_open_device(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    char why[NB_ERROR_MSG_BYTES];
    nb_gpu *gpu;
    NB_TRY(find(o, &e->model.c, &gpu, why, err));
    if (!gpu && e->acts.of[0] == NB_ACT_FP8)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--activation-dtype fp8: no CPU multiplies FP8; int8 is as small and faster");
    e->rank[0].device = nb_device_of(e->dev, gpu);
    if (gpu) NB_TRY(open_others_or_leave(e, o, why, err));
    for (size_t k = 1; !e->rank[0].device.gpu && k < e->ranks.n; k++)
        e->rank[k].device = nb_device_of(e->ranks.seat[k].dev, NULL);
    return nb_engine_read_experts(e, o, why, err);
}
