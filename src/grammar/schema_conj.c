/* schema_conj.c - conjunctions of schemas: what they consist of, and a rule for each. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/schema.h"
#include "load/json.h"

typedef struct nb_memo {
    uint32_t *atom; /* [n], sorted */
    size_t n;
    uint32_t rule, chain;
} nb_memo;

static bool no_memory(nb_schema *x)
{
    return nb_g_fail(x->g, NB_ERR_NOMEM, "no memory for a schema") == NB_OK;
}

void nb_conj_deinit(nb_conj *c)
{
    free(c->atom);
    free(c->seen);
    *c = (nb_conj){ 0 };
}

void nb_s_free(nb_schema *x)
{
    free(x->schema);
    free(x->by_ptr);
    free(x->memo);
    free(x);
}

/* ---- atoms ---- */

static size_t slot_of(const nb_schema *x, const json_t *s)
{
    size_t i = nb_mix64((uintptr_t)s) & (x->n_by_ptr - 1);
    while (x->by_ptr[i] != NB_G_NONE && x->schema[x->by_ptr[i]] != s)
        i = (i + 1) & (x->n_by_ptr - 1);
    return i;
}

/* The number of a schema, in order of appearance. */
static uint32_t number_of(nb_schema *x, const json_t *s)
{
    if (2 * x->n_schema >= x->n_by_ptr) {
        const size_t n = x->n_by_ptr ? 2 * x->n_by_ptr : 256;
        uint32_t *t = realloc(x->by_ptr, n * sizeof *t);
        if (!t) return no_memory(x) ? 0 : NB_G_NONE;
        memset(t, 0xff, n * sizeof *t);
        x->by_ptr = t;
        x->n_by_ptr = n;
        for (size_t i = 0; i < x->n_schema; i++) t[slot_of(x, x->schema[i])] = (uint32_t)i;
    }
    const size_t at = slot_of(x, s);
    if (x->by_ptr[at] != NB_G_NONE) return x->by_ptr[at];
    if (NB_GROW(x->schema, x->cap_schema, x->n_schema) != NB_OK)
        return no_memory(x) ? 0 : NB_G_NONE;
    if (!nb_s_check(x, s)) return NB_G_NONE;
    x->schema[x->n_schema] = s;
    x->by_ptr[at] = (uint32_t)x->n_schema;
    return (uint32_t)x->n_schema++;
}

static bool has(const nb_conj *c, uint32_t atom)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->atom[i] == atom) return true;
    return false;
}

static bool add_atom(nb_schema *x, nb_conj *c, uint32_t atom)
{
    if (!nb_g_spend(x->g, 1 + c->n / 8)) return false;
    if (has(c, atom)) return true;
    if (NB_GROW(c->atom, c->cap, c->n) != NB_OK) return no_memory(x);
    c->atom[c->n++] = atom;
    return true;
}

/* Keywords that ask something of the value itself. */
static bool asks(const json_t *s)
{
    static const char *const names[] = {
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    };
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (json_object_get(s, names[i])) return true;
    return false;
}

static bool add_open(nb_schema *x, nb_conj *c, const json_t *s)
{
    const uint32_t me = number_of(x, s);
    if (me == NB_G_NONE || !nb_g_spend(x->g, c->n_seen / 16)) return false;
    for (size_t i = 0; i < c->n_seen; i++)
        if (c->seen[i] == me) return true;
    if (asks(s) && !add_atom(x, c, me * S_PARTS + S_BASE)) return false;
    if (nb_s_get(s, "anyOf") && !add_atom(x, c, me * S_PARTS + S_ANY_OF)) return false;
    if (nb_s_get(s, "oneOf") && !add_atom(x, c, me * S_PARTS + S_ONE_OF)) return false;
    const json_t *ref = nb_s_get(s, "$ref"), *all = nb_s_get(s, "allOf");
    if (ref) {
        const json_t *to = nb_s_resolve(x, s, json_string_value(ref));
        if (!to || !nb_conj_add(x, c, to)) return false;
    }
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!nb_conj_add(x, c, json_array_get(all, i))) return false;
    if (!ref && !all) return true;
    if (NB_GROW(c->seen, c->cap_seen, c->n_seen) != NB_OK) return no_memory(x);
    c->seen[c->n_seen++] = me;
    return true;
}

bool nb_conj_add(nb_schema *x, nb_conj *c, const json_t *s)
{
    if (!nb_g_spend(x->g, 1)) return false;
    if (json_is_true(s)) return true;
    if (json_is_false(s)) {
        c->never = true;
        return true;
    }
    if (!json_is_object(s)) {
        (void)nb_s_fail(x, s, NULL, NB_ERR_FORMAT, "it is %s: expected a schema",
                        nb_json_describe(s).s);
        return false;
    }
    for (size_t i = 0; i < x->n_open; i++)
        if (x->open[i] == s) {
            (void)nb_s_fail(x, s, nb_s_get(s, "$ref") ? "$ref" : NULL, NB_ERR_RANGE,
                            "the schema refers to itself without an end");
            return false;
        }
    if (x->n_open >= S_MAX_DEPTH) {
        (void)nb_s_fail(x, s, NULL, NB_ERR_LIMIT, "references are nested more than %d deep",
                        S_MAX_DEPTH);
        return false;
    }
    x->open[x->n_open++] = s;
    const bool ok = add_open(x, c, s);
    x->n_open--;
    return ok;
}

/* ---- rules ---- */

static int by_value(const void *p, const void *q)
{
    const uint32_t a = *(const uint32_t *)p, b = *(const uint32_t *)q;
    return a < b ? -1 : a > b;
}

/* The memo of the conjunction, made if it is new (*fresh). */
static nb_memo *find_memo(nb_schema *x, const nb_conj *c, bool *fresh)
{
    uint32_t *key = nb_g_alloc(x->g, c->n, sizeof *key);
    if (!key) return NULL;
    if (c->n) memcpy(key, c->atom, c->n * sizeof *key);
    if (c->n > 1) qsort(key, c->n, sizeof *key, by_value);
    const size_t h = nb_hash_bytes(key, c->n * sizeof *key, 5) & (NB_COUNT(x->memo_table) - 1);
    *fresh = false;
    for (uint32_t i = x->memo_table[h]; i != NB_G_NONE; i = x->memo[i].chain) {
        if (!nb_g_spend(x->g, 1)) return NULL;
        if (x->memo[i].n == c->n &&
            (c->n == 0 || memcmp(x->memo[i].atom, key, c->n * sizeof *key) == 0))
            return &x->memo[i];
    }
    if (NB_GROW(x->memo, x->cap_memo, x->n_memo) != NB_OK) {
        (void)no_memory(x);
        return NULL;
    }
    *fresh = true;
    nb_memo *m = &x->memo[x->n_memo];
    *m = (nb_memo){ key, c->n, nb_g_rule_new(x->g), x->memo_table[h] };
    x->memo_table[h] = (uint32_t)x->n_memo++;
    return m;
}

/* oneOf means anyOf where no two branches can hold at once. */
static bool check_one_of(nb_schema *x, const json_t *s, const json_t *list)
{
    if (x->relaxed) return true;
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = i + 1; k < json_array_size(list); k++) {
            if (!nb_g_spend(x->g, 4)) return false;
            if (nb_s_exclusive(x, json_array_get(list, i), json_array_get(list, k))) continue;
            (void)nb_s_fail(x, s, "oneOf", NB_ERR_UNSUPPORTED,
                            "schemas %zu and %zu may both match: give each a type of its own or a "
                            "required property with a const of its own, or use anyOf",
                            i, k);
            return false;
        }
    return true;
}

/* The first group of branches becomes alternatives, each with all that is left. */
static nb_gid branches(nb_schema *x, const nb_conj *c, size_t at)
{
    nb_grammar *g = x->g;
    const json_t *s = x->schema[c->atom[at] / S_PARTS];
    const bool one = c->atom[at] % S_PARTS == S_ONE_OF;
    const json_t *list = nb_s_get(s, one ? "oneOf" : "anyOf");
    if (one && !check_one_of(x, s, list)) return NB_G_NONE;
    const size_t n = json_array_size(list);
    nb_gid *to = nb_g_alloc(g, n, sizeof *to);
    size_t n_to = 0;
    for (size_t i = 0; to && i < n && nb_g_ok(g); i++) {
        nb_conj b = { .never = c->never };
        bool ok = true;
        for (size_t k = 0; k < c->n && ok; k++)
            if (k != at) ok = add_atom(x, &b, c->atom[k]);
        if (ok && nb_conj_add(x, &b, json_array_get(list, i)) && !b.never) {
            const uint32_t r = nb_conj_rule(x, &b);
            if (r != NB_G_NONE) to[n_to++] = nb_g_call(g, r, false, nb_g_ret(g));
        }
        nb_conj_deinit(&b);
    }
    return nb_g_ok(g) ? nb_g_alt(g, to, n_to) : NB_G_NONE;
}

uint32_t nb_conj_rule(nb_schema *x, const nb_conj *c)
{
    if (c->never || !nb_g_ok(x->g)) return NB_G_NONE;
    if (c->n == 0) return nb_g_any_value(x->g);
    bool fresh;
    const nb_memo *m = find_memo(x, c, &fresh);
    if (!m) return NB_G_NONE;
    const uint32_t rule = m->rule;
    if (!fresh || rule == NB_G_NONE) return rule;
    if (++x->depth > 2 * S_MAX_DEPTH) {
        (void)nb_g_fail(x->g, NB_ERR_LIMIT, "the schema is nested more than %d deep", S_MAX_DEPTH);
        return NB_G_NONE;
    }
    size_t at = 0;
    while (at < c->n && c->atom[at] % S_PARTS == S_BASE) at++;
    nb_g_rule_set(x->g, rule, at < c->n ? branches(x, c, at) : nb_s_value(x, c));
    x->depth--;
    return nb_g_ok(x->g) ? rule : NB_G_NONE;
}
