/* regex.c - what becomes of a regular expression: nodes of the graph, or an automaton for several
 * conditions at once. */
#include "grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"

/* ---- nodes ---- */

typedef struct nb_class_memo {
    nb_cpset set;
    nb_re_mode mode;
    uint32_t dfa;
} nb_class_memo;

static bool plain_ascii(const nb_cpset *s, nb_re_mode mode, nb_gclass *c)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->r[i].hi > 0x7f) return false;
        nb_gclass_add(c, s->r[i].lo, s->r[i].hi);
    }
    if (mode == NB_RE_PLAIN) return true;
    return (c->bit[0] & 0xffffffffu) == 0 && !nb_gclass_has(c, '"') && !nb_gclass_has(c, '\\');
}

static uint32_t class_dfa(nb_grammar *g, const nb_cpset *s, nb_re_mode mode)
{
    for (size_t i = 0; i < g->n_class_memo; i++) {
        const nb_class_memo *m = &g->class_memo[i];
        if (m->mode == mode && m->set.n == s->n && memcmp(m->set.r, s->r, s->n * sizeof *s->r) == 0)
            return m->dfa;
    }
    uint8_t end[2] = { 0, 1 };
    nb_cpdfa d = { .end = end, .n_state = 2 };
    d.edge = nb_g_alloc(g, s->n, sizeof *d.edge);
    if (!d.edge) return NB_G_NONE;
    for (size_t i = 0; i < s->n; i++)
        d.edge[d.n_edge++] = (nb_cpedge){ 0, s->r[i].lo, s->r[i].hi, 1 };
    const uint32_t dfa = nb_g_lower(g, &d, mode, false);
    if (NB_GROW(g->class_memo, g->cap_class_memo, g->n_class_memo) == NB_OK)
        g->class_memo[g->n_class_memo++] = (nb_class_memo){ *s, mode, dfa };
    return dfa;
}

/* Repeats of groups are written out: one more position. */
static bool counted(nb_grammar *g)
{
    if (++g->n_expand <= NB_G_MAX_EXPAND) return true;
    (void)nb_g_fail(g, NB_ERR_LIMIT, "repeats expand to more than %d positions", NB_G_MAX_EXPAND);
    return false;
}

nb_gid nb_g_cpset(nb_grammar *g, const nb_cpset *s, nb_re_mode mode, nb_gid next)
{
    nb_gclass c = { { 0 } };
    if (s->n == 0) return nb_g_alt_room(g, 0);
    if (!counted(g)) return NB_G_NONE;
    if (!plain_ascii(s, mode, &c)) return nb_g_dfa_node(g, class_dfa(g, s, mode), next);
    if (s->n == 1 && s->r[0].lo == s->r[0].hi) return nb_g_node(g, K_BYTE, s->r[0].lo, 0, next);
    return nb_g_class(g, &c, next);
}

/* The class that x comes to, or NULL. */
static const nb_re *single(const nb_re *x)
{
    while ((x->kind == R_CAT || x->kind == R_ALT) && x->n == 1) x = x->sub[0];
    return x->kind == R_CLASS ? x : NULL;
}

static nb_gid emit(nb_grammar *g, const nb_re *x, nb_re_mode mode, nb_gid next);

static nb_gid emit_star(nb_grammar *g, const nb_re *x, nb_re_mode mode, nb_gid next)
{
    const nb_gid loop = nb_g_alt_room(g, 2);
    nb_g_alt_set(g, loop, 0, emit(g, x, mode, loop));
    nb_g_alt_set(g, loop, 1, next);
    return loop;
}

static nb_gid emit_repeat(nb_grammar *g, const nb_re *x, nb_re_mode mode, nb_gid next)
{
    const nb_re *sub = x->sub[0], *cls = single(sub);
    if (x->max == 0) return next;
    if (cls && cls->set.n && (x->min > 1 || (x->max > 1 && x->max != NB_G_INF))) {
        const uint32_t body = nb_g_rule_of(g, nb_g_cpset(g, &cls->set, mode, nb_g_ret(g)));
        return nb_g_rep(g, body, x->min, x->max, next);
    }
    nb_gid to = next;
    if (x->max == NB_G_INF)
        to = emit_star(g, sub, mode, next);
    else
        for (uint32_t i = x->min; i < x->max && nb_g_spend(g, 1); i++)
            to = nb_g_alt2(g, emit(g, sub, mode, to), next);
    for (uint32_t i = 0; i < x->min && nb_g_spend(g, 1); i++) to = emit(g, sub, mode, to);
    return to;
}

static nb_gid emit_alt(nb_grammar *g, const nb_re *x, nb_re_mode mode, nb_gid next)
{
    const nb_gid alt = nb_g_alt_room(g, x->n);
    for (size_t i = 0; i < x->n && nb_g_ok(g); i++)
        nb_g_alt_set(g, alt, i, emit(g, x->sub[i], mode, next));
    return alt;
}

static nb_gid emit(nb_grammar *g, const nb_re *x, nb_re_mode mode, nb_gid next)
{
    if (!nb_g_spend(g, 1)) return NB_G_NONE;
    switch (x->kind) {
    case R_CLASS: return nb_g_cpset(g, &x->set, mode, next);
    case R_CAT:
        for (size_t i = x->n; i-- > 0;) next = emit(g, x->sub[i], mode, next);
        return next;
    case R_ALT: return x->n == 1 ? emit(g, x->sub[0], mode, next) : emit_alt(g, x, mode, next);
    case R_REP: return emit_repeat(g, x, mode, next);
    case R_ANY: return nb_g_chars(g, 0, NB_G_INF, next);
    case R_RULE: return counted(g) ? nb_g_call(g, x->min, false, next) : NB_G_NONE;
    case R_TOKEN: return counted(g) ? nb_g_node(g, K_TOKEN, x->min, 0, next) : NB_G_NONE;
    case R_EMPTY:
    case R_BEGIN:
    case R_END: break;
    }
    return next;
}

nb_gid nb_re_emit(nb_grammar *g, const nb_re *x, nb_re_mode mode, nb_gid next)
{
    g->n_expand = 0;
    return x ? emit(g, x, mode, next) : NB_G_NONE;
}

nb_status nb_g_regex(nb_grammar *g, nb_str text)
{
    const nb_re *x = nb_re_parse(g, text, false);
    g->root = nb_g_rule_of(g, nb_re_emit(g, x, NB_RE_PLAIN, nb_g_ret(g)));
    return g->err.status;
}

/* ---- automata of several conditions ---- */

/* A state that reads a code point of `set` (then a), or goes to a and b without reading. */
typedef struct nstate {
    const nb_cpset *set;
    uint32_t a, b;
} nstate;
typedef struct nfa {
    nb_grammar *g;
    nstate *s;
    size_t n, cap;
} nfa;

static uint32_t n_add(nfa *f, const nb_cpset *set, uint32_t a, uint32_t b)
{
    if (!nb_g_spend(f->g, 1)) return NB_G_NONE;
    if (f->n > 2 * NB_G_MAX_EXPAND) {
        (void)nb_g_fail(f->g, NB_ERR_LIMIT, "an expression expands to more than %d positions",
                        NB_G_MAX_EXPAND);
        return NB_G_NONE;
    }
    if (NB_GROW(f->s, f->cap, f->n) != NB_OK) {
        (void)nb_g_fail(f->g, NB_ERR_NOMEM, "no memory for an automaton");
        return NB_G_NONE;
    }
    f->s[f->n] = (nstate){ set, a, b };
    return (uint32_t)f->n++;
}

static const nb_range all_points[] = { { 0, 0xd7ff }, { 0xe000, 0x10ffff } };
static const nb_cpset any_point = { (nb_range *)(void *)all_points, 2 };

static uint32_t n_build(nfa *f, const nb_re *x, uint32_t next);

static uint32_t n_star(nfa *f, const nb_re *x, uint32_t next)
{
    const uint32_t loop = n_add(f, NULL, NB_G_NONE, next);
    const uint32_t in = x ? n_build(f, x, loop) : n_add(f, &any_point, loop, NB_G_NONE);
    if (nb_g_ok(f->g)) f->s[loop].a = in;
    return loop;
}

static uint32_t n_build(nfa *f, const nb_re *x, uint32_t next)
{
    if (!nb_g_ok(f->g)) return NB_G_NONE;
    uint32_t to = NB_G_NONE;
    switch (x->kind) {
    case R_CLASS: return n_add(f, &x->set, next, NB_G_NONE);
    case R_CAT:
        for (size_t i = x->n; i-- > 0;) next = n_build(f, x->sub[i], next);
        return next;
    case R_ALT:
        for (size_t i = 0; i < x->n; i++) to = n_add(f, NULL, n_build(f, x->sub[i], next), to);
        return to == NB_G_NONE ? n_add(f, NULL, NB_G_NONE, NB_G_NONE) : to;
    case R_REP:
        to = next;
        if (x->max == NB_G_INF) to = n_star(f, x->sub[0], next);
        for (uint32_t i = x->min; x->max != NB_G_INF && i < x->max && nb_g_ok(f->g); i++)
            to = n_add(f, NULL, n_build(f, x->sub[0], to), next);
        for (uint32_t i = 0; i < x->min && nb_g_ok(f->g); i++) to = n_build(f, x->sub[0], to);
        return to;
    case R_ANY: return n_star(f, NULL, next);
    case R_RULE:
    case R_TOKEN:
    case R_EMPTY:
    case R_BEGIN:
    case R_END: break;
    }
    return next;
}

/* Adds s and what follows without reading to the set `bits`. */
static bool n_close(const nfa *f, uint64_t *bits, uint32_t *stack, uint32_t s)
{
    size_t n = 0;
    stack[n++] = s;
    while (n) {
        const uint32_t k = stack[--n];
        if (k == NB_G_NONE || bits[k >> 6] >> (k & 63) & 1) continue;
        bits[k >> 6] |= 1ull << (k & 63);
        if (f->s[k].set) continue;
        if (!nb_g_spend(f->g, 1)) return false;
        stack[n++] = f->s[k].a;
        stack[n++] = f->s[k].b;
    }
    return true;
}

static bool cpset_has(const nb_cpset *s, uint32_t cp)
{
    for (size_t i = 0; i < s->n; i++)
        if (cp >= s->r[i].lo && cp <= s->r[i].hi) return true;
    return false;
}

/* to = what `from` reaches over cp. */
static bool n_move(const nfa *f, const uint64_t *from, uint64_t *to, size_t n_word, uint32_t *stack,
                   uint32_t cp)
{
    memset(to, 0, n_word * sizeof *to);
    for (size_t w = 0; w < n_word; w++)
        for (uint64_t bits = from[w]; bits; bits &= bits - 1) {
            const uint32_t k = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits);
            const nstate *s = &f->s[k];
            if (!s->set) continue;
            if (!nb_g_spend(f->g, 1 + s->set->n / 4)) return false;
            if (cpset_has(s->set, cp) && !n_close(f, to, stack, s->a)) return false;
        }
    return true;
}

bool nb_re_matches(nb_grammar *g, const nb_re *x, nb_str text)
{
    nfa f = { .g = g };
    bool ok = false;
    const uint32_t end = n_add(&f, NULL, NB_G_NONE, NB_G_NONE), start = n_build(&f, x, end);
    const size_t n_word = f.n / 64 + 1;
    uint64_t *now = calloc(2 * n_word, sizeof *now);
    uint32_t *stack = calloc(2 * f.n + 4, sizeof *stack);
    if (!now || !stack) (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton");
    if (nb_g_ok(g) && n_close(&f, now, stack, start)) {
        uint64_t *to = now + n_word, *from = now;
        for (size_t i = 0; i < text.n_bytes && nb_g_ok(g);) {
            uint32_t cp = 0;
            const int k = nb_utf8_decode(text.p + i, text.n_bytes - i, &cp);
            if (k <= 0 || !n_move(&f, from, to, n_word, stack, cp)) break;
            uint64_t *t = from;
            from = to;
            to = t;
            i += (size_t)k;
        }
        ok = from[end >> 6] >> (end & 63) & 1;
    }
    free(now);
    free(stack);
    free(f.s);
    return ok && nb_g_ok(g);
}

/* Subsets of the conditions' states, interned. */
typedef struct subsets {
    nfa f;
    const nb_re_all *all;
    uint32_t *end; /* [all->n]: each condition's last state */
    uint64_t *bits;
    size_t n, cap, n_word; /* sets; words of one */
    uint32_t *chain, *stack;
    size_t cap_chain;
    uint32_t table[1024];
    uint32_t *cut; /* [n_cut]: where the set of code points that behave alike changes */
    size_t n_cut;
} subsets;

enum { MAX_SUBSET = 8192 };

static uint32_t intern(subsets *u, const uint64_t *set)
{
    const uint64_t h = nb_hash_bytes(set, u->n_word * sizeof *set, 7) & (NB_COUNT(u->table) - 1);
    for (uint32_t i = u->table[h]; i != NB_G_NONE; i = u->chain[i])
        if (memcmp(u->bits + i * u->n_word, set, u->n_word * sizeof *set) == 0) return i;
    nb_grammar *g = u->f.g;
    if (u->n >= MAX_SUBSET || !nb_g_spend(g, u->n_word)) {
        (void)nb_g_fail(g, NB_ERR_LIMIT, "the conditions on a string need more than %d states",
                        MAX_SUBSET);
        return NB_G_NONE;
    }
    if (u->n == u->cap) {
        const size_t more = u->cap ? 2 * u->cap : 64;
        uint64_t *p = realloc(u->bits, more * u->n_word * sizeof *p);
        uint32_t *c = p ? realloc(u->chain, more * sizeof *c) : NULL;
        if (p) u->bits = p;
        if (c) u->chain = c;
        if (!p || !c) {
            (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton");
            return NB_G_NONE;
        }
        u->cap = more;
    }
    memcpy(u->bits + u->n * u->n_word, set, u->n_word * sizeof *set);
    u->chain[u->n] = u->table[h];
    u->table[h] = (uint32_t)u->n;
    return (uint32_t)u->n++;
}

static int by_value(const void *x, const void *y)
{
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

/* Code points between two cuts behave alike. */
static bool find_cuts(subsets *u)
{
    size_t n = 3;
    for (size_t i = 0; i < u->f.n; i++) n += u->f.s[i].set ? 2 * u->f.s[i].set->n : 0;
    if (!nb_g_spend(u->f.g, n)) return false;
    u->cut = malloc(n * sizeof *u->cut);
    if (!u->cut) return nb_g_fail(u->f.g, NB_ERR_NOMEM, "no memory for an automaton") == NB_OK;
    size_t k = 0;
    u->cut[k++] = 0;
    u->cut[k++] = 0xd800;
    u->cut[k++] = 0xe000;
    for (size_t i = 0; i < u->f.n; i++)
        for (size_t j = 0; u->f.s[i].set && j < u->f.s[i].set->n; j++) {
            u->cut[k++] = u->f.s[i].set->r[j].lo;
            u->cut[k++] = u->f.s[i].set->r[j].hi + 1;
        }
    qsort(u->cut, k, sizeof *u->cut, by_value);
    for (size_t i = 0; i < k; i++)
        if (u->n_cut == 0 || u->cut[u->n_cut - 1] != u->cut[i]) u->cut[u->n_cut++] = u->cut[i];
    return true;
}

static bool accepts(const subsets *u, uint32_t s)
{
    const uint64_t *bits = u->bits + s * u->n_word;
    for (size_t i = 0; i < u->all->n; i++) {
        const bool in = bits[u->end[i] >> 6] >> (u->end[i] & 63) & 1;
        if (in == u->all->without[i]) return false;
    }
    return true;
}

static bool add_edge(nb_grammar *g, nb_cpdfa *d, nb_cpedge e)
{
    if (d->n_edge) {
        nb_cpedge *last = &d->edge[d->n_edge - 1];
        if (last->from == e.from && last->to == e.to && last->hi + 1 == e.lo) {
            last->hi = e.hi;
            return true;
        }
    }
    if (NB_GROW(d->edge, d->cap_edge, d->n_edge) != NB_OK)
        return nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton") == NB_OK;
    d->edge[d->n_edge++] = e;
    return true;
}

/* All subsets that the first one reaches, and the edges between them. */
static bool explore(subsets *u, nb_cpdfa *d)
{
    nb_grammar *g = u->f.g;
    uint64_t *to = calloc(u->n_word, sizeof *to);
    bool ok = to || nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton") == NB_OK;
    for (uint32_t s = 0; ok && s < u->n; s++)
        for (size_t c = 0; ok && c < u->n_cut; c++) {
            const uint32_t lo = u->cut[c];
            const uint32_t hi = c + 1 < u->n_cut ? u->cut[c + 1] - 1 : 0x10ffff;
            if (lo == 0xd800 || lo > 0x10ffff) continue;
            ok = n_move(&u->f, u->bits + s * u->n_word, to, u->n_word, u->stack, lo);
            const uint32_t t = ok ? intern(u, to) : NB_G_NONE;
            ok = t != NB_G_NONE && add_edge(g, d, (nb_cpedge){ s, lo, hi, t });
        }
    free(to);
    return ok;
}

/* Drops states from which no text is accepted; false: all of them. */
static bool trim(nb_grammar *g, const subsets *u, nb_cpdfa *d)
{
    uint32_t *name = calloc(u->n, sizeof *name);
    d->end = nb_g_alloc(g, u->n, 1);
    if (!name || !d->end) {
        free(name);
        return nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton") == NB_OK;
    }
    for (uint32_t s = 0; s < u->n; s++) name[s] = accepts(u, s);
    for (bool changed = true; changed && nb_g_spend(g, d->n_edge / 4 + 1);) {
        changed = false;
        for (size_t i = d->n_edge; i-- > 0;)
            if (!name[d->edge[i].from] && name[d->edge[i].to])
                name[d->edge[i].from] = changed = true;
    }
    for (uint32_t s = 0; s < u->n; s++) {
        if (!name[s]) continue;
        d->end[d->n_state] = accepts(u, s);
        name[s] = ++d->n_state; /* + 1 */
    }
    size_t n = 0;
    for (size_t i = 0; i < d->n_edge; i++) {
        const nb_cpedge e = d->edge[i];
        if (name[e.from] && name[e.to])
            d->edge[n++] = (nb_cpedge){ name[e.from] - 1, e.lo, e.hi, name[e.to] - 1 };
    }
    d->n_edge = n;
    const bool some = name[0] != 0;
    free(name);
    return some && nb_g_ok(g);
}

uint32_t nb_re_dfa(nb_grammar *g, const nb_re_all *all, nb_re_mode mode, bool quote, bool *empty)
{
    subsets u = { .f.g = g, .all = all };
    nb_cpdfa d = { 0 };
    uint32_t id = NB_G_NONE;
    *empty = false;
    memset(u.table, 0xff, sizeof u.table);
    u.end = nb_g_alloc(g, all->n, sizeof *u.end);
    uint32_t *start = nb_g_alloc(g, all->n, sizeof *start);
    for (size_t i = 0; i < all->n && nb_g_ok(g); i++) {
        u.end[i] = n_add(&u.f, NULL, NB_G_NONE, NB_G_NONE);
        start[i] = n_build(&u.f, all->x[i], u.end[i]);
    }
    u.n_word = u.f.n / 64 + 1;
    u.stack = calloc(2 * u.f.n + 4, sizeof *u.stack);
    uint64_t *first = calloc(u.n_word, sizeof *first);
    if (!u.stack || !first) (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton");
    for (size_t i = 0; i < all->n && nb_g_ok(g); i++) (void)n_close(&u.f, first, u.stack, start[i]);
    if (nb_g_ok(g) && find_cuts(&u) && intern(&u, first) == 0 && explore(&u, &d)) {
        if (trim(g, &u, &d))
            id = nb_g_lower(g, &d, mode, quote);
        else
            *empty = nb_g_ok(g);
    }
    free(first);
    free(u.stack);
    free(u.bits);
    free(u.chain);
    free(u.cut);
    free(u.f.s);
    free(d.edge);
    return id;
}
