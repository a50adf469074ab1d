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

static nb_status escaped(nb_jr *r, const nb_jv *self, bool force, nb_jv *out)
{
    nb_jv s;
    NB_TRY(nb_j_to_str(r, self, &s));
    *out = s;
    if (s.sub && !force) return NB_OK;
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_add_escaped(r, s.u.s));
    NB_TRY(nb_j_take(r, mark, out));
    out->sub = 1;
    return NB_OK;
}

FILTER(f_escape) { UNUSED_ARGS; return escaped(r, self, false, out); }
FILTER(f_forceescape) { UNUSED_ARGS; return escaped(r, self, true, out); }

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

FILTER(f_format)
{
    (void)a;
    nb_jv s, args;
    NB_TRY(nb_j_to_str(r, self, &s));
    if (raw->n_pos && raw->n_kw)
        return NB_J_TYPE_ERROR(r, "format: positional and keyword arguments at the same time");
    if (raw->n_kw) {
        NB_TRY(nb_j_dict_new(r, NB_JK_DICT, &args));
        for (size_t i = 0; i < raw->n_kw; i++) {
            const nb_jv key = nb_jv_str(raw->kw_name[i]);
            NB_TRY(nb_j_dict_set(r, args.u.dict, &key, &raw->kw_val[i]));
        }
    } else {
        NB_TRY(nb_j_list_new(r, NB_JK_TUPLE, raw->n_pos, &args));
        for (size_t i = 0; i < raw->n_pos; i++)
            NB_TRY(nb_j_list_push(r, args.u.list, &raw->pos[i]));
    }
    return nb_j_percent(r, s.u.s, &args, out);
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

FILTER(f_center)
{
    (void)a;
    static const nb_jv width = { .kind = NB_JK_INT, .u.i = 80 };
    const nb_jargs dflt = { .pos = &width, .n_pos = 1 };
    return via_method(r, self, "center", raw->n_pos + raw->n_kw ? raw : &dflt, out);
}

FILTER(f_wordcount)
{
    UNUSED_ARGS;
    nb_jv s;
    NB_TRY(nb_j_to_str(r, self, &s));
    NB_TRY(nb_j_work(r, s.u.s.n_bytes));
    int64_t words = 0;
    bool inside = false;
    for (size_t i = 0, n; i < s.u.s.n_bytes; i += n) {
        const bool w = nb_j_is_word(nb_j_cp(s.u.s, i, &n));
        words += w && !inside;
        inside = w;
    }
    *out = nb_jv_int(words);
    return NB_OK;
}

FILTER(f_truncate)
{
    (void)raw;
    nb_jv s = *self;
    *out = s;
    if (s.kind != NB_JK_STR) { /* whatever is short enough passes */
        const nb_jargs none = { 0 };
        nb_jv n;
        NB_TRY(nb_j_call_def(r, nb_j_find_filter(nb_str_c("length")), "filter", self, &none, &n));
        if (n.u.i <= 260 && a[0].kind == NB_JK_MISSING) return NB_OK;
        if (nb_jv_is_int(&a[0]) && n.u.i <= nb_jv_as_int(&a[0])) return NB_OK;
        return NB_J_TYPE_ERROR(r, "truncate needs a string, not %s", nb_jv_type_name(self));
    }
    const nb_str end = a[2].kind == NB_JK_STR ? a[2].u.s : nb_str_c("...");
    const int64_t length = nb_jv_is_int(&a[0]) ? nb_jv_as_int(&a[0]) : 255;
    const int64_t leeway = nb_jv_is_int(&a[3]) ? nb_jv_as_int(&a[3]) : 5;
    const int64_t n_end = (int64_t)nb_j_cp_count(end);
    if (length < n_end || leeway < 0)
        return nb_j_fail(r, NB_ERR_FORMAT, "truncate: length must be at least that of the end text");
    NB_TRY(nb_j_work(r, s.u.s.n_bytes));
    const int64_t n = (int64_t)nb_j_cp_count(s.u.s);
    if (n <= length || n - length <= leeway) return NB_OK;
    nb_str head = nb_j_sub(s.u.s, 0, nb_j_cp_offset(s.u.s, (size_t)(length - n_end)));
    if (!nb_jv_truth(&a[1])) {
        const size_t blank = nb_j_rfind(head, (nb_str){ " ", 1 }, head.n_bytes);
        if (blank != SIZE_MAX) head.n_bytes = blank;
    }
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_add(r, head));
    NB_TRY(nb_j_add(r, end));
    return nb_j_take(r, mark, out);
}

/* ---- numbers ---- */

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

typedef enum parsed { PARSED, NOT_A_NUMBER, TOO_LARGE } parsed;

/* int(text, base); base 2 to 36, or 0 to go by the prefix. */
static parsed parse_int(nb_str s, int64_t base, int64_t *out)
{
    s = nb_j_lstrip(nb_j_rstrip(s, NULL), NULL);
    size_t i = 0;
    bool digit = false, large = false;
    const bool neg = s.n_bytes && s.p[0] == '-';
    if (s.n_bytes && (s.p[0] == '-' || s.p[0] == '+')) i++;
    if (i + 2 < s.n_bytes && s.p[i] == '0') {
        const char c = (char)(s.p[i + 1] | 0x20);
        const int64_t b = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        if (b != 10 && (base == b || base == 0)) {
            base = b;
            i += 2;
            if (s.p[i] == '_') i++;
        }
    }
    if (base == 0) base = 10;
    int64_t v = 0;
    for (; i < s.n_bytes; i++) {
        if (s.p[i] == '_' && digit && i + 1 < s.n_bytes && s.p[i + 1] != '_') continue;
        const int d = digit_value(s.p[i]);
        if (d >= base) return NOT_A_NUMBER;
        digit = true;
        if (v > (INT64_MAX - d) / base) large = true;
        else v = v * base + d;
    }
    if (!digit) return NOT_A_NUMBER;
    *out = neg ? -v : v;
    return large ? TOO_LARGE : PARSED;
}

FILTER(f_int)
{
    (void)raw;
    int64_t base = 10, i;
    double f = NAN;
    *out = a[0].kind == NB_JK_MISSING ? nb_jv_int(0) : a[0];
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    if (nb_jv_given(&a[1])) {
        if (!nb_jv_is_int(&a[1])) return NB_J_TYPE_ERROR(r, "int: base must be an integer");
        base = nb_jv_as_int(&a[1]);
    }
    if (nb_jv_is_int(self)) {
        *out = nb_jv_int(nb_jv_as_int(self));
        return NB_OK;
    }
    if (self->kind == NB_JK_STR) {
        NB_TRY(nb_j_work(r, self->u.s.n_bytes));
        const parsed p = base == 0 || (base >= 2 && base <= 36) ? parse_int(self->u.s, base, &i)
                                                                : NOT_A_NUMBER;
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

FILTER(f_float)
{
    (void)raw;
    double f;
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    *out = a[0].kind == NB_JK_MISSING ? nb_jv_float(0) : a[0];
    if (nb_jv_is_num(self)) *out = nb_jv_float(nb_jv_as_float(self));
    else if (self->kind == NB_JK_STR && nb_j_parse_float(self->u.s, &f) == NB_OK)
        *out = nb_jv_float(f);
    return NB_OK;
}

FILTER(f_abs)
{
    UNUSED_ARGS;
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    if (self->kind == NB_JK_FLOAT) {
        *out = nb_jv_float(fabs(self->u.f));
    } else if (nb_jv_is_int(self)) {
        const int64_t i = nb_jv_as_int(self);
        if (i == INT64_MIN) return nb_j_fail(r, NB_ERR_RANGE, "integer larger than 64 bits");
        *out = nb_jv_int(i < 0 ? -i : i);
    } else {
        return NB_J_TYPE_ERROR(r, "bad operand type for abs(): '%s'", nb_jv_type_name(self));
    }
    return NB_OK;
}

/* Python's round(): exact decimal rounding of the double, ties to even. */
static double round_decimal(double x, int64_t prec)
{
    char t[420];
    double v = x;
    if (prec > 300 || !isfinite(x)) return x;
    if (prec < 0) {
        const double p = pow(10, (double)(prec < -308 ? 308 : -prec));
        return nearbyint(x / p) * p;
    }
    snprintf(t, sizeof t, "%.*f", (int)prec, x);
    if (fabs(x) < 1e22) sscanf(t, "%lf", &v); /* same locale both ways */
    return v;
}

FILTER(f_round)
{
    (void)raw;
    const nb_str method = a[1].kind == NB_JK_STR ? a[1].u.s : nb_str_c("common");
    const int64_t prec = nb_jv_is_int(&a[0]) ? nb_jv_as_int(&a[0]) : 0;
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    if (!nb_jv_is_num(self))
        return NB_J_TYPE_ERROR(r, "type %s doesn't define __round__ method", nb_jv_type_name(self));
    if (nb_str_eqc(method, "common")) {
        if (self->kind == NB_JK_FLOAT) *out = nb_jv_float(round_decimal(self->u.f, prec));
        else if (prec >= 0) *out = nb_jv_int(nb_jv_as_int(self));
        else *out = nb_jv_int((int64_t)round_decimal((double)nb_jv_as_int(self), prec));
        return NB_OK;
    }
    if (!nb_str_eqc(method, "ceil") && !nb_str_eqc(method, "floor"))
        return nb_j_fail(r, NB_ERR_FORMAT, "FilterArgumentError: method must be common, ceil or floor");
    const double p = pow(10, (double)prec), x = nb_jv_as_float(self) * p;
    *out = nb_jv_float((nb_str_eqc(method, "ceil") ? ceil(x) : floor(x)) / p);
    return NB_OK;
}

FILTER(f_attr)
{
    (void)raw;
    nb_jv name;
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    NB_TRY(nb_j_to_str(r, &a[0], &name));
    if (self->kind == NB_JK_DICT && !nb_j_find_def(nb_j_dict_methods, name.u.s)) {
        *out = nb_jv_undef(NB_JUNDEF_ATTR, name.u.s, NB_JK_DICT);
        return NB_OK;
    }
    return nb_j_getattr(r, self, name.u.s, out);
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
    { "e", "", 0, f_escape },
    { "escape", "", 0, f_escape },
    { "forceescape", "", 0, f_forceescape },
    { "int", "default base", 0, f_int },
    { "float", "default", 0, f_float },
    { "abs", "", 0, f_abs },
    { "round", "precision method", 0, f_round },
    { "indent", "width first blank", 0, f_indent },
    { "format", "*", 0, f_format },
    { "center", "width", 0, f_center },
    { "wordcount", "", 0, f_wordcount },
    { "truncate", "length killwords end leeway", 0, f_truncate },
    { "attr", "name", 1, f_attr },
    { "from_json", "", 0, nb_j_fromjson },
    { "filesizeformat", "binary", 0, NULL },
    { "pprint", "", 0, NULL },
    { "striptags", "", 0, NULL },
    { "urlencode", "", 0, NULL },
    { "urlize", "*", 0, NULL },
    { "wordwrap", "*", 0, NULL },
    { "xmlattr", "*", 0, NULL },
    { NULL, NULL, 0, NULL },
};
