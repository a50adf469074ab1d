/* schema_value.c - the values that satisfy a conjunction of schemas' own keywords: constants, numbers,
 * arrays; strings and objects have files of their own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema.h"
#include "load/json.h"

/* ---- constants ---- */

/* The spellings of a number: "2" and "2.0" are the same. */
static size_t number_texts(nb_grammar *g, const json_t *v, nb_str *out)
{
    char text[64];
    if (json_is_integer(v)) {
        (void)snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
        out[0] = nb_g_copy(g, nb_str_c(text));
        return 1;
    }
    const double x = json_real_value(v);
    for (int p = 1; p < 18; p++) {
        (void)snprintf(text, sizeof text, "%.*g", p, x);
        if (strtod(text, NULL) == x) break;
    }
    out[0] = nb_g_copy(g, nb_str_c(text));
    if (x != floor(x) || fabs(x) > 1e15) return 1;
    (void)snprintf(text, sizeof text, "%.1f", x);
    out[1] = nb_g_copy(g, nb_str_c(text));
    (void)snprintf(text, sizeof text, "%.0f", x);
    out[0] = nb_g_copy(g, nb_str_c(text));
    return 2;
}

/* The texts of a value that is not an array or object; 0: it is one. */
static size_t scalar_texts(nb_grammar *g, const json_t *v, nb_str out[2])
{
    switch (json_typeof(v)) {
    case JSON_NULL: out[0] = nb_str_c("null"); return 1;
    case JSON_TRUE: out[0] = nb_str_c("true"); return 1;
    case JSON_FALSE: out[0] = nb_str_c("false"); return 1;
    case JSON_INTEGER:
    case JSON_REAL: return number_texts(g, v, out);
    case JSON_STRING: {
        const nb_str s = { json_string_value(v), json_string_length(v) };
        const nb_str q = nb_s_quoted(g, s, true);
        char *p = nb_g_alloc(g, q.n_bytes + 1, 1);
        if (!p) return 1;
        p[0] = '"';
        memcpy(p + 1, q.p, q.n_bytes);
        out[0] = (nb_str){ p, q.n_bytes + 1 };
        return 1;
    }
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return 0;
}

/* An array or object whose parts are constants, in the order in which they are written. */
static nb_gid const_parts(nb_schema *x, const json_t *v, nb_gid next)
{
    nb_grammar *g = x->g;
    if (json_is_array(v)) {
        const size_t n = json_array_size(v);
        uint32_t *head = nb_g_alloc(g, n, sizeof *head);
        for (size_t i = 0; head && i < n; i++)
            head[i] = nb_g_rule_of(g, nb_s_const(x, json_array_get(v, i), nb_g_ret(g)));
        return head ? nb_g_array(g, head, n, NB_G_NONE, (uint32_t)n, (uint32_t)n, next) : NB_G_NONE;
    }
    nb_gid first = nb_g_space(g, nb_g_text(g, "}", next));
    const size_t n = json_object_size(v);
    const char **key = nb_g_alloc(g, n, sizeof *key);
    if (!key) return NB_G_NONE;
    size_t k = 0;
    for (void *it = json_object_iter((json_t *)(uintptr_t)v); it;
         it = json_object_iter_next((json_t *)(uintptr_t)v, it))
        key[k++] = json_object_iter_key(it);
    while (k-- > 0 && nb_g_ok(g)) {
        const nb_str name = nb_s_quoted(g, nb_str_c(key[k]), true);
        first = nb_s_const(x, json_object_get(v, key[k]), first);
        first = nb_g_space(g, nb_g_text(g, ":", nb_g_space(g, first)));
        first = nb_g_text(g, "\"", nb_g_bytes(g, name, first));
        first = nb_g_space(g, first);
        if (k > 0) first = nb_g_space(g, nb_g_text(g, ",", first));
    }
    return nb_g_node(g, K_OPEN, '{', 0, first);
}

nb_gid nb_s_const(nb_schema *x, const json_t *v, nb_gid next)
{
    nb_str text[2];
    const size_t n = scalar_texts(x->g, v, text);
    if (!nb_g_ok(x->g)) return NB_G_NONE;
    return n ? nb_g_set(x->g, text, n, next) : const_parts(x, v, next);
}

/* All of list[n], which atom `from` lists, that satisfy every atom. */
static nb_gid constants(nb_schema *x, const nb_conj *c, const json_t *const *list, size_t n,
                        size_t from, nb_gid next)
{
    nb_grammar *g = x->g;
    nb_str *text = nb_g_alloc(g, 2 * n + 2, sizeof *text);
    nb_gid *way = nb_g_alloc(g, n + 1, sizeof *way);
    size_t n_text = 0, n_way = 0, bytes = 0;
    for (size_t i = 0; text && way && i < n && nb_g_ok(g); i++) {
        bool ok = true;
        for (size_t k = 0; k < c->n && ok; k++)
            ok = nb_s_own_valid(x, nb_conj_base(x, c, k), list[i], k == from);
        if (!ok) continue;
        const size_t k = scalar_texts(g, list[i], text + n_text);
        for (size_t j = 0; j < k; j++) bytes += text[n_text + j].n_bytes;
        n_text += k;
        if (k == 0) way[n_way++] = const_parts(x, list[i], next);
    }
    if (bytes > S_MAX_ENUM_BYTES)
        (void)nb_g_fail(g, NB_ERR_LIMIT, "enum: %zu bytes of values: expected at most %d", bytes,
                        S_MAX_ENUM_BYTES);
    if (!nb_g_ok(g)) return NB_G_NONE;
    if (n_text) way[n_way++] = nb_g_set(g, text, n_text, next);
    return nb_g_alt(g, way, n_way);
}

/* Whether one schema's const is among its own enum. */
static bool in_enum(nb_schema *x, const json_t *s, const json_t *one)
{
    return nb_s_own_valid(x, s, one, false);
}

/* The values that the first enum or const among the atoms lists; false: there is none. */
static bool listed(nb_schema *x, const nb_conj *c, const json_t *const **list, size_t *n,
                   size_t *from)
{
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i), *one = nb_s_get(s, "const");
        const json_t *many = nb_s_get(s, "enum");
        if (!one && !many) continue;
        if (one && many && !in_enum(x, s, one)) {
            *n = 0;
            *from = i;
            return true;
        }
        *n = one ? 1 : json_array_size(many);
        if (*n > S_MAX_ENUM) {
            (void)nb_s_fail(x, s, "enum", NB_ERR_LIMIT, "it has %zu values: expected at most %d",
                            *n, S_MAX_ENUM);
            return true;
        }
        const json_t **out = nb_g_alloc(x->g, *n, sizeof *out);
        for (size_t k = 0; out && k < *n; k++) out[k] = one ? one : json_array_get(many, k);
        *list = out;
        *from = i;
        return true;
    }
    return false;
}

/* ---- numbers ---- */

static void tighten(const json_t **have, bool *open, const json_t *v, bool v_open, int sign)
{
    if (!v || !json_is_number(v)) return;
    const int cmp = *have ? nb_num_compare(v, *have) * sign : 1;
    if (cmp < 0 || (cmp == 0 && !v_open)) return;
    *have = v;
    *open = v_open;
}

static nb_gid number(nb_schema *x, const nb_conj *c, bool integer, nb_gid next)
{
    nb_numspec n = { .integer = integer };
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i), *m = nb_s_get(s, "multipleOf");
        tighten(&n.min, &n.over, nb_s_get(s, "minimum"), false, 1);
        tighten(&n.min, &n.over, nb_s_get(s, "exclusiveMinimum"), true, 1);
        tighten(&n.max, &n.under, nb_s_get(s, "maximum"), false, -1);
        tighten(&n.max, &n.under, nb_s_get(s, "exclusiveMaximum"), true, -1);
        if (m && !(json_number_value(m) > 0)) {
            (void)nb_s_fail(x, s, "multipleOf", NB_ERR_FORMAT,
                            "it is %s: expected a number above 0", nb_json_describe(m).s);
        } else if (m && !nb_num_multiple(&n, m) && !x->relaxed) {
            (void)nb_s_fail(
                x, s, "multipleOf", NB_ERR_UNSUPPORTED,
                "multiples of %s cannot be enforced: expected at most 10000 in units of "
                "the last digit",
                nb_json_describe(m).s);
        }
    }
    return nb_g_number(x->g, &n, next);
}

/* ---- arrays ---- */

/* The schemas of the items at `index` of one atom; NULL: any. */
static const json_t *item_schema(const json_t *s, size_t index)
{
    const json_t *prefix = nb_s_get(s, "prefixItems"), *items = nb_s_get(s, "items");
    if (json_is_array(items)) { /* drafts before 2020-12 */
        if (!prefix) prefix = items;
        items = nb_s_get(s, "additionalItems");
    }
    return index < json_array_size(prefix) ? json_array_get(prefix, index) : items;
}

static size_t n_prefix(const json_t *s)
{
    const json_t *prefix = nb_s_get(s, "prefixItems"), *items = nb_s_get(s, "items");
    return json_array_size(prefix ? prefix : json_is_array(items) ? items : NULL);
}

/* SIZE_MAX: of all beyond the prefixes. */
static uint32_t item_rule(nb_schema *x, const nb_conj *c, size_t index)
{
    nb_conj item = { 0 };
    bool ok = true;
    for (size_t i = 0; i < c->n && ok; i++) {
        const json_t *s = item_schema(nb_conj_base(x, c, i), index);
        if (s) ok = nb_conj_add(x, &item, s);
    }
    const uint32_t rule = ok ? nb_conj_rule(x, &item) : NB_G_NONE;
    nb_conj_deinit(&item);
    return rule;
}

static nb_gid array(nb_schema *x, const nb_conj *c, nb_gid next)
{
    uint32_t min = 0, max = NB_G_INF;
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i);
        uint32_t v;
        if (nb_s_count(x, s, "minItems", &v) && v > min) min = v;
        if (nb_s_count(x, s, "maxItems", &v) && v < max) max = v;
        if (n_prefix(s) > n) n = n_prefix(s);
    }
    if (min > max) return nb_g_alt_room(x->g, 0);
    uint32_t *head = nb_g_alloc(x->g, n, sizeof *head);
    for (size_t i = 0; head && i < n && nb_g_ok(x->g); i++) {
        head[i] = item_rule(x, c, i);
        if (head[i] != NB_G_NONE) continue;
        if (i < max) max = (uint32_t)i; /* this item cannot be */
        n = i;
    }
    const uint32_t rest = item_rule(x, c, SIZE_MAX);
    if (!nb_g_ok(x->g)) return NB_G_NONE;
    if (min > max) return nb_g_alt_room(x->g, 0);
    return nb_g_array(x->g, head, n, n < max ? rest : NB_G_NONE, min, max, next);
}

/* ---- all of it ---- */

nb_gid nb_s_value(nb_schema *x, const nb_conj *c)
{
    nb_grammar *g = x->g;
    const nb_gid ret = nb_g_ret(g);
    const json_t *const *list = NULL;
    size_t n_list = 0, n = 0, from = 0;
    unsigned types = T_ALL;
    for (size_t i = 0; i < c->n; i++) {
        unsigned t;
        if (!nb_s_types(x, nb_conj_base(x, c, i), &t)) return NB_G_NONE;
        types &= t;
    }
    if (listed(x, c, &list, &n_list, &from))
        return nb_g_ok(g) ? constants(x, c, list, n_list, from, ret) : NB_G_NONE;
    nb_gid to[8];
    if (types & T_OBJECT) to[n++] = nb_s_object(x, c, ret);
    if (types & T_ARRAY) to[n++] = array(x, c, ret);
    if (types & T_STRING) to[n++] = nb_s_string(x, c, ret);
    if (types & (T_NUMBER | T_INTEGER)) to[n++] = number(x, c, !(types & T_NUMBER), ret);
    if (types & T_BOOLEAN)
        to[n++] = nb_g_alt2(g, nb_g_text(g, "true", ret), nb_g_text(g, "false", ret));
    if (types & T_NULL) to[n++] = nb_g_text(g, "null", ret);
    return nb_g_ok(g) ? nb_g_alt(g, to, n) : NB_G_NONE;
}
