/* fill.c - nb_engine_fill: a long context without its computation, for measurements of time.
 *
 * The blocks of a text that are not in the prefix cache are acquired, get the bytes of blocks of the
 * same text that are there, over and over, and are published under the keys that its prompt would
 * give them.  From there on everything is the ordinary engine: a request finds the blocks, decodes
 * their pages and attends to them.  Only the values belong to other tokens.  Where layers keep a state per sequence,
 * the last block gets a snapshot: a copy of another block's, or zeros. */
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "nibble/measure.h"

typedef struct fill_job {
    const uint32_t *tok;
    size_t n_block;
    uint32_t *id; /* [n_block], held */
    size_t shard; /* where the text begins */
    nb_kv_cache *cache;
    nb_status st;
    nb_error *err;
} fill_job;

/* How many leading tokens of a block of a prompt are computed in the expanded form: loop.c. */
static unsigned n_expanded(const nb_engine *e)
{
    const bool absorbed = nb_engine_has_forms(e) && e->step.form == NB_FORM_ABSORBED &&
                          e->pages.thrift.kind == NB_THRIFT_OFF;
    return absorbed ? 0 : NB_BLOCK_TOK;
}

/* Whether block i of a prompt of n_tok tokens is in a unit that it fills: loop.c. */
static unsigned uploaded(const nb_engine *e, size_t i, size_t n_tok)
{
    const size_t unit = e->step.upload_tok;
    return unit && (i + 1) * NB_BLOCK_TOK <= n_tok / unit * unit ? NB_BLOCK_UPLOADED : 0;
}

static void copy_block(nb_engine *e, size_t shard, uint32_t to, uint32_t from)
{
    const size_t n_bytes = e->pages.block_bytes, own = e->pages.n_block / e->pages.n_part, first = nb_shard_rank(e, shard);
    if (e->pages.n_part > 1) {
        memcpy(e->rank[first + to / own].kv + to % own * n_bytes, e->rank[first + from / own].kv + from % own * n_bytes,
               n_bytes);
        return;
    }
    for (size_t k = first; k < nb_shard_rank(e, shard + 1); k++) {
        nb_engine_rank *r = &e->rank[k];
        r->device.kind->copy(&r->device, r->kv + to * n_bytes, r->kv + from * n_bytes, n_bytes);
    }
    if (e->rank[0].plane)
        memcpy(e->rank[0].plane + (size_t)to * e->pages.plane_block,
               e->rank[0].plane + (size_t)from * e->pages.plane_block, e->pages.plane_block);
}

/* The first block as a shorter prompt has it, which fills no unit. */
static uint32_t first_otherwise(const nb_engine *e, const nb_kv_cache *cache, const uint32_t *tok)
{
    nb_block_key key;
    if (!e->step.upload_tok || nb_block_key_root(nb_str_c(""), &key) != NB_OK ||
        nb_block_key_next(&key, tok, n_expanded(e), NB_BLOCK_TOK, &key) != NB_OK)
        return NB_BLOCK_NONE;
    return nb_kv_cache_find(cache, &key);
}

static nb_status fill_blocks(nb_engine *e, const fill_job *j, size_t *n_held)
{
    nb_block_key key, before;
    size_t n_there = 0;
    NB_TRY(nb_block_key_root(nb_str_c(""), &before));
    for (size_t i = 0; i < j->n_block; i++) {
        NB_TRY(nb_block_key_next(&before, j->tok + i * NB_BLOCK_TOK,
                                 n_expanded(e) | uploaded(e, i, j->n_block * NB_BLOCK_TOK),
                                 NB_BLOCK_TOK, &key));
        before = key;
        uint32_t id = nb_kv_cache_find(j->cache, &key);
        if (id != NB_BLOCK_NONE) {
            nb_kv_cache_hold(j->cache, id, false);
            if (n_there == i) n_there++;
        } else {
            const uint32_t from = n_there ? j->id[i % n_there] : first_otherwise(e, j->cache, j->tok);
            if (from == NB_BLOCK_NONE)
                return nb_fail(j->err, NB_ERR_NOT_FOUND,
                               "the first page of the text is not in the prefix cache");
            NB_TRY(nb_kv_cache_acquire_after(j->cache, i ? j->id[i - 1] : NB_BLOCK_NONE, &id));
            copy_block(e, j->shard, id, from); /* perhaps to itself */
            if (n_there == 0) n_there = 1;
            id = nb_kv_cache_publish(j->cache, id, &key, i ? j->id[i - 1] : NB_BLOCK_NONE);
        }
        j->id[(*n_held)++] = id;
    }
    return NB_OK;
}

/* The last block gets a snapshot, so that a prompt goes on behind it. */
static nb_status give_state(nb_engine *e, const fill_job *j)
{
    const uint32_t last = j->id[j->n_block - 1];
    const size_t n = nb_engine_state_bytes(e);
    uint32_t from = NB_SNAP_NONE;
    if (nb_kv_snap_of(j->cache, last) != NB_SNAP_NONE) return NB_OK;
    for (size_t i = 0; i < j->n_block && from == NB_SNAP_NONE; i++)
        from = nb_kv_snap_of(j->cache, j->id[i]);
    if (from != NB_SNAP_NONE) nb_kv_snap_pin(j->cache, from); /* acquire takes another place */
    const uint32_t to = nb_kv_snap_acquire(j->cache);
    if (to != NB_SNAP_NONE) {
        for (size_t k = nb_shard_rank(e, j->shard); k < nb_shard_rank(e, j->shard + 1); k++) {
            nb_engine_rank *r = &e->rank[k];
            char *at = (char *)r->snaps + to * n;
            if (from != NB_SNAP_NONE)
                r->device.kind->copy(&r->device, at, (char *)r->snaps + from * n, n);
            else
                r->device.kind->clear(&r->device, at, n);
        }
        nb_kv_snap_give(j->cache, to, last);
    }
    if (from != NB_SNAP_NONE) nb_kv_snap_unpin(j->cache, from);
    return to != NB_SNAP_NONE
               ? NB_OK
               : nb_fail(j->err, NB_ERR_LIMIT,
                         "no place for a snapshot of states is free (--ctx-checkpoints)");
}

/* The shard that has the first block of the text, in either form. */
static size_t shard_of(const nb_engine *e, const fill_job *j)
{
    nb_block_key root, key;
    if (nb_block_key_root(nb_str_c(""), &root) != NB_OK ||
        nb_block_key_next(&root, j->tok, n_expanded(e) | uploaded(e, 0, j->n_block * NB_BLOCK_TOK), NB_BLOCK_TOK,
                          &key) != NB_OK)
        return 0;
    for (size_t k = 0; k < e->n_shard; k++)
        if (nb_kv_cache_find(e->shard[k].cache, &key) != NB_BLOCK_NONE ||
            first_otherwise(e, e->shard[k].cache, j->tok) != NB_BLOCK_NONE)
            return k;
    return 0;
}

static void fill(nb_engine *e, void *ctx)
{
    fill_job *j = ctx;
    size_t n_held = 0;
    j->shard = shard_of(e, j);
    j->cache = e->shard[j->shard].cache;
    j->st = fill_blocks(e, j, &n_held);
    if (j->st == NB_OK && nb_engine_state_bytes(e)) j->st = give_state(e, j);
    nb_kv_cache_release(j->cache, j->id, n_held);
    nb_engine_publish(e);
}

nb_status nb_engine_fill(nb_engine *e, const uint32_t *tokens, size_t n_tok, nb_error *err)
{
    NB_TRY(nb_engine_check_caller(e, "nb_engine_fill", err));
    NB_TRY(nb_engine_check_tokens(e, tokens, n_tok, err));
    if (e->ranks.apart)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "a context cannot be filled in the caches of several processes");
    if (e->no_prefix_caching || e->model.c.attn[0].rope.switch_tok)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "a context cannot be filled %s",
                       e->no_prefix_caching ? "without the prefix cache" : "with longrope");
    fill_job j = { .tok = tokens, .n_block = n_tok / NB_BLOCK_TOK, .err = err };
    if (j.n_block == 0) return NB_OK;
    j.id = malloc(j.n_block * sizeof *j.id);
    if (!j.id) return nb_fail(err, NB_ERR_NOMEM, "no memory for %zu blocks", j.n_block);
    nb_status st = nb_engine_call(e, fill, &j);
    if (st == NB_OK) st = j.st;
    free(j.id);
    if (st == NB_ERR_CAPACITY)
        return nb_fail(err, st, "the pool of the KV cache has no room for %zu tokens", n_tok);
    return st;
}
