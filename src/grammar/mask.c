/* mask.c - a match: its creation, its masks, its tokens. */
#include <stdlib.h>
#include <string.h>

#include "grammar/match.h"

/* ---- a match ---- */

static nb_status start(nb_match *m, nb_match_start where)
{
    m->st = NB_OK;
    const nb_status st = nb_m_reset(m);
    if (st != NB_OK) return st;
    nb_m_begin(m);
    nb_m_visit(m, (nb_place){ .node = m->g->rule[m->g->start[where]] });
    m->now = nb_m_close(m);
    return m->st;
}

nb_status nb_match_create(nb_grammar *g, nb_match_start where, nb_match **out, nb_error *err)
{
    nb_match *m = calloc(1, sizeof *m);
    if (!m) return nb_fail(err, NB_ERR_NOMEM, "no memory to match a grammar");
    m->g = nb_grammar_ref(g);
    m->v = g->vocab;
    m->todo = malloc(NB_M_MAX_CLOSURE * sizeof *m->todo);
    m->kept = malloc(NB_M_MAX_CLOSURE * sizeof *m->kept);
    m->seen_place = malloc(NB_M_MAX_CLOSURE * sizeof *m->seen_place);
    m->seen = malloc(2 * NB_M_MAX_CLOSURE * sizeof *m->seen);
    m->seen_stamp = calloc(2 * NB_M_MAX_CLOSURE, sizeof *m->seen_stamp);
    m->all = calloc(m->v->n_word, sizeof *m->all);
    m->max_slot = NB_M_MASK_BYTES / (m->v->n_word * sizeof(uint64_t)) + 2;
    if (m->max_slot > 4096) m->max_slot = 4096;
    m->slot = calloc(m->max_slot, sizeof *m->slot);
    nb_status st = NB_ERR_NOMEM;
    if (m->todo && m->kept && m->seen_place && m->seen && m->seen_stamp && m->all && m->slot)
        st = start(m, where);
    if (st != NB_OK) {
        nb_match_destroy(m);
        return nb_fail(err, st, "the grammar cannot be started: %s", nb_status_text(st));
    }
    *out = m;
    return NB_OK;
}

void nb_match_destroy(nb_match *m)
{
    if (!m) return;
    nb_m_free_states(m);
    for (size_t i = 0; m->slot && i < m->n_slot; i++) free(m->slot[i].bits);
    free(m->slot);
    free(m->todo);
    free(m->kept);
    free(m->seen_place);
    free(m->seen);
    free(m->seen_stamp);
    free(m->all);
    nb_grammar_unref(m->g);
    free(m);
}

bool nb_match_accepting(const nb_match *m)
{
    return m->state[m->now].accepting;
}

bool nb_match_complete(const nb_match *m)
{
    const nb_state *s = &m->state[m->now];
    return s->accepting && s->n_place == 0;
}

/* The trigger of a state that is free text with markers. */
static const nb_gtrigger *free_text(const nb_match *m)
{
    const nb_state *s = &m->state[m->now];
    for (uint32_t i = 0; i < s->n_place; i++) {
        const nb_gnode *n = &m->g->node[m->place[s->place + i].node];
        if (n->kind == K_FREE && !n->b) return &m->g->trigger[n->a];
    }
    return NULL;
}

bool nb_match_free(const nb_match *m)
{
    const nb_gtrigger *t = free_text(m);
    return t && t->marker != NB_GRAMMAR_NO_TOKEN && t->dfa == NB_G_NONE && t->may_end;
}

nb_match_stats nb_match_get_stats(const nb_match *m)
{
    nb_match_stats s = m->stats;
    s.n_state = m->n_state;
    s.bytes = m->n_slot * m->v->n_word * sizeof(uint64_t) + m->cap_frame * sizeof *m->frame +
              m->cap_state * sizeof *m->state + m->cap_place * sizeof *m->place +
              m->cap_go * sizeof *m->go;
    return s;
}

/* ---- masks ---- */

/* Whether a place takes any character of a string, and how many of them. */
static bool takes_plain(const nb_match *m, const nb_place *p, uint32_t *room)
{
    const nb_gnode *n = &m->g->node[p->node];
    *room = NB_G_INF;
    if (p->a != 0) return false;
    if (n->kind == K_OTHER) return m->g->obj[n->a].other[n->b].dfa == m->g->name;
    if (n->kind != K_CHARS) return false;
    const nb_gcount c = m->g->count[n->b];
    if (c.min > 0 || c.max != NB_G_INF) *room = m->frame[p->stack].y;
    return true;
}

/* The plain tokens that can follow, where the state is inside of a string, or NULL; *exact: no other
 * plain token can. */
static const uint64_t *plain_tokens(const nb_match *m, uint32_t state, bool *exact)
{
    static const uint64_t plain_bytes[4] = { ~0ull << 32 & ~(1ull << '"'), ~(1ull << ('\\' - 64)),
                                             ~0ull, ~0ull };
    const nb_state *s = &m->state[state];
    uint32_t most = 0;
    bool some = false, others = false;
    for (uint32_t i = 0; i < s->n_place; i++) {
        const nb_place *p = &m->place[s->place + i];
        uint32_t room;
        if (takes_plain(m, p, &room)) {
            some = true;
            if (room > most) most = room;
            continue;
        }
        uint64_t live[4] = { 0 };
        nb_m_live(m, p, live);
        for (size_t w = 0; w < 4; w++) others |= (live[w] & plain_bytes[w]) != 0;
    }
    if (!some) return NULL;
    const bool all = most >= m->v->max_token;
    /* The last set has all; the one before it, tokens of fewer than NB_VOCAB_POINTS characters. */
    size_t k = NB_VOCAB_POINTS;
    if (!all) k = most < NB_VOCAB_POINTS ? most : NB_VOCAB_POINTS - 1;
    *exact = all || (!others && most < NB_VOCAB_POINTS);
    return m->v->plain + k * m->v->n_word;
}

typedef struct level {
    uint32_t end, state; /* of the subtree; after its byte */
} level;

/* Sets the bits of the tree's tokens that can follow.  NB_ERR_LIMIT: too many nodes; NB_ERR_CAPACITY:
 * the tables are full. */
static nb_status walk(nb_match *m, const nb_trie *t, uint32_t state, uint64_t *bits)
{
    level stack[4098];
    size_t sp = 0;
    uint64_t n_visit = 0;
    stack[0] = (level){ (uint32_t)t->n_node, state };
    for (uint32_t i = 0; i < t->n_node;) {
        while (i >= stack[sp].end) sp--;
        const nb_trie_node *n = &t->node[i];
        const uint32_t skip = n->skip_byte >> 8;
        if ((++n_visit & 255) == 0 && (n_visit > NB_GRAMMAR_MAX_VISITS || nb_m_full(m))) {
            m->stats.n_visit += n_visit;
            return n_visit > NB_GRAMMAR_MAX_VISITS ? NB_ERR_LIMIT : NB_ERR_CAPACITY;
        }
        if (!nb_m_is_live(&m->state[stack[sp].state], n->skip_byte & 255)) {
            i += skip;
            continue;
        }
        const nb_state *s = &m->state[stack[sp].state];
        uint32_t to = m->go[s->go + nb_m_rank(s, n->skip_byte & 255)];
        if (to == NB_G_NONE) to = nb_m_step(m, stack[sp].state, n->skip_byte & 255);
        if (to == NB_M_DEAD) {
            if (m->st != NB_OK) break;
            i += skip;
            continue;
        }
        if (n->id != NB_GRAMMAR_NO_TOKEN) bits[n->id >> 6] |= 1ull << (n->id & 63);
        if (skip > 1) stack[++sp] = (level){ i + skip, to };
        i++;
    }
    m->stats.n_visit += n_visit;
    return m->st;
}

static nb_status fill(nb_match *m, uint32_t state, uint64_t *bits)
{
    const nb_vocab *v = m->v;
    bool exact = false;
    const uint64_t *plain = plain_tokens(m, state, &exact);
    if (plain)
        memcpy(bits, plain, v->n_word * sizeof *bits);
    else
        memset(bits, 0, v->n_word * sizeof *bits);
    const uint32_t first = m->state[state].place, n = m->state[state].n_place;
    for (uint32_t i = 0; i < n; i++) {
        const nb_gnode *k = &m->g->node[m->place[first + i].node];
        if (k->kind == K_TOKEN) bits[k->a >> 6] |= 1ull << (k->a & 63);
        if (k->kind != K_FREE) continue;
        const uint32_t end = m->g->trigger[k->a].marker;
        if (nb_m_may_trigger(m, &m->place[first + i])) bits[end >> 6] |= 1ull << (end & 63);
        for (size_t j = 0; j < v->n_marker && !k->b; j++)
            bits[v->marker[j].id >> 6] |= 1ull << (v->marker[j].id & 63);
    }
    return walk(m, exact ? &v->rest : &v->whole, state, bits);
}

/* A slot of the cache, the one that was not used for longest. */
static nb_mask_slot *take_slot(nb_match *m)
{
    size_t k = m->n_slot;
    if (m->n_slot < m->max_slot) {
        m->slot[k].bits = malloc(m->v->n_word * sizeof(uint64_t));
        if (!m->slot[k].bits) return NULL;
        m->n_slot++;
    } else {
        k = 0;
        for (size_t i = 1; i < m->n_slot; i++)
            if (m->slot[i].used < m->slot[k].used) k = i;
        if (m->slot[k].state != NB_G_NONE) m->state[m->slot[k].state].mask = NB_G_NONE;
    }
    m->slot[k].state = NB_G_NONE;
    m->slot[k].used = ++m->clock;
    return &m->slot[k];
}

nb_status nb_match_mask(nb_match *m, const uint64_t **mask)
{
    const nb_gtrigger *free = free_text(m);
    if (m->st != NB_OK) return m->st;
    if (free && free->marker != NB_GRAMMAR_NO_TOKEN && free->dfa == NB_G_NONE) {
        *mask = m->v->all;
        return NB_OK;
    }
    if (nb_m_full(m)) {
        const nb_status st = nb_m_flush(m);
        if (st != NB_OK) return st;
    }
    m->stats.n_mask++;
    for (bool again = false;; again = true) {
        const uint32_t state = nb_m_canon(m, m->now);
        if (m->st != NB_OK) return m->st;
        const uint32_t have = m->state[state].mask;
        if (have != NB_G_NONE) {
            m->slot[have].used = ++m->clock;
            m->stats.n_mask_hit++;
            *mask = m->slot[have].bits;
            return NB_OK;
        }
        nb_mask_slot *slot = take_slot(m);
        if (!slot) return NB_ERR_NOMEM;
        const nb_status st = fill(m, state, slot->bits);
        if (st == NB_OK) {
            slot->state = state;
            m->state[state].mask = (uint32_t)(slot - m->slot);
            *mask = slot->bits;
            return NB_OK;
        }
        if (st != NB_ERR_CAPACITY || again) return st == NB_ERR_CAPACITY ? NB_ERR_LIMIT : st;
        const nb_status flushed = nb_m_flush(m);
        if (flushed != NB_OK) return flushed;
    }
}

/* ---- tokens ---- */

nb_status nb_match_accept_bytes(nb_match *m, nb_str bytes)
{
    if (m->st != NB_OK) return m->st;
    if (nb_m_full(m)) NB_TRY(nb_m_flush(m));
    uint32_t s = m->now;
    for (size_t i = 0; i < bytes.n_bytes; i++) {
        s = nb_m_step(m, s, (unsigned char)bytes.p[i]);
        if (m->st != NB_OK) return m->st;
        if (s == NB_M_DEAD) return NB_ERR_ARG;
    }
    m->now = s;
    return NB_OK;
}

nb_status nb_match_accept(nb_match *m, uint32_t id)
{
    if (m->st != NB_OK) return m->st;
    if (id >= m->v->n_vocab) return NB_ERR_ARG;
    m->n_token++;
    if (m->v->text[id].n_bytes) return nb_match_accept_bytes(m, m->v->text[id]);
    const uint32_t to = nb_m_step_marker(m, m->now, id);
    if (m->st != NB_OK) return m->st;
    if (to == NB_M_DEAD) return NB_ERR_ARG;
    m->now = to;
    return NB_OK;
}
