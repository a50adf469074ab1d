/* opts_value.c - from a word to the value of an option, within the range of its row. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "opts_table.h"

/* What a row accepts, for error lines and the help. */
void opts_range_text(const opt_row *r, char *out, size_t n)
{
    const char open = r->lo_open ? '(' : '[';
    const char *what = r->type == OPT_SIZE || r->type == OPT_INT ? "an integer" : "a number";
    if (r->type == OPT_CHOICE)
        (void)snprintf(out, n, "one of %s", r->choices);
    else if (r->type == OPT_U64)
        (void)snprintf(out, n, "an integer in 0..%" PRIu64, UINT64_MAX);
    else if (r->type == OPT_IDS)
        (void)snprintf(out, n, "token ids such as 1,2");
    else if (r->type == OPT_BIAS)
        (void)snprintf(out, n, "ID=X with X in [%g, %g]", r->lo, r->hi);
    else if (r->type == OPT_COUNT)
        (void)snprintf(out, n, "%sa count in [%.0f, %.0f], such as 4096, 4k (4000) or 4K (4096)",
                       r->lo < 0 ? "auto, or " : "", r->lo < 0 ? 1 : r->lo, r->hi);
    else if (r->type == OPT_TOKENS)
        (void)snprintf(out, n, "a count in [%.0f, %.0f], such as 4096 or 4k (4096)", r->lo, r->hi);
    else if (r->hi >= 1e6)
        (void)snprintf(out, n, "%s %s %g", what, r->lo_open ? ">" : ">=", r->lo);
    else
        (void)snprintf(out, n, "%s in %c%g, %g]", what, open, r->lo, r->hi);
}

/* shown: the option as it was written. */
static int bad_value(const opt_row *r, const char *shown, const char *value)
{
    char range[256], most[OPT_NAME_BYTES + 32] = "", near[OPT_NAME_BYTES];
    opts_range_text(r, range, sizeof range);
    if (r->type == OPT_CHOICE && opts_nearest_choice(r->choices, value, near))
        (void)snprintf(most, sizeof most, "; did you mean %s?", near);
    /* the help leaves high limits out; who may have met one is told */
    if ((r->type == OPT_NUM || r->type == OPT_SIZE || r->type == OPT_INT) && r->hi >= 1e6)
        (void)snprintf(most, sizeof most, ", at most %.15g", r->hi);
    return cli_usage("%s %.60s%s: expected %s%s", shown, value, strlen(value) > 60 ? "..." : "",
                     range, most);
}

/* A number in the row's range, nothing before or behind it. */
static bool parse_number(const opt_row *r, const char *s, double *out)
{
    char *end;
    if (!*s || strspn(s, "0123456789+-.eE") != strlen(s)) return false;
    const double x = strtod(s, &end);
    if (*end || !isfinite(x) || x < r->lo || x > r->hi || (r->lo_open && x <= r->lo)) return false;
    *out = x;
    return true;
}

/* Digits only. */
static bool parse_u64(const char *s, size_t n, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    if (n == 0) return false;
    for (size_t i = 0; i < n; i++) {
        const unsigned d = (unsigned)(unsigned char)s[i] - '0';
        if (d > 9 || v > (max - d) / 10) return false;
        v = v * 10 + d;
    }
    *out = v;
    return true;
}

/* An integer in the row's range; a minus sign only where the range has one. */
static bool parse_integer(const opt_row *r, const char *s, int64_t *out)
{
    uint64_t v;
    const bool minus = *s == '-';
    if (!parse_u64(s + minus, strlen(s + minus), (uint64_t)1 << 53, &v)) return false;
    const int64_t x = minus ? -(int64_t)v : (int64_t)v;
    if ((double)x < r->lo || (double)x > r->hi) return false;
    *out = x;
    return true;
}

/* 4096, 4k = 4000, 4K = 4096, 25.6k = 25600; where the range begins at -1 also auto and -1. */
static bool parse_count(const opt_row *r, const char *s, size_t *out)
{
    static const char decimal[] = "kmgt", binary[] = "KMGT";
    if (r->lo < 0 && (strcmp(s, "auto") == 0 || strcmp(s, "-1") == 0)) {
        *out = OPT_AUTO;
        return true;
    }
    const size_t n = strspn(s, "0123456789."), digits = strspn(s, "0123456789");
    char number[32];
    double unit = 1;
    if (digits == 0 || n >= sizeof number || (s[n] && s[n + 1])) return false;
    if (s[n]) {
        const char *d = strchr(decimal, s[n]), *k = strchr(binary, s[n]);
        if (!d && !k) return false;
        unit = d ? pow(1000, (double)(d - decimal + 1)) : pow(1024, (double)(k - binary + 1));
    }
    if (digits != n && (unit == 1 || !strchr(decimal, s[n]))) return false; /* fractions of bytes */
    memcpy(number, s, n);
    number[n] = 0;
    char *end;
    const double x = floor(strtod(number, &end) * unit + 0.5);
    if (*end || !(x >= (r->lo < 0 ? 1 : r->lo)) || x > r->hi || x > 9e15) return false;
    *out = (size_t)x;
    return true;
}

/* 4096, 4k = 4K = 4096, 1m = 1M = 2^20. */
static bool parse_tokens(const opt_row *r, const char *s, size_t *out)
{
    static const char unit[] = "kKmM";
    const size_t n = strspn(s, "0123456789");
    const char *at = s[n] ? strchr(unit, s[n]) : unit;
    uint64_t v;
    if (!at || (s[n] && s[n + 1]) || !parse_u64(s, n, (uint64_t)1 << 32, &v)) return false;
    if (s[n]) v <<= at < unit + 2 ? 10 : 20;
    if ((double)v < r->lo || (double)v > r->hi) return false;
    *out = (size_t)v;
    return true;
}

static bool is_choice(const char *choices, const char *s)
{
    const size_t n = strlen(s);
    if (n == 0) return *choices == 0 || *choices == '|'; /* the empty one comes first */
    for (const char *p = choices; *p;) {
        const size_t k = strcspn(p, "|");
        if (k == n && memcmp(p, s, n) == 0) return true;
        p += k + (p[k] == '|');
    }
    return false;
}

/* Room for one more item; lists are short. */
static void *grow(void *p, size_t n, size_t item_bytes)
{
    return realloc(p, (n + 1) * item_bytes);
}

static int add_ids(const opt_row *r, opt_ids *list, const char *shown, const char *value)
{
    for (const char *p = value;; p++) {
        const size_t k = strcspn(p, ",");
        uint64_t id;
        if (!parse_u64(p, k, UINT32_MAX, &id)) return bad_value(r, shown, value);
        uint32_t *q = grow(list->p, list->n, sizeof *q);
        if (!q) return cli_failed("out of memory");
        list->p = q;
        list->p[list->n++] = (uint32_t)id;
        p += k;
        if (!*p) return CLI_OK;
    }
}

static int add_bias(const opt_row *r, opt_biases *list, const char *shown, const char *value)
{
    const size_t k = strcspn(value, "=");
    uint64_t id;
    double x;
    if (value[k] != '=' || !parse_u64(value, k, UINT32_MAX, &id) ||
        !parse_number(r, value + k + 1, &x))
        return bad_value(r, shown, value);
    nb_logit_bias *q = grow(list->p, list->n, sizeof *q);
    if (!q) return cli_failed("out of memory");
    list->p = q;
    list->p[list->n++] = (nb_logit_bias){ (uint32_t)id, (float)x };
    return CLI_OK;
}

static int add_str(opt_strs *list, const char *value)
{
    if (list->preset) list->n = 0;
    list->preset = false;
    const char **q = grow(list->p, list->n, sizeof *q);
    if (!q) return cli_failed("out of memory");
    list->p = q;
    list->p[list->n++] = value;
    return CLI_OK;
}

/* ---- options without a field ---------------------------------------------------------- */

static int warn(opts *o, const char *shown, const char *why)
{
    char line[512];
    (void)snprintf(line, sizeof line, "%s has no effect: %s", shown, why);
    for (size_t i = 0; i < o->warning.n; i++)
        if (strcmp(o->warning.p[i], line) == 0) return CLI_OK;
    const char *own = opts_keep(o, line);
    return own ? add_str(&o->warning, own) : cli_failed("out of memory");
}

/* What is accepted because it asks for what is done anyway, or cannot matter; or refused. */
static int set_without_field(opts *o, const opt_row *r, const char *shown, const char *value)
{
    const bool on = value[0] == '1';
    switch (r->type) {
    case OPT_IGNORE:
    case OPT_IGNORE_VALUE: return warn(o, shown, r->help);
    case OPT_ONLY:
        if (is_choice(r->choices, value)) return CLI_OK;
        return cli_usage("%s %.60s: not supported: %s", shown, value, r->help);
    case OPT_ONLY_ON:
    case OPT_ONLY_OFF:
        if (on == (r->type == OPT_ONLY_ON)) return CLI_OK;
        return cli_usage("%s: not supported: %s", shown, r->help);
    default: return cli_usage("%s: %s", shown, r->help);
    }
}

/* ---- JSON ------------------------------------------------------------------------------- */

/* Puts the members of `from` into `to`; objects in both are merged likewise. */
static bool merge(json_t *to, json_t *from)
{
    const char *key;
    json_t *v;
    json_object_foreach(from, key, v)
    {
        json_t *old = json_object_get(to, key);
        const bool both = json_is_object(old) && json_is_object(v);
        if (both ? !merge(old, v) : json_object_set(to, key, v) != 0) return false;
    }
    return true;
}

/* {"a":{"b":leaf}} for the path "a.b"; takes over leaf.  NULL: out of memory. */
static json_t *nest(const char *path, json_t *leaf)
{
    char key[OPT_NAME_BYTES];
    const size_t n = strcspn(path, ".");
    json_t *outer = json_object(), *inner = path[n] ? nest(path + n + 1, leaf) : leaf;
    (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
    if (json_object_set_new(outer, key, inner) == 0) return outer;
    json_decref(outer);
    return NULL;
}

/* Keys of 1 to OPT_NAME_BYTES - 1 bytes, joined by dots; few, as nest goes as deep. */
static bool is_path(const char *path)
{
    enum { MAX_KEYS = 8 };
    for (size_t k = 0; k < MAX_KEYS; k++) {
        const size_t n = strcspn(path, ".");
        if (n == 0 || n >= OPT_NAME_BYTES) return false;
        if (!path[n]) return true;
        path += n + 1;
    }
    return false;
}

/* What is behind --name.key: JSON, or else the text itself. */
static json_t *json_or_text(const char *value)
{
    json_t *j = json_loads(value, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    return j ? j : json_string(value);
}

static int set_json(json_t **at, const char *shown, const char *path, const char *value)
{
    json_error_t e;
    json_t *j = NULL;
    if (path) {
        if (!is_path(path)) return cli_usage("%s.%.60s: expected keys joined by dots", shown, path);
        json_t *leaf = json_or_text(value);
        if (!leaf) return cli_usage("%s.%.60s: the value is not UTF-8", shown, path);
        j = nest(path, leaf);
        if (!j) return cli_failed("out of memory");
    } else {
        j = json_loads(value, JSON_REJECT_DUPLICATES, &e);
        if (!json_is_object(j)) {
            json_decref(j);
            return cli_usage("%s %.60s: expected a JSON object, such as '{\"key\": 1}'%s%s", shown,
                             value, j ? "" : "; ", j ? "" : e.text);
        }
    }
    if (!*at) *at = json_object();
    const bool ok = *at && merge(*at, j);
    json_decref(j);
    return ok ? CLI_OK : cli_failed("out of memory");
}

int opts_set(opts *o, const opt_row *r, const char *shown, const char *path, const char *value)
{
    void *at = (char *)o + r->offset;
    double x;
    int64_t i;
    switch (r->type) {
    case OPT_FLAG:
    case OPT_BOOL: *(bool *)at = value[0] == '1'; return CLI_OK;
    case OPT_UNSET: *(bool *)at = value[0] != '1'; return CLI_OK;
    case OPT_COUNT:
        if (!parse_count(r, value, at)) return bad_value(r, shown, value);
        return CLI_OK;
    case OPT_TOKENS:
        if (!parse_tokens(r, value, at)) return bad_value(r, shown, value);
        return CLI_OK;
    case OPT_ONLY:
    case OPT_ONLY_ON:
    case OPT_ONLY_OFF:
    case OPT_REFUSED:
    case OPT_IGNORE:
    case OPT_IGNORE_VALUE: return set_without_field(o, r, shown, value);
    case OPT_JSON: return set_json(at, shown, path, value);
    case OPT_STR: *(const char **)at = value; return CLI_OK;
    case OPT_CHOICE:
        if (!is_choice(r->choices, value)) return bad_value(r, shown, value);
        *(const char **)at = value;
        return CLI_OK;
    case OPT_SIZE:
        if (!parse_integer(r, value, &i)) return bad_value(r, shown, value);
        *(size_t *)at = i < 0 ? 0 : (size_t)i;
        return CLI_OK;
    case OPT_INT:
        if (!parse_integer(r, value, &i)) return bad_value(r, shown, value);
        *(int *)at = (int)i;
        return CLI_OK;
    case OPT_U64:
        if (!parse_u64(value, strlen(value), UINT64_MAX, at)) return bad_value(r, shown, value);
        return CLI_OK;
    case OPT_NUM:
        if (!parse_number(r, value, &x)) return bad_value(r, shown, value);
        *(double *)at = x;
        return CLI_OK;
    case OPT_STRS: return add_str(at, value);
    case OPT_IDS: return add_ids(r, at, shown, value);
    case OPT_BIAS: return add_bias(r, at, shown, value);
    }
    return CLI_FAILED;
}
