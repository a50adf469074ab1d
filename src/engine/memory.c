/* memory.c - how large a step is, and the allocation of its workspace: the rank, logits, scratch.  `info` and the
 * start-up log print the same fields. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/remote.h"
#include "model/attention.h"

enum {
    DEFAULT_NUM_SEQS = 32,
    MAX_SCRATCH = 8,         /* threads that sample at once */
    LOGITS_BYTES = 64 << 20, /* about this much for rows of logits */
    DEFAULT_AGE_S = 30,
    LEAST_SNAPSHOTS = 8,
    DEFAULT_SNAP_TOK = 512 /* tokens between snapshots of states: docs/decisions/052 */
};
#define PROTECTED_SHARE 0.25 /* of the blocks, for prefixes found again: docs/trace-replay.md */

size_t nb_engine_workspace_bytes(const nb_engine *e)
{
    size_t n =
        e->step.logits_bytes + e->step.n_scratch * nb_sample_scratch_bytes(e->model.c.n_vocab);
    for (size_t k = 0; k < e->ranks.n; k++) n += nb_rank_bytes(e->rank[k].rank);
    return n;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- sizes ---- */

static nb_status check_option(const char *name, size_t v, nb_error *err)
{
    if (v <= NB_ENGINE_MAX_STEP_TOK) return NB_OK;
    return nb_fail(err, NB_ERR_RANGE, "%s %zu: expected 1 to %d", name, v, NB_ENGINE_MAX_STEP_TOK);
}

/* What a slot takes, and the snapshots of states. */
static nb_status size_states(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t state = nb_engine_state_bytes(e);
    nb_pages *p = &e->pages;
    p->tail_bytes = p->tail_off[e->model.c.n_layer] * sizeof *e->rank[0].tails + state;
    if (!state) return NB_OK;
    p->snap_tok = o->snapshot_tok ? o->snapshot_tok : DEFAULT_SNAP_TOK;
    p->n_snap = o->n_snapshot                            ? o->n_snapshot
                : e->step.max_num_seqs > LEAST_SNAPSHOTS ? e->step.max_num_seqs
                                                         : LEAST_SNAPSHOTS;
    if (o->no_prefix_caching) p->n_snap = 0;
    if (p->snap_tok % NB_PAGE_TOK)
        return nb_fail(err, NB_ERR_ARG,
                       "--checkpoint-every-n-tokens %zu: expected a multiple of %d", p->snap_tok,
                       NB_PAGE_TOK);
    if (p->n_snap > SIZE_MAX / 4 / state || p->n_snap >= UINT32_MAX)
        return nb_fail(err, NB_ERR_LIMIT, "--ctx-checkpoints %zu is too large", p->n_snap);
    return NB_OK;
}

nb_status nb_engine_size_step(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    if (!(o->priority_age_s >= 0 && o->priority_age_s < 1e12)) /* not a number: neither */
        return nb_fail(err, NB_ERR_RANGE, "--priority-age %g: expected seconds", o->priority_age_s);
    if (!isfinite(o->max_step_s))
        return nb_fail(err, NB_ERR_RANGE, "--max-step-ms %g: expected milliseconds",
                       1e3 * o->max_step_s);
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
    e->step.max_num_seqs = o->max_num_seqs ? o->max_num_seqs
                           : step          ? min_size(step, DEFAULT_NUM_SEQS)
                                           : DEFAULT_NUM_SEQS;
    const size_t chunk = step ? step : e->rank[0].device.kind->prefill_chunk;
    e->step.prefill_chunk = o->prefill_chunk ? o->prefill_chunk : chunk;
    e->step.prefill_chunk = min_size(e->step.prefill_chunk, e->step.max_model_len);
    e->step.max_step_tok = step ? step : e->step.prefill_chunk;
    if (e->step.max_step_tok < e->step.max_num_seqs) e->step.max_step_tok = e->step.max_num_seqs;
    e->step.max_chunk_tok = o->max_chunk_tok ? o->max_chunk_tok : (e->step.max_step_tok + 1) / 2;
    e->step.max_chunk_tok = min_size(e->step.max_chunk_tok, e->step.max_step_tok);
    /* Rows of logits: as many as fit into LOGITS_BYTES, but one of each request. */
    e->step.max_row = LOGITS_BYTES / sizeof *e->step.logits / e->model.c.n_vocab;
    if (e->step.max_row < e->step.max_num_seqs) e->step.max_row = e->step.max_num_seqs;
    e->step.max_row = min_size(e->step.max_row, e->step.max_step_tok);
    e->step.logits_bytes = e->step.max_row * e->model.c.n_vocab * sizeof *e->step.logits;
    NB_TRY(size_states(e, o, err));
    if (e->pages.tail_bytes > SIZE_MAX / 2 / e->step.max_num_seqs)
        return nb_fail(err, NB_ERR_LIMIT, "--max-num-seqs %zu is too large", e->step.max_num_seqs);
    e->step.n_scratch =
        min_size(min_size(nb_dev_n_worker(e->dev), e->step.max_num_seqs), MAX_SCRATCH);
    return NB_OK;
}

/* ---- allocation ---- */

/* How many tokens cost as much as a pair of a prompt's query and a token it attends to, by operations. */
static double pair_tokens(const nb_model_config *c)
{
    nb_model_size size;
    double pair = 0;
    nb_model_config_size(c, &size);
    for (size_t i = 0; i < c->n_layer; i++)
        pair += nb_layer_attention(c, i)->cost(nb_layer_attn(c, i)).pair_flop_prompt;
    return size.n_param_active ? pair / (2 * (double)size.n_param_active) : 0;
}

static nb_status create_sched(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    e->no_prefix_caching = o->no_prefix_caching;
    const nb_kv_cache_options ko = { .n_block = e->pages.n_block,
                                     .n_part = e->pages.n_part,
                                     .index = !o->no_prefix_caching,
                                     .n_snap = e->pages.n_snap,
                                     .protected_share = PROTECTED_SHARE };
    const nb_sched_options so = { .max_num_seqs = e->step.max_num_seqs,
                                  .max_step_tok = e->step.max_step_tok,
                                  .max_chunk_tok = e->step.max_chunk_tok,
                                  .max_model_len = e->step.max_model_len,
                                  .max_step_s = o->max_step_s,
                                  .pair_tok = pair_tokens(&e->model.c),
                                  .snap_tok = e->pages.n_snap ? e->pages.snap_tok : 0,
                                  .priority = o->priority_scheduling,
                                  .age_s =
                                      o->priority_age_s > 0 ? o->priority_age_s : DEFAULT_AGE_S };
    for (size_t k = 0; k < e->n_shard; k++) {
        NB_TRY(nb_kv_cache_create(&ko, &e->shard[k].cache, err));
        NB_TRY(nb_sched_create(&so, e->shard[k].cache, &e->shard[k].sched, err));
    }
    return nb_engine_create_answers(e, o, err);
}

static nb_status allocate_step(nb_engine *e, nb_error *err)
{
    const size_t n_item = e->n_shard * e->step.max_num_seqs;
    e->step.item = calloc(n_item, sizeof *e->step.item);
    e->step.chunk = calloc(n_item, sizeof *e->step.chunk);
    e->step.bad = calloc(n_item, sizeof *e->step.bad);
    e->step.row = calloc(e->n_shard * e->step.max_step_tok, sizeof *e->step.row);
    e->step.place = calloc(e->step.max_row, sizeof *e->step.place);
    e->step.sampled = calloc(e->step.max_row, sizeof *e->step.sampled);
    e->step.row_st = calloc(e->step.max_row, sizeof *e->step.row_st);
    e->step.draw = calloc(e->step.max_row, sizeof *e->step.draw);
    e->step.drawn = calloc(e->step.max_row, sizeof *e->step.drawn);
    e->step.scratch = calloc(e->step.n_scratch, sizeof *e->step.scratch);
    e->step.logits = e->rank[0].device.kind->host_alloc(&e->rank[0].device, e->step.logits_bytes);
    if (!e->step.item || !e->step.chunk || !e->step.bad || !e->step.row || !e->step.place ||
        !e->step.sampled || !e->step.row_st || !e->step.scratch || !e->step.draw ||
        !e->step.drawn || !e->step.logits)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace of a step");
    for (size_t i = 0; i < e->step.n_scratch; i++)
        NB_TRY(nb_sample_scratch_create(e->model.c.n_vocab, &e->step.scratch[i], err));
    return NB_OK;
}

/* Of every rank whose workspace is the host's, and the logits. */
static void commit_workspace(nb_engine *e, const nb_engine_options *o)
{
    size_t n_bytes, at = 0, all = e->step.logits_bytes;
    for (size_t k = 0; k < e->ranks.n; k++) {
        if (!nb_rank_workspace(e->rank[k].rank, &n_bytes)) return;
        all += n_bytes;
    }
    for (size_t k = 0; k < e->ranks.n; k++) {
        void *work = nb_rank_workspace(e->rank[k].rank, &n_bytes);
        nb_engine_commit(e, o, "allocating the workspace", work, n_bytes, at, all);
        at += n_bytes;
    }
    nb_engine_commit(e, o, "allocating the workspace", e->step.logits, e->step.logits_bytes, at,
                     all);
}

nb_status nb_engine_allocate(nb_engine *e, const nb_engine_options *o, nb_caps caps, nb_error *err)
{
    NB_TRY(nb_engine_allocate_pool(e, o, caps, err));
    NB_TRY(create_sched(e, o, err));
    for (size_t k = 0; k < e->ranks.n; k++) {
        const nb_kv_pool pool = nb_engine_pool_of(e, &e->rank[k]);
        (void)nb_rank_set_pool(e->rank[k].rank, &pool);
    }
    NB_TRY(allocate_step(e, err));
    NB_TRY(nb_remote_allocate(e, err));
    if (o->commit_memory) commit_workspace(e, o);
    return nb_ranks_start(&e->ranks, err);
}

void nb_engine_release(nb_engine *e)
{
    nb_ranks_stop(&e->ranks);
    for (size_t k = 0; k < e->ranks.n; k++) nb_rank_destroy(e->rank[k].rank);
    nb_refill_destroy(e->answers.refill);
    for (size_t k = 0; k < e->n_shard; k++) {
        nb_sched_destroy(e->shard[k].sched);
        nb_kv_cache_destroy(e->shard[k].cache);
    }
    nb_engine_release_pool(e);
    for (size_t i = 0; e->step.scratch && i < e->step.n_scratch; i++)
        nb_sample_scratch_destroy(e->step.scratch[i]);
    free(e->step.scratch);
    free(e->step.item);
    free(e->step.chunk);
    free(e->step.bad);
    free(e->step.row);
    free(e->step.place);
    free(e->step.sampled);
    free(e->step.row_st);
    free(e->step.draw);
    free(e->step.drawn);
}
