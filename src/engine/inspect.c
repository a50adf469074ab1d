/* inspect.c - nb_engine_cache_json: what the cache holds, for people to look at.
 *
 * The engine's thread only copies, between two steps; the text is made in the caller's.
 * Columns instead of objects, and parents as differences, so that 100,000 blocks stay under
 * 2 MB: docs/serving-page.md has the shape. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "sched/sched_look.h"

enum {
    SHOWN_BLOCKS = 1 << 18,
    SHOWN_REQUESTS = 256,
    SHOWN_RUNS = 16384, /* runs of consecutive blocks, of all requests together */
    KEY_BYTES = 4       /* of each key */
};

typedef struct cell {
    uint32_t parent, n_ref, n_hit;
    unsigned char key[KEY_BYTES];
    char state;
} cell;

typedef struct block_run {
    uint32_t first, n;
} block_run;

typedef struct shown_request {
    nb_request_id id;
    size_t n_prompt, n_known, n_computed, n_cached, n_block, n_run; /* n_run: in snapshot.run */
} shown_request;

typedef struct snapshot {
    cell *cell; /* [n_shown] */
    block_run *run;
    shown_request *req;
    size_t n_shown, n_run, n_req, n_left_out;
    nb_kv_cache_stats stats;
} snapshot;

static void copy_block(const nb_engine *e, uint32_t id, cell *out)
{
    nb_kv_block_info b = { 0 };
    const uint32_t first = id / (uint32_t)e->pages.n_block * (uint32_t)e->pages.n_block; /* of its shard */
    nb_kv_cache_block(e->shard[id / e->pages.n_block].cache, id - first, &b);
    const bool continues = b.indexed && b.parent != NB_BLOCK_NONE;
    *out = (cell){ .parent = continues ? first + b.parent : NB_BLOCK_NONE, .n_ref = b.n_ref, .state = '.' };
    if (b.n_ref)
        out->state = 'h';
    else if (b.indexed)
        out->state = b.many ? 'm' : '1';
    if (!b.indexed) return;
    out->n_hit = b.n_hit;
    memcpy(out->key, b.key.b, KEY_BYTES);
    static const unsigned char none[KEY_BYTES]; /* in the text: cannot be found */
    if (memcmp(out->key, none, KEY_BYTES) == 0) out->key[KEY_BYTES - 1] = 1;
}

/* first: the number of the shard's first block. */
static void copy_request(snapshot *s, const nb_run *r, uint32_t first, const nb_sched_look_at *v)
{
    shown_request *q = &s->req[s->n_req++];
    *q = (shown_request){
        r->id, r->n_prompt, v->n_known, v->n_computed, v->n_cached, v->n_block, 0
    };
    for (size_t i = 0; i < v->n_block; i++) {
        block_run *last = q->n_run ? &s->run[s->n_run - 1] : NULL;
        if (last && first + v->block[i] == last->first + last->n) {
            last->n++;
        } else {
            if (s->n_run == SHOWN_RUNS) return;
            s->run[s->n_run++] = (block_run){ first + v->block[i], 1 };
            q->n_run++;
        }
    }
}

static void take(nb_engine *e, void *ctx)
{
    snapshot *s = ctx;
    nb_sched_stats sched;
    nb_shards_stats(e, &sched, &s->stats);
    for (size_t i = 0; i < s->n_shown; i++) copy_block(e, (uint32_t)i, &s->cell[i]);
    for (const nb_run *r = e->live; r; r = r->next) {
        nb_sched_look_at v;
        if (!r->added || !nb_sched_look(nb_sched_of(e, r), r->id, &v) || !v.running) continue;
        if (s->n_req < SHOWN_REQUESTS)
            copy_request(s, r, (uint32_t)(r->shard * e->pages.n_block), &v);
        else
            s->n_left_out++;
    }
}

/* ---- text ---- */

typedef void cell_fn(nb_buf *b, const cell *c, uint32_t id);

/* Appends the column of all blocks that are not free. */
static nb_status add_column(nb_buf *b, const snapshot *s, const char *name, cell_fn *fn)
{
    NB_TRY(nb_buf_printf(b, ",\"%s\":[", name));
    bool first = true;
    for (size_t i = 0; i < s->n_shown; i++) {
        if (s->cell[i].state == '.') continue;
        NB_TRY(nb_buf_reserve(b, 24));
        if (!first) NB_TRY(nb_buf_add_ch(b, ','));
        fn(b, &s->cell[i], (uint32_t)i);
        first = false;
    }
    return nb_buf_add_ch(b, ']');
}

/* An int in few instructions; room is reserved. */
static void put_int(nb_buf *b, int64_t v)
{
    char text[24];
    size_t n = sizeof text;
    uint64_t u = v < 0 ? (uint64_t)-v : (uint64_t)v;
    do {
        text[--n] = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0) text[--n] = '-';
    (void)nb_buf_add(b, text + n, sizeof text - n);
}

static void put_parent(nb_buf *b, const cell *c, uint32_t id)
{
    put_int(b, c->parent == NB_BLOCK_NONE ? 0 : (int64_t)c->parent - (int64_t)id);
}
static void put_holders(nb_buf *b, const cell *c, uint32_t id)
{
    (void)id;
    put_int(b, c->n_ref);
}
static void put_hits(nb_buf *b, const cell *c, uint32_t id)
{
    (void)id;
    put_int(b, c->n_hit);
}

static nb_status add_keys(nb_buf *b, const snapshot *s)
{
    static const char hex[] = "0123456789abcdef";
    NB_TRY(nb_buf_add_c(b, ",\"keys\":\""));
    for (size_t i = 0; i < s->n_shown; i++) {
        char text[2 * KEY_BYTES];
        if (s->cell[i].state == '.') continue;
        for (size_t k = 0; k < KEY_BYTES; k++) {
            text[2 * k] = hex[s->cell[i].key[k] >> 4];
            text[2 * k + 1] = hex[s->cell[i].key[k] & 15];
        }
        NB_TRY(nb_buf_add(b, text, sizeof text));
    }
    return nb_buf_add_ch(b, '"');
}

static nb_status add_requests(nb_buf *b, const snapshot *s)
{
    const block_run *run = s->run;
    NB_TRY(nb_buf_add_c(b, ",\"requests\":["));
    for (size_t i = 0; i < s->n_req; i++) {
        const shown_request *q = &s->req[i];
        NB_TRY(nb_buf_printf(b,
                             "%s{\"id\":%" PRIu64 ",\"prompt_tokens\":%zu,\"tokens\":%zu,"
                             "\"computed\":%zu,\"cached\":%zu,\"n_blocks\":%zu,\"runs\":[",
                             i ? "," : "", q->id, q->n_prompt, q->n_known, q->n_computed,
                             q->n_cached, q->n_block));
        for (size_t k = 0; k < q->n_run; k++, run++)
            NB_TRY(nb_buf_printf(b, "%s%" PRIu32 ",%" PRIu32, k ? "," : "", run->first, run->n));
        NB_TRY(nb_buf_add_c(b, "]}"));
    }
    return nb_buf_printf(b, "],\"requests_left_out\":%zu}", s->n_left_out);
}

static nb_status write_snapshot(const nb_engine *e, const snapshot *s, nb_buf *b)
{
    NB_TRY(
        nb_buf_printf(b,
                      "{\"n_block\":%zu,\"block_tok\":%d,\"block_bytes\":%zu,\"kv_dtype\":\"%s\","
                      "\"evicted\":%" PRIu64 ",\"published\":%" PRIu64 ",\"state\":\"",
                      e->n_shard * e->pages.n_block, NB_BLOCK_TOK, e->pages.block_bytes, e->pages.kv_dtype,
                      s->stats.n_evicted, s->stats.n_published));
    NB_TRY(nb_buf_reserve(b, s->n_shown));
    for (size_t i = 0; i < s->n_shown; i++) NB_TRY(nb_buf_add_ch(b, s->cell[i].state));
    NB_TRY(nb_buf_add_ch(b, '"'));
    NB_TRY(add_column(b, s, "parent", put_parent));
    NB_TRY(add_column(b, s, "holders", put_holders));
    NB_TRY(add_column(b, s, "hits", put_hits));
    NB_TRY(add_keys(b, s));
    return add_requests(b, s);
}

nb_status nb_engine_cache_json(nb_engine *e, char **json, nb_error *err)
{
    if (!e || !json) return nb_fail(err, NB_ERR_ARG, "no engine given");
    const size_t n_block = e->n_shard * e->pages.n_block;
    snapshot s = { .n_shown = n_block < SHOWN_BLOCKS ? n_block : SHOWN_BLOCKS };
    nb_buf b = { 0 };
    s.cell = malloc(s.n_shown * sizeof *s.cell);
    s.run = malloc(SHOWN_RUNS * sizeof *s.run);
    s.req = malloc(SHOWN_REQUESTS * sizeof *s.req);
    nb_status st = s.cell && s.run && s.req ? NB_OK : NB_ERR_NOMEM;
    if (st == NB_OK) st = nb_engine_call(e, take, &s);
    if (st == NB_OK) st = write_snapshot(e, &s, &b);
    free(s.cell);
    free(s.run);
    free(s.req);
    if (st == NB_OK) {
        *json = b.p; /* terminated; malloc's, as nb_free wants */
        return NB_OK;
    }
    nb_buf_deinit(&b);
    return nb_fail(err, st, "%s",
                   st == NB_ERR_ARG ? "nb_engine_cache_json was called from a callback"
                                    : "no memory for the picture of the cache");
}
