/* format.c - the tables of the families; see format.h.
 *
 * A row says: in one of these states, this text leads to that state, and does
 * that on the way.  Text that is no row's goes to the handler of the state. */
#include "parse/parse_internal.h"

#define S(name) (1u << NB_PS_##name)
#define TEXT (S(START) | S(BLANK) | S(CONTENT) | S(THINK_START) | S(THINK))
#define TO(name) NB_PS_##name
#define A(name) NB_PA_##name

#define CALLS_BEGIN "<\uff5ctool\u2581calls\u2581begin\uff5c>"
#define CALLS_END "<\uff5ctool\u2581calls\u2581end\uff5c>"
#define CALL_BEGIN "<\uff5ctool\u2581call\u2581begin\uff5c>"
#define CALL_END "<\uff5ctool\u2581call\u2581end\uff5c>"
#define SEP "<\uff5ctool\u2581sep\uff5c>"
#define DSML "\uff5cDSML\uff5c"

#define K_CALLS_BEGIN "<|tool_calls_section_begin|>"
#define K_CALLS_END "<|tool_calls_section_end|>"
#define K_CALL_BEGIN "<|tool_call_begin|>"
#define K_CALL_END "<|tool_call_end|>"
#define K_SEP "<|tool_call_argument_begin|>"

/* A section of calls, each between markers; `first` is the state behind the
 * marker in front of a call. */
#define SECTION_ROWS(calls_begin, calls_end, call_begin, call_end, first)                          \
    { TEXT | S(DROP), calls_begin, TO(SECTION), A(OPEN) },                                         \
        { TEXT | S(DROP), call_begin, first, A(OPEN) }, { S(SECTION), call_begin, first, 0 },      \
        { S(SECTION), calls_end, TO(DROP), A(CLOSE) },                                             \
        { S(NAME), call_end, TO(SECTION), A(BEGIN) | A(END_2) },                                   \
        { S(ARGS), call_end, TO(SECTION), A(END) }, { S(ARGS), calls_end, TO(DROP), A(END) },      \
    {                                                                                              \
        S(ARGS), call_begin, first, A(END)                                                         \
    }

#define DSML_ROWS(calls)                                                                           \
    { TEXT | S(DROP), "\n\n<" DSML calls ">", TO(SECTION), A(OPEN) },                              \
        { TEXT | S(DROP), "<" DSML calls ">", TO(SECTION), A(OPEN) },                              \
        { S(SECTION), "<" DSML "invoke name=\"", TO(NAME), 0 },                                    \
        { S(SECTION), "</" DSML calls ">", TO(DROP), A(CLOSE) },                                   \
        { S(NAME), "\">", TO(PARAMS), A(BEGIN) },                                                  \
        { S(PARAMS), "<" DSML "parameter name=\"", TO(KEY), 0 },                                   \
        { S(PARAMS), "</" DSML "invoke>", TO(SECTION), A(END) },                                   \
        { S(PARAMS), "</" DSML calls ">", TO(DROP), A(END) },                                      \
        { S(PARAMS), "<" DSML "invoke name=\"", TO(NAME), A(END) },                                \
        { S(KEY), "\" string=\"true\">", TO(VALUE), A(STRING) },                                   \
        { S(KEY), "\" string=\"false\">", TO(VALUE), A(JSON) },                                    \
        { S(KEY), "\">", TO(VALUE), A(KEY) },                                                      \
    {                                                                                              \
        S(VALUE), "</" DSML "parameter>", TO(PARAMS), A(VALUE)                                     \
    }

#define OBJECT_ROWS                                                                                \
    { TEXT, "<tool_call>", TO(OBJECT), A(OPEN) },                                                  \
        { S(OBJECT), "</tool_call>", TO(BLANK), A(CLOSE) | A(END) },                               \
        { S(OBJECT), "<tool_call>", TO(OBJECT), A(CLOSE) | A(END) | A(OPEN) },                     \
        { S(AFTER_OBJECT), "</tool_call>", TO(BLANK), A(UNHOLD) },                                 \
    {                                                                                              \
        S(AFTER_OBJECT), "<tool_call>", TO(OBJECT), A(FLUSH) | A(OPEN)                             \
    }

static const nb_call_format CALLS[] = {
    { .names = { "deepseek_v3", "deepseek_r1" },
      .style = NB_CALL_JSON,
      .openers = { CALLS_BEGIN, CALL_BEGIN },
      .rows = { SECTION_ROWS(CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, TO(TYPE)),
                { S(TYPE), SEP, TO(NAME), 0 },
                { S(NAME), "\n", TO(ARGS), A(BEGIN) },
                { S(NAME), "{", TO(ARGS), A(BEGIN) | A(KEEP) },
                { S(NAME), "`", TO(ARGS), A(BEGIN) | A(KEEP) } } },
    { .names = { "deepseek_v31" },
      .style = NB_CALL_JSON,
      .openers = { CALLS_BEGIN, CALL_BEGIN },
      .rows = { SECTION_ROWS(CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, TO(NAME)),
                { S(NAME), SEP, TO(ARGS), A(BEGIN) } } },
    { .names = { "deepseek_v32" },
      .style = NB_CALL_TAGGED,
      .part = DSML,
      .openers = { "<" DSML "function_calls>" },
      .rows = { DSML_ROWS("function_calls") } },
    { .names = { "deepseek_v4" },
      .style = NB_CALL_TAGGED,
      .part = DSML,
      .openers = { "<" DSML "tool_calls>" },
      .rows = { DSML_ROWS("tool_calls") } },
    { .names = { "kimi_k2" },
      .style = NB_CALL_JSON,
      .numbered = true,
      .openers = { K_CALLS_BEGIN, K_CALL_BEGIN },
      .rows = { SECTION_ROWS(K_CALLS_BEGIN, K_CALLS_END, K_CALL_BEGIN, K_CALL_END, TO(NAME)),
                { S(NAME), K_SEP, TO(ARGS), A(BEGIN) } } },
    { .names = { "glm47", "glm45" },
      .style = NB_CALL_TAGGED,
      .openers = { "<tool_call>" },
      .rows = { { TEXT, "<tool_call>", TO(NAME), A(OPEN) },
                { S(NAME), "<tool_call>", TO(NAME), A(CLOSE) | A(OPEN) },
                { S(NAME), "<arg_key>", TO(KEY), A(BEGIN) },
                { S(NAME), "</tool_call>", TO(BLANK), A(BEGIN) | A(END_2) },
                { S(KEY), "</arg_key>", TO(PARAMS), 0 },
                { S(PARAMS), "<arg_value>", TO(VALUE), A(KEY) },
                { S(PARAMS), "<arg_key>", TO(KEY), 0 },
                { S(PARAMS), "</tool_call>", TO(BLANK), A(END) },
                { S(PARAMS), "<tool_call>", TO(NAME), A(END) | A(OPEN) },
                { S(VALUE), "</arg_value>", TO(PARAMS), A(VALUE) } } },
    { .names = { "hermes", "qwen", "qwen25", "qwen3", "youtu" },
      .style = NB_CALL_OBJECT,
      .openers = { "<tool_call>" },
      .rows = { OBJECT_ROWS } },
    { .names = { "llama3_json", "llama3" },
      .style = NB_CALL_OBJECT,
      .bare = true,
      .openers = { "<|python_tag|>" },
      .rows = { { TEXT, "<|python_tag|>", TO(OBJECT), A(OPEN) },
                { S(START) | S(BLANK), "{", TO(OBJECT), A(OPEN) | A(KEEP) },
                { S(BLANK), ";", TO(BLANK), 0 } } },
    { .names = { "minicpm3" },
      .style = NB_CALL_PYTHON,
      .openers = { "<|tool_call_start|>" },
      .rows = { { TEXT, "<|tool_call_start|>", TO(PYTHON), A(OPEN) },
                { S(PYTHON), "<|tool_call_end|>", TO(EAT), A(CLOSE) } } },
};

#define THOUGHT (S(THINK_START) | S(THINK))

static const nb_thought_format THOUGHTS[] = {
    { .names = { "deepseek_r1", "deepseek_v3", "kimi_k2", "glm45", "qwen3", "deepseek_v4" },
      .open = "<think>",
      .close = "</think>",
      .rows = { { S(START) | S(THINK_START), "<think>", TO(THINK), A(UNHOLD) },
                { THOUGHT, "</think>", TO(BLANK), 0 } } },
    { .names = { "minicpm3" },
      .open = "<|thought_start|>",
      .close = "<|thought_end|>",
      .rows = { { S(START) | S(THINK_START), "<|thought_start|>", TO(EAT_THINK), A(UNHOLD) },
                { THOUGHT, "\n<|thought_end|>", TO(EAT), 0 },
                { THOUGHT, "<|thought_end|>", TO(EAT), 0 } } },
};

enum { N_CALLS = sizeof CALLS / sizeof *CALLS, N_THOUGHTS = sizeof THOUGHTS / sizeof *THOUGHTS };

/* ---- by name ------------------------------------------------------------- */

static bool has_name(const char *const names[NB_FORMAT_MAX_NAMES], nb_str name)
{
    for (size_t i = 0; i < NB_FORMAT_MAX_NAMES && names[i]; i++)
        if (nb_str_eqc(name, names[i])) return true;
    return false;
}

const nb_call_format *nb_call_format_find(nb_str name)
{
    for (size_t i = 0; i < N_CALLS; i++)
        if (has_name(CALLS[i].names, name)) return &CALLS[i];
    return NULL;
}

const nb_thought_format *nb_thought_format_find(nb_str name)
{
    for (size_t i = 0; i < N_THOUGHTS; i++)
        if (has_name(THOUGHTS[i].names, name)) return &THOUGHTS[i];
    return NULL;
}

const char *nb_call_format_names(void)
{
    return "deepseek_v3, deepseek_r1, deepseek_v31, deepseek_v32, deepseek_v4, kimi_k2, glm47, "
           "glm45, hermes, qwen, qwen25, qwen3, youtu, llama3_json, llama3, minicpm3";
}

const char *nb_thought_format_names(void)
{
    return "deepseek_r1, deepseek_v3, kimi_k2, glm45, qwen3, deepseek_v4, minicpm3";
}

const char *nb_call_format_name(const nb_call_format *f)
{
    return f->names[0];
}

const char *nb_thought_format_name(const nb_thought_format *f)
{
    return f->names[0];
}

nb_call_style nb_call_format_style(const nb_call_format *f)
{
    return f->style;
}

bool nb_call_format_numbers_calls(const nb_call_format *f)
{
    return f->numbered;
}

nb_str nb_call_format_opener(const nb_call_format *f, size_t i)
{
    const size_t n = sizeof f->openers / sizeof *f->openers;
    return nb_str_c(i < n && f->openers[i] ? f->openers[i] : "");
}

nb_str nb_thought_format_open(const nb_thought_format *f)
{
    return nb_str_c(f->open);
}

nb_str nb_thought_format_close(const nb_thought_format *f)
{
    return nb_str_c(f->close);
}

/* ---- by template and tokens ---------------------------------------------- */

/* The first row whose texts are all in the template decides; then the first row
 * whose token is an added one.  An empty name: a format that is not supported. */
static const struct {
    const char *needle, *also, *name;
} IN_TEMPLATE[] = {
    { DSML, "function_calls", "deepseek_v32" },
    { DSML, "tool_calls", "deepseek_v4" },
    { "<arg_key>", "<arg_value>", "glm47" },
    { K_CALLS_BEGIN, K_CALL_BEGIN, "kimi_k2" },
    { SEP, "```json", "deepseek_v3" },
    { SEP, CALL_BEGIN, "deepseek_v31" },
    { "<|tool_call_start|>", "<|tool_call_end|>", "minicpm3" },
    { "<|begin_of_tool_description|>", "<tool_call>", "youtu" },
    { "<function=", "<tool_call>", "" }, /* Qwen3-Coder's tags */
    { "<tool_call>", "</tool_call>", "hermes" },
    { "<|start_header_id|>", "\"parameters\"", "llama3_json" },
}, IN_TOKENS[] = {
    { DSML, NULL, "deepseek_v4" },
    { "<arg_key>", NULL, "glm47" },
    { K_CALLS_BEGIN, NULL, "kimi_k2" },
    { CALLS_BEGIN, NULL, "deepseek_v3" },
    { "<|tool_call_start|>", NULL, "minicpm3" },
    { "<|begin_of_tool_description|>", NULL, "youtu" },
    { "<tool_call>", NULL, "hermes" },
    { "<|python_tag|>", NULL, "llama3_json" },
};

static bool contains(nb_str s, const char *needle)
{
    const size_t n = strlen(needle);
    for (const char *p = s.p; n && s.n_bytes >= n;) {
        const char *hit = memchr(p, needle[0], s.n_bytes - n + 1);
        if (!hit) return false;
        if (memcmp(hit, needle, n) == 0) return true;
        s.n_bytes -= (size_t)(hit - p) + 1;
        p = hit + 1;
    }
    return false;
}

static bool is_added(nb_token_lookup t, const char *text)
{
    return t.find && t.find(t.ctx, nb_str_c(text)) != NB_PARSE_NO_ID;
}

const nb_call_format *nb_call_format_detect(nb_str tmpl, nb_token_lookup tokens)
{
    for (size_t i = 0; i < sizeof IN_TEMPLATE / sizeof *IN_TEMPLATE; i++)
        if (contains(tmpl, IN_TEMPLATE[i].needle) && contains(tmpl, IN_TEMPLATE[i].also))
            return nb_call_format_find(nb_str_c(IN_TEMPLATE[i].name));
    for (size_t i = 0; i < sizeof IN_TOKENS / sizeof *IN_TOKENS; i++)
        if (is_added(tokens, IN_TOKENS[i].needle))
            return nb_call_format_find(nb_str_c(IN_TOKENS[i].name));
    return NULL;
}

const nb_thought_format *nb_thought_format_detect(nb_str tmpl, nb_token_lookup tokens)
{
    for (size_t i = 0; i < N_THOUGHTS; i++)
        if (contains(tmpl, THOUGHTS[i].close) || contains(tmpl, THOUGHTS[i].open))
            return &THOUGHTS[i];
    for (size_t i = 0; i < N_THOUGHTS; i++)
        if (is_added(tokens, THOUGHTS[i].open) && is_added(tokens, THOUGHTS[i].close))
            return &THOUGHTS[i];
    return NULL;
}
