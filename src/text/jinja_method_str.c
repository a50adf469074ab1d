/* jinja_method_str.c - the methods of Python's str. */
#include "text/jinja_internal.h"

/* Results of a Markup string's methods are Markup again. */
static nb_status ret(const nb_jv *self, nb_str s, nb_jv *out)
{
    *out = nb_jv_str(s);
    out->sub = self->sub;
    return NB_OK;
}

static nb_status want_str(nb_jr *r, const nb_jv *v, const char *method)
{
    if (v->kind == NB_JK_STR) return NB_OK;
    return NB_J_TYPE_ERROR(r, "%s() argument must be str, not %s", method, nb_jv_type_name(v));
}

static nb_status want_int(nb_jr *r, const nb_jv *v, int64_t dflt, int64_t *out)
{
    *out = dflt;
    if (!nb_jv_given(v)) return NB_OK;
    if (!nb_jv_is_int(v))
        return NB_J_TYPE_ERROR(r, "'%s' object cannot be interpreted as an integer",
                               nb_jv_type_name(v));
    *out = nb_jv_as_int(v);
    return NB_OK;
}

typedef enum side { LEFT = 1, RIGHT = 2, BOTH = 3 } side;

static nb_status strip(nb_jr *r, const nb_jv *self, const nb_jv *a, side where, nb_jv *out)
{
    nb_str s = self->u.s;
    const nb_str *chars = NULL;
    if (nb_jv_given(&a[0])) {
        if (a[0].kind != NB_JK_STR) return NB_J_TYPE_ERROR(r, "strip arg must be None or str");
        chars = &a[0].u.s;
        /* each stripped character may be compared with all of chars */
        NB_TRY(nb_j_work(r, chars->n_bytes));
        if (chars->n_bytes > 64) NB_TRY(nb_j_work(r, s.n_bytes / 16 * chars->n_bytes));
    }
    NB_TRY(nb_j_work(r, s.n_bytes / 16));
    if (where & LEFT) s = nb_j_lstrip(s, chars);
    if (where & RIGHT) s = nb_j_rstrip(s, chars);
    return ret(self, s, out);
}

#define METHOD(name)                                                                               \
    static nb_status name(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,        \
                          nb_jv *out)
#define UNUSED_ARGS ((void)a, (void)raw)

METHOD(m_strip) { (void)raw; return strip(r, self, a, BOTH, out); }
METHOD(m_lstrip) { (void)raw; return strip(r, self, a, LEFT, out); }
METHOD(m_rstrip) { (void)raw; return strip(r, self, a, RIGHT, out); }

static nb_status change_case(nb_jr *r, const nb_jv *self, nb_jcase c, nb_jv *out)
{
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_add_case(r, self->u.s, c));
    NB_TRY(nb_j_take(r, mark, out));
    out->sub = self->sub;
    return NB_OK;
}

METHOD(m_upper) { UNUSED_ARGS; return change_case(r, self, NB_JCASE_UPPER, out); }
METHOD(m_lower) { UNUSED_ARGS; return change_case(r, self, NB_JCASE_LOWER, out); }
METHOD(m_capitalize) { UNUSED_ARGS; return change_case(r, self, NB_JCASE_CAPITALIZE, out); }

static nb_status push(nb_jr *r, const nb_jv *self, nb_jlist *l, nb_str s)
{
    nb_jv v;
    ret(self, s, &v);
    return nb_j_list_push(r, l, &v);
}

static nb_status split_space(nb_jr *r, const nb_jv *self, int64_t max, nb_jlist *l)
{
    nb_str s = nb_j_lstrip(self->u.s, NULL);
    for (; s.n_bytes; max--) {
        size_t i = 0, n;
        if (max == 0) return push(r, self, l, s);
        while (i < s.n_bytes && !nb_j_is_space(nb_j_cp(s, i, &n))) i += n;
        NB_TRY(push(r, self, l, nb_j_sub(s, 0, i)));
        s = nb_j_lstrip(nb_j_sub(s, i, s.n_bytes), NULL);
    }
    return NB_OK;
}

static nb_status split_on(nb_jr *r, const nb_jv *self, nb_str sep, int64_t max, nb_jlist *l)
{
    const nb_str s = self->u.s;
    size_t at = 0;
    for (size_t hit; max != 0 && (hit = nb_j_find(s, sep, at)) != SIZE_MAX; max--) {
        NB_TRY(push(r, self, l, nb_j_sub(s, at, hit)));
        at = hit + sep.n_bytes;
    }
    return push(r, self, l, nb_j_sub(s, at, s.n_bytes));
}

METHOD(m_split)
{
    (void)raw;
    int64_t max;
    NB_TRY(want_int(r, &a[1], -1, &max));
    NB_TRY(nb_j_work(r, self->u.s.n_bytes));
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, 0, out));
    if (!nb_jv_given(&a[0])) return split_space(r, self, max, out->u.list);
    if (a[0].kind != NB_JK_STR)
        return NB_J_TYPE_ERROR(r, "must be str or None, not %s", nb_jv_type_name(&a[0]));
    if (!a[0].u.s.n_bytes) return NB_J_VALUE_ERROR(r, "empty separator");
    return split_on(r, self, a[0].u.s, max, out->u.list);
}

METHOD(m_splitlines)
{
    (void)raw;
    const nb_str s = self->u.s;
    const bool keep = nb_jv_truth(&a[0]);
    NB_TRY(nb_j_work(r, s.n_bytes));
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, 0, out));
    size_t from = 0, n;
    for (size_t i = 0; i < s.n_bytes; i += n) {
        const uint32_t cp = nb_j_cp(s, i, &n);
        if (!((cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
              cp == 0x2029))
            continue;
        if (cp == '\r' && i + 1 < s.n_bytes && s.p[i + 1] == '\n') n = 2;
        NB_TRY(push(r, self, out->u.list, nb_j_sub(s, from, keep ? i + n : i)));
        from = i + n;
    }
    return from < s.n_bytes ? push(r, self, out->u.list, nb_j_sub(s, from, s.n_bytes)) : NB_OK;
}

/* The part s[start:end] that find, count, startswith take; *from = its offset. */
static nb_status window(nb_jr *r, nb_str s, const nb_jv *start, const nb_jv *end, nb_str *out,
                        size_t *from)
{
    int64_t b, e;
    *out = s;
    *from = 0;
    if (!nb_jv_given(start) && !nb_jv_given(end)) return NB_OK;
    const int64_t n = (int64_t)nb_j_cp_count(s);
    NB_TRY(want_int(r, start, 0, &b));
    NB_TRY(want_int(r, end, n, &e));
    if (b < 0) b = b < -n ? 0 : b + n;
    if (e < 0) e = e < -n ? 0 : e + n;
    if (e > n) e = n;
    if (b > e) { /* nothing is found there, not even the empty string */
        *from = SIZE_MAX;
        return NB_OK;
    }
    *from = nb_j_cp_offset(s, (size_t)b);
    const nb_str tail = nb_j_sub(s, *from, s.n_bytes);
    *out = nb_j_sub(tail, 0, nb_j_cp_offset(tail, (size_t)(e - b)));
    return NB_OK;
}

static nb_status has_affix(nb_jr *r, const nb_jv *self, const nb_jv *a, bool at_end, nb_jv *out)
{
    nb_str s;
    size_t from;
    const nb_jv *one = &a[0];
    size_t n = 1;
    NB_TRY(window(r, self->u.s, &a[1], &a[2], &s, &from));
    if (a[0].kind == NB_JK_TUPLE) {
        one = a[0].u.list->v;
        n = a[0].u.list->n;
    }
    bool yes = false;
    for (size_t i = 0; i < n && !yes; i++) {
        if (one[i].kind != NB_JK_STR)
            return NB_J_TYPE_ERROR(r, "%s first arg must be str or a tuple of str, not %s",
                                   at_end ? "endswith" : "startswith", nb_jv_type_name(&one[i]));
        const nb_str w = one[i].u.s;
        if (w.n_bytes > s.n_bytes || from == SIZE_MAX) continue;
        NB_TRY(nb_j_work(r, w.n_bytes));
        const size_t at = at_end ? s.n_bytes - w.n_bytes : 0;
        yes = nb_str_eq(nb_j_sub(s, at, at + w.n_bytes), w);
    }
    *out = nb_jv_bool(yes);
    return NB_OK;
}

METHOD(m_startswith) { (void)raw; return has_affix(r, self, a, false, out); }
METHOD(m_endswith) { (void)raw; return has_affix(r, self, a, true, out); }

METHOD(m_find)
{
    (void)raw;
    nb_str s;
    size_t from, hit = SIZE_MAX;
    NB_TRY(want_str(r, &a[0], "find"));
    NB_TRY(window(r, self->u.s, &a[1], &a[2], &s, &from));
    NB_TRY(nb_j_work(r, s.n_bytes));
    if (from != SIZE_MAX) hit = nb_j_find(s, a[0].u.s, 0);
    *out = nb_jv_int(hit == SIZE_MAX ? -1
                                     : (int64_t)nb_j_cp_count(nb_j_sub(self->u.s, 0, from + hit)));
    return NB_OK;
}

METHOD(m_count)
{
    (void)raw;
    nb_str s;
    size_t from;
    int64_t n = 0;
    NB_TRY(want_str(r, &a[0], "count"));
    NB_TRY(window(r, self->u.s, &a[1], &a[2], &s, &from));
    NB_TRY(nb_j_work(r, s.n_bytes));
    const nb_str w = a[0].u.s;
    if (from == SIZE_MAX) s.n_bytes = 0;
    if (!w.n_bytes && from != SIZE_MAX) n = (int64_t)nb_j_cp_count(s) + 1;
    for (size_t i = 0; w.n_bytes && (i = nb_j_find(s, w, i)) != SIZE_MAX; i += w.n_bytes) n++;
    *out = nb_jv_int(n);
    return NB_OK;
}

METHOD(m_replace)
{
    (void)raw;
    int64_t max;
    NB_TRY(want_str(r, &a[0], "replace"));
    NB_TRY(want_str(r, &a[1], "replace"));
    NB_TRY(want_int(r, &a[2], -1, &max));
    NB_TRY(nb_j_replace(r, self->u.s, a[0].u.s, a[1].u.s, max, out));
    out->sub = self->sub;
    return NB_OK;
}

METHOD(m_removeprefix)
{
    (void)raw;
    NB_TRY(want_str(r, &a[0], "removeprefix"));
    const nb_str s = self->u.s, w = a[0].u.s;
    const bool hit = w.n_bytes <= s.n_bytes && nb_str_eq(nb_j_sub(s, 0, w.n_bytes), w);
    return ret(self, nb_j_sub(s, hit ? w.n_bytes : 0, s.n_bytes), out);
}

METHOD(m_removesuffix)
{
    (void)raw;
    NB_TRY(want_str(r, &a[0], "removesuffix"));
    const nb_str s = self->u.s, w = a[0].u.s;
    const bool hit = w.n_bytes <= s.n_bytes &&
                     nb_str_eq(nb_j_sub(s, s.n_bytes - w.n_bytes, s.n_bytes), w);
    return ret(self, nb_j_sub(s, 0, s.n_bytes - (hit ? w.n_bytes : 0)), out);
}

METHOD(m_join)
{
    (void)raw;
    nb_jiter it;
    nb_jv x;
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_iter(r, &a[0], &it));
    for (size_t i = 0;; i++) {
        bool got;
        NB_TRY(nb_j_next(r, &it, &x, &got));
        if (!got) break;
        if (x.kind != NB_JK_STR)
            return NB_J_TYPE_ERROR(r, "sequence item %zu: expected str instance, %s found", i,
                                   nb_jv_type_name(&x));
        if (i) NB_TRY(nb_j_add(r, self->u.s));
        NB_TRY(nb_j_add(r, x.u.s));
    }
    NB_TRY(nb_j_take(r, mark, out));
    out->sub = self->sub;
    return NB_OK;
}

/* The most used first: attribute access searches from the top. */
const nb_jdef nb_j_str_methods[] = {
    { "split", "sep maxsplit", 0, m_split },
    { "strip", "chars", 0, m_strip },
    { "lstrip", "chars", 0, m_lstrip },
    { "rstrip", "chars", 0, m_rstrip },
    { "startswith", "prefix start end", 1, m_startswith },
    { "endswith", "suffix start end", 1, m_endswith },
    { "replace", "old new count", 2, m_replace },
    { "upper", "", 0, m_upper },
    { "lower", "", 0, m_lower },
    { "capitalize", "", 0, m_capitalize },
    { "splitlines", "keepends", 0, m_splitlines },
    { "find", "sub start end", 1, m_find },
    { "count", "sub start end", 1, m_count },
    { "join", "iterable", 1, m_join },
    { "removeprefix", "prefix", 1, m_removeprefix },
    { "removesuffix", "suffix", 1, m_removesuffix },
    NB_J_REFUSED("title"), NB_J_REFUSED("swapcase"), NB_J_REFUSED("casefold"),
    NB_J_REFUSED("rsplit"), NB_J_REFUSED("partition"), NB_J_REFUSED("rpartition"),
    NB_J_REFUSED("rfind"), NB_J_REFUSED("index"), NB_J_REFUSED("rindex"), NB_J_REFUSED("format"),
    NB_J_REFUSED("format_map"), NB_J_REFUSED("ljust"), NB_J_REFUSED("rjust"),
    NB_J_REFUSED("center"), NB_J_REFUSED("zfill"), NB_J_REFUSED("isalpha"), NB_J_REFUSED("isdigit"),
    NB_J_REFUSED("isalnum"), NB_J_REFUSED("isspace"), NB_J_REFUSED("isdecimal"),
    NB_J_REFUSED("isnumeric"), NB_J_REFUSED("isascii"), NB_J_REFUSED("isprintable"),
    NB_J_REFUSED("isupper"), NB_J_REFUSED("islower"), NB_J_REFUSED("istitle"),
    NB_J_REFUSED("isidentifier"), NB_J_REFUSED("expandtabs"), NB_J_REFUSED("encode"),
    NB_J_REFUSED("translate"), NB_J_REFUSED("maketrans"),
    { NULL, NULL, 0, NULL },
};
