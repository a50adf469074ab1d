/* trace_session.c - a session's file as a tree of blocks; see trace.h.
 *
 * Nearly every request repeats the one before it, so a name is compared with the one at the same
 * place there; only where they part, the table of (node, name) is asked. */
#include <stdlib.h>

#include "base/hash.h"
#include "capacity/trace.h"
#include "capacity/trace_scan.h"
#include "os/file.h"

#define NONE NB_BLOCK_NONE

/* Of a request; the first four it must have.  A subagent has a t and its requests. */
static const char *const request_field[] = { "t",        "in",          "out",     "hash_ids",
                                             "api_time", "duration_ms", "requests" };

typedef struct load {
    nb_scan s;
    nb_session *out;
    uint64_t *name; /* [n_node] the name of a node's block */
    size_t cap_name, cap_parent, cap_req;
    uint32_t *slot; /* [slot_mask + 1] nodes by (parent, name), NONE: empty */
    size_t slot_mask;
    uint64_t *id; /* [cap_id] names of the last request, and its nodes */
    uint32_t *path;
    size_t n_id, cap_id, cap_path;
    bool local;
} load;

static nb_status no_memory(const load *l)
{
    return nb_fail(l->s.err, NB_ERR_NOMEM, "%s:%zu: out of memory", l->s.name, l->s.line);
}

static size_t slot_of(const load *l, uint32_t parent, uint64_t name)
{
    return (size_t)nb_mix64(name ^ nb_mix64(parent)) & l->slot_mask;
}

static nb_status grow_slots(load *l)
{
    const size_t n = l->slot ? 2 * (l->slot_mask + 1) : 1024;
    uint32_t *slot = malloc(n * sizeof *slot);
    if (!slot) return no_memory(l);
    free(l->slot);
    l->slot = slot;
    l->slot_mask = n - 1;
    for (size_t i = 0; i < n; i++) slot[i] = NONE;
    for (size_t i = 0; i < l->out->n_node; i++) {
        size_t at = slot_of(l, l->out->parent[i], l->name[i]);
        while (slot[at] != NONE) at = (at + 1) & l->slot_mask;
        slot[at] = (uint32_t)i;
    }
    return NB_OK;
}

/* The node of a name behind a node, made when there is none. */
static nb_status node_of(load *l, uint32_t parent, uint64_t name, uint32_t *out)
{
    nb_session *o = l->out;
    if (!l->slot || o->n_node * 2 > l->slot_mask) NB_TRY(grow_slots(l));
    size_t at = slot_of(l, parent, name);
    for (; l->slot[at] != NONE; at = (at + 1) & l->slot_mask) {
        const uint32_t i = l->slot[at];
        if (o->parent[i] == parent && l->name[i] == name) {
            *out = i;
            return NB_OK;
        }
    }
    if (o->n_node == NB_TRACE_MAX_NODE)
        return nb_scan_fail(&l->s, "at most 16777216 different blocks in a session");
    if (NB_GROW(o->parent, l->cap_parent, o->n_node) != NB_OK ||
        NB_GROW(l->name, l->cap_name, o->n_node) != NB_OK)
        return no_memory(l);
    o->parent[o->n_node] = parent;
    l->name[o->n_node] = name;
    l->slot[at] = *out = (uint32_t)o->n_node++;
    return NB_OK;
}

static nb_status read_path(load *l, nb_session_req *r)
{
    size_t n = 0;
    bool more;
    NB_TRY(nb_scan_open(&l->s, '[', "hash_ids as an array"));
    for (;; n++) {
        uint64_t id;
        NB_TRY(nb_scan_more(&l->s, ']', n == 0, &more));
        if (!more) break;
        if (n == NB_TRACE_MAX_ID) return nb_scan_fail(&l->s, "at most 1048576 hash_ids");
        NB_TRY(nb_scan_count(&l->s, "hash_ids of whole numbers up to 2^53", NB_TRACE_MAX_ID_VALUE,
                             &id));
        if (n < l->n_id && l->id[n] == id) continue;
        if (NB_GROW(l->id, l->cap_id, n) != NB_OK || NB_GROW(l->path, l->cap_path, n) != NB_OK)
            return no_memory(l);
        NB_TRY(node_of(l, n ? l->path[n - 1] : NONE, id, &l->path[n]));
        l->id[n] = id;
        l->n_id = n + 1; /* what the last request had behind it is another text's */
    }
    l->n_id = n;
    r->n_id = (uint32_t)n;
    r->node = n ? l->path[n - 1] : NONE;
    return NB_OK;
}

static nb_status count_field(load *l, const char *what, uint32_t *out)
{
    uint64_t v;
    NB_TRY(nb_scan_count(&l->s, what, NB_TRACE_MAX_TOK, &v));
    *out = (uint32_t)v;
    return NB_OK;
}

static nb_status seconds_field(load *l, const char *what, double *out)
{
    NB_TRY(nb_scan_number(&l->s, what, out));
    return *out < 0 || *out > 1e12 ? nb_scan_fail(&l->s, what) : NB_OK;
}

static nb_status seconds_or_null(load *l, const char *what, double *out)
{
    return nb_scan_peek(&l->s) == 'n' ? nb_scan_skip(&l->s) : seconds_field(l, what, out);
}

static nb_status read_requests(load *l, size_t depth);

static nb_status check_fields(const load *l, size_t line, unsigned have, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(have >> i & 1))
            return nb_fail(l->s.err, NB_ERR_FORMAT, "%s:%zu: expected a field \"%s\"", l->s.name,
                           line, request_field[i]);
    return NB_OK;
}

/* Requests from number `first` on are a subagent's, whose times count from its start.  Its t is when it
 * ended, or was sent off to go on by itself (no duration): see trace.h. */
static void place_subagent(load *l, size_t first, double t_s, double duration_s)
{
    const double start_s = t_s > duration_s ? t_s - duration_s : 0;
    for (size_t i = first; i < l->out->n_req; i++) l->out->req[i].t_s += start_s;
}

/* One request, or a subagent with its own list of them. */
static nb_status read_request(load *l, size_t depth)
{
    nb_session_req r = { .node = NONE };
    unsigned have = 0;
    bool more, first = true, have_requests = false;
    double duration_ms = 0;
    const size_t line = l->s.line, n_before = l->out->n_req;
    NB_TRY(nb_scan_open(&l->s, '{', "requests that are objects"));
    for (;; first = false) {
        nb_str key;
        size_t i = 0;
        NB_TRY(nb_scan_more(&l->s, '}', first, &more));
        if (!more) break;
        NB_TRY(nb_scan_key(&l->s, &key));
        while (i < NB_COUNT(request_field) && !nb_str_eqc(key, request_field[i])) i++;
        have |= 1u << i;
        switch (i) {
        case 0: NB_TRY(seconds_field(l, "t as seconds since the start", &r.t_s)); break;
        case 1: NB_TRY(count_field(l, "in of 0 to 16777216", &r.n_in)); break;
        case 2: NB_TRY(count_field(l, "out of 0 to 16777216", &r.n_out)); break;
        case 3: NB_TRY(read_path(l, &r)); break;
        case 4: NB_TRY(seconds_or_null(l, "api_time as seconds", &r.api_s)); break;
        case 5: NB_TRY(seconds_or_null(l, "duration_ms up to 1e12", &duration_ms)); break;
        case 6:
            if (have_requests) return nb_scan_fail(&l->s, "\"requests\" once");
            have_requests = true;
            NB_TRY(read_requests(l, depth + 1));
            break;
        default: NB_TRY(nb_scan_skip(&l->s));
        }
    }
    if (have_requests) { /* they and their times are all there is of it */
        NB_TRY(check_fields(l, line, have, 1));
        place_subagent(l, n_before, r.t_s, duration_ms / 1e3);
        return NB_OK;
    }
    NB_TRY(check_fields(l, line, have, 4));
    nb_session *o = l->out;
    if (o->n_req == NB_TRACE_MAX_REQ)
        return nb_scan_fail(&l->s, "at most 1048576 requests in a session");
    if (NB_GROW(o->req, l->cap_req, o->n_req) != NB_OK) return no_memory(l);
    o->req[o->n_req++] = r;
    return NB_OK;
}

static nb_status read_requests(load *l, size_t depth)
{
    bool more;
    if (depth > 4) return nb_scan_fail(&l->s, "subagents at most 4 deep");
    NB_TRY(nb_scan_open(&l->s, '[', "requests as an array"));
    for (size_t n = 0;; n++) {
        NB_TRY(nb_scan_more(&l->s, ']', n == 0, &more));
        if (!more) return NB_OK;
        NB_TRY(read_request(l, depth));
    }
}

static nb_status read_session(load *l)
{
    bool more, first = true, have = false, have_block = false;
    uint64_t block = 0;
    nb_str key, scope;
    NB_TRY(nb_scan_open(&l->s, '{', "a session as a JSON object"));
    for (;; first = false) {
        NB_TRY(nb_scan_more(&l->s, '}', first, &more));
        if (!more) break;
        NB_TRY(nb_scan_key(&l->s, &key));
        if (nb_str_eqc(key, "block_size")) {
            NB_TRY(nb_scan_count(&l->s, "block_size: a multiple of 64 up to 4096", 4096, &block));
            if (block == 0 || block % NB_BLOCK_TOK)
                return nb_scan_fail(&l->s, "block_size: a multiple of 64 up to 4096");
            have_block = true;
        } else if (nb_str_eqc(key, "hash_id_scope")) {
            NB_TRY(nb_scan_string(&l->s, "hash_id_scope: \"local\" or \"global\"", &scope));
            l->local = nb_str_eqc(scope, "local");
            if (!l->local && !nb_str_eqc(scope, "global"))
                return nb_scan_fail(&l->s, "hash_id_scope: \"local\" or \"global\"");
        } else if (nb_str_eqc(key, "requests")) {
            if (have) return nb_scan_fail(&l->s, "\"requests\" once");
            have = true;
            NB_TRY(read_requests(l, 0));
        } else {
            NB_TRY(nb_scan_skip(&l->s));
        }
    }
    if (!have || !have_block)
        return nb_scan_fail(&l->s, have ? "a field \"block_size\"" : "a field \"requests\"");
    l->out->id_tok = (size_t)block;
    return nb_scan_end(&l->s);
}

nb_status nb_trace_keys(const nb_block_key *parent, uint64_t id, size_t id_tok, nb_block_key *key)
{
    uint32_t tok[NB_BLOCK_TOK] = { (uint32_t)id, (uint32_t)(id >> 32) };
    for (size_t i = 0; i < id_tok / NB_BLOCK_TOK; i++) {
        tok[2] = (uint32_t)i;
        NB_TRY(
            nb_block_key_next(i ? &key[i - 1] : parent, tok, NB_BLOCK_TOK, NB_BLOCK_TOK, &key[i]));
    }
    return NB_OK;
}

/* A parent's number is lower than its children's, so one pass makes all keys. */
static nb_status make_keys(load *l, nb_str salt)
{
    nb_session *o = l->out;
    const size_t n_key = o->id_tok / NB_BLOCK_TOK;
    nb_block_key root;
    if (!o->n_node) return NB_OK;
    if (o->n_node > NB_TRACE_MAX_NODE / n_key)
        return nb_scan_fail(&l->s, "at most 2^30 tokens of different blocks in a session");
    o->key = malloc(o->n_node * n_key * sizeof *o->key);
    if (!o->key) return no_memory(l);
    nb_status st = nb_block_key_root(l->local ? salt : (nb_str){ "", 0 }, &root);
    for (size_t i = 0; st == NB_OK && i < o->n_node; i++) {
        const uint32_t p = o->parent[i];
        const nb_block_key *parent = p == NONE ? &root : &o->key[p * n_key + n_key - 1];
        st = nb_trace_keys(parent, l->name[i], o->id_tok, &o->key[i * n_key]);
    }
    return st == NB_OK ? NB_OK : nb_fail(l->s.err, st, "%s: %s", l->s.name, nb_status_text(st));
}

typedef struct placed {
    nb_session_req r;
    size_t at;
} placed;

static int by_time(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->r.t_s < y->r.t_s || x->r.t_s > y->r.t_s) return x->r.t_s < y->r.t_s ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Requests of subagents come among those of their parent; of equal times the first in the file is first. */
static nb_status sort_requests(load *l)
{
    nb_session *o = l->out;
    size_t n = 1;
    while (n < o->n_req && o->req[n - 1].t_s <= o->req[n].t_s) n++;
    if (n >= o->n_req) return NB_OK;
    placed *p = malloc(o->n_req * sizeof *p);
    if (!p) return no_memory(l);
    for (size_t i = 0; i < o->n_req; i++) p[i] = (placed){ o->req[i], i };
    qsort(p, o->n_req, sizeof *p, by_time);
    for (size_t i = 0; i < o->n_req; i++) o->req[i] = p[i].r;
    free(p);
    return NB_OK;
}

nb_status nb_session_parse(const char *p, size_t n_bytes, const char *name, nb_str salt,
                           nb_session *out, nb_error *err)
{
    nb_session got = { 0 };
    load l = { .s = nb_scan_text(p, n_bytes, name, 1, err), .out = &got, .local = true };
    nb_status st = read_session(&l);
    if (st == NB_OK) st = make_keys(&l, salt);
    if (st == NB_OK) st = sort_requests(&l);
    free(l.name);
    free(l.slot);
    free(l.id);
    free(l.path);
    if (st == NB_OK)
        *out = got;
    else
        nb_session_deinit(&got);
    return st;
}

nb_status nb_session_load(const char *path, nb_str salt, nb_session *out, nb_error *err)
{
    nb_file_map map;
    NB_TRY(nb_file_mmap(path, &map, err));
    const nb_status st =
        nb_session_parse(map.p ? (const char *)map.p : "", map.n_bytes, path, salt, out, err);
    nb_file_unmap(&map);
    return st;
}

void nb_session_deinit(nb_session *s)
{
    free(s->req);
    free(s->parent);
    free(s->key);
    *s = (nb_session){ 0 };
}
