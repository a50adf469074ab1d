/* jinja_repr.c - values as text: Python's str() and repr(), floats. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/jinja_internal.h"

enum { FLOAT_TEXT_BYTES = 400 };

/* strtod under any locale: s has digits, '_' (ignored), '.', exponent, sign, or
 * is inf, infinity or nan. */
nb_status nb_j_parse_float(nb_str s, double *out)
{
    char t[FLOAT_TEXT_BYTES];
    size_t n = 0;
    const char point = *localeconv()->decimal_point;
    s = nb_j_lstrip(nb_j_rstrip(s, NULL), NULL);
    for (size_t i = 0; i < s.n_bytes; i++) {
        const char c = s.p[i];
        if (n + 1 >= sizeof t || c == 'x' || c == 'X' || c == '(') return NB_ERR_FORMAT;
        if (c == '_') {
            if (i == 0 || i + 1 == s.n_bytes || s.p[i - 1] < '0' || s.p[i - 1] > '9' ||
                s.p[i + 1] < '0' || s.p[i + 1] > '9')
                return NB_ERR_FORMAT;
            continue;
        }
        t[n++] = c == '.' ? point : c;
    }
    t[n] = 0;
    if (!n || nb_j_is_space((unsigned char)t[0])) return NB_ERR_FORMAT;
    char *end;
    const double v = strtod(t, &end);
    if (*end) return NB_ERR_FORMAT;
    *out = v;
    return NB_OK;
}

/* Shortest digits that read back as x, laid out as Python's repr does: with an
 * exponent below 1e-4 and from 1e16 on. */
size_t nb_j_float_repr(double x, char out[40])
{
    char t[64], digits[24];
    if (isnan(x)) return (size_t)snprintf(out, 40, "nan");
    if (isinf(x)) return (size_t)snprintf(out, 40, x < 0 ? "-inf" : "inf");
    int prec = 0;
    do snprintf(t, sizeof t, "%.*e", prec, x); while (strtod(t, NULL) != x && ++prec < 17);
    size_t nd = 0, n = 0;
    const char *c = t;
    for (; *c && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9') digits[nd++] = *c;
    const int exp10 = atoi(c + 1);
    while (nd > 1 && digits[nd - 1] == '0') nd--;
    if (signbit(x)) out[n++] = '-';
    if (exp10 < -4 || exp10 >= 16) {
        out[n++] = digits[0];
        if (nd > 1) out[n++] = '.';
        for (size_t i = 1; i < nd; i++) out[n++] = digits[i];
        return n + (size_t)snprintf(out + n, 40 - n, "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
    }
    if (exp10 < 0) {
        out[n++] = '0';
        out[n++] = '.';
        for (int i = -1; i > exp10; i--) out[n++] = '0';
        for (size_t i = 0; i < nd; i++) out[n++] = digits[i];
    } else {
        for (int i = 0; i <= exp10 || i < (int)nd; i++) {
            if (i == exp10 + 1) out[n++] = '.';
            out[n++] = i < (int)nd ? digits[i] : '0';
        }
        if ((int)nd <= exp10 + 1) {
            out[n++] = '.';
            out[n++] = '0';
        }
    }
    out[n] = 0;
    return n;
}

static nb_status add_str_repr(nb_jr *r, nb_str s)
{
    NB_TRY(nb_j_work(r, s.n_bytes));
    const bool single = s.n_bytes && memchr(s.p, '\'', s.n_bytes);
    const char q = single && !memchr(s.p, '"', s.n_bytes) ? '"' : '\'';
    NB_TRY(nb_j_add_ch(r, q));
    for (size_t i = 0, n; i < s.n_bytes; i += n) {
        char t[16];
        const uint32_t cp = nb_j_cp(s, i, &n);
        if (cp == (uint32_t)q || cp == '\\') snprintf(t, sizeof t, "\\%c", (char)cp);
        else if (cp == '\n') memcpy(t, "\\n", 3);
        else if (cp == '\r') memcpy(t, "\\r", 3);
        else if (cp == '\t') memcpy(t, "\\t", 3);
        else if (nb_j_is_printable(cp)) {
            NB_TRY(nb_j_add(r, nb_j_sub(s, i, i + n)));
            continue;
        } else if (cp < 0x100) snprintf(t, sizeof t, "\\x%02x", cp);
        else if (cp < 0x10000) snprintf(t, sizeof t, "\\u%04x", cp);
        else snprintf(t, sizeof t, "\\U%08x", cp);
        NB_TRY(nb_j_add_c(r, t));
    }
    return nb_j_add_ch(r, q);
}

static nb_status add_items(nb_jr *r, const nb_jv *v)
{
    const nb_jlist *l = v->u.list;
    r->printed_container = true;
    NB_TRY(nb_j_add_ch(r, v->kind == NB_JK_LIST ? '[' : '('));
    for (size_t i = 0; i < l->n; i++) {
        if (i) NB_TRY(nb_j_add_c(r, ", "));
        NB_TRY(nb_j_add_repr(r, &l->v[i]));
    }
    if (v->kind == NB_JK_TUPLE && l->n == 1) NB_TRY(nb_j_add_ch(r, ','));
    return nb_j_add_ch(r, v->kind == NB_JK_LIST ? ']' : ')');
}

static nb_status add_dict(nb_jr *r, const nb_jdict *d)
{
    r->printed_container = true;
    NB_TRY(nb_j_add_ch(r, '{'));
    for (size_t i = 0; i < d->n; i++) {
        if (i) NB_TRY(nb_j_add_c(r, ", "));
        NB_TRY(nb_j_add_repr(r, &d->e[i].key));
        NB_TRY(nb_j_add_c(r, ": "));
        NB_TRY(nb_j_add_repr(r, &d->e[i].val));
    }
    return nb_j_add_ch(r, '}');
}

static nb_status add_view(nb_jr *r, const nb_jv *v)
{
    nb_jlist *items;
    NB_TRY(nb_j_to_list(r, v, &items));
    NB_TRY(nb_j_add_c(r, nb_jv_type_name(v)));
    NB_TRY(nb_j_add_ch(r, '('));
    NB_TRY(add_items(r, &(nb_jv){ .kind = NB_JK_LIST, .u.list = items }));
    return nb_j_add_ch(r, ')');
}

static nb_status add_range(nb_jr *r, const nb_jrange *g)
{
    char t[80];
    if (g->step == 1)
        snprintf(t, sizeof t, "range(%lld, %lld)", (long long)g->start, (long long)g->stop);
    else
        snprintf(t, sizeof t, "range(%lld, %lld, %lld)", (long long)g->start, (long long)g->stop,
                 (long long)g->step);
    return nb_j_add_c(r, t);
}

static nb_status add_scalar(nb_jr *r, const nb_jv *v)
{
    char t[40];
    switch (v->kind) {
    case NB_JK_NONE: return nb_j_add_c(r, "None");
    case NB_JK_BOOL: return nb_j_add_c(r, v->u.b ? "True" : "False");
    case NB_JK_INT:
        snprintf(t, sizeof t, "%lld", (long long)v->u.i);
        return nb_j_add_c(r, t);
    default: return nb_j_add(r, (nb_str){ t, nb_j_float_repr(v->u.f, t) });
    }
}

/* Objects that Python prints with an address: no template can depend on the text. */
static nb_status add_object(nb_jr *r, const nb_jv *v)
{
    NB_TRY(nb_j_add_ch(r, '<'));
    NB_TRY(nb_j_add_c(r, nb_jv_type_name(v)));
    if (v->kind == NB_JK_MACRO) {
        NB_TRY(nb_j_add_ch(r, ' '));
        NB_TRY(add_str_repr(r, v->u.macro->name));
    } else if (v->kind == NB_JK_LOOP) {
        char t[60];
        snprintf(t, sizeof t, " %lld/%zu", (long long)v->u.loop->index0 + 1, v->u.loop->n);
        NB_TRY(nb_j_add_c(r, t));
    } else {
        NB_TRY(nb_j_add_c(r, " object"));
    }
    return nb_j_add_ch(r, '>');
}

static nb_status add_repr_inner(nb_jr *r, const nb_jv *v)
{
    switch (v->kind) {
    case NB_JK_UNDEF: return nb_j_add_c(r, "Undefined");
    case NB_JK_NONE: case NB_JK_BOOL: case NB_JK_INT: case NB_JK_FLOAT: return add_scalar(r, v);
    case NB_JK_STR:
        if (!v->sub) return add_str_repr(r, v->u.s);
        NB_TRY(nb_j_add_c(r, "Markup("));
        NB_TRY(add_str_repr(r, v->u.s));
        return nb_j_add_ch(r, ')');
    case NB_JK_LIST: case NB_JK_TUPLE: return add_items(r, v);
    case NB_JK_DICT: return add_dict(r, v->u.dict);
    case NB_JK_NS:
        NB_TRY(nb_j_add_c(r, "<Namespace "));
        NB_TRY(add_dict(r, v->u.dict));
        return nb_j_add_ch(r, '>');
    case NB_JK_VIEW: return add_view(r, v);
    case NB_JK_RANGE: return add_range(r, v->u.range);
    default: return add_object(r, v);
    }
}

nb_status nb_j_add_repr(nb_jr *r, const nb_jv *v)
{
    NB_TRY(nb_j_work(r, 1));
    NB_TRY(nb_j_enter(r));
    const nb_status st = add_repr_inner(r, v);
    nb_j_leave(r);
    return st;
}

nb_status nb_j_add_str(nb_jr *r, const nb_jv *v)
{
    if (v->kind == NB_JK_STR) return nb_j_add(r, v->u.s);
    if (v->kind == NB_JK_UNDEF) return NB_OK;
    return nb_j_add_repr(r, v);
}

nb_status nb_j_to_str(nb_jr *r, const nb_jv *v, nb_jv *out)
{
    if (v->kind == NB_JK_STR) {
        *out = *v;
        return NB_OK;
    }
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_add_str(r, v));
    return nb_j_take(r, mark, out);
}
