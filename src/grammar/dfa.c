/* dfa.c - an automaton over code points becomes one over bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "grammar/regex.h"

/* Being built: a row of 256 bytes per state. */
typedef struct rows {
    nb_grammar *g;
    uint32_t (*row)[256];
    size_t n, cap;
    uint32_t *shared; /* [n_target * 3]: the states that read 1..3 continuation bytes to a target */
    nb_re_mode mode;
} rows;

enum { MAX_STATE = 30000 };

static uint32_t new_state(rows *r)
{
    if (r->n >= MAX_STATE || !nb_g_spend(r->g, 64)) {
        (void)nb_g_fail(r->g, NB_ERR_LIMIT, "an expression needs more than %d states", MAX_STATE);
        return NB_G_NONE;
    }
    if (NB_GROW(r->row, r->cap, r->n) != NB_OK) {
        (void)nb_g_fail(r->g, NB_ERR_NOMEM, "no memory for an automaton");
        return NB_G_NONE;
    }
    memset(r->row[r->n], 0xff, sizeof r->row[r->n]);
    return (uint32_t)r->n++;
}

/* The state from which n continuation bytes lead to `to`. */
static uint32_t rest(rows *r, size_t n, uint32_t to)
{
    if (n == 0) return to;
    uint32_t *s = &r->shared[to * 3 + n - 1];
    if (*s != NB_G_NONE) return *s;
    const uint32_t next = rest(r, n - 1, to), me = nb_g_ok(r->g) ? new_state(r) : NB_G_NONE;
    if (me == NB_G_NONE) return me;
    for (unsigned b = 0x80; b <= 0xbf; b++) r->row[me][b] = next;
    r->shared[to * 3 + n - 1] = me;
    return me;
}

/* Bytes lo[0..n) to hi[0..n): they differ in one byte, and behind it everything is possible. */
static void put_sequence(rows *r, uint32_t s, const unsigned char *lo, const unsigned char *hi,
                         size_t n, uint32_t to)
{
    for (size_t i = 0; i < n && s != NB_G_NONE; i++) {
        bool full = true;
        for (size_t k = i + 1; k < n; k++) full &= lo[k] == 0x80 && hi[k] == 0xbf;
        if (full) {
            const uint32_t next = rest(r, n - 1 - i, to);
            for (unsigned b = lo[i]; b <= hi[i] && next != NB_G_NONE; b++) r->row[s][b] = next;
            return;
        }
        uint32_t next = r->row[s][lo[i]];
        if (next == NB_G_NONE) {
            next = new_state(r);
            if (next == NB_G_NONE) return;
            r->row[s][lo[i]] = next;
        }
        s = next;
    }
}

/* Cuts a range where the encoding's length changes, and so that put_sequence takes it. */
static void put_range(rows *r, uint32_t s, uint32_t lo, uint32_t hi, uint32_t to)
{
    static const uint32_t most[] = { 0x7f, 0x7ff, 0xffff };
    if (lo > hi || !nb_g_spend(r->g, 4)) return;
    for (size_t i = 0; i < NB_COUNT(most); i++)
        if (lo <= most[i] && hi > most[i]) {
            put_range(r, s, lo, most[i], to);
            put_range(r, s, most[i] + 1, hi, to);
            return;
        }
    char a[4], b[4];
    const int n = nb_utf8_encode(hi, b);
    for (int i = 1; i < n; i++) {
        const uint32_t m = (1u << (6 * i)) - 1;
        if ((lo & ~m) == (hi & ~m)) continue;
        if (lo & m) {
            put_range(r, s, lo, lo | m, to);
            put_range(r, s, (lo | m) + 1, hi, to);
            return;
        }
        if ((hi & m) != m) {
            put_range(r, s, lo, (hi & ~m) - 1, to);
            put_range(r, s, hi & ~m, hi, to);
            return;
        }
    }
    (void)nb_utf8_encode(lo, a);
    put_sequence(r, s, (const unsigned char *)a, (const unsigned char *)b, (size_t)n, to);
}

static uint32_t child(rows *r, uint32_t s, unsigned byte)
{
    if (s == NB_G_NONE) return s;
    if (r->row[s][byte] == NB_G_NONE) {
        const uint32_t n = new_state(r);
        if (n == NB_G_NONE) return n;
        r->row[s][byte] = n;
    }
    return r->row[s][byte];
}

/* A character that JSON does not allow as it is: its shortest escape. */
static void put_escape(rows *r, uint32_t s, unsigned c, uint32_t to)
{
    static const char from[] = "\"\\\b\f\n\r\t", as[] = "\"\\bfnrt";
    static const char digit[] = "0123456789abcdef";
    const char *k = c ? strchr(from, (int)c) : NULL;
    s = child(r, s, '\\');
    if (!k) {
        s = child(r, s, 'u');
        s = child(r, s, '0');
        s = child(r, s, '0');
        s = child(r, s, (unsigned char)digit[c >> 4]);
    }
    if (s == NB_G_NONE) return;
    r->row[s][(unsigned char)(k ? as[k - from] : digit[c & 15])] = to;
    if (!k && (c & 15) > 9) r->row[s][(unsigned char)(digit[c & 15] - 32)] = to;
}

static void put_edge(rows *r, const nb_cpedge *e)
{
    uint32_t lo = e->lo;
    if (r->mode == NB_RE_JSON)
        for (; lo <= e->hi && lo <= '\\'; lo++) {
            if (lo < 0x20 || lo == '"' || lo == '\\')
                put_escape(r, e->from, lo, e->to);
            else
                r->row[e->from][lo] = e->to;
        }
    put_range(r, e->from, lo, e->hi, e->to);
}

/* Bytes that lead to the same states from every state share a class. */
static nb_status squeeze(rows *r, nb_gdfa *d)
{
    uint64_t hash[256], seen[256];
    for (unsigned b = 0; b < 256; b++) hash[b] = 0;
    for (size_t s = 0; s < r->n; s++)
        for (unsigned b = 0; b < 256; b++) hash[b] = nb_mix64(hash[b] ^ r->row[s][b]);
    unsigned first[256]; /* a byte of each class */
    for (unsigned b = 0; b < 256; b++) {
        uint32_t c = 0;
        while (c < d->n_cls && seen[c] != hash[b]) c++;
        if (c == d->n_cls) {
            first[c] = b;
            seen[d->n_cls++] = hash[b];
        }
        d->cls[b] = (uint8_t)c;
    }
    if (r->n * d->n_cls > NB_G_MAX_DFA_CELLS)
        return nb_g_fail(r->g, NB_ERR_LIMIT, "an expression's automaton has %zu cells: at most %d",
                         r->n * d->n_cls, NB_G_MAX_DFA_CELLS);
    d->next = nb_g_alloc(r->g, r->n * d->n_cls, sizeof *d->next);
    if (!d->next) return r->g->err.status;
    for (size_t s = 0; s < r->n; s++)
        for (uint32_t c = 0; c < d->n_cls; c++) d->next[s * d->n_cls + c] = r->row[s][first[c]];
    return NB_OK;
}

uint32_t nb_g_lower(nb_grammar *g, const nb_cpdfa *cp, nb_re_mode mode, bool quote)
{
    rows r = { .g = g, .mode = mode };
    nb_gdfa d = { 0 };
    uint32_t id = NB_G_NONE;
    const uint32_t n_target = cp->n_state + 1; /* the last: behind the quote */
    r.shared = malloc((size_t)n_target * 3 * sizeof *r.shared);
    if (!r.shared) {
        (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton");
        return NB_G_NONE;
    }
    memset(r.shared, 0xff, (size_t)n_target * 3 * sizeof *r.shared);
    for (uint32_t s = 0; s < n_target && nb_g_ok(g); s++) (void)new_state(&r);
    for (size_t i = 0; i < cp->n_edge && nb_g_ok(g); i++) put_edge(&r, &cp->edge[i]);
    for (uint32_t s = 0; quote && s < cp->n_state && nb_g_ok(g); s++)
        if (cp->end[s]) r.row[s]['"'] = cp->n_state;
    if (nb_g_ok(g) && squeeze(&r, &d) == NB_OK) {
        d.n_state = (uint32_t)r.n;
        d.end = nb_g_alloc(g, r.n, 1);
        for (size_t s = 0; d.end && s < r.n; s++) {
            const bool ends = quote ? s == cp->n_state : s < cp->n_state && cp->end[s];
            if (ends) d.end[s] |= NB_DFA_END;
            for (uint32_t c = 0; c < d.n_cls; c++)
                if (d.next[s * d.n_cls + c] != NB_G_NONE) d.end[s] |= NB_DFA_MORE;
        }
        id = nb_g_dfa_add(g, &d);
    }
    free(r.row);
    free(r.shared);
    return id;
}
