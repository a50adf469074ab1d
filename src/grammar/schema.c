/* schema.c - a schema's document: its keywords, its references, its errors. */
#include "grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load/json.h"

/* ---- errors ---- */

/* Appends "/name", escaped; false: no room. */
static bool add_step(char *path, size_t cap, size_t *n, const char *name)
{
    if (*n + 2 >= cap) return false;
    path[(*n)++] = '/';
    for (const char *p = name; *p; p++) {
        const bool esc = *p == '~' || *p == '/';
        if (*n + 3 >= cap) return false;
        if (esc) path[(*n)++] = '~';
        path[(*n)++] = !esc ? *p : *p == '~' ? '0' : '1';
    }
    path[*n] = 0;
    return true;
}

/* Writes the pointer of `want` below v; false: it is not there (or too deep). */
static bool find_path(const json_t *v, const json_t *want, char *path, size_t cap, size_t n,
                      size_t depth)
{
    path[n] = 0;
    if (v == want) return true;
    if (depth > S_MAX_DEPTH) return false;
    if (json_is_object(v)) {
        for (void *it = json_object_iter((json_t *)(uintptr_t)v); it;
             it = json_object_iter_next((json_t *)(uintptr_t)v, it)) {
            size_t k = n;
            const json_t *below = json_object_iter_value(it);
            if (!json_is_object(below) && !json_is_array(below) && below != want) continue;
            if (add_step(path, cap, &k, json_object_iter_key(it)) &&
                find_path(below, want, path, cap, k, depth + 1))
                return true;
        }
    }
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++) {
        char name[24];
        size_t k = n;
        (void)snprintf(name, sizeof name, "%zu", i);
        if (add_step(path, cap, &k, name) &&
            find_path(json_array_get(v, i), want, path, cap, k, depth + 1))
            return true;
    }
    path[n] = 0;
    return false;
}

nb_status nb_s_fail(nb_schema *x, const json_t *s, const char *keyword, nb_status st,
                    const char *fmt, ...)
{
    if (!nb_g_ok(x->g)) return x->g->err.status;
    char path[512], what[400];
    size_t n = 0;
    if (!find_path(x->root, s, path, sizeof path - 80, 0, 0)) path[0] = 0;
    n = strlen(path);
    if (keyword) (void)add_step(path, sizeof path, &n, keyword);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return nb_g_fail(x->g, st, "#%s: %s", path, what);
}

/* ---- keywords ---- */

const json_t *nb_s_get(const json_t *s, const char *keyword)
{
    return json_object_get(s, keyword);
}

typedef enum form {
    F_ANY,
    F_NUMBER,
    F_COUNT,
    F_STRING,
    F_SCHEMA,
    F_LIST,
    F_MAP,
    F_ARRAY,
    F_BOOL
} form;
typedef enum use { ENFORCED, NOTED, REFUSED } use;

static const struct keyword {
    const char *name;
    form form;
    use use;
} keywords[] = {
    { "type", F_ANY, ENFORCED },
    { "enum", F_ARRAY, ENFORCED },
    { "const", F_ANY, ENFORCED },
    { "properties", F_MAP, ENFORCED },
    { "required", F_ARRAY, ENFORCED },
    { "additionalProperties", F_SCHEMA, ENFORCED },
    { "patternProperties", F_MAP, ENFORCED },
    { "propertyNames", F_SCHEMA, ENFORCED },
    { "minProperties", F_COUNT, ENFORCED },
    { "maxProperties", F_COUNT, ENFORCED },
    { "items", F_ANY, ENFORCED },
    { "prefixItems", F_LIST, ENFORCED },
    { "additionalItems", F_SCHEMA, ENFORCED },
    { "minItems", F_COUNT, ENFORCED },
    { "maxItems", F_COUNT, ENFORCED },
    { "minLength", F_COUNT, ENFORCED },
    { "maxLength", F_COUNT, ENFORCED },
    { "pattern", F_STRING, ENFORCED },
    { "format", F_STRING, ENFORCED },
    { "minimum", F_NUMBER, ENFORCED },
    { "maximum", F_NUMBER, ENFORCED },
    { "exclusiveMinimum", F_NUMBER, ENFORCED },
    { "exclusiveMaximum", F_NUMBER, ENFORCED },
    { "multipleOf", F_NUMBER, ENFORCED },
    { "anyOf", F_LIST, ENFORCED },
    { "oneOf", F_LIST, ENFORCED },
    { "allOf", F_LIST, ENFORCED },
    { "$ref", F_STRING, ENFORCED },
    { "$defs", F_MAP, NOTED },
    { "definitions", F_MAP, NOTED },
    { "not", F_SCHEMA, REFUSED },
    { "if", F_SCHEMA, REFUSED },
    { "dependentRequired", F_ANY, REFUSED },
    { "dependentSchemas", F_ANY, REFUSED },
    { "dependencies", F_ANY, REFUSED },
    { "uniqueItems", F_BOOL, REFUSED },
    { "contains", F_SCHEMA, REFUSED },
    { "unevaluatedItems", F_SCHEMA, REFUSED },
    { "unevaluatedProperties", F_SCHEMA, REFUSED },
    { "$dynamicRef", F_ANY, REFUSED },
    { "$recursiveRef", F_ANY, REFUSED },
};

static const char *const form_text[] = {
    [F_ANY] = "",
    [F_NUMBER] = "a number",
    [F_COUNT] = "an integer of at least 0",
    [F_STRING] = "a string",
    [F_SCHEMA] = "a schema (an object, true or false)",
    [F_LIST] = "an array of schemas that is not empty",
    [F_MAP] = "an object",
    [F_ARRAY] = "an array",
    [F_BOOL] = "true or false",
};

static bool has_form(const json_t *v, form f)
{
    switch (f) {
    case F_ANY: return true;
    case F_NUMBER: return json_is_number(v);
    case F_COUNT: return json_is_number(v) && json_number_value(v) >= 0;
    case F_STRING: return json_is_string(v);
    case F_SCHEMA: return json_is_object(v) || json_is_boolean(v);
    case F_LIST: return json_is_array(v) && json_array_size(v) > 0;
    case F_MAP: return json_is_object(v);
    case F_ARRAY: return json_is_array(v);
    case F_BOOL: return json_is_boolean(v);
    }
    return false;
}

/* A keyword that is there but asks for nothing. */
static bool idle(const char *name, const json_t *v)
{
    if (strcmp(name, "uniqueItems") == 0) return json_is_false(v);
    if (strncmp(name, "unevaluated", 11) == 0) return json_is_true(v);
    if (strncmp(name, "depend", 6) == 0) return json_is_object(v) && json_object_size(v) == 0;
    if (strcmp(name, "not") == 0) return json_is_false(v);
    return false;
}

/* Only an `if` with a branch asks for anything. */
static bool idle_if(const json_t *s)
{
    return !nb_s_get(s, "then") && !nb_s_get(s, "else");
}

bool nb_s_check(nb_schema *x, const json_t *s)
{
    if (!nb_g_spend(x->g, 1)) return false;
    for (size_t i = 0; i < NB_COUNT(keywords); i++) {
        const struct keyword *k = &keywords[i];
        const json_t *v = nb_s_get(s, k->name);
        if (!v) continue;
        if (!has_form(v, k->form)) {
            (void)nb_s_fail(x, s, k->name, NB_ERR_FORMAT, "it is %s: expected %s",
                            nb_json_describe(v).s, form_text[k->form]);
            return false;
        }
        if (k->form == F_LIST && json_array_size(v) > NB_G_MAX_BRANCH) {
            (void)nb_s_fail(x, s, k->name, NB_ERR_LIMIT, "it has %zu schemas: expected at most %d",
                            json_array_size(v), NB_G_MAX_BRANCH);
            return false;
        }
        const bool nothing = idle(k->name, v) || (strcmp(k->name, "if") == 0 && idle_if(s));
        if (k->use == REFUSED && !x->relaxed && !nothing) {
            (void)nb_s_fail(x, s, k->name, NB_ERR_UNSUPPORTED,
                            "the keyword cannot be enforced; leave it out");
            return false;
        }
    }
    return true;
}

bool nb_s_count(nb_schema *x, const json_t *s, const char *keyword, uint32_t *out)
{
    const json_t *v = nb_s_get(s, keyword);
    if (!v) return false;
    const double d = json_number_value(v);
    if (d < 0 || d != (double)(int64_t)(d < 9e18 ? d : 0)) {
        if (d < 9e18) {
            (void)nb_s_fail(x, s, keyword, NB_ERR_FORMAT,
                            "it is %s: expected an integer of at "
                            "least 0",
                            nb_json_describe(v).s);
            return false;
        }
    }
    *out = d > 2147483647.0 ? NB_G_INF : (uint32_t)d;
    return true;
}

static const struct type_name {
    const char *name;
    unsigned types;
} type_names[] = {
    { "null", T_NULL },       { "boolean", T_BOOLEAN },
    { "integer", T_INTEGER }, { "number", T_NUMBER | T_INTEGER },
    { "string", T_STRING },   { "array", T_ARRAY },
    { "object", T_OBJECT },
};

bool nb_s_types(nb_schema *x, const json_t *s, unsigned *types)
{
    const json_t *v = nb_s_get(s, "type");
    *types = T_ALL;
    if (!v) return true;
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    unsigned all = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_is_array(v) ? json_array_get(v, i) : v;
        size_t k = 0;
        while (k < NB_COUNT(type_names) &&
               (!json_is_string(name) || strcmp(json_string_value(name), type_names[k].name) != 0))
            k++;
        if (k == NB_COUNT(type_names)) {
            (void)nb_s_fail(x, s, "type", NB_ERR_FORMAT,
                            "it is %s: expected null, boolean, integer, number, string, array or "
                            "object",
                            nb_json_describe(name).s);
            return false;
        }
        all |= type_names[k].types;
    }
    *types = all;
    return true;
}

/* ---- references ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* One step of a pointer, without % and ~ escapes; false: malformed or too long. */
static bool step_name(const char **p, char *out, size_t cap)
{
    size_t n = 0;
    while (**p && **p != '/') {
        char c = *(*p)++;
        if (c == '%') {
            const int a = hex_value((*p)[0]), b = a < 0 ? -1 : hex_value((*p)[1]);
            if (b < 0) return false;
            c = (char)(a * 16 + b);
            *p += 2;
            if (c == 0) return false;
        }
        if (n + 1 >= cap) return false;
        out[n++] = c;
    }
    out[n] = 0;
    char *w = out;
    for (const char *r = out; *r; r++) {
        if (*r == '~') {
            r++;
            if (*r != '0' && *r != '1') return false;
            *w++ = *r == '0' ? '~' : '/';
        } else {
            *w++ = *r;
        }
    }
    *w = 0;
    return true;
}

static const json_t *follow(const json_t *root, const char *p)
{
    char name[1024];
    const json_t *v = root;
    while (v && *p == '/') {
        p++;
        if (!step_name(&p, name, sizeof name)) return NULL;
        if (json_is_object(v)) {
            v = json_object_get(v, name);
        } else if (json_is_array(v)) {
            char *end;
            const unsigned long i = strtoul(name, &end, 10);
            if (!*name || *end || name[0] < '0' || name[0] > '9') return NULL;
            v = json_array_get(v, i);
        } else {
            return NULL;
        }
    }
    return *p ? NULL : v;
}

/* The schema below v with keyword `key` equal to `name`; only where schemas can stand is not known, so
 * every object counts. */
static const json_t *find_named(nb_schema *x, const json_t *v, const char *key, const char *name)
{
    if (!nb_g_spend(x->g, 1)) return NULL;
    const json_t *a = json_is_object(v) ? json_object_get(v, key) : NULL;
    if (json_is_string(a) && strcmp(json_string_value(a), name) == 0) return v;
    const json_t *found = NULL;
    if (json_is_object(v))
        for (void *it = json_object_iter((json_t *)(uintptr_t)v); it && !found;
             it = json_object_iter_next((json_t *)(uintptr_t)v, it))
            if (strcmp(json_object_iter_key(it), "enum") != 0 &&
                strcmp(json_object_iter_key(it), "const") != 0)
                found = find_named(x, json_object_iter_value(it), key, name);
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v) && !found; i++)
        found = find_named(x, json_array_get(v, i), key, name);
    return found;
}

const json_t *nb_s_resolve(nb_schema *x, const json_t *s, const char *ref)
{
    const json_t *to = NULL;
    const json_t *id = nb_s_get(x->root, "$id");
    const size_t n_id = json_is_string(id) ? json_string_length(id) : 0;
    if (n_id && strncmp(ref, json_string_value(id), n_id) == 0 &&
        (ref[n_id] == '#' || ref[n_id] == 0))
        ref += n_id;
    if (x->has_ids) {
        (void)nb_s_fail(x, s, "$ref", NB_ERR_UNSUPPORTED,
                        "references in a document with embedded resources ($id) are not supported");
        return NULL;
    }
    if (ref[0] == 0 || strcmp(ref, "#") == 0) return x->root;
    if (ref[0] != '#') {
        (void)nb_s_fail(
            x, s, "$ref", NB_ERR_UNSUPPORTED,
            "\"%s\" is not a reference within the schema (\"#/...\"); nothing is fetched",
            nb_show_c(ref).s);
        return NULL;
    }
    to = ref[1] == '/' ? follow(x->root, ref + 1) : find_named(x, x->root, "$anchor", ref + 1);
    if (!to || (!json_is_object(to) && !json_is_boolean(to))) {
        (void)nb_s_fail(x, s, "$ref", NB_ERR_NOT_FOUND, "there is no schema at \"%s\"",
                        nb_show_c(ref).s);
        return NULL;
    }
    return to;
}

/* ---- the whole ---- */

/* Whether a schema below the root names itself by $id, so that references mean something else. */
static bool embedded_ids(const json_t *v, bool root)
{
    if (json_is_object(v)) {
        const json_t *id = json_object_get(v, "$id");
        if (!root && json_is_string(id)) return true;
        for (void *it = json_object_iter((json_t *)(uintptr_t)v); it;
             it = json_object_iter_next((json_t *)(uintptr_t)v, it))
            if (strcmp(json_object_iter_key(it), "enum") != 0 &&
                strcmp(json_object_iter_key(it), "const") != 0 &&
                embedded_ids(json_object_iter_value(it), false))
                return true;
    }
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++)
        if (embedded_ids(json_array_get(v, i), false)) return true;
    return false;
}

uint32_t nb_g_schema_rule(nb_grammar *g, json_t *root, const json_t *schema, bool relaxed,
                          bool object)
{
    nb_schema *x = calloc(1, sizeof *x);
    if (!x) {
        (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for a schema");
        return NB_G_NONE;
    }
    x->g = g;
    x->root = root;
    x->relaxed = relaxed;
    memset(x->memo_table, 0xff, sizeof x->memo_table);
    uint32_t rule = NB_G_NONE;
    nb_conj c = { 0 };
    json_t *also = object ? json_pack("{s:s}", "type", "object") : NULL;
    if (object && !also) {
        (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for a schema");
    } else if (!json_is_object(schema) && !json_is_boolean(schema)) {
        (void)nb_g_fail(g, NB_ERR_FORMAT, "the schema is %s: expected an object, true or false",
                        nb_json_describe(schema).s);
    } else {
        x->has_ids = embedded_ids(root, true);
        if (nb_conj_add(x, &c, schema) && (!also || nb_conj_add(x, &c, also)))
            rule = nb_conj_rule(x, &c);
    }
    if (rule == NB_G_NONE && nb_g_ok(g))
        (void)nb_g_fail(g, NB_ERR_RANGE, "nothing satisfies the schema");
    nb_conj_deinit(&c);
    nb_s_free(x);
    json_decref(also);
    return rule;
}

json_t *nb_g_parse(nb_grammar *g, nb_str text, const char *name)
{
    const nb_json_limits lim = { NB_GRAMMAR_MAX_TEXT, S_MAX_DEPTH, 400000 };
    nb_error err = { 0 };
    json_t *root = NULL;
    while (text.n_bytes && strchr(" \t\r\n", text.p[0])) text.p++, text.n_bytes--;
    while (text.n_bytes && strchr(" \t\r\n", text.p[text.n_bytes - 1])) text.n_bytes--;
    if (nb_str_eqc(text, "true")) return json_true(); /* a schema may be */
    if (nb_str_eqc(text, "false")) return json_false();
    const nb_status st = nb_json_parse(text, name, &lim, &root, &err);
    if (st != NB_OK) (void)nb_g_fail(g, st, "%s", err.msg);
    return root;
}

nb_status nb_g_schema(nb_grammar *g, nb_str json, bool relaxed)
{
    json_t *root = nb_g_parse(g, json, "the schema");
    if (!root) return g->err.status;
    g->root = nb_g_schema_rule(g, root, root, relaxed, false);
    json_decref(root);
    return g->err.status;
}
