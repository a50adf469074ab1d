/* number.c - automata of numbers: digits are compared with those of the bounds as they are read, and
 * the remainder is carried along. */
#include "grammar/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

int nb_num_compare(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b)) {
        const json_int_t x = json_integer_value(a), y = json_integer_value(b);
        return x < y ? -1 : x > y;
    }
    const double x = json_number_value(a), y = json_number_value(b);
    return x < y ? -1 : x > y;
}

/* ---- decimal digits ---- */

enum { MAX_DIGIT = 700 };

/* digit[0 .. n_int) "." digit[n_int .. n), without needless zeros. */
typedef struct decimal {
    char digit[MAX_DIGIT];
    size_t n_int, n;
    bool negative;
} decimal;

static void to_decimal(const json_t *v, decimal *d)
{
    char text[64], digits[32];
    memset(d, 0, sizeof *d);
    if (json_is_integer(v)) {
        const json_int_t i = json_integer_value(v);
        d->negative = i < 0;
        (void)snprintf(text, sizeof text, "%lld", (long long)i);
        const char *p = text + d->negative;
        if (i != 0) {
            d->n = d->n_int = strlen(p);
            memcpy(d->digit, p, d->n);
        }
        return;
    }
    const double x = json_real_value(v);
    for (int p = 0; p < 18; p++) { /* the shortest that means the same */
        (void)snprintf(text, sizeof text, "%.*e", p, x);
        if (strtod(text, NULL) == x) break;
    }
    d->negative = x < 0;
    size_t n = 0;
    const char *p = text + (text[0] == '-');
    for (; *p && *p != 'e'; p++)
        if (*p != '.') digits[n++] = *p;
    const int point = (*p == 'e' ? atoi(p + 1) : 0) + 1; /* digits before the point */
    while (n && digits[n - 1] == '0') n--;
    if (n == 0) return;
    size_t at = 0;
    for (int i = 0; i < point && at < MAX_DIGIT; i++)
        d->digit[at++] = (size_t)i < n ? digits[i] : '0';
    d->n_int = at;
    for (int i = point; i < (int)n && at < MAX_DIGIT; i++) d->digit[at++] = i < 0 ? '0' : digits[i];
    d->n = at;
}

/* ---- the automaton ---- */

enum { P_START, P_MINUS, P_ZERO, P_INT, P_POINT, P_FRAC };
enum { LESS, SAME, MORE };

/* How the digits read so far compare with a bound's, and where the number stands. */
typedef struct place {
    uint32_t phase,
        k; /* k: digits of the integer or of the fraction, at most what bounds tell apart */
    uint32_t lo, hi, rem;
    bool negative;
} place;

typedef struct limits {
    bool any;               /* some number has this sign */
    const decimal *lo, *hi; /* of the magnitude; NULL: none */
    bool lo_open, hi_open;
} limits;

typedef struct machine {
    nb_grammar *g;
    const nb_numspec *s;
    limits sign[2];
    uint32_t most_int, most_frac;
    place *p;
    uint32_t (*next)[12]; /* 0..9, '-', '.' */
    size_t n, cap_p, cap_next;
    uint32_t *table;
    size_t n_table;
} machine;

enum { MAX_PLACE = 60000, N_SYMBOL = 12, MINUS = 10, POINT = 11 };

static uint32_t digit_at(const decimal *d, size_t i)
{
    return i < d->n ? (uint32_t)(d->digit[i] - '0') : 0;
}

static uint32_t compare(uint32_t was, const decimal *b, size_t i, uint32_t digit)
{
    if (!b || was != SAME) return was;
    const uint32_t d = digit_at(b, i);
    return digit < d ? LESS : digit > d ? MORE : SAME;
}

/* An integer of k digits against a bound, whose first digits compared as `c`. */
static uint32_t with_length(uint32_t c, const decimal *b, uint32_t k)
{
    if (!b) return SAME;
    return k < b->n_int ? LESS : k > b->n_int ? MORE : c;
}

static bool take_digit(const machine *m, place *p, uint32_t d)
{
    const limits *l = &m->sign[p->negative];
    const uint32_t mul = m->s->multiple;
    if (p->phase == P_ZERO) return false;
    if (p->phase <= P_INT) {
        if (p->phase < P_INT) p->k = 0;
        p->lo = compare(p->lo, l->lo, p->k, d);
        p->hi = compare(p->hi, l->hi, p->k, d);
        p->k = p->k < m->most_int ? p->k + 1 : m->most_int;
        p->phase = p->phase < P_INT && d == 0 ? P_ZERO : P_INT;
        if (p->phase == P_ZERO) p->k = 0;
        if (mul) p->rem = (p->rem * 10 + d) % mul;
        return true;
    }
    if (p->phase == P_POINT) p->k = 0;
    if (mul && p->k >= m->s->digits && d != 0) return false;
    p->lo = compare(p->lo, l->lo, (l->lo ? l->lo->n_int : 0) + p->k, d);
    p->hi = compare(p->hi, l->hi, (l->hi ? l->hi->n_int : 0) + p->k, d);
    if (mul && p->k < m->s->digits) p->rem = (p->rem * 10 + d) % mul;
    p->k = p->k < m->most_frac ? p->k + 1 : m->most_frac;
    p->phase = P_FRAC;
    return true;
}

/* A zero compares as a number of no digits. */
static void end_integer(const machine *m, place *p)
{
    const limits *l = &m->sign[p->negative];
    if (p->phase == P_ZERO) p->lo = p->hi = SAME;
    p->lo = with_length(p->lo, l->lo, p->k);
    p->hi = with_length(p->hi, l->hi, p->k);
}

static bool step(const machine *m, place *p, uint32_t symbol)
{
    if (symbol == MINUS) {
        if (p->phase != P_START || !m->sign[1].any) return false;
        p->phase = P_MINUS;
        p->negative = true;
        return true;
    }
    if (symbol == POINT) {
        if (m->s->integer || (p->phase != P_ZERO && p->phase != P_INT)) return false;
        end_integer(m, p);
        p->phase = P_POINT;
        p->k = 0;
        return true;
    }
    if (p->phase == P_START && !m->sign[0].any) return false;
    return take_digit(m, p, symbol);
}

/* Whether digits of the bound are left that are not zero: then what is equal so far is less. */
static uint32_t at_end(uint32_t c, const decimal *b, uint32_t k_frac)
{
    return b && c == SAME && b->n > b->n_int + k_frac ? LESS : c;
}

static bool ends(const machine *m, place p)
{
    const limits *l = &m->sign[p.negative];
    if (p.phase != P_ZERO && p.phase != P_INT && p.phase != P_FRAC) return false;
    const bool frac = p.phase == P_FRAC;
    const uint32_t digits = frac ? p.k : 0;
    if (!frac) end_integer(m, &p);
    const uint32_t lo = at_end(p.lo, l->lo, digits), hi = at_end(p.hi, l->hi, digits);
    if (l->lo && (lo == LESS || (lo == SAME && l->lo_open))) return false;
    if (l->hi && (hi == MORE || (hi == SAME && l->hi_open))) return false;
    for (uint32_t i = digits; m->s->multiple && i < m->s->digits; i++)
        p.rem = p.rem * 10 % m->s->multiple;
    return p.rem == 0;
}

static uint32_t find(machine *m, const place *p)
{
    const uint32_t key[5] = { p->phase << 1 | p->negative, p->k, p->lo, p->hi, p->rem };
    const uint64_t h = nb_hash_bytes(key, sizeof key, 11) & (m->n_table - 1);
    size_t i = h;
    for (; m->table[i] != NB_G_NONE; i = (i + 1) & (m->n_table - 1)) {
        const place *o = &m->p[m->table[i]];
        if (o->phase == p->phase && o->negative == p->negative && o->k == p->k && o->lo == p->lo &&
            o->hi == p->hi && o->rem == p->rem)
            return m->table[i];
    }
    if (m->n >= MAX_PLACE || !nb_g_spend(m->g, 4)) {
        (void)nb_g_fail(m->g, NB_ERR_LIMIT, "the conditions on a number need more than %d states",
                        MAX_PLACE);
        return NB_G_NONE;
    }
    if (NB_GROW(m->p, m->cap_p, m->n) != NB_OK || NB_GROW(m->next, m->cap_next, m->n) != NB_OK) {
        (void)nb_g_fail(m->g, NB_ERR_NOMEM, "no memory for an automaton");
        return NB_G_NONE;
    }
    m->p[m->n] = *p;
    m->table[i] = (uint32_t)m->n;
    return (uint32_t)m->n++;
}

static bool explore(machine *m)
{
    (void)find(m, &(place){ .lo = SAME, .hi = SAME });
    for (size_t i = 0; i < m->n && nb_g_ok(m->g); i++)
        for (uint32_t c = 0; c < N_SYMBOL; c++) {
            place p = m->p[i];
            const uint32_t to = step(m, &p, c) ? find(m, &p) : NB_G_NONE;
            m->next[i][c] = to;
        }
    return nb_g_ok(m->g);
}

/* Without the places that lead to no number; NB_G_NONE: there is none. */
static uint32_t to_dfa(machine *m)
{
    nb_grammar *g = m->g;
    uint32_t *name = calloc(m->n, sizeof *name);
    if (!name) {
        (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton");
        return NB_G_NONE;
    }
    for (size_t i = 0; i < m->n; i++) name[i] = ends(m, m->p[i]);
    for (bool changed = true; changed && nb_g_spend(g, m->n);) {
        changed = false;
        for (size_t i = m->n; i-- > 0;)
            for (uint32_t c = 0; c < N_SYMBOL && !name[i]; c++)
                if (m->next[i][c] != NB_G_NONE && name[m->next[i][c]]) name[i] = changed = true;
    }
    nb_gdfa d = { .n_cls = N_SYMBOL + 1 };
    for (size_t i = 0; i < m->n; i++)
        if (name[i]) name[i] = ++d.n_state;
    memset(d.cls, N_SYMBOL, sizeof d.cls);
    for (unsigned c = 0; c < 10; c++) d.cls['0' + c] = (uint8_t)c;
    d.cls['-'] = MINUS;
    d.cls['.'] = POINT;
    uint32_t id = NB_G_NONE;
    if (name[0]) {
        d.next = nb_g_alloc(g, (size_t)d.n_state * d.n_cls, sizeof *d.next);
        d.end = nb_g_alloc(g, d.n_state, 1);
    }
    for (size_t i = 0; name[0] && nb_g_ok(g) && i < m->n; i++) {
        if (!name[i]) continue;
        const uint32_t s = name[i] - 1;
        d.end[s] = ends(m, m->p[i]) ? NB_DFA_END : 0;
        d.next[s * d.n_cls + N_SYMBOL] = NB_G_NONE;
        for (uint32_t c = 0; c < N_SYMBOL; c++) {
            const uint32_t to = m->next[i][c] == NB_G_NONE ? 0 : name[m->next[i][c]];
            d.next[s * d.n_cls + c] = to ? to - 1 : NB_G_NONE;
            if (to) d.end[s] |= NB_DFA_MORE;
        }
    }
    if (name[0]) id = nb_g_dfa_add(g, &d);
    free(name);
    return id;
}

/* Bounds of the magnitude for numbers of each sign. */
static void set_limits(machine *m, const decimal *min, const decimal *max)
{
    const nb_numspec *s = m->s;
    limits *pos = &m->sign[0], *neg = &m->sign[1];
    pos->any = !max || !max->negative;
    if (min && !min->negative) {
        pos->lo = min;
        pos->lo_open = s->over;
    }
    if (max && !max->negative) {
        pos->hi = max;
        pos->hi_open = s->under;
    }
    neg->any = !min || min->negative;
    if (max && max->negative) {
        neg->lo = max;
        neg->lo_open = s->under;
    }
    if (min && min->negative) {
        neg->hi = min;
        neg->hi_open = s->over;
    }
    /* "-0" is not below 0, and a bound of 0 admits it in one spelling only. */
    if (max && !max->negative && max->n == 0 && s->under) neg->lo = max, neg->lo_open = true;
}

nb_gid nb_g_number(nb_grammar *g, const nb_numspec *s, nb_gid next)
{
    if (!s->min && !s->max && !s->multiple) return nb_g_any_number(g, s->integer, next);
    machine m = { .g = g, .s = s, .n_table = 1u << 17 };
    decimal lo, hi;
    if (s->min) to_decimal(s->min, &lo);
    if (s->max) to_decimal(s->max, &hi);
    set_limits(&m, s->min ? &lo : NULL, s->max ? &hi : NULL);
    m.most_frac = s->digits;
    for (int i = 0; i < 2; i++) {
        const decimal *d = i ? s->max ? &hi : NULL : s->min ? &lo : NULL;
        if (d && d->n_int + 1 > m.most_int) m.most_int = (uint32_t)d->n_int + 1;
        if (d && d->n - d->n_int + 1 > m.most_frac) m.most_frac = (uint32_t)(d->n - d->n_int) + 1;
    }
    if (m.most_int == 0) m.most_int = 1;
    if (m.most_frac == 0) m.most_frac = 1;
    uint32_t id = NB_G_NONE;
    m.table = nb_g_spend(g, 1000) ? malloc(m.n_table * sizeof *m.table) : NULL;
    if (!m.table) {
        (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for an automaton");
    } else {
        memset(m.table, 0xff, m.n_table * sizeof *m.table);
        if (explore(&m)) id = to_dfa(&m);
    }
    free(m.table);
    free(m.p);
    free(m.next);
    if (!nb_g_ok(g)) return NB_G_NONE;
    return id == NB_G_NONE ? nb_g_alt_room(g, 0) : nb_g_dfa_node(g, id, next);
}

bool nb_num_multiple(nb_numspec *s, const json_t *m)
{
    decimal d;
    to_decimal(m, &d);
    const uint32_t digits = (uint32_t)(d.n - d.n_int);
    uint64_t v = 0, have = s->multiple;
    if (d.negative || d.n == 0 || digits > NB_NUM_MAX_DIGITS) return false;
    for (size_t i = 0; i < d.n; i++) {
        v = v * 10 + (uint64_t)(d.digit[i] - '0');
        if (v > NB_NUM_MAX_MULTIPLE) return false;
    }
    uint32_t most = digits > s->digits ? digits : s->digits;
    if (!have) {
        s->multiple = (uint32_t)v;
        s->digits = digits;
        return true;
    }
    for (uint32_t i = s->digits; i < most; i++) have *= 10;
    for (uint32_t i = digits; i < most; i++) v *= 10;
    uint64_t a = have, b = v;
    while (b) {
        const uint64_t t = a % b;
        a = b;
        b = t;
    }
    const uint64_t lcm = have / a * v;
    if (lcm > NB_NUM_MAX_MULTIPLE) return false;
    s->multiple = (uint32_t)lcm;
    s->digits = most;
    return true;
}
