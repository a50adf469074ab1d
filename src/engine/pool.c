/* pool.c - the memory of the cache: how large, and its allocation.
 *
 * On the host the pool is sized before the weights are loaded.  A device with memory of its own takes the weights and
 * the workspace first, and the pool is what --gpu-memory-utilization leaves. */
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "model/kv_size.h"
#include "os/file.h"
#include "os/sys.h"

enum {
    COMMIT_BYTES = 4 << 20,   /* of a task that touches memory */
    SYSTEM_PAGE_BYTES = 4096, /* touched at this distance; larger pages only make it cheaper */
};

/* ---- sizes ---- */

size_t nb_engine_sink_block_bytes(const nb_engine *e)
{
    return e->pages.sink_off[e->model.c.n_layer] * sizeof *e->rank[0].sinks;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The blocks of all ranks that divide them, when each has at most n: whole units. */
static size_t blocks_in(const nb_engine *e, uint64_t n)
{
    const size_t n_part = e->pages.n_part, unit = n_part > 1 ? NB_KV_UNIT_BLOCKS : 1;
    return (size_t)(n / unit) * unit * n_part;
}

/* The same for so many blocks of one request. */
static size_t blocks_for(const nb_engine *e, size_t n)
{
    const size_t n_part = e->pages.n_part, row = n_part > 1 ? NB_KV_UNIT_BLOCKS * n_part : 1;
    return (n + row - 1) / row * row;
}

/* The pool is given: the context must fit into it. */
static nb_status size_within(nb_engine *e, const nb_engine_options *o, size_t len, nb_error *err)
{
    const size_t n_block = blocks_in(e, o->kv_cache_bytes / e->pages.block_bytes);
    if (n_block == 0 && e->pages.n_part > 1)
        return nb_fail(err, NB_ERR_LIMIT,
                       "a KV cache of %llu bytes does not hold %d blocks of %zu bytes, the least that a rank of "
                       "--decode-context-parallel-size has",
                       (unsigned long long)o->kv_cache_bytes, NB_KV_UNIT_BLOCKS, e->pages.block_bytes);
    if (n_block == 0)
        return nb_fail(err, NB_ERR_LIMIT,
                       "a KV cache of %llu bytes does not hold one block of %d tokens, which takes "
                       "%zu bytes",
                       (unsigned long long)o->kv_cache_bytes, NB_PAGE_TOK, e->pages.block_bytes);
    e->pages.n_block = n_block;
    const size_t fit = n_block * NB_PAGE_TOK;
    if (len > fit && !o->max_model_len_auto)
        return nb_fail(
            err, NB_ERR_LIMIT,
            "one request of the maximum length %zu needs %.2f GiB of KV cache, and there are %.2f "
            "GiB: the estimated maximum model length is %zu (--max-model-len %zu or auto, or a "
            "larger cache)",
            len,
            (double)blocks_for(e, (len + NB_PAGE_TOK - 1) / NB_PAGE_TOK) / (double)e->pages.n_part *
                (double)e->pages.block_bytes / (1 << 30),
            (double)o->kv_cache_bytes / (1 << 30), fit, fit);
    e->step.max_model_len = min_size(len, fit);
    return NB_OK;
}

/* The pool is for one request of the context. */
static void size_for_one(nb_engine *e, const nb_engine_options *o, size_t len)
{
    const uint64_t ram = nb_os_ram_bytes();
    /* Pages are committed when written, but do not promise more than half of the memory. */
    const size_t block =
        e->pages.block_bytes + e->pages.plane_block + nb_engine_sink_block_bytes(e);
    const size_t fit = ram ? (size_t)(ram / 2 / block) * NB_PAGE_TOK : SIZE_MAX;
    if (!o->max_model_len && fit >= NB_PAGE_TOK && len > fit) {
        nb_engine_warn(
            e,
            "context limited to %zu tokens by half of the memory (the model's maximum is %zu; --max-model-len decides)",
            fit, len);
        len = fit;
    }
    e->step.max_model_len = len;
    e->pages.n_block = blocks_for(e, (len + NB_PAGE_TOK - 1) / NB_PAGE_TOK);
}

/* The pool is sized before the weights are loaded: memory of the host is committed when it is touched. */
static nb_status size_before(nb_engine *e, const nb_engine_options *o, size_t len, nb_error *err)
{
    if (o->kv_cache_bytes)
        NB_TRY(size_within(e, o, len, err));
    else
        size_for_one(e, o, len);
    if (e->pages.n_block >= UINT32_MAX || e->pages.block_bytes > SIZE_MAX / 2 / e->pages.n_block)
        return nb_fail(err, NB_ERR_LIMIT, "a KV cache of %zu blocks of %zu bytes is too large",
                       e->pages.n_block, e->pages.block_bytes);
    e->pages.kv_bytes = e->pages.n_block / e->pages.n_part * e->pages.block_bytes;
    const size_t row = nb_engine_sink_block_bytes(e);
    if (row && e->pages.n_block > SIZE_MAX / 2 / row)
        return nb_fail(err, NB_ERR_LIMIT, "--kv-sinks %zu of %zu blocks are too much",
                       e->pages.n_sink, e->pages.n_block);
    e->pages.sink_bytes = e->pages.n_block * row;
    return NB_OK;
}

/* Memory of the device that has least, and what is left of it; *n_share: ranks on it. */
static void least_memory(nb_engine *e, uint64_t *all, uint64_t *left, size_t *n_share)
{
    *left = UINT64_MAX;
    *n_share = 1;
    for (size_t k = 0; k < e->ranks.n; k++) {
        uint64_t a, l;
        size_t n = 0;
        e->rank[k].device.kind->memory(&e->rank[k].device, &a, &l);
        for (size_t i = 0; i < e->ranks.n; i++) n += e->rank[i].gpu_index == e->rank[k].gpu_index;
        if (l / n >= *left / *n_share) continue;
        *all = a;
        *left = l;
        *n_share = n;
    }
}

/* The same from what a device has left once everything else is there. */
static nb_status size_after(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    uint64_t all = 0, left, pool;
    size_t n_share;
    least_memory(e, &all, &left, &n_share);
    const double used = (double)all - (double)left;
    const double share = o->gpu_memory_utilization * (double)all;
    left /= n_share;
    const uint64_t one =
        (e->step.max_model_len + NB_PAGE_TOK - 1) / NB_PAGE_TOK * e->pages.block_bytes;
    if (o->kv_cache_bytes)
        pool = o->kv_cache_bytes;
    else if (o->gpu_memory_utilization > 0)
        pool = share > used ? (uint64_t)(share - used) / n_share : 0;
    else /* one request */
        pool = one < left / 10 * 9 ? one : left / 10 * 9;
    if (pool > left)
        return nb_fail(err, NB_ERR_NOMEM,
                       "a KV cache of %.2f GiB does not fit: the GPU has %.2f GiB left of %.2f GiB",
                       (double)pool / (1 << 30), (double)left / (1 << 30), (double)all / (1 << 30));
    if (pool < e->pages.block_bytes)
        return nb_fail(
            err, NB_ERR_NOMEM,
            "weights, workspace and open pages take %.2f of %.2f GiB: nothing is left for the KV "
            "cache (a larger --gpu-memory-utilization, or fewer --max-num-seqs or "
            "--max-num-batched-tokens)",
            used / (1 << 30), (double)all / (1 << 30));
    const uint64_t n = pool / e->pages.block_bytes;
    e->pages.n_block = n < UINT32_MAX ? (size_t)n : UINT32_MAX - 1;
    e->pages.kv_bytes = e->pages.n_block * e->pages.block_bytes;
    return NB_OK;
}

static nb_status fit_length(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t fit = e->pages.n_block * NB_PAGE_TOK;
    if (e->step.max_model_len <= fit) return NB_OK;
    if (o->max_model_len)
        return nb_fail(
            err, NB_ERR_LIMIT,
            "one request of the maximum length %zu needs %.2f GiB of KV cache, and there "
            "are %.2f GiB: the estimated maximum model length is %zu (--max-model-len)",
            e->step.max_model_len,
            (double)e->step.max_model_len / NB_PAGE_TOK * (double)e->pages.block_bytes / (1 << 30),
            (double)e->pages.kv_bytes / (1 << 30), fit);
    if (!o->max_model_len_auto)
        nb_engine_warn(
            e, "context limited to %zu tokens by the GPU's memory (the model's maximum is %zu)",
            fit, e->step.max_model_len);
    e->step.max_model_len = fit;
    return NB_OK;
}

nb_status nb_engine_size_pool(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t most = e->model.c.max_pos;
    if (o->max_model_len > most)
        return nb_fail(err, NB_ERR_RANGE, "--max-model-len %zu: the model's maximum is %zu",
                       o->max_model_len, most);
    if (o->max_model_len && o->max_model_len_auto)
        return nb_fail(err, NB_ERR_ARG, "--max-model-len %zu and auto exclude each other",
                       o->max_model_len);
    const size_t len = o->max_model_len ? o->max_model_len : most;
    if (!e->rank[0].device.kind->own_memory) return size_before(e, o, len, err);
    if (!(o->gpu_memory_utilization >= 0 && o->gpu_memory_utilization <= 1))
        return nb_fail(err, NB_ERR_RANGE, "--gpu-memory-utilization %g: expected 0 to 1",
                       o->gpu_memory_utilization);
    e->step.max_model_len = len;
    return NB_OK;
}

/* ---- allocation ---- */

typedef struct commit_ctx {
    unsigned char *p;
    size_t n_bytes;
} commit_ctx;

static void commit_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const commit_ctx *c = ctx;
    const size_t at = task * COMMIT_BYTES, left = c->n_bytes - at;
    const size_t n = left < COMMIT_BYTES ? left : COMMIT_BYTES;
    volatile unsigned char *p = c->p + at;
    for (size_t i = 0; i < n; i += SYSTEM_PAGE_BYTES) p[i] = 0; /* it is zero: now it is there */
}

/* Touches memory in parallel, in pieces between which the progress is told. */
void nb_engine_commit(nb_engine *e, const nb_engine_options *o, const char *what, void *p,
                      size_t n_bytes, size_t before, size_t total)
{
    const size_t piece = (size_t)COMMIT_BYTES * 8 * nb_dev_n_worker(e->dev);
    if (o->progress && before == 0) o->progress(o->progress_ctx, what, 0, total);
    nb_pages_prefer_huge(p, n_bytes);
    for (size_t at = 0; at < n_bytes; at += piece) {
        commit_ctx c = { (unsigned char *)p + at, min_size(piece, n_bytes - at) };
        nb_dev_run(e->dev, commit_task, &c, (c.n_bytes + COMMIT_BYTES - 1) / COMMIT_BYTES);
        if (o->progress) o->progress(o->progress_ctx, what, before + at + c.n_bytes, total);
    }
}

static nb_status no_memory(const nb_engine *e, const char *what, size_t n_bytes, nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM,
                   "%s has no memory for %s of %zu MiB (--max-model-len takes a smaller "
                   "context, --max-num-seqs fewer requests)",
                   e->rank[0].device.kind->own_memory ? "the GPU" : "this machine", what,
                   n_bytes >> 20);
}

static nb_status allocate_tails(nb_engine *e, nb_error *err)
{
    const size_t n_bytes = e->step.max_num_seqs * e->pages.tail_bytes;
    for (size_t k = 0; k < e->ranks.n; k++) {
        nb_engine_rank *r = &e->rank[k];
        r->tails = r->device.kind->alloc(&r->device, n_bytes);
        if (!r->tails) return no_memory(e, "open pages", n_bytes, err);
        if (e->pages.n_snap) r->snaps = r->device.kind->alloc(&r->device, nb_engine_snap_bytes(e));
        if (e->pages.n_snap && !r->snaps)
            return no_memory(e, "snapshots of states", nb_engine_snap_bytes(e), err);
    }
    return NB_OK;
}

static nb_status allocate_blocks(nb_engine *e, nb_error *err)
{
    for (size_t k = 0; k < e->ranks.n; k++) {
        nb_engine_rank *r = &e->rank[k];
        r->kv = r->device.kind->alloc(&r->device, e->pages.kv_bytes);
        if (!r->kv) return no_memory(e, "a KV cache", e->pages.kv_bytes, err);
        if (e->pages.n_sink) r->sinks = r->device.kind->alloc(&r->device, e->pages.sink_bytes);
        if (e->pages.n_sink && !r->sinks)
            return no_memory(e, "the rows of --kv-sinks", e->pages.sink_bytes, err);
    }
    return nb_engine_create_planes(e, err);
}

static nb_status create_rank(nb_engine *e, size_t k, nb_caps caps, nb_error *err)
{
    const nb_rank_options ro = { .model = &e->model,
                                 .device = &e->rank[k].device,
                                 .dev = e->ranks.seat[k].dev,
                                 .comm = e->ranks.seat[k].comm,
                                 .tensor = e->ranks.seat[k].tensor,
                                 .data_parallel = e->n_shard > 1,
                                 .divide_context = e->pages.n_part > 1,
                                 .record = e->pages.record,
                                 .n_sink = e->pages.n_sink,
                                 .caps = caps,
                                 .acts = e->acts,
                                 .levels = &e->levels,
                                 .max_tok = e->step.max_step_tok,
                                 .thrift = e->pages.thrift,
                                 .thrift_pool = e->rank[0].thrift_pool,
                                 .max_seq = e->step.max_num_seqs,
                                 .max_pos = e->step.max_model_len,
                                 .absorbed_only = e->step.form == NB_FORM_ABSORBED,
                                 .experts = e->experts.place };
    NB_TRY(nb_rank_create(&ro, &e->rank[k].rank, err));
    e->ranks.seat[k].rank = e->rank[k].rank;
    return NB_OK;
}

nb_status nb_engine_create_ranks(nb_engine *e, nb_caps caps, nb_error *err)
{
    e->pages.thrift.max_pos = e->step.max_model_len;
    nb_rank *all[NB_ENGINE_MAX_RANK];
    for (size_t k = 0; k < e->ranks.n; k++) {
        NB_TRY(create_rank(e, k, caps, err));
        all[k] = e->rank[k].rank;
    }
    NB_TRY(nb_rank_connect(all, e->ranks.n, err));
    e->experts.n_layer = nb_rank_host_layers(e->rank[0].rank, &e->experts.n_bytes);
    e->step.upload_tok = nb_rank_upload_tok(e->rank[0].rank);
    return NB_OK;
}

static nb_status allocate_before(nb_engine *e, const nb_engine_options *o, nb_caps caps,
                                 nb_error *err)
{
    const size_t tails = e->step.max_num_seqs * e->pages.tail_bytes, n = e->ranks.n,
                 planes = e->pages.n_block * e->pages.plane_block, snaps = nb_engine_snap_bytes(e);
    uint64_t ram, left;
    e->rank[0].device.kind->memory(&e->rank[0].device, &ram, &left);
    if (o->commit_memory && ram && n * (e->pages.kv_bytes + planes + tails + snaps) > ram)
        return nb_fail(err, NB_ERR_NOMEM,
                       "a KV cache of %zu MiB and %zu MiB of open pages do not fit into the memory "
                       "of %llu MiB",
                       n * (e->pages.kv_bytes + planes) >> 20, n * (tails + snaps) >> 20,
                       (unsigned long long)(ram >> 20));
    NB_TRY(allocate_blocks(e, err));
    NB_TRY(allocate_tails(e, err));
    for (size_t k = 0; o->commit_memory && k < n; k++) {
        const size_t one = e->pages.kv_bytes + planes + tails + snaps, all = n * one, at = k * one;
        nb_engine_commit(e, o, "allocating the KV cache", e->rank[k].kv, e->pages.kv_bytes, at,
                         all);
        if (planes)
            nb_engine_commit(e, o, "allocating the KV cache", e->rank[k].plane, planes,
                             at + e->pages.kv_bytes, all);
        nb_engine_commit(e, o, "allocating the KV cache", e->rank[k].tails, tails,
                         at + e->pages.kv_bytes + planes, all);
        if (snaps)
            nb_engine_commit(e, o, "allocating the KV cache", e->rank[k].snaps, snaps,
                             at + e->pages.kv_bytes + planes + tails, all);
    }
    return nb_engine_create_ranks(e, caps, err);
}

static nb_status allocate_after(nb_engine *e, const nb_engine_options *o, nb_caps caps,
                                nb_error *err)
{
    NB_TRY(allocate_tails(e, err));
    nb_engine_reserve_for_experts(e, o);
    NB_TRY(nb_engine_create_ranks(e, caps, err));
    NB_TRY(size_after(e, o, err));
    NB_TRY(fit_length(e, o, err));
    NB_TRY(allocate_blocks(e, err));
    for (size_t k = 0; k < e->ranks.n; k++)
        NB_TRY(e->rank[k].device.kind->sync(&e->rank[k].device, err));
    return NB_OK;
}

nb_status nb_engine_allocate_pool(nb_engine *e, const nb_engine_options *o, nb_caps caps,
                                  nb_error *err)
{
    return e->rank[0].device.kind->own_memory ? allocate_after(e, o, caps, err)
                                              : allocate_before(e, o, caps, err);
}

void nb_engine_release_pool(nb_engine *e)
{
    if (!e->rank[0].device.kind) return;
    nb_engine_release_planes(e);
    for (size_t k = 0; k < e->ranks.n; k++) {
        nb_engine_rank *r = &e->rank[k];
        r->device.kind->free(&r->device, r->kv, e->pages.kv_bytes);
        r->device.kind->free(&r->device, r->tails, e->step.max_num_seqs * e->pages.tail_bytes);
        r->device.kind->free(&r->device, r->snaps, nb_engine_snap_bytes(e));
        r->device.kind->free(&r->device, r->sinks, e->pages.sink_bytes);
    }
    e->rank[0].device.kind->host_free(&e->rank[0].device, e->step.logits, e->step.logits_bytes);
}
