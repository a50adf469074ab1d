/* schema_string.c - strings: lengths, patterns, formats, and all of them at once. */
#include <string.h>

#include "base/utf8.h"
#include "grammar/schema.h"
#include "load/json.h"

nb_str nb_s_quoted(nb_grammar *g, nb_str s, bool close)
{
    static const char from[] = "\"\\\b\f\n\r\t", as[] = "\"\\bfnrt", digit[] = "0123456789abcdef";
    char *out = nb_g_alloc(g, 6 * s.n_bytes + 1, 1);
    if (!out) return (nb_str){ "", 0 };
    size_t n = 0;
    for (size_t i = 0; i < s.n_bytes; i++) {
        const unsigned char c = (unsigned char)s.p[i];
        const char *k = c ? strchr(from, c) : NULL;
        if (k) {
            out[n++] = '\\';
            out[n++] = as[k - from];
        } else if (c < 0x20) {
            memcpy(out + n, "\\u00", 4);
            out[n + 4] = digit[c >> 4];
            out[n + 5] = digit[c & 15];
            n += 6;
        } else {
            out[n++] = (char)c;
        }
    }
    if (close) out[n++] = '"';
    return (nb_str){ out, n };
}

/* ---- formats ---- */

#define MONTH_DAY                                                                                  \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"          \
    "02-(?:0[1-9]|1\\d|2[0-8]))"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE "(?:\\d{4}-" MONTH_DAY "|" LEAP "-02-29)"
#define TIME                                                                                       \
    "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[zZ]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)|" \
    "23:59:60(?:\\.\\d+)?(?:[zZ]|[+-]00:00))"
#define DUR_TIME "(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define DUR_DATE "(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL ")*"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "\\." OCTET "\\." OCTET "\\." OCTET
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define QUOTED "\"(?:[\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\[\\x20-\\x7e])*\""
#define EMAIL                                                                                      \
    "(?:" ATOM "(?:\\." ATOM ")*|" QUOTED ")@(?:" HOST "|\\[(?:" IPV4 "|IPv6:" IPV6 ")\\])"
#define PCT "%[0-9A-Fa-f]{2}"
#define UNRES "A-Za-z0-9._~!$&'()*+,;=\\-"
#define PCHAR "(?:[" UNRES ":@]|" PCT ")"
#define AUTH "(?:(?:[" UNRES ":]|" PCT ")*@)?(?:\\[" IPV6 "\\]|(?:[" UNRES "]|" PCT ")*)(?::\\d*)?"
#define TAIL "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define URI                                                                                        \
    "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTH "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR               \
    "*)*)?|" PCHAR "+(?:/" PCHAR "*)*|)" TAIL
#define SEGMENT_NC "(?:[" UNRES "@]|" PCT ")+"
#define URI_REF                                                                                    \
    "(?:" URI "|(?://" AUTH "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" SEGMENT_NC        \
    "(?:/" PCHAR "*)*|)" TAIL ")"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct format {
    const char *name, *match, *without; /* match NULL: known, and cannot be enforced */
} formats[] = {
    { "date", DATE, NULL },
    { "time", TIME, NULL },
    { "date-time", DATE "[tT]" TIME, NULL },
    { "duration", "P(?:\\d+W|" DUR_DATE "(?:T" DUR_TIME ")?|T" DUR_TIME ")", NULL },
    { "email", EMAIL, NULL },
    { "hostname", HOST, "(?:.*\\.)?..--.*" },
    { "ipv4", IPV4, NULL },
    { "ipv6", IPV6, NULL },
    { "uri", URI, NULL },
    { "uri-reference", URI_REF, NULL },
    { "uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}", NULL },
    { "json-pointer", POINTER, NULL },
    { "relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" POINTER ")", NULL },
    { "idn-email", NULL, NULL },
    { "idn-hostname", NULL, NULL },
    { "iri", NULL, NULL },
    { "iri-reference", NULL, NULL },
    { "uri-template", NULL, NULL },
    { "regex", NULL, NULL },
};

/* NULL: failure, or the format is an annotation of somebody's own. */
const nb_re *nb_s_format(nb_schema *x, const json_t *s, const char *name, const nb_re **without)
{
    *without = NULL;
    for (size_t i = 0; i < NB_COUNT(formats); i++) {
        const struct format *f = &formats[i];
        if (strcmp(f->name, name) != 0) continue;
        if (f->match) {
            if (f->without) *without = nb_re_parse(x->g, nb_str_c(f->without), false);
            return nb_re_parse(x->g, nb_str_c(f->match), false);
        }
        if (!x->relaxed)
            (void)nb_s_fail(x, s, "format", NB_ERR_UNSUPPORTED, "\"%s\" cannot be enforced", name);
        return NULL;
    }
    return NULL;
}

/* ---- conditions ---- */

static void add_re(nb_strspec *o, const nb_re *re, bool without)
{
    if (!re) return;
    o->re[o->n] = re;
    o->without[o->n++] = without;
}

/* A pattern; in a relaxed schema one that is not supported asks for nothing. */
static const nb_re *pattern(nb_schema *x, const json_t *s, const char *text)
{
    const nb_re *re = nb_re_parse(x->g, nb_str_c(text), true);
    if (re || nb_g_ok(x->g)) return re;
    const nb_error why = x->g->err;
    if (why.status == NB_ERR_NOMEM || x->g->fuel < 0) return NULL;
    x->g->err = (nb_error){ 0 };
    if (!x->relaxed) (void)nb_s_fail(x, s, "pattern", why.status, "%.300s", why.msg);
    return NULL;
}

bool nb_s_strspec(nb_schema *x, const nb_conj *c, nb_strspec *o)
{
    *o = (nb_strspec){ .max = NB_G_INF };
    o->re = nb_g_alloc(x->g, 3 * c->n + 1, sizeof *o->re);
    o->without = nb_g_alloc(x->g, 3 * c->n + 1, sizeof *o->without);
    for (size_t i = 0; i < c->n && nb_g_ok(x->g); i++) {
        const json_t *s = nb_conj_base(x, c, i);
        const json_t *p = nb_s_get(s, "pattern"), *f = nb_s_get(s, "format");
        const nb_re *without = NULL;
        uint32_t v;
        if (nb_s_count(x, s, "minLength", &v) && v > o->min) o->min = v;
        if (nb_s_count(x, s, "maxLength", &v) && v < o->max) o->max = v;
        if (p) add_re(o, pattern(x, s, json_string_value(p)), false);
        if (f) add_re(o, nb_s_format(x, s, json_string_value(f), &without), false);
        add_re(o, without, true);
    }
    return nb_g_ok(x->g);
}

/* `x` or x*, x+, x{m,n} of a class alone: then a length only changes the count. */
static const nb_re *class_repeat(const nb_re *x)
{
    while ((x->kind == R_CAT || x->kind == R_ALT) && x->n == 1) x = x->sub[0];
    if (x->kind != R_REP) return NULL;
    const nb_re *y = x->sub[0];
    while ((y->kind == R_CAT || y->kind == R_ALT) && y->n == 1) y = y->sub[0];
    return y->kind == R_CLASS ? x : NULL;
}

uint32_t nb_s_names(nb_schema *x, const nb_strspec *s, bool quote, bool *empty)
{
    nb_grammar *g = x->g;
    const size_t n = s->n + 1;
    const nb_re **re = nb_g_alloc(g, n, sizeof *re);
    bool *without = nb_g_alloc(g, n, sizeof *without);
    *empty = false;
    if (!re || !without) return NB_G_NONE;
    if (s->n) memcpy(re, s->re, s->n * sizeof *re);
    if (s->n) memcpy(without, s->without, s->n * sizeof *without);
    re[s->n] = nb_re_repeat(g, nb_re_range(g, 0, 0x10ffff), s->min, s->max);
    if (!nb_g_ok(g)) return NB_G_NONE;
    const nb_re_all all = { re, without, n };
    return nb_re_dfa(g, &all, NB_RE_JSON, quote, empty);
}

nb_gid nb_s_string(nb_schema *x, const nb_conj *c, nb_gid next)
{
    nb_grammar *g = x->g;
    nb_strspec s;
    if (!nb_s_strspec(x, c, &s)) return NB_G_NONE;
    if (s.min > s.max) return nb_g_alt_room(g, 0);
    const nb_gid end = nb_g_text(g, "\"", next);
    const bool length = s.min > 0 || s.max != NB_G_INF;
    const nb_re *rep = s.n == 1 && !s.without[0] ? class_repeat(s.re[0]) : NULL;
    if (s.n == 0) return nb_g_text(g, "\"", nb_g_chars(g, s.min, s.max, end));
    if (rep && length) {
        const uint32_t min = s.min > rep->min ? s.min : rep->min;
        const uint32_t max = s.max < rep->max ? s.max : rep->max;
        if (min > max) return nb_g_alt_room(g, 0);
        const nb_re *y = nb_re_repeat(g, rep->sub[0], min, max);
        return nb_g_text(g, "\"", nb_re_emit(g, y, NB_RE_JSON, end));
    }
    if (s.n == 1 && !s.without[0] && !length)
        return nb_g_text(g, "\"", nb_re_emit(g, s.re[0], NB_RE_JSON, end));
    bool empty;
    const uint32_t dfa = nb_s_names(x, &s, false, &empty);
    if (empty) return nb_g_alt_room(g, 0);
    return nb_g_ok(g) ? nb_g_text(g, "\"", nb_g_dfa_node(g, dfa, end)) : NB_G_NONE;
}
