/* jinja_filter.c - filters on single values: text, numbers, defaults. */
#include <math.h>
#include <stdio.h>

#include "text/jinja_internal.h"

#define FILTER(name)                                                                               \
    static nb_status name(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,        \
                          nb_jv *out)
#define UNUSED_ARGS ((void)a, (void)raw)

/* Calls the method of str that does a filter's work on str(self). */
static nb_status via_method(nb_jr *r, const nb_jv *self, const char *method, const nb_jargs *raw,
                            nb_jv *out)
{
    nb_jv s;
    NB_TRY(nb_j_to_str(r, self, &s));
    const nb_jdef *d = nb_j_find_def(nb_j_str_methods, nb_str_c(method));
    return nb_j_call_def(r, d, "method", &s, raw, out);
}

FILTER(f_upper) { (void)a; return via_method(r, self, "upper", raw, out); }
FILTER(f_lower) { (void)a; return via_method(r, self, "lower", raw, out); }
FILTER(f_capitalize) { (void)a; return via_method(r, self, "capitalize", raw, out); }
FILTER(f_trim) { (void)a; return via_method(r, self, "strip", raw, out); }

/* Words begin after - ( { [ < and white space. */
FILTER(f_title)
{
    UNUSED_ARGS;
    nb_jv s;
    NB_TRY(nb_j_to_str(r, self, &s));
    const size_t mark = nb_j_mark(r);
    const nb_str t = s.u.s;
    for (size_t i = 0, n; i < t.n_bytes;) {
        size_t end = i;
        bool sep = false;
        while (end < t.n_bytes) {
            const uint32_t cp = nb_j_cp(t, end, &n);
            const bool is_sep = nb_j_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
            if (end == i) sep = is_sep;
            else if (is_sep != sep) break;
            end += n;
        }
        nb_j_cp(t, i, &n);
        NB_TRY(nb_j_add_case(r, nb_j_sub(t, i, i + n), NB_JCASE_UPPER));
        NB_TRY(nb_j_add_case(r, nb_j_sub(t, i + n, end), NB_JCASE_LOWER));
        i = end;
    }
    NB_TRY(nb_j_take(r, mark, out));
    return NB_OK;
}

FILTER(f_string) { UNUSED_ARGS; return nb_j_to_str(r, self, out); }

FILTER(f_safe)
{
    UNUSED_ARGS;
    NB_TRY(nb_j_to_str(r, self, out));
    out->sub = 1;
    return NB_OK;
}

FILTER(f_replace)
{
    (void)raw;
    nb_jv s, old, new;
    int64_t max = -1;
    NB_TRY(nb_j_to_str(r, self, &s));
    NB_TRY(nb_j_to_str(r, &a[0], &old));
    NB_TRY(nb_j_to_str(r, &a[1], &new));
    if (nb_jv_given(&a[2])) {
        if (!nb_jv_is_int(&a[2])) return NB_J_TYPE_ERROR(r, "replace: count must be an integer");
        max = nb_jv_as_int(&a[2]);
    }
    return nb_j_replace(r, s.u.s, old.u.s, new.u.s, max, out);
}

FILTER(f_default)
{
    (void)raw;
    const bool use = self->kind == NB_JK_UNDEF || (nb_jv_truth(&a[1]) && !nb_jv_truth(self));
    (void)r;
    *out = !use ? *self : a[0].kind == NB_JK_MISSING ? nb_jv_str((nb_str){ "", 0 }) : a[0];
    return NB_OK;
}

FILTER(f_indent)
{
    (void)raw;
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    if (self->kind != NB_JK_STR)
        return NB_J_TYPE_ERROR(r, "indent needs a string, not %s", nb_jv_type_name(self));
    nb_jv unit = a[0], lines;
    const size_t mark = nb_j_mark(r);
    if (unit.kind != NB_JK_STR) {
        const int64_t n = unit.kind == NB_JK_MISSING ? 4 : nb_jv_is_int(&unit) ? nb_jv_as_int(&unit)
                                                                               : -1;
        if (n < 0 && !nb_jv_is_int(&unit)) return NB_J_TYPE_ERROR(r, "indent: width must be an integer");
        if (n > 10000) return nb_j_fail(r, NB_ERR_LIMIT, "indent: a width above 10000");
        for (int64_t i = 0; i < n; i++) NB_TRY(nb_j_add_ch(r, ' '));
        NB_TRY(nb_j_take(r, mark, &unit));
    }
    /* a newline is added and the text cut into lines: one at its end disappears */
    nb_jv s = *self;
    NB_TRY(nb_j_add(r, self->u.s));
    NB_TRY(nb_j_add_ch(r, '\n'));
    NB_TRY(nb_j_take(r, mark, &s));
    const nb_jargs none = { 0 };
    NB_TRY(via_method(r, &s, "splitlines", &none, &lines));
    const bool blank = nb_jv_truth(&a[2]);
    if (nb_jv_truth(&a[1])) NB_TRY(nb_j_add(r, unit.u.s));
    for (size_t i = 0; i < lines.u.list->n; i++) {
        const nb_str l = lines.u.list->v[i].u.s;
        if (i) NB_TRY(nb_j_add_ch(r, '\n'));
        if (i && (blank || l.n_bytes)) NB_TRY(nb_j_add(r, unit.u.s));
        NB_TRY(nb_j_add(r, l));
    }
    NB_TRY(nb_j_take(r, mark, out));
    out->sub = self->sub;
    return NB_OK;
}

/* ---- numbers ---- */

typedef enum parsed { PARSED, NOT_A_NUMBER, TOO_LARGE } parsed;

/* int(text) */
static parsed parse_int(nb_str s, int64_t *out)
{
    s = nb_j_lstrip(nb_j_rstrip(s, NULL), NULL);
    bool digit = false, large = false;
    const bool neg = s.n_bytes && s.p[0] == '-';
    int64_t v = 0;
    for (size_t i = neg || (s.n_bytes && s.p[0] == '+'); i < s.n_bytes; i++) {
        if (s.p[i] == '_' && digit && i + 1 < s.n_bytes && s.p[i + 1] != '_') continue;
        if (s.p[i] < '0' || s.p[i] > '9') return NOT_A_NUMBER;
        const int d = s.p[i] - '0';
        digit = true;
        if (v > (INT64_MAX - d) / 10) large = true;
        else v = v * 10 + d;
    }
    if (!digit) return NOT_A_NUMBER;
    *out = neg ? -v : v;
    return large ? TOO_LARGE : PARSED;
}

FILTER(f_int)
{
    (void)raw;
    int64_t i;
    double f = NAN;
    *out = a[0].kind == NB_JK_MISSING ? nb_jv_int(0) : a[0];
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    if (nb_jv_is_int(self)) {
        *out = nb_jv_int(nb_jv_as_int(self));
        return NB_OK;
    }
    if (self->kind == NB_JK_STR) {
        NB_TRY(nb_j_work(r, self->u.s.n_bytes));
        const parsed p = parse_int(self->u.s, &i);
        if (p == TOO_LARGE) return nb_j_fail(r, NB_ERR_RANGE, "integer larger than 64 bits");
        if (p == PARSED) {
            *out = nb_jv_int(i);
            return NB_OK;
        }
        if (nb_j_parse_float(self->u.s, &f) != NB_OK) return NB_OK;
    } else if (self->kind == NB_JK_FLOAT) {
        f = self->u.f;
    } else {
        return NB_OK;
    }
    if (!isfinite(f)) return NB_OK;
    if (fabs(f) >= 0x1p63) return nb_j_fail(r, NB_ERR_RANGE, "integer larger than 64 bits");
    *out = nb_jv_int((int64_t)f);
    return NB_OK;
}

const nb_jdef nb_j_filters_basic[] = {
    { "tojson", "ensure_ascii indent separators sort_keys", 0, nb_j_tojson },
    { "trim", "chars", 0, f_trim },
    { "default", "default_value boolean", 0, f_default },
    { "d", "default_value boolean", 0, f_default },
    { "replace", "old new count", 2, f_replace },
    { "upper", "", 0, f_upper },
    { "lower", "", 0, f_lower },
    { "capitalize", "", 0, f_capitalize },
    { "title", "", 0, f_title },
    { "string", "", 0, f_string },
    { "safe", "", 0, f_safe },
    { "int", "default", 0, f_int },
    { "indent", "width first blank", 0, f_indent },
    { "from_json", "", 0, nb_j_fromjson },
    NB_J_REFUSED("e"), NB_J_REFUSED("escape"), NB_J_REFUSED("forceescape"),
    NB_J_REFUSED("float"), NB_J_REFUSED("abs"), NB_J_REFUSED("round"), NB_J_REFUSED("format"),
    NB_J_REFUSED("center"), NB_J_REFUSED("wordcount"), NB_J_REFUSED("truncate"),
    NB_J_REFUSED("attr"), NB_J_REFUSED("filesizeformat"), NB_J_REFUSED("pprint"),
    NB_J_REFUSED("striptags"), NB_J_REFUSED("urlencode"), NB_J_REFUSED("urlize"),
    NB_J_REFUSED("wordwrap"), NB_J_REFUSED("xmlattr"),
    { NULL, NULL, 0, NULL },
};
