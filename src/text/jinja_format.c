/* jinja_format.c - Python's "..." % args and "...".format(...).
 * Both reduce to one description of a field (spec) and one routine per kind of
 * value.  Not supported, and refused: nested fields in a format spec, the types n
 * and c, grouping of anything but decimal numbers. */
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>

#include "text/jinja_internal.h"

enum { MAX_WIDTH = 100000, MAX_PREC = 100 };

typedef struct spec {
    nb_str fill;
    char align;  /* < > ^ =, 0 = the kind's own */
    char sign;   /* + - blank, 0 */
    bool alt, zero;
    char group;  /* , or _ */
    size_t width;
    int prec;    /* -1: none */
    char type;   /* 0: none */
} spec;

static const spec no_spec = { .fill = { " ", 1 }, .prec = -1 };

static nb_status add_fill(nb_jr *r, nb_str fill, size_t n)
{
    for (size_t i = 0; i < n; i++) NB_TRY(nb_j_add(r, fill));
    return NB_OK;
}

/* body padded; the first n_prefix bytes (sign, 0x) stay in front of "=" padding. */
static nb_status add_padded(nb_jr *r, nb_str body, size_t n_prefix, char dflt, const spec *s)
{
    const size_t n_cp = nb_j_cp_count(body), pad = s->width > n_cp ? s->width - n_cp : 0;
    const char align = s->align ? s->align : dflt;
    const size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    if (align == '=') {
        NB_TRY(nb_j_add(r, nb_j_sub(body, 0, n_prefix)));
        NB_TRY(add_fill(r, s->fill, pad));
        return nb_j_add(r, nb_j_sub(body, n_prefix, body.n_bytes));
    }
    NB_TRY(add_fill(r, s->fill, left));
    NB_TRY(nb_j_add(r, body));
    return add_fill(r, s->fill, align == '=' ? 0 : pad - left);
}

static nb_status add_field_str(nb_jr *r, nb_str t, const spec *s)
{
    if (s->prec >= 0) t = nb_j_sub(t, 0, nb_j_cp_offset(t, (size_t)s->prec));
    return add_padded(r, t, 0, '<', s);
}

/* Thousands separators into the digits of t (before any point); out has room. */
static size_t group_digits(const char *t, size_t n_prefix, char sep, char *out)
{
    size_t n_int = n_prefix, n = 0;
    while (isdigit((unsigned char)t[n_int])) n_int++;
    for (size_t i = 0; t[i]; i++) {
        if (i > n_prefix && i < n_int && (n_int - i) % 3 == 0) out[n++] = sep;
        out[n++] = t[i];
    }
    return n;
}

static nb_status add_number(nb_jr *r, const char *text, size_t n_prefix, const spec *s)
{
    char grouped[1024];
    spec t = *s;
    nb_str body = nb_str_c(text);
    if (s->group) body = (nb_str){ grouped, group_digits(text, n_prefix, s->group, grouped) };
    if (s->zero && !s->align) {
        t.fill = (nb_str){ "0", 1 };
        t.align = '=';
    }
    return add_padded(r, body, n_prefix, '>', &t);
}

static nb_status add_field_int(nb_jr *r, int64_t v, const spec *s)
{
    char t[256], digits[80];
    const uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    size_t n = 0;
    if (v < 0) t[n++] = '-';
    else if (s->sign == '+' || s->sign == ' ') t[n++] = s->sign;
    const char *prefix = "";
    switch (s->type) {
    case 'x': snprintf(digits, sizeof digits, "%llx", (unsigned long long)u); prefix = "0x"; break;
    case 'X': snprintf(digits, sizeof digits, "%llX", (unsigned long long)u); prefix = "0X"; break;
    case 'o': snprintf(digits, sizeof digits, "%llo", (unsigned long long)u); prefix = "0o"; break;
    case 'b': {
        int k = 0, bit = 63;
        while (bit > 0 && !(u >> bit & 1)) bit--;
        for (; bit >= 0; bit--) digits[k++] = (char)('0' + (u >> bit & 1));
        digits[k] = 0;
        prefix = "0b";
        break;
    }
    default: snprintf(digits, sizeof digits, "%llu", (unsigned long long)u); break;
    }
    n += (size_t)snprintf(t + n, sizeof t - n, "%s", s->alt ? prefix : "");
    const size_t n_prefix = n;
    for (size_t k = strlen(digits); s->prec > 0 && k < (size_t)s->prec; k++) t[n++] = '0';
    snprintf(t + n, sizeof t - n, "%s", digits);
    return add_number(r, t, n_prefix, s);
}

static nb_status add_field_float(nb_jr *r, double v, const spec *s)
{
    char t[640], f[8];
    size_t n = 0;
    const char point = *localeconv()->decimal_point;
    const double a = fabs(v);
    const char type = s->type == '%' ? 'f' : s->type;
    if (signbit(v)) t[n++] = '-';
    else if (s->sign == '+' || s->sign == ' ') t[n++] = s->sign;
    const size_t n_prefix = n;
    if (!type && s->prec < 0) {
        n += nb_j_float_repr(a, t + n);
    } else {
        snprintf(f, sizeof f, "%%%s.*%c", s->alt ? "#" : "", type ? type : 'g');
        n += (size_t)snprintf(t + n, sizeof t - n, f, s->prec < 0 ? 6 : s->prec,
                              s->type == '%' ? a * 100 : a);
    }
    if (s->type == '%' && n + 1 < sizeof t) memcpy(t + n, "%", 2);
    else t[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (t[i] == point && point != '.') t[i] = '.';
    return add_number(r, t, n_prefix, s);
}

/* ---- "%" ---- */

typedef struct percent {
    nb_jr *r;
    nb_str fmt;
    size_t i;            /* position in fmt */
    const nb_jv *args, *one;
    size_t n_args, used;
    bool keyed;
} percent;

static nb_status next_arg(percent *p, const nb_jv **out)
{
    if (p->used >= p->n_args)
        return NB_J_TYPE_ERROR(p->r, "not enough arguments for format string");
    *out = &p->args[p->used++];
    return NB_OK;
}

static nb_status read_size(percent *p, int64_t max, int64_t *out)
{
    *out = 0;
    if (p->i < p->fmt.n_bytes && p->fmt.p[p->i] == '*') {
        const nb_jv *v = NULL;
        p->i++;
        NB_TRY(next_arg(p, &v));
        if (!nb_jv_is_int(v)) return NB_J_TYPE_ERROR(p->r, "* wants int");
        *out = nb_jv_as_int(v);
    } else {
        while (p->i < p->fmt.n_bytes && isdigit((unsigned char)p->fmt.p[p->i]) && *out <= max)
            *out = *out * 10 + (p->fmt.p[p->i++] - '0');
    }
    if (*out > max || *out < -max)
        return nb_j_fail(p->r, NB_ERR_LIMIT, "width or precision in a format above %lld",
                         (long long)max);
    return NB_OK;
}

static nb_status add_percent_value(percent *p, const nb_jv *v, spec *s)
{
    nb_jr *r = p->r;
    const size_t mark = nb_j_mark(r);
    nb_jv t;
    switch (s->type) {
    case 's': case 'r': case 'a':
        if (s->type == 's') NB_TRY(nb_j_to_str(r, v, &t));
        else {
            NB_TRY(nb_j_add_repr(r, v));
            NB_TRY(nb_j_take(r, mark, &t));
        }
        s->zero = false;
        if (!s->align) s->align = '>';
        return add_field_str(r, t.u.s, s);
    case 'd': case 'i': case 'u': case 'x': case 'X': case 'o':
        if (v->kind == NB_JK_FLOAT && strchr("diu", s->type) && fabs(v->u.f) < 0x1p63)
            return add_field_int(r, (int64_t)v->u.f, s);
        if (!nb_jv_is_int(v))
            return NB_J_TYPE_ERROR(r, "%%%c format: a real number is required, not %s", s->type,
                                   nb_jv_type_name(v));
        return add_field_int(r, nb_jv_as_int(v), s);
    case 'e': case 'E': case 'f': case 'F': case 'g': case 'G':
        if (!nb_jv_is_num(v))
            return NB_J_TYPE_ERROR(r, "must be real number, not %s", nb_jv_type_name(v));
        return add_field_float(r, nb_jv_as_float(v), s);
    case 'c':
        if (v->kind != NB_JK_STR || nb_j_cp_count(v->u.s) != 1)
            return NB_J_TYPE_ERROR(r, "%%c requires a single character");
        if (!s->align) s->align = '>';
        return add_field_str(r, v->u.s, s);
    default:
        return NB_J_VALUE_ERROR(r, "unsupported format character '%c'",
                                s->type > 32 && s->type < 127 ? s->type : '?');
    }
}

/* %(name): the argument must be a mapping. */
static nb_status read_key(percent *p, const nb_jv **v)
{
    const size_t from = ++p->i;
    unsigned open = 1;
    for (; p->i < p->fmt.n_bytes; p->i++) {
        open += p->fmt.p[p->i] == '(';
        if (p->fmt.p[p->i] == ')' && --open == 0) break;
    }
    if (open) return NB_J_VALUE_ERROR(p->r, "incomplete format key");
    if (p->one->kind != NB_JK_DICT) return NB_J_TYPE_ERROR(p->r, "format requires a mapping");
    const nb_jv key = nb_jv_str(nb_j_sub(p->fmt, from, p->i++));
    size_t at;
    NB_TRY(nb_j_dict_find(p->r, p->one->u.dict, &key, &at));
    if (at == SIZE_MAX)
        return nb_j_fail(p->r, NB_ERR_FORMAT, "KeyError: '%.*s'",
                         (int)(key.u.s.n_bytes > 80 ? 80 : key.u.s.n_bytes), key.u.s.p);
    p->keyed = true;
    *v = &p->one->u.dict->e[at].val;
    return NB_OK;
}

static nb_status percent_field(percent *p)
{
    spec s = no_spec;
    const nb_jv *v = NULL;
    int64_t n;
    if (p->i < p->fmt.n_bytes && p->fmt.p[p->i] == '(') NB_TRY(read_key(p, &v));
    for (; p->i < p->fmt.n_bytes && strchr("#0- +", p->fmt.p[p->i]) && p->fmt.p[p->i]; p->i++) {
        const char c = p->fmt.p[p->i];
        if (c == '#') s.alt = true;
        else if (c == '0') s.zero = true;
        else if (c == '-') s.align = '<';
        else if (c == '+' || !s.sign) s.sign = c;
    }
    NB_TRY(read_size(p, MAX_WIDTH, &n));
    if (n < 0) s.align = '<';
    s.width = (size_t)(n < 0 ? -n : n);
    if (p->i < p->fmt.n_bytes && p->fmt.p[p->i] == '.') {
        p->i++;
        NB_TRY(read_size(p, MAX_PREC, &n));
        s.prec = n < 0 ? 0 : (int)n;
    }
    while (p->i < p->fmt.n_bytes && strchr("hlL", p->fmt.p[p->i]) && p->fmt.p[p->i]) p->i++;
    if (p->i >= p->fmt.n_bytes) return NB_J_VALUE_ERROR(p->r, "incomplete format");
    s.type = p->fmt.p[p->i++];
    if (s.type == '%') return nb_j_add_ch(p->r, '%');
    if (!v) NB_TRY(next_arg(p, &v));
    return add_percent_value(p, v, &s);
}

nb_status nb_j_percent(nb_jr *r, nb_str fmt, const nb_jv *args, nb_jv *out)
{
    percent p = { .r = r, .fmt = fmt, .one = args, .args = args, .n_args = 1 };
    if (args->kind == NB_JK_TUPLE) {
        p.args = args->u.list->v;
        p.n_args = args->u.list->n;
    }
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_work(r, fmt.n_bytes * 8));
    while (p.i < fmt.n_bytes) {
        const char *q = memchr(fmt.p + p.i, '%', fmt.n_bytes - p.i);
        const size_t to = q ? (size_t)(q - fmt.p) : fmt.n_bytes;
        NB_TRY(nb_j_add(r, nb_j_sub(fmt, p.i, to)));
        p.i = to + 1;
        if (q) NB_TRY(percent_field(&p));
    }
    const bool container = args->kind == NB_JK_DICT || args->kind == NB_JK_LIST ||
                           args->kind == NB_JK_UNDEF || args->kind == NB_JK_RANGE;
    if (p.used < p.n_args && !p.keyed && !container)
        return NB_J_TYPE_ERROR(r, "not all arguments converted during string formatting");
    return nb_j_take(r, mark, out);
}

/* ---- str.format ---- */

static nb_status read_spec(nb_jr *r, nb_str t, spec *s)
{
    size_t i = 0, n = 0;
    *s = no_spec;
    if (t.n_bytes && memchr(t.p, '{', t.n_bytes))
        return nb_j_fail(r, NB_ERR_UNSUPPORTED, "nested fields in a format are not supported");
    if (t.n_bytes) nb_j_cp(t, 0, &n);
    if (n && n < t.n_bytes && strchr("<>^=", t.p[n])) {
        s->fill = nb_j_sub(t, 0, n);
        s->align = t.p[n];
        i = n + 1;
    } else if (n && strchr("<>^=", t.p[0]) && t.p[0]) {
        s->align = t.p[i++];
    }
    if (i < t.n_bytes && (t.p[i] == '+' || t.p[i] == '-' || t.p[i] == ' ')) s->sign = t.p[i++];
    if (i < t.n_bytes && t.p[i] == '#') s->alt = t.p[i++];
    if (i < t.n_bytes && t.p[i] == '0') s->zero = t.p[i++];
    for (; i < t.n_bytes && isdigit((unsigned char)t.p[i]) && s->width <= MAX_WIDTH; i++)
        s->width = s->width * 10 + (size_t)(t.p[i] - '0');
    if (i < t.n_bytes && (t.p[i] == ',' || t.p[i] == '_')) s->group = t.p[i++];
    if (i < t.n_bytes && t.p[i] == '.') {
        s->prec = 0;
        for (i++; i < t.n_bytes && isdigit((unsigned char)t.p[i]) && s->prec <= MAX_PREC; i++)
            s->prec = s->prec * 10 + (t.p[i] - '0');
    }
    if (i < t.n_bytes) s->type = t.p[i++];
    if (s->width > MAX_WIDTH || s->prec > MAX_PREC)
        return nb_j_fail(r, NB_ERR_LIMIT, "width or precision in a format too large");
    if (i != t.n_bytes || (s->type && !strchr("sdxXobeEfFgG%", s->type)))
        return NB_J_VALUE_ERROR(r, "invalid or unsupported format specifier");
    return NB_OK;
}

static nb_status add_formatted(nb_jr *r, const nb_jv *v, nb_str text)
{
    spec s;
    NB_TRY(read_spec(r, text, &s));
    if (v->kind == NB_JK_STR) {
        if (s.type && s.type != 's')
            return NB_J_VALUE_ERROR(r, "Unknown format code '%c' for object of type 'str'", s.type);
        if (s.zero && !s.align) s.fill = (nb_str){ "0", 1 };
        return add_field_str(r, v->u.s, &s);
    }
    if (!text.n_bytes) return nb_j_add_str(r, v);
    if (nb_jv_is_int(v) && (!s.type || strchr("dxXob", s.type))) {
        s.prec = -1;
        return add_field_int(r, nb_jv_as_int(v), &s);
    }
    if (nb_jv_is_num(v) && s.type != 's' && (!s.type || strchr("eEfFgG%", s.type)))
        return add_field_float(r, nb_jv_as_float(v), &s);
    return NB_J_TYPE_ERROR(r, "unsupported format string for %s", nb_jv_type_name(v));
}

/* arg_name (.attr | [item])*: name is what stands before ! or : */
static nb_status find_field(nb_jr *r, nb_str name, const nb_jargs *args, size_t *automatic, nb_jv *v)
{
    size_t i = 0, index = 0;
    while (i < name.n_bytes && name.p[i] != '.' && name.p[i] != '[') i++;
    const nb_str first = nb_j_sub(name, 0, i);
    bool found = false;
    if (!first.n_bytes || nb_j_all_class(first, NB_JCLASS_DECIMAL)) {
        for (size_t k = 0; k < i && index < 1000000; k++)
            index = index * 10 + (size_t)(first.p[k] - '0');
        if (!first.n_bytes) index = (*automatic)++;
        found = index < args->n_pos;
        if (found) *v = args->pos[index];
    }
    for (size_t k = 0; !found && k < args->n_kw; k++) {
        found = first.n_bytes && nb_str_eq(args->kw_name[k], first);
        if (found) *v = args->kw_val[k];
    }
    if (!found)
        return nb_j_fail(r, NB_ERR_FORMAT, "IndexError: no argument for the format field '%.*s'",
                         (int)(first.n_bytes > 60 ? 60 : first.n_bytes), first.p);
    while (i < name.n_bytes) {
        const bool item = name.p[i++] == '[';
        const size_t from = i;
        while (i < name.n_bytes && (item ? name.p[i] != ']' : name.p[i] != '.' && name.p[i] != '['))
            i++;
        const nb_str part = nb_j_sub(name, from, i);
        nb_jv next, key = nb_jv_str(part);
        if (item && part.n_bytes && part.n_bytes < 10 && nb_j_all_class(part, NB_JCLASS_DECIMAL)) {
            key = nb_jv_int(0);
            for (size_t k = 0; k < part.n_bytes; k++) key.u.i = key.u.i * 10 + (part.p[k] - '0');
        }
        NB_TRY(item ? nb_j_getitem(r, v, &key, &next) : nb_j_getattr(r, v, part, &next));
        *v = next;
        i += item;
    }
    return NB_OK;
}

static nb_status add_format_field(nb_jr *r, nb_str field, const nb_jargs *args, size_t *automatic)
{
    size_t colon = 0;
    unsigned brackets = 0;
    for (; colon < field.n_bytes; colon++) {
        const char c = field.p[colon];
        brackets += c == '[';
        if (c == ']' && brackets) brackets--;
        if ((c == ':' || c == '!') && !brackets) break;
    }
    nb_str name = nb_j_sub(field, 0, colon), text = { "", 0 };
    char conv = 0;
    if (colon < field.n_bytes && field.p[colon] == '!') {
        if (colon + 1 >= field.n_bytes || !strchr("sra", field.p[colon + 1]) ||
            (colon + 2 < field.n_bytes && field.p[colon + 2] != ':'))
            return NB_J_VALUE_ERROR(r, "bad conversion in a format field");
        conv = field.p[colon + 1];
        colon += 2;
    }
    if (colon < field.n_bytes) text = nb_j_sub(field, colon + 1, field.n_bytes);
    nb_jv v;
    NB_TRY(find_field(r, name, args, automatic, &v));
    if (conv) {
        const size_t mark = nb_j_mark(r);
        NB_TRY(conv == 's' ? nb_j_add_str(r, &v) : nb_j_add_repr(r, &v));
        NB_TRY(nb_j_take(r, mark, &v));
    }
    return add_formatted(r, &v, text);
}

nb_status nb_j_str_format(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,
                          nb_jv *out)
{
    (void)a;
    const nb_str f = self->u.s;
    const size_t mark = nb_j_mark(r);
    size_t automatic = 0;
    NB_TRY(nb_j_work(r, f.n_bytes * 8));
    for (size_t i = 0; i < f.n_bytes; i++) {
        const char c = f.p[i];
        if (c != '{' && c != '}') {
            NB_TRY(nb_j_add_ch(r, c));
        } else if (i + 1 < f.n_bytes && f.p[i + 1] == c) {
            NB_TRY(nb_j_add_ch(r, c));
            i++;
        } else {
            const size_t end = c == '{' ? nb_j_find(f, (nb_str){ "}", 1 }, i) : SIZE_MAX;
            if (end == SIZE_MAX) return NB_J_VALUE_ERROR(r, "single '%c' in a format string", c);
            NB_TRY(add_format_field(r, nb_j_sub(f, i + 1, end), raw, &automatic));
            i = end;
        }
    }
    NB_TRY(nb_j_take(r, mark, out));
    out->sub = self->sub;
    return NB_OK;
}
