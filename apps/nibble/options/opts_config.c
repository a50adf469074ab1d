/* opts_config.c - options from a YAML file: one mapping, keys are names of options (dashes or
 * underscores), values are what the command line would give; a list stands for a repeated option,
 * true and false for a switch.  Anchors, nested mappings, several documents and keys that
 * are given twice are refused.  Error lines name file, line and key. */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "../cli.h"
#include "opts_table.h"

enum { CONFIG_MAX_BYTES = 1 << 20, MAX_KEYS = 512, SHOWN_BYTES = 320 };

typedef struct config {
    const command *c;
    opts *o;
    const char *path;
    yaml_parser_t parser;
    yaml_event_t ev; /* the current one */
    bool have_ev;
    const opt_row *seen[MAX_KEYS];
    size_t n_seen;
} config;

static size_t line_of(const config *f)
{
    return f->ev.start_mark.line + 1;
}

static int next(config *f)
{
    if (f->have_ev) yaml_event_delete(&f->ev);
    f->have_ev = yaml_parser_parse(&f->parser, &f->ev) != 0;
    if (f->have_ev) return CLI_OK;
    const yaml_parser_t *p = &f->parser;
    return cli_usage("%s:%zu: not YAML: %s", f->path, p->problem_mark.line + 1,
                     p->problem ? p->problem : "cannot be read");
}

static bool plain(const yaml_event_t *ev)
{
    return ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* The current scalar as a switch: 1, 0, or -1 for neither. */
static int truth(const yaml_event_t *ev)
{
    static const char *const words[2][6] = { { "false", "False", "FALSE", "no", "off", "0" },
                                             { "true", "True", "TRUE", "yes", "on", "1" } };
    for (int v = 0; v < 2; v++)
        for (size_t i = 0; i < 6; i++)
            if (strcmp((const char *)ev->data.scalar.value, words[v][i]) == 0) return v;
    return -1;
}

static bool is_null(const yaml_event_t *ev)
{
    const char *v = (const char *)ev->data.scalar.value;
    return plain(ev) && (!*v || !strcmp(v, "~") || !strcmp(v, "null") || !strcmp(v, "Null"));
}

/* The current event is a value of row r. */
static int set_scalar(config *f, const opt_row *r, const char *path, bool negated,
                      const char *shown)
{
    const char *v = (const char *)f->ev.data.scalar.value;
    if (strlen(v) != f->ev.data.scalar.length)
        return cli_usage("%s: a value with a zero byte", shown);
    if (is_null(&f->ev)) return cli_usage("%s: no value", shown);
    if (opts_takes_value(r)) {
        const char *own = opts_keep(f->o, v);
        return own ? opts_set(f->o, r, shown, path, own) : cli_failed("out of memory");
    }
    const int on = truth(&f->ev);
    if (on < 0) return cli_usage("%s %s: expected true or false", shown, v);
    if (on == 0 && r->type == OPT_FLAG) return CLI_OK; /* it is off */
    return opts_set(f->o, r, shown, NULL, (on == 1) != negated ? "1" : "0");
}

static int set_list(config *f, const opt_row *r, const char *shown)
{
    if (r->type != OPT_STRS && r->type != OPT_IDS && r->type != OPT_BIAS &&
        r->words != OPT_MANY_WORDS)
        return cli_usage("%s: a list, expected one value", shown);
    for (;;) {
        const int code = next(f);
        if (code != CLI_OK) return code;
        if (f->ev.type == YAML_SEQUENCE_END_EVENT) return CLI_OK;
        if (f->ev.type != YAML_SCALAR_EVENT)
            return cli_usage("%s: line %zu: expected words in the list", shown, line_of(f));
        const int set = set_scalar(f, r, NULL, false, shown);
        if (set != CLI_OK) return set;
    }
}

/* The row of the current key; refuses unknown and repeated ones. */
static int find_key(config *f, char *shown, const opt_row **row, const char **path, bool *negated)
{
    const char *key = (const char *)f->ev.data.scalar.value;
    char name[OPT_NAME_BYTES], given[OPT_NAME_BYTES + 2];
    (void)snprintf(shown, SHOWN_BYTES, "%s:%zu: %s", f->path, line_of(f), key);
    const opt_row *r = opts_lookup(f->c->bit, key, strlen(key), name, path, negated);
    if (!r && (!*name || *path)) return cli_usage("%s: unknown option", shown);
    if (!r) return opts_unknown(f->c, shown, name);
    if (*path) { /* lives longer than the event */
        *path = opts_keep(f->o, *path);
        if (!*path) return cli_failed("out of memory");
    }
    if (r->offset == offsetof(opts, config) && r->type == OPT_STR)
        return cli_usage("%s: not within a configuration file", shown);
    for (size_t i = 0; i < f->n_seen && !*path; i++)
        if (f->seen[i] == r) return cli_usage("%s: given twice", shown);
    if (f->n_seen == MAX_KEYS) return cli_usage("%s: too many keys", shown);
    if (!*path) f->seen[f->n_seen++] = r;
    (void)snprintf(given, sizeof given, "--%.*s", OPT_NAME_BYTES - 1, name);
    opts_mark(f->o, r, given);
    *row = r;
    return CLI_OK;
}

/* From the start of a mapping to its end. */
static int skip_mapping(config *f)
{
    for (size_t depth = 1; depth > 0;) {
        const int code = next(f);
        if (code != CLI_OK) return code;
        if (f->ev.type == YAML_MAPPING_START_EVENT) depth++;
        if (f->ev.type == YAML_MAPPING_END_EVENT) depth--;
    }
    return CLI_OK;
}

static int read_pair(config *f)
{
    char shown[SHOWN_BYTES];
    const opt_row *r = NULL;
    const char *path = NULL;
    bool negated = false;
    if (f->ev.type != YAML_SCALAR_EVENT)
        return cli_usage("%s:%zu: expected the name of an option", f->path, line_of(f));
    int code = find_key(f, shown, &r, &path, &negated);
    if (code == CLI_OK) code = next(f);
    if (code != CLI_OK) return code;
    if (f->ev.type == YAML_SCALAR_EVENT) return set_scalar(f, r, path, negated, shown);
    if (f->ev.type == YAML_SEQUENCE_START_EVENT) return set_list(f, r, shown);
    if (f->ev.type == YAML_ALIAS_EVENT) return cli_usage("%s: an alias, expected a value", shown);
    if (!r->arg || strcmp(r->arg, "JSON") != 0 || r->type == OPT_JSON)
        return cli_usage("%s: a mapping, expected %s", shown,
                         r->type == OPT_JSON ? "JSON in quotes, or keys with dots" : "a value");
    code = skip_mapping(f);
    return code == CLI_OK ? opts_set(f->o, r, shown, NULL, "{...}") : code;
}

/* Skips the events that only open things; the current event then matters. */
static int open_document(config *f)
{
    int code;
    do code = next(f);
    while (code == CLI_OK &&
           (f->ev.type == YAML_STREAM_START_EVENT || f->ev.type == YAML_DOCUMENT_START_EVENT));
    return code;
}

static int read_file(config *f)
{
    int code = open_document(f);
    if (code != CLI_OK || f->ev.type == YAML_STREAM_END_EVENT) return code; /* empty: fine */
    if (f->ev.type != YAML_MAPPING_START_EVENT)
        return cli_usage("%s:%zu: expected `option: value` lines", f->path, line_of(f));
    for (;;) {
        code = next(f);
        if (code != CLI_OK) return code;
        if (f->ev.type == YAML_MAPPING_END_EVENT) break;
        code = read_pair(f);
        if (code != CLI_OK) return code;
    }
    code = next(f); /* the end of the document */
    if (code == CLI_OK) code = next(f);
    if (code != CLI_OK || f->ev.type == YAML_STREAM_END_EVENT) return code;
    return cli_usage("%s:%zu: a second document", f->path, line_of(f));
}

/* What the command line gives replaces lists of the file. */
static void mark_lists(const command *c, opts *o)
{
    const opt_row *r;
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++)
        if (r->cmds & c->bit && r->type == OPT_STRS)
            ((opt_strs *)(void *)((char *)o + r->offset))->preset = true;
}

int opts_load_config(const command *c, opts *o, const char *path)
{
    config f = { .c = c, .o = o, .path = path };
    char *data = NULL;
    size_t n_bytes = 0;
    int code = cli_read_file(path, CONFIG_MAX_BYTES, &data, &n_bytes);
    if (code != CLI_OK) return code;
    if (!yaml_parser_initialize(&f.parser)) {
        free(data);
        return cli_failed("out of memory");
    }
    yaml_parser_set_input_string(&f.parser, (const unsigned char *)data, n_bytes);
    code = read_file(&f);
    if (f.have_ev) yaml_event_delete(&f.ev);
    yaml_parser_delete(&f.parser);
    free(data);
    mark_lists(c, o);
    o->config_model = o->model != NULL;
    return code;
}
