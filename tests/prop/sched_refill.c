/* sched_refill.c - see sched_refill.h.
 *
 * The model looks blocks up by keys of its own.  The engine of sched_sim.c reads what a refill needs and
 * writes what it computes, as for any request; so a later request that finds wrong bytes says so. */
#include "prop/sched_refill.h"

#include <math.h>

#include "sched/sched_look.h"

#define LL(x) ((unsigned long long)(x))

int refill_init(sim *w, refill_model *m)
{
    prop *p = w->p;
    nb_error err = { 0 };
    memset(m, 0, sizeof *m);
    if (!w->ko.index || prop_one_in(p, 3)) return 0;
    m->o = (nb_refill_options){ .max_text = prop_between(p, 1, REFILL_TEXTS),
                                .max_tok = SIM_TOK + prop_below(p, 3 * SIM_TOK),
                                .chunk_tok = NB_BLOCK_TOK * prop_between(p, 1, 3),
                                .quiet_s = 1 };
    if (nb_refill_create(&m->o, w->s, w->kv, &m->f, &err) != NB_OK)
        return prop_fail(p, "refills: %s", err.msg);
    return 0;
}

static int same_counts(sim *w, const refill_model *m, const char *when)
{
    nb_refill_stats s;
    nb_refill_get_stats(m->f, &s);
    const char *broken = nb_refill_check(m->f);
    if (broken) return prop_fail(w->p, "%s: %s", when, broken);
    if (s.n_text != m->n_text || s.n_done != m->n_done || s.n_dropped != m->n_dropped ||
        s.n_tok != m->n_tok)
        return prop_fail(w->p,
                         "%s: %zu refills wait, %llu done, %llu dropped, %llu tokens; expected "
                         "%zu, %llu, %llu, %llu",
                         when, s.n_text, LL(s.n_done), LL(s.n_dropped), LL(s.n_tok), m->n_text,
                         LL(m->n_done), LL(m->n_dropped), LL(m->n_tok));
    return 0;
}

static void take_out(refill_model *m, size_t i, uint64_t *counter)
{
    m->n_text--;
    memmove(&m->text[i], &m->text[i + 1], (m->n_text - i) * sizeof m->text[0]);
    ++*counter;
}

static size_t waiting_tok(const refill_model *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_text; i++) n += m->text[i].n;
    return n;
}

static nb_sched_request prompt_form(const sim *w, size_t n)
{
    return (nb_sched_request){
        .n_expanded = w->form == FORM_ABSORBED   ? 0
                      : w->form == FORM_EXPANDED ? SIZE_MAX
                                                 : n,
        .rope_from = !w->rope_switch     ? SIZE_MAX
                     : n > w->rope_switch ? 0
                                          : w->rope_switch,
    };
}

int refill_add(sim *w, refill_model *m, const sim_req *r)
{
    if (!m->f) return 0;
    const nb_sched_request form = prompt_form(w, r->n_known);
    const nb_refill_text t = { .tok = r->tok,
                               .n_tok = r->n_known,
                               .n_prompt = r->rq.n_prompt,
                               .n_expanded = form.n_expanded,
                               .rope_from = form.rope_from,
                               .salt = sim_salt(r->salt) };
    if (nb_refill_add(m->f, &t) != NB_OK) return prop_fail(w->p, "a refill was not taken");
    const size_t n = r->n_known / NB_BLOCK_TOK * NB_BLOCK_TOK;
    if (n <= r->rq.n_prompt / NB_BLOCK_TOK * NB_BLOCK_TOK) return same_counts(w, m, "a short text");
    while (m->n_text && (m->n_text == m->o.max_text || waiting_tok(m) + n > m->o.max_tok))
        take_out(m, 0, &m->n_dropped);
    memcpy(m->text[m->n_text].tok, r->tok, n * sizeof *r->tok);
    m->text[m->n_text].n = n;
    m->text[m->n_text].n_prompt = r->rq.n_prompt;
    m->text[m->n_text].form = form;
    m->text[m->n_text++].salt = r->salt;
    prop_trace(w->p, "a refill of %zu tokens, %zu wait", n, m->n_text);
    return same_counts(w, m, "a text was added");
}

int refill_yield(sim *w, refill_model *m, const uint32_t *tok, size_t n_tok, unsigned salt)
{
    nb_sched_stats s;
    if (!m->f) return 0;
    const bool alone = w->refill.live;
    nb_refill_yield(m->f, tok, n_tok, sim_salt(salt));
    w->refill.live = false;
    for (size_t i = m->n_text; i-- > 0;)
        if (m->text[i].salt == salt && m->text[i].n <= n_tok &&
            memcmp(m->text[i].tok, tok, m->text[i].n * sizeof *tok) == 0)
            take_out(m, i, &m->n_dropped);
    nb_sched_get_stats(w->s, &s);
    if (alone && (s.n_running + s.n_waiting || nb_kv_cache_available(w->kv) != w->ko.n_block))
        return prop_fail(w->p, "a refill that has yielded still holds something");
    return same_counts(w, m, "a request arrived");
}

void refill_clear(sim *w, refill_model *m)
{
    if (!m->f) return;
    nb_refill_clear(m->f);
    w->refill.live = false;
    m->n_dropped += m->n_text;
    m->n_text = 0;
}

/* The text as a request of its own: what it alone would have written. */
static void as_request(const refill_model *m, sim_req *r)
{
    *r = (sim_req){ .rq = m->text[0].form, .salt = m->text[0].salt, .live = true };
    r->rq.id = NB_REFILL_ID;
    r->rq.n_prompt = m->text[0].n;
    r->rq.prompt = r->tok;
    for (size_t i = 0; i < m->text[0].n; i++) sim_known(r, m->text[0].tok[i]);
}

/* Which text has to come next, by the model: into w->refill. */
static bool next_text(sim *w, refill_model *m)
{
    while (m->n_text) {
        const size_t n_all = m->text[0].n / NB_BLOCK_TOK;
        size_t n = 0;
        as_request(m, &w->refill);
        while (n < n_all && nb_kv_cache_find(w->kv, sim_key(&w->refill, n)) != NB_BLOCK_NONE) n++;
        if (n == n_all && (!w->o.snap_tok || sim_has_snap(w, &w->refill, n - 1)))
            take_out(m, 0, &m->n_done);
        else if (n < m->text[0].n_prompt / NB_BLOCK_TOK)
            take_out(m, 0, &m->n_dropped);
        else
            return true;
    }
    w->refill.live = false;
    return false;
}

static int start(sim *w, refill_model *m)
{
    if (nb_refill_start(m->f, m->o.quiet_s / 2)) return prop_fail(w->p, "it did not wait for quiet");
    const bool want = next_text(w, m), got = nb_refill_start(m->f, m->o.quiet_s);
    if (want != got) return prop_fail(w->p, "a refill %s", got ? "was started" : "did not start");
    if (nb_refill_start(m->f, m->o.quiet_s)) return prop_fail(w->p, "a second refill was started");
    return same_counts(w, m, "started");
}

static int check_item(sim *w, const refill_model *m, const nb_sched_item *it)
{
    prop *p = w->p;
    sim_req *r = &w->refill;
    const size_t end = it->pos0 + it->n_tok, least = m->text[0].n_prompt / NB_BLOCK_TOK;
    if (it->id != NB_REFILL_ID || it->user) return prop_fail(p, "an item of %llu", LL(it->id));
    if (it->n_tok == 0 || it->n_tok > m->o.chunk_tok || end > r->n_known)
        return prop_fail(p, "a refill of %zu tokens at %zu of %zu", it->n_tok, it->pos0,
                         r->n_known);
    if (it->pos0 < least * NB_BLOCK_TOK && !w->o.snap_tok)
        return prop_fail(p, "a refill computes the prompt from %zu", it->pos0);
    if (memcmp(it->tok, r->tok + it->pos0, it->n_tok * sizeof *it->tok) != 0)
        return prop_fail(p, "a refill of other tokens");
    if (it->expanded != (it->pos0 < r->rq.n_expanded) ||
        it->rope_long != (it->pos0 >= r->rq.rope_from))
        return prop_fail(p, "a refill in another form");
    if (!it->admitted && it->pos0 != r->n_computed)
        return prop_fail(p, "a refill goes on at %zu, computed were %zu", it->pos0, r->n_computed);
    return 0;
}

static int compute(sim *w, refill_model *m, const nb_sched_item *it)
{
    sim_req *r = &w->refill;
    if (check_item(w, m, it)) return 1;
    sim_clear_new(w, r, it);
    r->n_table = it->n_block;
    memcpy(r->table, it->block, it->n_block * sizeof *it->block);
    if (sim_forward(w, it, 1)) return 1;
    const size_t end = it->pos0 + it->n_tok;
    m->n_tok += it->n_tok;
    if (nb_refill_computed(m->f) != NB_OK) return prop_fail(w->p, "a refill's item is not taken");
    r->n_computed = end;
    for (size_t k = 0; k < end / NB_BLOCK_TOK; k++)
        if (nb_kv_cache_find(w->kv, sim_key(r, k)) == NB_BLOCK_NONE)
            return prop_fail(w->p, "block %zu of a refill cannot be found", k);
    if (end == r->n_known) {
        take_out(m, 0, &m->n_done);
        r->live = false;
    }
    return same_counts(w, m, "computed");
}

int refill_step(sim *w, refill_model *m)
{
    nb_sched_item item[SIM_SEQS];
    nb_sched_stats before, after;
    if (!m->f) return 0;
    nb_sched_get_stats(w->s, &before);
    if (!w->refill.live && start(w, m)) return 1;
    const size_t n = nb_sched_plan(w->s, w->now, item);
    if (n != w->refill.live) return prop_fail(w->p, "%zu items beside a refill", n);
    const char *broken = nb_sched_check(w->s);
    if (broken) return prop_fail(w->p, "check with a refill: %s", broken);
    if (n && prop_one_in(w->p, 20)) { /* a value was not finite */
        nb_refill_drop(m->f);
        w->refill.live = false;
        take_out(m, 0, &m->n_dropped);
    } else if (n && compute(w, m, &item[0])) {
        return 1;
    }
    nb_sched_get_stats(w->s, &after);
    if (memcmp(&before, &after, sizeof before) != 0)
        return prop_fail(w->p, "a refill is counted as a request");
    return 0;
}
