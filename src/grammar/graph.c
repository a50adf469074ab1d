/* graph.c - building a graph; see graph.h. */
#include "grammar/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/vocab.h"

bool nb_g_ok(const nb_grammar *g)
{
    return g->err.status == NB_OK;
}

nb_status nb_g_fail(nb_grammar *g, nb_status st, const char *fmt, ...)
{
    if (g->err.status != NB_OK) return g->err.status;
    char line[NB_ERROR_MSG_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return nb_fail(&g->err, st, "%s", line);
}

static void *no_memory(nb_grammar *g)
{
    (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for a grammar");
    return NULL;
}

bool nb_g_spend(nb_grammar *g, size_t n)
{
    g->fuel -= (int64_t)n;
    if (g->fuel >= 0) return nb_g_ok(g);
    (void)nb_g_fail(g, NB_ERR_LIMIT, "the grammar takes more than %d steps to compile", NB_G_FUEL);
    return false;
}

void *nb_g_alloc(nb_grammar *g, size_t n, size_t item_bytes)
{
    if (!nb_g_spend(g, n / 16 + 1)) return NULL;
    void *p = nb_arena_array(&g->arena, n ? n : 1, item_bytes);
    return p ? p : no_memory(g);
}

nb_str nb_g_copy(nb_grammar *g, nb_str s)
{
    char *p = nb_g_alloc(g, s.n_bytes, 1);
    if (!p) return (nb_str){ "", 0 };
    if (s.n_bytes) memcpy(p, s.p, s.n_bytes);
    return (nb_str){ p, s.n_bytes };
}

nb_gid nb_g_node(nb_grammar *g, nb_gkind kind, uint32_t a, uint32_t b, nb_gid next)
{
    if (!nb_g_spend(g, 1)) return NB_G_NONE;
    if (g->n_node >= NB_G_MAX_NODE) {
        (void)nb_g_fail(g, NB_ERR_LIMIT, "the grammar has more than %d nodes", NB_G_MAX_NODE);
        return NB_G_NONE;
    }
    if (NB_GROW(g->node, g->cap_node, g->n_node) != NB_OK) {
        (void)no_memory(g);
        return NB_G_NONE;
    }
    g->node[g->n_node] = (nb_gnode){ .kind = (uint8_t)kind, .a = a, .b = b, .next = next };
    return (nb_gid)g->n_node++;
}

nb_gid nb_g_ret(nb_grammar *g)
{
    return g->n_node ? 0 : nb_g_node(g, K_RET, 0, 0, NB_G_NONE);
}

nb_gid nb_g_bytes(nb_grammar *g, nb_str s, nb_gid next)
{
    if (s.n_bytes == 0) return next;
    if (s.n_bytes == 1) return nb_g_node(g, K_BYTE, (unsigned char)s.p[0], 0, next);
    if (!nb_g_spend(g, s.n_bytes / 16)) return NB_G_NONE;
    const size_t at = g->text.n_bytes;
    if (nb_buf_add_str(&g->text, s) != NB_OK) {
        (void)no_memory(g);
        return NB_G_NONE;
    }
    return nb_g_node(g, K_LIT, (uint32_t)at, (uint32_t)s.n_bytes, next);
}

nb_gid nb_g_text(nb_grammar *g, const char *s, nb_gid next)
{
    return nb_g_bytes(g, nb_str_c(s), next);
}

nb_gid nb_g_alt_room(nb_grammar *g, size_t n)
{
    if (!nb_g_spend(g, n)) return NB_G_NONE;
    const size_t at = g->n_edge;
    for (size_t i = 0; i < n; i++) {
        if (NB_GROW(g->edge, g->cap_edge, g->n_edge) != NB_OK) {
            (void)no_memory(g);
            return NB_G_NONE;
        }
        g->edge[g->n_edge++] = NB_G_NONE;
    }
    return nb_g_node(g, K_ALT, (uint32_t)at, (uint32_t)n, NB_G_NONE);
}

void nb_g_alt_set(nb_grammar *g, nb_gid alt, size_t i, nb_gid to)
{
    if (nb_g_ok(g)) g->edge[g->node[alt].a + i] = to;
}

nb_gid nb_g_alt(nb_grammar *g, const nb_gid *to, size_t n)
{
    if (n == 1) return to[0];
    const nb_gid alt = nb_g_alt_room(g, n);
    for (size_t i = 0; i < n; i++) nb_g_alt_set(g, alt, i, to[i]);
    return alt;
}

nb_gid nb_g_alt2(nb_grammar *g, nb_gid x, nb_gid y)
{
    const nb_gid to[] = { x, y };
    return nb_g_alt(g, to, 2);
}

nb_gid nb_g_class(nb_grammar *g, const nb_gclass *c, nb_gid next)
{
    size_t i = 0;
    while (i < g->n_cls && memcmp(&g->cls[i], c, sizeof *c) != 0) i++;
    if (i == g->n_cls) {
        if (NB_GROW(g->cls, g->cap_cls, g->n_cls) != NB_OK) {
            (void)no_memory(g);
            return NB_G_NONE;
        }
        g->cls[g->n_cls++] = *c;
    }
    return nb_g_node(g, K_CLASS, (uint32_t)i, 0, next);
}

nb_gid nb_g_call(nb_grammar *g, uint32_t rule, bool nests, nb_gid next)
{
    return nb_g_node(g, K_CALL, rule, nests, next);
}

static uint32_t add_count(nb_grammar *g, uint32_t min, uint32_t max)
{
    for (size_t i = 0; i < g->n_count && i < 64; i++)
        if (g->count[i].min == min && g->count[i].max == max) return (uint32_t)i;
    if (NB_GROW(g->count, g->cap_count, g->n_count) != NB_OK) {
        (void)no_memory(g);
        return NB_G_NONE;
    }
    g->count[g->n_count] = (nb_gcount){ min, max };
    return (uint32_t)g->n_count++;
}

nb_gid nb_g_rep(nb_grammar *g, uint32_t rule, uint32_t min, uint32_t max, nb_gid next)
{
    if (max == 0) return next;
    return nb_g_node(g, K_REP, rule, add_count(g, min, max), next);
}

nb_gid nb_g_chars(nb_grammar *g, uint32_t min, uint32_t max, nb_gid next)
{
    if (max == 0) return next;
    return nb_g_node(g, K_CHARS, 0, add_count(g, min, max), next);
}

nb_gid nb_g_dfa_node(nb_grammar *g, uint32_t dfa, nb_gid next)
{
    return nb_g_node(g, K_DFA, dfa, 0, next);
}

nb_gid nb_g_space(nb_grammar *g, nb_gid next)
{
    return g->compact ? next : nb_g_dfa_node(g, g->space, next);
}

uint32_t nb_g_dfa_add(nb_grammar *g, const nb_gdfa *d)
{
    if (!nb_g_ok(g)) return NB_G_NONE;
    if (NB_GROW(g->dfa, g->cap_dfa, g->n_dfa) != NB_OK) {
        (void)no_memory(g);
        return NB_G_NONE;
    }
    g->dfa[g->n_dfa] = *d;
    return (uint32_t)g->n_dfa++;
}

/* ---- sets ---- */

int nb_str_order(nb_str a, nb_str b)
{
    const size_t n = a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes;
    const int c = n ? memcmp(a.p, b.p, n) : 0;
    if (c) return c;
    return a.n_bytes < b.n_bytes ? -1 : a.n_bytes > b.n_bytes;
}

static int order(const void *x, const void *y)
{
    return nb_str_order(*(const nb_str *)x, *(const nb_str *)y);
}

size_t nb_str_sort(nb_str *s, size_t n)
{
    size_t m = 0;
    if (n > 1) qsort(s, n, sizeof *s, order);
    for (size_t i = 0; i < n; i++)
        if (m == 0 || !nb_str_eq(s[m - 1], s[i])) s[m++] = s[i];
    return m;
}

nb_gid nb_g_set(nb_grammar *g, const nb_str *s, size_t n, nb_gid next)
{
    if (n == 1) return nb_g_bytes(g, s[0], next);
    nb_gset set = { nb_g_alloc(g, n, sizeof *set.s), n };
    for (size_t i = 0; set.s && i < n; i++) set.s[i] = nb_g_copy(g, s[i]);
    if (!nb_g_ok(g)) return NB_G_NONE;
    set.n = nb_str_sort(set.s, n);
    if (NB_GROW(g->set, g->cap_set, g->n_set) != NB_OK) {
        (void)no_memory(g);
        return NB_G_NONE;
    }
    g->set[g->n_set] = set;
    return nb_g_node(g, K_SET, (uint32_t)g->n_set++, 0, next);
}

/* ---- rules ---- */

uint32_t nb_g_rule_new(nb_grammar *g)
{
    if (!nb_g_spend(g, 1)) return NB_G_NONE;
    if (NB_GROW(g->rule, g->cap_rule, g->n_rule) != NB_OK) {
        (void)no_memory(g);
        return NB_G_NONE;
    }
    g->rule[g->n_rule] = NB_G_NONE;
    return (uint32_t)g->n_rule++;
}

void nb_g_rule_set(nb_grammar *g, uint32_t rule, nb_gid start)
{
    if (nb_g_ok(g)) g->rule[rule] = start;
}

uint32_t nb_g_rule_of(nb_grammar *g, nb_gid start)
{
    const uint32_t r = nb_g_rule_new(g);
    nb_g_rule_set(g, r, start);
    return r;
}

/* ---- markers and triggers ---- */

/* The longest marker that s begins with, or NULL. */
static const nb_marker *marker_at(const nb_vocab *v, nb_str s)
{
    for (size_t i = 0; i < v->n_marker; i++) {
        const nb_marker *m = &v->marker[i];
        if (m->text.n_bytes <= s.n_bytes && memcmp(m->text.p, s.p, m->text.n_bytes) == 0) return m;
    }
    return NULL;
}

nb_gid nb_g_marked(nb_grammar *g, nb_str s, nb_gid next)
{
    for (size_t i = 0; i < s.n_bytes; i++) {
        const nb_marker *m = marker_at(g->vocab, (nb_str){ s.p + i, s.n_bytes - i });
        if (!m) continue;
        const nb_str rest = { s.p + i + m->text.n_bytes, s.n_bytes - i - m->text.n_bytes };
        next = nb_g_marked(g, rest, next);
        next = nb_g_node(g, K_TOKEN, m->id, 0, next);
        return nb_g_bytes(g, (nb_str){ s.p, i }, next);
    }
    return nb_g_bytes(g, s, next);
}

/* Knuth, Morris and Pratt: state i has read the first i bytes of s; the last state is the end. */
static uint32_t search_for(nb_grammar *g, nb_str s, bool goes_on)
{
    nb_gdfa d = { .n_cls = 1, .n_state = (uint32_t)s.n_bytes + 1 };
    for (size_t i = 0; i < s.n_bytes; i++) {
        const unsigned char c = (unsigned char)s.p[i];
        if (d.cls[c] == 0) d.cls[c] = (uint8_t)d.n_cls++;
    }
    d.next = nb_g_alloc(g, (size_t)d.n_state * d.n_cls, sizeof *d.next);
    d.end = nb_g_alloc(g, d.n_state, 1);
    if (!nb_g_ok(g)) return NB_G_NONE;
    size_t fail = 0;
    for (size_t i = 0; i <= s.n_bytes; i++) {
        uint32_t *row = d.next + i * d.n_cls;
        d.end[i] = i == s.n_bytes ? NB_DFA_END : NB_DFA_MORE;
        if (i == s.n_bytes && goes_on) {
            memcpy(row, d.next + fail * d.n_cls, d.n_cls * sizeof *row);
            break;
        }
        if (i == s.n_bytes) {
            for (size_t c = 0; c < d.n_cls; c++) row[c] = NB_G_NONE;
            break;
        }
        const uint8_t c = d.cls[(unsigned char)s.p[i]];
        if (i) memcpy(row, d.next + fail * d.n_cls, d.n_cls * sizeof *row);
        const size_t then = i ? row[c] : 0;
        row[c] = (uint32_t)i + 1;
        fail = then;
    }
    return nb_g_dfa_add(g, &d);
}

nb_gid nb_g_free_until(nb_grammar *g, nb_str trigger, bool may_end, nb_gid next)
{
    nb_gtrigger t = { .marker = NB_GRAMMAR_NO_TOKEN, .dfa = NB_G_NONE, .may_end = may_end };
    size_t at = 0; /* of a marker in the trigger */
    const nb_marker *m = NULL;
    for (; !m && at < trigger.n_bytes; at++)
        m = marker_at(g->vocab, (nb_str){ trigger.p + at, trigger.n_bytes - at });
    if (m) {
        const size_t n = --at + m->text.n_bytes;
        t.marker = m->id;
        if (at) t.dfa = search_for(g, (nb_str){ trigger.p, at }, true);
        next = nb_g_marked(g, (nb_str){ trigger.p + n, trigger.n_bytes - n }, next);
    } else {
        t.dfa = search_for(g, trigger, false);
    }
    if (!nb_g_ok(g)) return NB_G_NONE;
    if (NB_GROW(g->trigger, g->cap_trigger, g->n_trigger) != NB_OK) {
        (void)no_memory(g);
        return NB_G_NONE;
    }
    g->trigger[g->n_trigger] = t;
    return nb_g_node(g, K_FREE, (uint32_t)g->n_trigger++, 0, next);
}
