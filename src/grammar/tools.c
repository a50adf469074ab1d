/* tools.c - a family's format of tool calls around the schemas of the tools.
 *
 * The text is an object:
 *   format    the family, by the names of --tool-call-parser
 *   calls     "required": the answer is one call or more; "auto": free text, and calls that are right
 *   one       true: at most one call
 *   content   with auto: a schema that an answer without calls satisfies, instead of free text
 *   tools     [{name, parameters, strict}]
 * Parameters bind with "required" (relaxed, unless the tool is strict) and where a tool is strict; the
 * arguments of other tools are any JSON object.
 *
 * Families with tags give one value per tag: strings as they are, up to the closing tag, all others as
 * JSON.  Only declared parameters can be given there. */
#include <stdio.h>
#include <string.h>

#include "grammar/schema.h"
#include "load/json.h"

#define BAR "\xef\xbd\x9c" /* U+FF5C */
#define LOW "\xe2\x96\x81" /* U+2581 */
#define DS(a, b, c) "<" BAR a LOW b LOW c BAR ">"
#define DSML BAR "DSML" BAR

enum { STYLE_JSON, STYLE_TAGS };

/* section ( before NAME between ARGS after, joined by `join` ) end.  With tags ARGS is, for each
 * parameter: key_before KEY key_raw | key_json VALUE value_end. */
typedef struct family {
    const char *name;
    const char *trigger; /* where calls begin in free text: the start of section, or of before */
    const char *section, *before, *between, *after, *join, *end;
    int style;
    bool quoted; /* the name stands in a JSON string */
    bool again;  /* free text may follow a call, and other calls that */
    const char *key_before, *key_raw, *key_json, *value_end, *line;
} family;

#define DSML_FAMILY(NAME, SECTION)                                                                 \
    {                                                                                              \
        .name = NAME, .trigger = "<" DSML SECTION ">", .section = "<" DSML SECTION ">\n",          \
        .before = "<" DSML "invoke name=\"", .between = "\">\n", .after = "</" DSML "invoke>\n",   \
        .join = "", .end = "</" DSML SECTION ">", .style = STYLE_TAGS,                             \
        .key_before = "<" DSML "parameter name=\"", .key_raw = "\" string=\"true\">",              \
        .key_json = "\" string=\"false\">", .value_end = "</" DSML "parameter>", .line = "\n"      \
    }

static const family families[] = {
    { .name = "deepseek_v3",
      .trigger = DS("tool", "calls", "begin"),
      .section = DS("tool", "calls", "begin"),
      .before = DS("tool", "call", "begin") "function<" BAR "tool" LOW "sep" BAR ">",
      .between = "\n```json\n",
      .after = "\n```" DS("tool", "call", "end"),
      .join = "\n",
      .end = DS("tool", "calls", "end") },
    { .name = "deepseek_v31",
      .trigger = DS("tool", "calls", "begin"),
      .section = DS("tool", "calls", "begin"),
      .before = DS("tool", "call", "begin"),
      .between = "<" BAR "tool" LOW "sep" BAR ">",
      .after = DS("tool", "call", "end"),
      .join = "",
      .end = DS("tool", "calls", "end") },
    DSML_FAMILY("deepseek_v32", "function_calls"),
    DSML_FAMILY("deepseek_v4", "tool_calls"),
    { .name = "kimi_k2",
      .trigger = "<|tool_calls_section_begin|>",
      .section = "<|tool_calls_section_begin|>",
      .before = "<|tool_call_begin|>functions.",
      .between = "#", /* ":", a number and a marker: see between() */
      .after = "<|tool_call_end|>",
      .join = "",
      .end = "<|tool_calls_section_end|>" },
    { .name = "glm47",
      .trigger = "<tool_call>",
      .section = "",
      .before = "<tool_call>",
      .between = "",
      .after = "</tool_call>",
      .join = "",
      .end = "",
      .style = STYLE_TAGS,
      .again = true,
      .key_before = "<arg_key>",
      .key_raw = "</arg_key><arg_value>",
      .key_json = "</arg_key><arg_value>",
      .value_end = "</arg_value>",
      .line = "" },
    { .name = "hermes",
      .trigger = "<tool_call>",
      .section = "",
      .before = "<tool_call>\n{\"name\": \"",
      .between = ", \"arguments\": ",
      .after = "}\n</tool_call>",
      .join = "\n",
      .end = "",
      .quoted = true,
      .again = true },
    { .name = "youtu",
      .trigger = "<tool_call>",
      .section = "",
      .before = "<tool_call>{\"name\": \"",
      .between = ", \"arguments\": ",
      .after = "}</tool_call>",
      .join = "",
      .end = "",
      .quoted = true,
      .again = true },
    { .name = "llama3_json",
      .section = "",
      .before = "{\"name\": \"",
      .between = ", \"parameters\": ",
      .after = "}",
      .join = "; ",
      .end = "",
      .quoted = true },
};

typedef struct tools {
    nb_grammar *g;
    const family *f;
    const json_t *list;
    bool required, one, relaxed;
} tools;

static nb_gid marked(nb_grammar *g, const char *s, nb_gid next)
{
    return nb_g_marked(g, nb_str_c(s), next);
}

/* Kimi numbers its calls. */
static nb_gid between(tools *t, nb_gid next)
{
    nb_grammar *g = t->g;
    if (strcmp(t->f->between, "#") != 0) return marked(g, t->f->between, next);
    nb_gclass digit = { { 0 } };
    nb_gclass_add(&digit, '0', '9');
    const uint32_t one = nb_g_rule_of(g, nb_g_class(g, &digit, nb_g_ret(g)));
    next = marked(g, "<|tool_call_argument_begin|>", next);
    return nb_g_text(g, ":", nb_g_rep(g, one, 1, 4, next));
}

/* ---- arguments ---- */

static bool binds(const tools *t, const json_t *tool)
{
    return t->required || json_is_true(json_object_get(tool, "strict"));
}

/* Says which tool an error is about. */
static void name_error(tools *t, const char *name)
{
    if (nb_g_ok(t->g)) return;
    (void)nb_fail_prefix(&t->g->err, t->g->err.status, "tool \"%s\"", nb_show_c(name).s);
}

/* The rule of a tool's parameters, or of one of them.  Where they do not have to bind, what cannot be
 * compiled asks for nothing: an agent's request does not fail for its tools. */
static uint32_t rule_of(tools *t, const json_t *tool, const json_t *schema, bool object)
{
    nb_grammar *g = t->g;
    const bool strict = json_is_true(json_object_get(tool, "strict"));
    const uint32_t rule =
        nb_g_schema_rule(g, json_object_get(tool, "parameters"), schema, !strict, object);
    if (rule != NB_G_NONE || strict || g->fuel < 0 || g->err.status == NB_ERR_NOMEM ||
        g->n_node >= NB_G_MAX_NODE)
        return rule;
    g->err = (nb_error){ 0 };
    return object ? nb_g_rule_of(g, nb_g_any_object(g, nb_g_ret(g))) : nb_g_any_value(g);
}

static nb_gid json_arguments(tools *t, const json_t *tool, nb_gid next)
{
    json_t *p = json_object_get(tool, "parameters");
    if (!p || json_is_null(p) || !binds(t, tool)) return nb_g_any_object(t->g, next);
    const uint32_t rule = rule_of(t, tool, p, true);
    return rule == NB_G_NONE ? NB_G_NONE : nb_g_call(t->g, rule, false, next);
}

/* Whether all values are strings that stand as they are. */
static bool is_raw(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    if (type) return json_is_string(type) && strcmp(json_string_value(type), "string") == 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i))) return false;
    return json_array_size(list) > 0;
}

/* A raw string up to the closing tag: one of its enum's, or any text. */
static nb_gid raw_value(tools *t, const json_t *schema, bool bound, nb_gid next)
{
    nb_grammar *g = t->g;
    const json_t *list = json_object_get(schema, "enum");
    const size_t n = json_array_size(list);
    nb_str *s = nb_g_alloc(g, n, sizeof *s);
    size_t k = 0;
    for (size_t i = 0; s && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_string(v)) s[k++] = (nb_str){ json_string_value(v), json_string_length(v) };
    }
    if (!s) return NB_G_NONE;
    if (bound && k) return nb_g_set(g, s, k, marked(g, t->f->value_end, next));
    const nb_gid any = nb_g_free_until(g, nb_str_c(t->f->value_end), false, next);
    if (nb_g_ok(g)) g->node[any].b = true; /* no other markers */
    return any;
}

static nb_gid tagged_one(tools *t, const json_t *tool, const char *key, const json_t *schema,
                         nb_gid next)
{
    nb_grammar *g = t->g;
    const family *f = t->f;
    const bool raw = is_raw(schema), bound = binds(t, tool);
    next = marked(g, f->line, next);
    if (raw) {
        next = raw_value(t, schema, bound, next);
    } else {
        const uint32_t rule = bound ? rule_of(t, tool, schema, false) : nb_g_any_value(g);
        if (rule == NB_G_NONE) return nb_g_alt_room(g, 0);
        next = nb_g_call(g, rule, true, marked(g, f->value_end, next));
    }
    next = marked(g, raw ? f->key_raw : f->key_json, next);
    return marked(g, f->key_before, nb_g_bytes(g, nb_str_c(key), next));
}

static bool is_required(const json_t *parameters, const char *key)
{
    const json_t *req = json_object_get(parameters, "required");
    for (size_t i = 0; i < json_array_size(req); i++) {
        const char *s = json_string_value(json_array_get(req, i));
        if (s && strcmp(s, key) == 0) return true;
    }
    return false;
}

static nb_gid tagged_arguments(tools *t, const json_t *tool, nb_gid next)
{
    nb_grammar *g = t->g;
    const json_t *p = json_object_get(tool, "parameters"),
                 *props = json_object_get(p, "properties");
    const size_t n = json_object_size(props);
    const char **key = nb_g_alloc(g, n, sizeof *key);
    size_t k = 0;
    for (void *it = key && n ? json_object_iter((json_t *)(uintptr_t)props) : NULL; it;
         it = json_object_iter_next((json_t *)(uintptr_t)props, it))
        key[k++] = json_object_iter_key(it);
    while (k-- > 0 && nb_g_ok(g)) {
        const nb_gid with = tagged_one(t, tool, key[k], json_object_get(props, key[k]), next);
        next = binds(t, tool) && is_required(p, key[k]) ? with : nb_g_alt2(g, with, next);
    }
    return next;
}

/* ---- calls ---- */

/* One call of any tool, without what free text ended with (`skip` bytes of the family's `before`). */
static uint32_t call_rule(tools *t, size_t skip)
{
    nb_grammar *g = t->g;
    const family *f = t->f;
    const size_t n = json_array_size(t->list);
    nb_gid *way = nb_g_alloc(g, n, sizeof *way);
    for (size_t i = 0; way && i < n && nb_g_ok(g); i++) {
        const json_t *tool = json_array_get(t->list, i);
        const char *name = json_string_value(json_object_get(tool, "name"));
        const nb_gid after = marked(g, f->after, nb_g_ret(g));
        nb_gid x = f->style == STYLE_TAGS ? tagged_arguments(t, tool, after)
                                          : json_arguments(t, tool, after);
        x = between(t, x);
        x = nb_g_bytes(g, f->quoted ? nb_s_quoted(g, nb_str_c(name), true) : nb_str_c(name), x);
        way[i] = x;
        name_error(t, name);
    }
    if (!nb_g_ok(g)) return NB_G_NONE;
    return nb_g_rule_of(g, marked(g, f->before + skip, nb_g_alt(g, way, n)));
}

/* One call or more, and the section around them; first: the rule of the first call. */
static nb_gid calls(tools *t, uint32_t first, uint32_t more, nb_gid next)
{
    nb_grammar *g = t->g;
    const nb_gid end = marked(g, t->f->end, next);
    if (t->one) return nb_g_call(g, first, false, end);
    const nb_gid loop = nb_g_alt_room(g, 2);
    nb_g_alt_set(g, loop, 0, end);
    nb_g_alt_set(g, loop, 1, marked(g, t->f->join, nb_g_call(g, more, false, loop)));
    return nb_g_call(g, first, false, loop);
}

static nb_gid all_calls(tools *t, nb_gid next)
{
    const uint32_t call = call_rule(t, 0);
    return marked(t->g, t->f->section, calls(t, call, call, next));
}

/* Free text, in which calls are right once they begin. */
static nb_gid free_calls(tools *t)
{
    nb_grammar *g = t->g;
    const family *f = t->f;
    const bool sections = f->section[0] != 0;
    const size_t n = strlen(f->trigger);
    const uint32_t call = call_rule(t, 0), first = sections ? call : call_rule(t, n);
    const nb_gid again = nb_g_alt_room(g, 1);
    const nb_gid after = f->again && !t->one ? again : nb_g_ret(g);
    nb_gid x;
    if (f->again)
        x = nb_g_call(g, first, false, after); /* others follow a trigger of their own */
    else
        x = marked(g, f->section + n, calls(t, first, call, after));
    x = nb_g_free_until(g, nb_str_c(f->trigger), true, x);
    nb_g_alt_set(g, again, 0, x);
    return x;
}

static bool check_tools(nb_grammar *g, const json_t *list)
{
    const size_t n = json_array_size(list);
    if (n == 0 || n > NB_G_MAX_BRANCH)
        return nb_g_fail(g, NB_ERR_LIMIT, "%zu tools: expected 1..%d", n, NB_G_MAX_BRANCH) == NB_OK;
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(json_object_get(json_array_get(list, i), "name")))
            return nb_g_fail(g, NB_ERR_FORMAT, "tool %zu has no name", i) == NB_OK;
    return true;
}

static void build(nb_grammar *g, json_t *doc)
{
    const char *format = json_string_value(json_object_get(doc, "format"));
    const char *mode = json_string_value(json_object_get(doc, "calls"));
    json_t *content = json_object_get(doc, "content");
    tools t = { .g = g, .list = json_object_get(doc, "tools") };
    for (size_t i = 0; format && i < NB_COUNT(families); i++)
        if (strcmp(families[i].name, format) == 0) t.f = &families[i];
    if (!t.f) {
        (void)nb_g_fail(g, NB_ERR_UNSUPPORTED, "calls in the format \"%s\" cannot be constrained",
                        nb_show_c(format ? format : "none").s);
        return;
    }
    t.required = mode && strcmp(mode, "required") == 0;
    t.one = json_is_true(json_object_get(doc, "one"));
    if (!check_tools(g, t.list)) return;
    const nb_gid ret = nb_g_ret(g);
    nb_gid root;
    if (t.required) {
        root = all_calls(&t, ret);
    } else if (content) {
        const uint32_t rule = nb_g_schema_rule(g, content, content, false, false);
        root = nb_g_alt2(g, all_calls(&t, ret), nb_g_call(g, rule, false, ret));
    } else if (t.f->trigger) {
        root = free_calls(&t);
    } else {
        (void)nb_g_fail(g, NB_ERR_UNSUPPORTED,
                        "strict tools need tool_choice required in the format \"%s\": its calls "
                        "have no marker",
                        t.f->name);
        return;
    }
    g->root = nb_g_rule_of(g, root);
}

nb_status nb_g_tools(nb_grammar *g, nb_str json)
{
    json_t *doc = nb_g_parse(g, json, "tools");
    if (doc) build(g, doc);
    json_decref(doc);
    return g->err.status;
}
