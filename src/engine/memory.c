/* memory.c - how large everything is, and its allocation: the pool of blocks, the open pages of
 * the slots, the workspace of a step.  `info` and the start-up log print the same fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "model/kv_size.h"
#include "os/file.h"
#include "os/sys.h"

enum {
    DEFAULT_PREFILL_CHUNK = 512,
    DEFAULT_NUM_SEQS = 32,
    GPU_PREFILL_CHUNK = 8192,
    MAX_SCRATCH = 8,          /* threads that sample at once */
    LOGITS_BYTES = 64 << 20,  /* about this much for rows of logits */
    COMMIT_BYTES = 4 << 20,   /* of a task that touches memory */
    SYSTEM_PAGE_BYTES = 4096, /* touched at this distance; larger pages only make it cheaper */
    DEFAULT_AGE_S = 30
};
#define PROTECTED_SHARE 0.25 /* of the blocks, for prefixes found again: docs/trace-replay.md */

size_t nb_engine_workspace_bytes(const nb_engine *e)
{
    return nb_forward_bytes(e->forward) + e->logits_bytes +
           e->n_scratch * nb_sample_scratch_bytes(e->model.c.n_vocab);
}

/* ---- sizes ---- */

size_t nb_engine_sink_block_bytes(const nb_engine *e)
{
    return nb_kv_sink_bytes(e->record, e->model.c.n_layer, e->n_sink);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The pool is given: the context must fit into it. */
static nb_status size_within(nb_engine *e, const nb_engine_options *o, size_t len, nb_error *err)
{
    const uint64_t n_block = o->kv_cache_bytes / e->block_bytes;
    if (n_block == 0)
        return nb_fail(err, NB_ERR_LIMIT,
                       "a KV cache of %llu bytes does not hold one block of %d tokens, which takes "
                       "%zu bytes",
                       (unsigned long long)o->kv_cache_bytes, NB_PAGE_TOK, e->block_bytes);
    e->n_block = (size_t)n_block;
    const size_t fit = (size_t)n_block * NB_PAGE_TOK;
    if (len > fit && !o->max_model_len_auto)
        return nb_fail(
            err, NB_ERR_LIMIT,
            "one request of the maximum length %zu needs %.2f GiB of KV cache, and there are %.2f "
            "GiB: the estimated maximum model length is %zu (--max-model-len %zu or auto, or a "
            "larger cache)",
            len,
            (double)((len + NB_PAGE_TOK - 1) / NB_PAGE_TOK) * (double)e->block_bytes / (1 << 30),
            (double)o->kv_cache_bytes / (1 << 30), fit, fit);
    e->max_model_len = min_size(len, fit);
    return NB_OK;
}

/* The pool is for one request of the context. */
static void size_for_one(nb_engine *e, const nb_engine_options *o, size_t len)
{
    const uint64_t ram = nb_os_ram_bytes();
    /* Pages are committed when written, but do not promise more than half of the memory. */
    const size_t block = e->block_bytes + e->plane_block + nb_engine_sink_block_bytes(e);
    const size_t fit = ram ? (size_t)(ram / 2 / block) * NB_PAGE_TOK : SIZE_MAX;
    if (!o->max_model_len && fit >= NB_PAGE_TOK && len > fit) {
        nb_engine_warn(
            e,
            "context limited to %zu tokens by half of the memory (the model's maximum is %zu; --max-model-len decides)",
            fit, len);
        len = fit;
    }
    e->max_model_len = len;
    e->n_block = (len + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
}

nb_status nb_engine_size_pool(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const nb_model_config *c = &e->model.c;
    if (o->max_model_len > c->max_pos)
        return nb_fail(err, NB_ERR_RANGE, "--max-model-len %zu: the model's maximum is %zu",
                       o->max_model_len, c->max_pos);
    if (o->max_model_len && o->max_model_len_auto)
        return nb_fail(err, NB_ERR_ARG, "--max-model-len %zu and auto exclude each other",
                       o->max_model_len);
    const size_t len = o->max_model_len ? o->max_model_len : c->max_pos;
    if (o->kv_cache_bytes)
        NB_TRY(size_within(e, o, len, err));
    else
        size_for_one(e, o, len);
    if (e->n_block >= UINT32_MAX || e->block_bytes > SIZE_MAX / 2 / e->n_block)
        return nb_fail(err, NB_ERR_LIMIT, "a KV cache of %zu blocks of %zu bytes is too large",
                       e->n_block, e->block_bytes);
    e->kv_bytes = e->n_block * e->block_bytes;
    const size_t row = nb_engine_sink_block_bytes(e);
    if (row && e->n_block > SIZE_MAX / 2 / row)
        return nb_fail(err, NB_ERR_LIMIT, "--kv-sinks %zu of %zu blocks are too much", e->n_sink,
                       e->n_block);
    e->sink_bytes = e->n_block * row;
    return NB_OK;
}

static nb_status check_option(const char *name, size_t v, nb_error *err)
{
    if (v <= NB_ENGINE_MAX_STEP_TOK) return NB_OK;
    return nb_fail(err, NB_ERR_RANGE, "%s %zu: expected 1 to %d", name, v, NB_ENGINE_MAX_STEP_TOK);
}

nb_status nb_engine_size_step(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    if (!(o->priority_age_s >= 0 && o->priority_age_s < 1e12)) /* not a number: neither */
        return nb_fail(err, NB_ERR_RANGE, "--priority-age %g: expected seconds", o->priority_age_s);
    NB_TRY(check_option("--prefill-chunk", o->prefill_chunk, err));
    NB_TRY(check_option("--max-num-seqs", o->max_num_seqs, err));
    NB_TRY(check_option("--max-num-batched-tokens", o->max_num_batched_tokens, err));
    NB_TRY(check_option("--max-chunk-tokens", o->max_chunk_tok, err));
    const size_t step = o->max_num_batched_tokens;
    if (step && o->max_num_seqs > step)
        return nb_fail(err, NB_ERR_ARG,
                       "--max-num-batched-tokens %zu: a step must hold a token of each of "
                       "--max-num-seqs %zu requests",
                       step, o->max_num_seqs);
    e->max_num_seqs = o->max_num_seqs ? o->max_num_seqs
                      : step          ? min_size(step, DEFAULT_NUM_SEQS)
                                      : DEFAULT_NUM_SEQS;
    const size_t chunk = e->gpu ? GPU_PREFILL_CHUNK : DEFAULT_PREFILL_CHUNK;
    e->prefill_chunk = o->prefill_chunk ? o->prefill_chunk : step ? step : chunk;
    e->prefill_chunk = min_size(e->prefill_chunk, e->max_model_len);
    e->max_step_tok = step ? step : e->prefill_chunk;
    if (e->max_step_tok < e->max_num_seqs) e->max_step_tok = e->max_num_seqs;
    e->max_chunk_tok = o->max_chunk_tok ? o->max_chunk_tok : (e->max_step_tok + 1) / 2;
    e->max_chunk_tok = min_size(e->max_chunk_tok, e->max_step_tok);
    /* Rows of logits: as many as fit into LOGITS_BYTES, but one of each request. */
    e->max_row = LOGITS_BYTES / sizeof *e->logits / e->model.c.n_vocab;
    if (e->max_row < e->max_num_seqs) e->max_row = e->max_num_seqs;
    e->max_row = min_size(e->max_row, e->max_step_tok);
    e->logits_bytes = e->max_row * e->model.c.n_vocab * sizeof *e->logits;
    e->tail_bytes = nb_kv_tail_bytes(e->record, e->model.c.n_layer);
    if (e->tail_bytes > SIZE_MAX / 2 / e->max_num_seqs)
        return nb_fail(err, NB_ERR_LIMIT, "--max-num-seqs %zu is too large", e->max_num_seqs);
    e->n_scratch = min_size(min_size(nb_dev_n_worker(e->dev), e->max_num_seqs), MAX_SCRATCH);
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
static void commit(nb_engine *e, const nb_engine_options *o, const char *what, void *p,
                   size_t n_bytes, size_t before, size_t total)
{
    const size_t piece = (size_t)COMMIT_BYTES * 8 * nb_dev_n_worker(e->dev);
    nb_pages_prefer_huge(p, n_bytes);
    for (size_t at = 0; at < n_bytes; at += piece) {
        commit_ctx c = { (unsigned char *)p + at, min_size(piece, n_bytes - at) };
        nb_dev_run(e->dev, commit_task, &c, (c.n_bytes + COMMIT_BYTES - 1) / COMMIT_BYTES);
        if (o->progress) o->progress(o->progress_ctx, what, before + at + c.n_bytes, total);
    }
}

static nb_status allocate_cache(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t tails = e->max_num_seqs * e->tail_bytes;
    const uint64_t ram = nb_os_ram_bytes();
    const size_t planes = e->n_block * e->plane_block;
    if (o->commit_memory && ram && e->kv_bytes + planes + tails > ram)
        return nb_fail(err, NB_ERR_NOMEM,
                       "a KV cache of %zu MiB and %zu MiB of open pages do not fit into the memory "
                       "of %llu MiB",
                       (e->kv_bytes + planes) >> 20, tails >> 20, (unsigned long long)(ram >> 20));
    e->kv = nb_dev_alloc(e->dev, e->kv_bytes);
    e->tails = nb_dev_alloc(e->dev, tails);
    if (e->n_sink) e->sinks = nb_dev_alloc(e->dev, e->sink_bytes);
    if (!e->kv || !e->tails || (e->n_sink && !e->sinks))
        return nb_fail(err, NB_ERR_NOMEM,
                       "no memory for a KV cache of %zu MiB (--max-model-len "
                       "takes a smaller context)",
                       e->kv_bytes >> 20);
    NB_TRY(nb_engine_create_planes(e, err));
    if (o->commit_memory) {
        const size_t all = e->kv_bytes + planes + tails;
        commit(e, o, "KV cache", e->kv, e->kv_bytes, 0, all);
        if (planes) commit(e, o, "KV cache", e->plane, planes, e->kv_bytes, all);
        commit(e, o, "KV cache", e->tails, tails, e->kv_bytes + planes, all);
    }
    return NB_OK;
}

static nb_status create_sched(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    e->no_prefix_caching = o->no_prefix_caching;
    const nb_kv_cache_options ko = { .n_block = e->n_block,
                                     .index = !o->no_prefix_caching,
                                     .protected_share = PROTECTED_SHARE };
    NB_TRY(nb_kv_cache_create(&ko, &e->cache, err));
    const nb_sched_options so = { .max_num_seqs = e->max_num_seqs,
                                  .max_step_tok = e->max_step_tok,
                                  .max_chunk_tok = e->max_chunk_tok,
                                  .max_model_len = e->max_model_len,
                                  .priority = o->priority_scheduling,
                                  .age_s =
                                      o->priority_age_s > 0 ? o->priority_age_s : DEFAULT_AGE_S };
    return nb_sched_create(&so, e->cache, &e->sched, err);
}

static nb_status allocate_step(nb_engine *e, nb_error *err)
{
    e->item = calloc(e->max_num_seqs, sizeof *e->item);
    e->chunk = calloc(e->max_num_seqs, sizeof *e->chunk);
    e->bad = calloc(e->max_num_seqs, sizeof *e->bad);
    e->row = calloc(e->max_step_tok, sizeof *e->row);
    e->place = calloc(e->max_row, sizeof *e->place);
    e->sampled = calloc(e->max_row, sizeof *e->sampled);
    e->row_st = calloc(e->max_row, sizeof *e->row_st);
    e->draw = calloc(e->max_row, sizeof *e->draw);
    e->drawn = calloc(e->max_row, sizeof *e->drawn);
    e->scratch = calloc(e->n_scratch, sizeof *e->scratch);
    if (!e->gpu) e->logits = nb_dev_alloc(e->dev, e->logits_bytes);
    if (!e->item || !e->chunk || !e->bad || !e->row || !e->place || !e->sampled || !e->row_st ||
        !e->scratch || !e->draw || !e->drawn || !e->logits)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace of a step");
    for (size_t i = 0; i < e->n_scratch; i++)
        NB_TRY(nb_sample_scratch_create(e->model.c.n_vocab, &e->scratch[i], err));
    return NB_OK;
}

nb_status nb_engine_create_forward(nb_engine *e, nb_caps caps, nb_error *err)
{
    e->thrift.max_pos = e->max_model_len;
    const nb_forward_options fo = { .model = &e->model,
                                    .dev = e->dev,
                                    .record = e->record,
                                    .n_sink = e->n_sink,
                                    .caps = caps,
                                    .max_tok = e->max_step_tok,
                                    .thrift = e->thrift,
                                    .thrift_pool = e->thrift_pool,
                                    .gpu = e->gpu,
                                    .max_seq = e->max_num_seqs,
                                    .max_pos = e->max_model_len,
                                    .absorbed_only = e->form == NB_FORM_ABSORBED };
    return nb_forward_create(&fo, &e->forward, err);
}

nb_status nb_engine_allocate(nb_engine *e, const nb_engine_options *o, nb_caps caps, nb_error *err)
{
    if (e->gpu)
        NB_TRY(nb_engine_allocate_gpu(e, o, caps, err));
    else
        NB_TRY(allocate_cache(e, o, err));
    NB_TRY(create_sched(e, o, err));
    if (!e->gpu) NB_TRY(nb_engine_create_forward(e, caps, err));
    NB_TRY(allocate_step(e, err));
    if (!o->commit_memory || e->gpu) return NB_OK;
    size_t n_bytes;
    void *work = nb_forward_workspace(e->forward, &n_bytes);
    commit(e, o, "workspace", work, n_bytes, 0, n_bytes + e->logits_bytes);
    commit(e, o, "workspace", e->logits, e->logits_bytes, n_bytes, n_bytes + e->logits_bytes);
    return NB_OK;
}

void nb_engine_release(nb_engine *e)
{
    nb_forward_destroy(e->forward);
    nb_engine_release_planes(e);
    nb_sched_destroy(e->sched);
    nb_kv_cache_destroy(e->cache);
    nb_engine_release_gpu(e);
    if (e->dev) {
        nb_dev_free(e->dev, e->kv, e->kv_bytes);
        nb_dev_free(e->dev, e->tails, e->max_num_seqs * e->tail_bytes);
        nb_dev_free(e->dev, e->sinks, e->sink_bytes);
        nb_dev_free(e->dev, e->logits, e->logits_bytes);
    }
    for (size_t i = 0; e->scratch && i < e->n_scratch; i++)
        nb_sample_scratch_destroy(e->scratch[i]);
    free(e->scratch);
    free(e->item);
    free(e->chunk);
    free(e->bad);
    free(e->row);
    free(e->place);
    free(e->sampled);
    free(e->row_st);
    free(e->draw);
    free(e->drawn);
}
