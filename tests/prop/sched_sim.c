/* sched_sim.c - see sched_sim.h. */
#include "prop/sched_sim.h"

#include <math.h>

static const nb_str salts[SIM_SALTS] = { { "", 0 }, { "a", 1 }, { "a\0b", 3 } };
static const uint64_t in_tail = 0x7a11, poison = 0xdeadbeefdeadbeef;

nb_str sim_salt(unsigned i)
{
    return salts[i];
}

sim_req *sim_find(sim *w, uint64_t id)
{
    if (id == NB_REFILL_ID) return w->refill.live ? &w->refill : NULL;
    for (size_t i = 0; i < SIM_LIVE; i++)
        if (w->req[i].live && w->req[i].rq.id == id) return &w->req[i];
    return NULL;
}

void sim_known(sim_req *r, uint32_t tok)
{
    const size_t at = r->n_known;
    const uint64_t how = (at < r->rq.n_expanded ? 1u : 0u) | (at >= r->rq.rope_from ? 2u : 0u);
    const uint64_t before = at ? r->ref[at - 1] : nb_mix64(r->salt);
    r->tok[at] = tok;
    r->ref[at] = nb_mix64(before ^ nb_mix64((uint64_t)tok << 2 | how));
    r->n_known++;
}

uint32_t sim_next_token(const sim_req *r)
{
    return (uint32_t)(nb_mix64(r->ref[r->n_known - 1] ^ r->sample_seed) % 1000);
}

static unsigned leading(size_t n, size_t page)
{
    const size_t at = page * NB_BLOCK_TOK;
    if (n <= at) return 0;
    return n - at < NB_BLOCK_TOK ? (unsigned)(n - at) : NB_BLOCK_TOK;
}

const nb_block_key *sim_key(sim_req *r, size_t page)
{
    nb_block_key root;
    NB_ASSERT((page + 1) * NB_BLOCK_TOK <= r->n_known);
    if (r->n_key == 0) NB_ASSERT(nb_block_key_root(salts[r->salt], &root) == NB_OK);
    for (; r->n_key <= page; r->n_key++) {
        const size_t k = r->n_key;
        NB_ASSERT(nb_block_key_next(k ? &r->key[k - 1] : &root, r->tok + k * NB_BLOCK_TOK,
                                    leading(r->rq.n_expanded, k), leading(r->rq.rope_from, k),
                                    &r->key[k]) == NB_OK);
    }
    return &r->key[page];
}

size_t sim_hits(const sim *w, sim_req *r)
{
    size_t n = 0;
    if (r->rq.no_lookup) return 0;
    while ((n + 1) * NB_BLOCK_TOK < r->n_known &&
           nb_kv_cache_find(w->kv, sim_key(r, n)) != NB_BLOCK_NONE)
        n++;
    while (w->o.snap_tok && n && !sim_has_snap(w, r, n - 1)) n--;
    return n;
}

bool sim_has_snap(const sim *w, sim_req *r, size_t page)
{
    const uint32_t id = nb_kv_cache_find(w->kv, sim_key(r, page));
    return id != NB_BLOCK_NONE && nb_kv_snap_of(w->kv, id) != NB_SNAP_NONE;
}

/* ---- texts ---- */

static size_t some_length(prop *p, size_t mean)
{
    size_t n = prop_below(p, 2 * mean + 1);
    if (prop_one_in(p, 3)) n = n / NB_BLOCK_TOK * NB_BLOCK_TOK + prop_below(p, 3); /* near edges */
    return n;
}

static size_t add_words(prop *p, uint32_t *tok, size_t n, size_t more, size_t cap)
{
    const uint64_t doc = prop_below(p, 4); /* the same few documents again and again */
    for (size_t i = 0; i < more && n < cap; i++, n++)
        tok[n] = (uint32_t)(nb_rng_u64(p->seed + doc, n) % 1000);
    return n;
}

static size_t some_prompt(sim *w, sim_req *r)
{
    prop *p = w->p;
    const size_t cap = w->o.max_model_len;
    size_t n = 0;
    r->salt = prop_one_in(p, 5) ? (unsigned)prop_below(p, SIM_SALTS) : 0;
    const size_t t = prop_below(p, SIM_TEXTS), kind = prop_below(p, 4);
    if (kind == 0 && w->text[t].n) { /* the next turn of a conversation, or the same again */
        n = prop_one_in(p, 4) ? w->text[t].n_prompt : w->text[t].n;
        memcpy(r->tok, w->text[t].tok, n * sizeof *r->tok);
        r->salt = w->text[t].salt;
        if (n == w->text[t].n || n == 0) n = add_words(p, r->tok, n, 1 + prop_below(p, 40), cap);
    } else if (kind == 1) { /* nobody else's */
        n = some_length(p, w->mean_prompt);
        if (n > cap) n = cap;
        for (size_t i = 0; i < n; i++) r->tok[i] = (uint32_t)(prop_u64(p) % 1000);
    } else {
        n = add_words(p, r->tok, 0, some_length(p, w->mean_prompt), cap);
        n = add_words(p, r->tok, n, some_length(p, 20), cap);
    }
    if (n == 0) r->tok[n++] = (uint32_t)prop_below(p, 1000);
    return n;
}

void sim_keep_text(sim *w, const sim_req *r)
{
    const size_t t = prop_below(w->p, SIM_TEXTS);
    memcpy(w->text[t].tok, r->tok, r->n_known * sizeof *r->tok);
    w->text[t].n = r->n_known;
    w->text[t].n_prompt = r->rq.n_prompt;
    w->text[t].salt = r->salt;
}

static void some_forms(sim *w, nb_sched_request *rq)
{
    prop *p = w->p;
    const size_t n = rq->n_prompt;
    switch (w->form) {
    case FORM_AUTO: rq->n_expanded = n; break;
    case FORM_ABSORBED: rq->n_expanded = 0; break;
    case FORM_EXPANDED: rq->n_expanded = SIZE_MAX; break;
    case FORM_ANY: rq->n_expanded = prop_one_in(p, 2) ? n : prop_below(p, SIM_TOK); break;
    }
    rq->rope_from = SIZE_MAX;
    if (w->rope_switch) rq->rope_from = n > w->rope_switch ? 0 : w->rope_switch;
    if (w->form == FORM_ANY && prop_one_in(p, 8)) rq->rope_from = prop_below(p, SIM_TOK);
}

static uint64_t some_id(const sim *w, prop *p)
{
    const sim_req *r = &w->req[prop_below(p, SIM_LIVE)];
    return r->live ? r->rq.id : 1 + prop_below(p, w->next_id);
}

int sim_add(sim *w, sim_req *r)
{
    prop *p = w->p;
    const uint64_t id = w->next_id + 1;
    *r = (sim_req){ .sample_seed = prop_below(p, 2) };
    nb_sched_request *rq = &r->rq;
    *rq = (nb_sched_request){ .id = id, .user = r, .deadline = INFINITY };
    rq->n_prompt = some_prompt(w, r);
    rq->prompt = r->tok;
    rq->salt = salts[r->salt];
    some_forms(w, rq);
    rq->no_lookup = prop_one_in(p, 15);
    if (prop_one_in(p, 10)) rq->max_item_tok = 1 + prop_below(p, 20);
    rq->priority = (int32_t)prop_below(p, 3) - 1;
    if (prop_one_in(p, 10)) rq->priority = 5;
    if (prop_one_in(p, 12)) rq->deadline = w->now + (double)prop_below(p, 60) + 0.03125;
    if (prop_one_in(p, 6) && w->next_id) rq->after = some_id(w, p);
    for (size_t n = rq->n_prompt, i = 0; i < n; i++) sim_known(r, r->tok[i]);
    r->n_end = rq->n_prompt + some_length(p, w->mean_answer);
    if (r->n_end > w->o.max_model_len) r->n_end = w->o.max_model_len;
    nb_error err = { 0 };
    uint32_t *copy = malloc(rq->n_prompt * sizeof *copy); /* the scheduler must not keep it */
    NB_ASSERT(copy);
    memcpy(copy, r->tok, rq->n_prompt * sizeof *copy);
    rq->prompt = copy;
    if (w->on_add && w->on_add(w, r)) return 1;
    const nb_status st = nb_sched_add(w->s, rq, w->now, &err);
    memset(copy, 0xff, rq->n_prompt * sizeof *copy);
    free(copy);
    rq->prompt = r->tok;
    if (st != NB_OK) return prop_fail(p, "add %llu: %s", (unsigned long long)id, err.msg);
    w->next_id = id;
    r->live = true;
    r->arrival = ++w->n_arrival;
    r->t_arrival = r->t_queue = w->now;
    prop_trace(p,
               "add %llu: %zu tokens to %zu, expanded %zu, rope %zu, salt %u, prio %d%s, after "
               "%llu",
               (unsigned long long)id, rq->n_prompt, r->n_end, rq->n_expanded, rq->rope_from,
               r->salt, (int)rq->priority, rq->no_lookup ? ", no lookup" : "",
               (unsigned long long)rq->after);
    return 0;
}

/* ---- the engine ---- */

void sim_clear_new(sim *w, const sim_req *r, const nb_sched_item *it)
{
    size_t from = r->n_table;
    if (it->admitted) {
        from = it->n_cached / NB_BLOCK_TOK;
        for (size_t i = 0; i < NB_BLOCK_TOK; i++) w->tail[it->slot][i] = poison;
        w->state[it->slot] = poison;
    }
    for (size_t k = from; k < it->n_block; k++)
        for (size_t i = 0; i < NB_BLOCK_TOK; i++) w->block[it->block[k]][i] = poison;
}

static int read_before(sim *w, const sim_req *r, const nb_sched_item *it)
{
    const size_t n_full = it->pos0 / NB_BLOCK_TOK, open = n_full * NB_BLOCK_TOK;
    for (size_t k = 0; k < n_full; k++)
        if (memcmp(w->block[it->block[k]], r->ref + k * NB_BLOCK_TOK, sizeof w->block[0]) != 0)
            return prop_fail(w->p,
                             "request %llu at %zu: page %zu (block %u) is not what it computed",
                             (unsigned long long)it->id, it->pos0, k, (unsigned)it->block[k]);
    for (size_t i = open; i < it->pos0; i++)
        if (w->tail[it->slot][i - open] != (r->ref[i] ^ in_tail))
            return prop_fail(w->p, "request %llu at %zu: token %zu of the open page is not there",
                             (unsigned long long)it->id, it->pos0, i - open);
    return 0;
}

/* The state of the tokens before the item: in the slot, or from a snapshot. */
static int load_state(sim *w, const sim_req *r, const nb_sched_item *it)
{
    if (!w->o.snap_tok) return 0;
    if (it->load != NB_SNAP_NONE) w->state[it->slot] = w->snap[it->load];
    if (it->pos0 && w->state[it->slot] != r->ref[it->pos0 - 1])
        return prop_fail(w->p, "request %llu at %zu: its state is not there (snapshot %d)",
                         (unsigned long long)it->id, it->pos0, (int)it->load);
    return 0;
}

static void compute(sim *w, const sim_req *r, const nb_sched_item *it)
{
    w->state[it->slot] = r->ref[it->pos0 + it->n_tok - 1];
    for (size_t i = it->pos0; i < it->pos0 + it->n_tok; i++) {
        uint64_t *tail = w->tail[it->slot];
        tail[i % NB_BLOCK_TOK] = r->ref[i] ^ in_tail;
        if (i % NB_BLOCK_TOK != NB_BLOCK_TOK - 1) continue;
        for (size_t j = 0; j < NB_BLOCK_TOK; j++)
            w->block[it->block[i / NB_BLOCK_TOK]][j] = tail[j] ^ in_tail;
    }
}

int sim_forward(sim *w, const nb_sched_item *item, size_t n_item)
{
    for (size_t i = 0; i < n_item; i++) {
        const sim_req *r = sim_find(w, item[i].id);
        if (r && (read_before(w, r, &item[i]) || load_state(w, r, &item[i]))) return 1;
    }
    for (size_t i = 0; i < n_item; i++) {
        const sim_req *r = sim_find(w, item[i].id);
        if (r) compute(w, r, &item[i]);
    }
    for (size_t i = 0; i < n_item; i++)
        if (sim_find(w, item[i].id) && item[i].save != NB_SNAP_NONE)
            w->snap[item[i].save] = w->state[item[i].slot];
    return 0;
}
