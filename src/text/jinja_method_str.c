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
METHOD(m_title) { UNUSED_ARGS; return change_case(r, self, NB_JCASE_TITLE, out); }
METHOD(m_capitalize) { UNUSED_ARGS; return change_case(r, self, NB_JCASE_CAPITALIZE, out); }
METHOD(m_swapcase) { UNUSED_ARGS; return change_case(r, self, NB_JCASE_SWAP, out); }

static nb_status push(nb_jr *r, const nb_jv *self, nb_jlist *l, nb_str s)
{
    nb_jv v;
    ret(self, s, &v);
    return nb_j_list_push(r, l, &v);
}

static void reverse(nb_jlist *l)
{
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        const nb_jv t = l->v[i];
        l->v[i] = l->v[--j];
        l->v[j] = t;
    }
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

static nb_status rsplit_space(nb_jr *r, const nb_jv *self, int64_t max, nb_jlist *l)
{
    nb_str s = nb_j_rstrip(self->u.s, NULL);
    for (; s.n_bytes; max--) {
        size_t i = s.n_bytes, n;
        if (max == 0) {
            NB_TRY(push(r, self, l, s));
            break;
        }
        while (i > 0) {
            size_t k = i;
            do k--; while (k > 0 && ((unsigned char)s.p[k] & 0xC0) == 0x80);
            if (nb_j_is_space(nb_j_cp(s, k, &n))) break;
            i = k;
        }
        NB_TRY(push(r, self, l, nb_j_sub(s, i, s.n_bytes)));
        s = nb_j_rstrip(nb_j_sub(s, 0, i), NULL);
    }
    reverse(l);
    return NB_OK;
}

static nb_status split_on(nb_jr *r, const nb_jv *self, nb_str sep, int64_t max, bool from_right,
                          nb_jlist *l)
{
    const nb_str s = self->u.s;
    size_t at = 0, end = s.n_bytes;
    if (!from_right) {
        for (size_t hit; max != 0 && (hit = nb_j_find(s, sep, at)) != SIZE_MAX; max--) {
            NB_TRY(push(r, self, l, nb_j_sub(s, at, hit)));
            at = hit + sep.n_bytes;
        }
        return push(r, self, l, nb_j_sub(s, at, s.n_bytes));
    }
    for (size_t hit; max != 0 && (hit = nb_j_rfind(s, sep, end)) != SIZE_MAX; max--) {
        NB_TRY(nb_j_work(r, sep.n_bytes > 32 ? end : 0));
        NB_TRY(push(r, self, l, nb_j_sub(s, hit + sep.n_bytes, end)));
        end = hit;
    }
    NB_TRY(push(r, self, l, nb_j_sub(s, 0, end)));
    reverse(l);
    return NB_OK;
}

static nb_status split(nb_jr *r, const nb_jv *self, const nb_jv *a, bool from_right, nb_jv *out)
{
    int64_t max;
    NB_TRY(want_int(r, &a[1], -1, &max));
    NB_TRY(nb_j_work(r, self->u.s.n_bytes));
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, 0, out));
    if (!nb_jv_given(&a[0]))
        return from_right ? rsplit_space(r, self, max, out->u.list)
                          : split_space(r, self, max, out->u.list);
    if (a[0].kind != NB_JK_STR)
        return NB_J_TYPE_ERROR(r, "must be str or None, not %s", nb_jv_type_name(&a[0]));
    if (!a[0].u.s.n_bytes) return NB_J_VALUE_ERROR(r, "empty separator");
    return split_on(r, self, a[0].u.s, max, from_right, out->u.list);
}

METHOD(m_split) { (void)raw; return split(r, self, a, false, out); }
METHOD(m_rsplit) { (void)raw; return split(r, self, a, true, out); }

static nb_status partition(nb_jr *r, const nb_jv *self, const nb_jv *a, bool from_right, nb_jv *out)
{
    const nb_str s = self->u.s;
    NB_TRY(want_str(r, &a[0], "partition"));
    if (!a[0].u.s.n_bytes) return NB_J_VALUE_ERROR(r, "empty separator");
    NB_TRY(nb_j_work(r, s.n_bytes));
    const size_t hit = from_right ? nb_j_rfind(s, a[0].u.s, s.n_bytes) : nb_j_find(s, a[0].u.s, 0);
    NB_TRY(nb_j_list_new(r, NB_JK_TUPLE, 3, out));
    nb_jlist *l = out->u.list;
    const nb_str none = { "", 0 };
    if (hit == SIZE_MAX) {
        NB_TRY(push(r, self, l, from_right ? none : s));
        NB_TRY(push(r, self, l, none));
        return push(r, self, l, from_right ? s : none);
    }
    NB_TRY(push(r, self, l, nb_j_sub(s, 0, hit)));
    NB_TRY(push(r, self, l, a[0].u.s));
    return push(r, self, l, nb_j_sub(s, hit + a[0].u.s.n_bytes, s.n_bytes));
}

METHOD(m_partition) { (void)raw; return partition(r, self, a, false, out); }
METHOD(m_rpartition) { (void)raw; return partition(r, self, a, true, out); }

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

static nb_status find(nb_jr *r, const nb_jv *self, const nb_jv *a, bool from_right, bool must,
                      nb_jv *out)
{
    nb_str s;
    size_t from, hit = SIZE_MAX;
    NB_TRY(want_str(r, &a[0], "find"));
    NB_TRY(window(r, self->u.s, &a[1], &a[2], &s, &from));
    NB_TRY(nb_j_work(r, s.n_bytes));
    if (from != SIZE_MAX)
        hit = from_right ? nb_j_rfind(s, a[0].u.s, s.n_bytes) : nb_j_find(s, a[0].u.s, 0);
    if (hit == SIZE_MAX) {
        if (must) return NB_J_VALUE_ERROR(r, "substring not found");
        *out = nb_jv_int(-1);
        return NB_OK;
    }
    *out = nb_jv_int((int64_t)nb_j_cp_count(nb_j_sub(self->u.s, 0, from + hit)));
    return NB_OK;
}

METHOD(m_find) { (void)raw; return find(r, self, a, false, false, out); }
METHOD(m_rfind) { (void)raw; return find(r, self, a, true, false, out); }
METHOD(m_index) { (void)raw; return find(r, self, a, false, true, out); }
METHOD(m_rindex) { (void)raw; return find(r, self, a, true, true, out); }

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

/* ljust, rjust, center, zfill: n_left and n_right fill characters. */
static nb_status pad(nb_jr *r, const nb_jv *self, size_t n_left, size_t n_right, nb_str fill,
                     nb_jv *out)
{
    const size_t mark = nb_j_mark(r);
    for (size_t i = 0; i < n_left; i++) NB_TRY(nb_j_add(r, fill));
    NB_TRY(nb_j_add(r, self->u.s));
    for (size_t i = 0; i < n_right; i++) NB_TRY(nb_j_add(r, fill));
    NB_TRY(nb_j_take(r, mark, out));
    out->sub = self->sub;
    return NB_OK;
}

static nb_status pad_args(nb_jr *r, const nb_jv *self, const nb_jv *a, size_t *n_pad, nb_str *fill)
{
    int64_t width;
    NB_TRY(want_int(r, &a[0], 0, &width));
    *fill = (nb_str){ " ", 1 };
    if (nb_jv_given(&a[1])) {
        if (a[1].kind != NB_JK_STR || nb_j_cp_count(a[1].u.s) != 1)
            return NB_J_TYPE_ERROR(r, "the fill character must be exactly one character long");
        *fill = a[1].u.s;
    }
    const int64_t n = (int64_t)nb_j_cp_count(self->u.s);
    *n_pad = width > n ? (size_t)(width - n) : 0;
    if (*n_pad > r->lim.max_output_bytes)
        return nb_j_fail(r, NB_ERR_LIMIT, "padding to a width of %lld", (long long)width);
    return nb_j_work(r, *n_pad * 16);
}

METHOD(m_ljust)
{
    (void)raw;
    size_t n;
    nb_str fill;
    NB_TRY(pad_args(r, self, a, &n, &fill));
    return pad(r, self, 0, n, fill, out);
}

METHOD(m_rjust)
{
    (void)raw;
    size_t n;
    nb_str fill;
    NB_TRY(pad_args(r, self, a, &n, &fill));
    return pad(r, self, n, 0, fill, out);
}

METHOD(m_center)
{
    (void)raw;
    size_t n;
    nb_str fill;
    NB_TRY(pad_args(r, self, a, &n, &fill));
    const size_t width = n + nb_j_cp_count(self->u.s), left = n / 2 + (n & width & 1);
    return pad(r, self, left, n - left, fill, out);
}

METHOD(m_zfill)
{
    (void)raw;
    size_t n;
    nb_str fill;
    const nb_str s = self->u.s;
    NB_TRY(pad_args(r, self, a, &n, &fill));
    const size_t sign = n && s.n_bytes && (s.p[0] == '+' || s.p[0] == '-');
    const nb_jv rest = nb_jv_str(nb_j_sub(s, sign, s.n_bytes));
    NB_TRY(pad(r, &rest, n, 0, (nb_str){ "0", 1 }, out));
    if (!sign) return NB_OK;
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_add(r, nb_j_sub(s, 0, 1)));
    NB_TRY(nb_j_add(r, out->u.s));
    return nb_j_take(r, mark, out);
}

static nb_status all_class(nb_jr *r, const nb_jv *self, nb_jclass c, nb_jv *out)
{
    *out = nb_jv_bool(nb_j_all_class(self->u.s, c));
    return nb_j_work(r, self->u.s.n_bytes);
}

METHOD(m_isalpha) { UNUSED_ARGS; return all_class(r, self, NB_JCLASS_ALPHA, out); }
METHOD(m_isdigit) { UNUSED_ARGS; return all_class(r, self, NB_JCLASS_DIGIT, out); }
METHOD(m_isalnum) { UNUSED_ARGS; return all_class(r, self, NB_JCLASS_ALNUM, out); }
METHOD(m_isspace) { UNUSED_ARGS; return all_class(r, self, NB_JCLASS_SPACE, out); }
METHOD(m_isdecimal) { UNUSED_ARGS; return all_class(r, self, NB_JCLASS_DECIMAL, out); }
METHOD(m_isnumeric) { UNUSED_ARGS; return all_class(r, self, NB_JCLASS_NUMERIC, out); }
METHOD(m_isascii) { UNUSED_ARGS; return all_class(r, self, NB_JCLASS_ASCII, out); }
METHOD(m_isprintable) { UNUSED_ARGS; return all_class(r, self, NB_JCLASS_PRINT, out); }

METHOD(m_isupper)
{
    UNUSED_ARGS;
    *out = nb_jv_bool(nb_j_is_cased(self->u.s, true));
    return nb_j_work(r, self->u.s.n_bytes);
}

METHOD(m_islower)
{
    UNUSED_ARGS;
    *out = nb_jv_bool(nb_j_is_cased(self->u.s, false));
    return nb_j_work(r, self->u.s.n_bytes);
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
    { "title", "", 0, m_title },
    { "capitalize", "", 0, m_capitalize },
    { "swapcase", "", 0, m_swapcase },
    { "casefold", "", 0, NULL },
    { "rsplit", "sep maxsplit", 0, m_rsplit },
    { "splitlines", "keepends", 0, m_splitlines },
    { "partition", "sep", 1, m_partition },
    { "rpartition", "sep", 1, m_rpartition },
    { "find", "sub start end", 1, m_find },
    { "rfind", "sub start end", 1, m_rfind },
    { "index", "sub start end", 1, m_index },
    { "rindex", "sub start end", 1, m_rindex },
    { "count", "sub start end", 1, m_count },
    { "join", "iterable", 1, m_join },
    { "format", "*", 0, nb_j_str_format },
    { "format_map", "mapping", 1, NULL },
    { "removeprefix", "prefix", 1, m_removeprefix },
    { "removesuffix", "suffix", 1, m_removesuffix },
    { "ljust", "width fillchar", 1, m_ljust },
    { "rjust", "width fillchar", 1, m_rjust },
    { "center", "width fillchar", 1, m_center },
    { "zfill", "width", 1, m_zfill },
    { "isalpha", "", 0, m_isalpha },
    { "isdigit", "", 0, m_isdigit },
    { "isalnum", "", 0, m_isalnum },
    { "isspace", "", 0, m_isspace },
    { "isdecimal", "", 0, m_isdecimal },
    { "isnumeric", "", 0, m_isnumeric },
    { "isascii", "", 0, m_isascii },
    { "isprintable", "", 0, m_isprintable },
    { "isupper", "", 0, m_isupper },
    { "islower", "", 0, m_islower },
    { "istitle", "", 0, NULL },
    { "isidentifier", "", 0, NULL },
    { "expandtabs", "tabsize", 0, NULL },
    { "encode", "encoding errors", 0, NULL },
    { "translate", "table", 1, NULL },
    { "maketrans", "*", 0, NULL },
    { NULL, NULL, 0, NULL },
};
