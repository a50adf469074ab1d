/* opts.c - parsing, help and error lines, all from the tables in opts_table*.c. */
#include "opts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "opts_table.h"

enum { NAME_BYTES = 64 };

static const opt_table *const tables[] = { &opt_table_main, &opt_table_bench };

/* Row i of all tables in order, or NULL behind the last. */
static const opt_row *row_at(size_t i)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        if (i < tables[t]->n) return &tables[t]->rows[i];
        i -= tables[t]->n;
    }
    return NULL;
}

/* ---- names -------------------------------------------------------------- */

/* Copies with underscores as dashes; false when it cannot be the name of an option. */
static bool canonical(const char *s, size_t n, char out[NAME_BYTES])
{
    if (n >= NAME_BYTES) return false;
    for (size_t i = 0; i < n; i++) out[i] = s[i] == '_' ? '-' : s[i];
    out[n] = 0;
    return true;
}

static bool row_has_name(const opt_row *r, const char *name)
{
    return strcmp(r->name, name) == 0 || (r->alias && strcmp(r->alias, name) == 0);
}

/* The row of a name for a command; *negated for --no-NAME of a bool. */
static const opt_row *find_row(unsigned cmd, const char *name, bool *negated)
{
    const opt_row *r;
    *negated = false;
    for (size_t i = 0; (r = row_at(i)) != NULL; i++)
        if (r->cmds & cmd && row_has_name(r, name)) return r;
    if (strncmp(name, "no-", 3) != 0) return NULL;
    *negated = true;
    for (size_t i = 0; (r = row_at(i)) != NULL; i++)
        if (r->cmds & cmd && r->type == OPT_BOOL && row_has_name(r, name + 3)) return r;
    return NULL;
}

static const opt_row *find_letter(unsigned cmd, char letter)
{
    const opt_row *r;
    for (size_t i = 0; (r = row_at(i)) != NULL; i++)
        if (r->cmds & cmd && r->letter == letter) return r;
    return NULL;
}

/* Edit distance (Levenshtein) of two short names. */
static size_t distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    size_t row[NAME_BYTES + 1];
    if (n >= NAME_BYTES || m >= NAME_BYTES) return NAME_BYTES;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t up = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = up;
            row[j] = best;
        }
    }
    return row[m];
}

/* Keeps in *best the name nearest to `name` that is near enough to be meant. */
static void consider(const char *name, const char *candidate, const char **best, size_t *best_d)
{
    const size_t d = distance(name, candidate), n = strlen(name);
    const size_t near = n < 4 ? 1 : n / 3;
    const bool begins = n >= 3 && strncmp(candidate, name, n) == 0;
    const size_t rank = begins ? 0 : d;
    if ((begins || d <= near) && rank < *best_d) {
        *best = candidate;
        *best_d = rank;
    }
}

const char *opts_nearest_command(const char *name)
{
    const char *best = NULL;
    size_t d = NAME_BYTES;
    for (const command *c = commands; c->name; c++) consider(name, c->name, &best, &d);
    return best;
}

static int unknown_option(const command *c, const char *given, const char *name)
{
    const char *best = NULL;
    size_t d = NAME_BYTES;
    bool negated;
    const opt_row *r;
    for (const command *other = commands; other->name; other++)
        if (other != c && find_row(other->bit, name, &negated))
            return cli_usage("%s: no option of `nibble %s` (it is one of `nibble %s`)", given,
                             c->name, other->name);
    negated = strncmp(name, "no-", 3) == 0;
    for (size_t i = 0; (r = row_at(i)) != NULL; i++) {
        if (!(r->cmds & c->bit) || (negated && r->type != OPT_BOOL)) continue;
        consider(negated ? name + 3 : name, r->name, &best, &d);
        if (r->alias) consider(negated ? name + 3 : name, r->alias, &best, &d);
    }
    if (best)
        return cli_usage("%s: unknown option; did you mean --%s%s?", given, negated ? "no-" : "",
                         best);
    return cli_usage("%s: unknown option; `nibble %s --help` lists them", given, c->name);
}

/* ---- values ------------------------------------------------------------- */

/* What a row accepts, for error lines and the help. */
static void range_text(const opt_row *r, char *out, size_t n)
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
    else if (r->hi >= 1e6)
        (void)snprintf(out, n, "%s %s %g", what, r->lo_open ? ">" : ">=", r->lo);
    else
        (void)snprintf(out, n, "%s in %c%g, %g]", what, open, r->lo, r->hi);
}

/* shown: the option as it was written. */
static int bad_value(const opt_row *r, const char *shown, const char *value)
{
    char range[256];
    range_text(r, range, sizeof range);
    return cli_usage("%s %s: expected %s", shown, value, range);
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

static bool is_choice(const char *choices, const char *s)
{
    const size_t n = strlen(s);
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
    const char **q = grow(list->p, list->n, sizeof *q);
    if (!q) return cli_failed("out of memory");
    list->p = q;
    list->p[list->n++] = value;
    return CLI_OK;
}

static int set_value(opts *o, const opt_row *r, const char *shown, const char *value)
{
    void *at = (char *)o + r->offset;
    double x;
    int64_t i;
    switch (r->type) {
    case OPT_FLAG:
    case OPT_BOOL: *(bool *)at = value[0] == '1'; return CLI_OK;
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
    case OPT_STRS:
    case OPT_WORDS: return add_str(at, value);
    case OPT_IDS: return add_ids(r, at, shown, value);
    case OPT_BIAS: return add_bias(r, at, shown, value);
    }
    return CLI_FAILED;
}

/* ---- the command line ---------------------------------------------------- */

static bool takes_value(const opt_row *r)
{
    return r->type != OPT_FLAG && r->type != OPT_BOOL;
}

/* argv[*i] is `--name`, `--name=value`, `-x`, or `-xvalue`. */
static int parse_option(const command *c, int argc, char **argv, int *i, opts *o)
{
    const char *given = argv[*i], *value = NULL;
    const opt_row *r;
    bool negated = false;
    char shown[NAME_BYTES + 3];
    if (given[1] == '-') {
        const size_t n = strcspn(given + 2, "=");
        char name[NAME_BYTES];
        if (!canonical(given + 2, n, name)) return cli_usage("%s: unknown option", given);
        (void)snprintf(shown, sizeof shown, "--%s", name);
        if (given[2 + n] == '=') value = given + 2 + n + 1;
        r = find_row(c->bit, name, &negated);
        if (!r) return unknown_option(c, shown, name);
    } else {
        (void)snprintf(shown, sizeof shown, "-%c", given[1]);
        r = find_letter(c->bit, given[1]);
        if (!r)
            return cli_usage("%s: unknown option; `nibble %s --help` lists them", given, c->name);
        if (given[2]) value = given + 2;
    }
    if (!takes_value(r)) {
        if (value) return cli_usage("%s takes no value", shown);
        return set_value(o, r, shown, negated ? "0" : "1");
    }
    if (!value) {
        if (++*i >= argc) return cli_usage("%s: its value %s is missing", shown, r->arg);
        value = argv[*i];
    }
    int code = set_value(o, r, shown, value);
    while (code == CLI_OK && r->type == OPT_WORDS && *i + 1 < argc && argv[*i + 1][0] != '-')
        code = set_value(o, r, shown, argv[++*i]);
    return code;
}

static bool is_help(const char *s)
{
    return strcmp(s, "--help") == 0 || strcmp(s, "-h") == 0;
}

int opts_parse(const command *c, int argc, char **argv, opts *o, bool *help)
{
    bool only_names = false;
    const opt_row *r;
    memset(o, 0, sizeof *o);
    *help = false;
    nb_sampling_default(&o->sampling);
    for (size_t i = 0; (r = row_at(i)) != NULL; i++)
        if (r->cmds & c->bit && r->def) (void)set_value(o, r, r->name, r->def);
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        if (!only_names && strcmp(a, "--") == 0) {
            only_names = true;
        } else if (!only_names && is_help(a)) {
            *help = true;
            return CLI_OK;
        } else if (!only_names && a[0] == '-' && a[1]) {
            const int code = parse_option(c, argc, argv, &i, o);
            if (code != CLI_OK) return code;
        } else if (o->model) {
            return cli_usage("%s: unexpected argument (MODEL is %s)", a, o->model);
        } else if (c->no_model) {
            return cli_usage("%s: unexpected argument", a);
        } else {
            o->model = a;
        }
    }
    if ((!o->model || !*o->model) && !c->no_model)
        return cli_usage("%s: MODEL is missing; `nibble %s --help` says more", c->name, c->name);
    return CLI_OK;
}

void opts_deinit(opts *o)
{
    free(o->stop.p);
    free(o->stop_id.p);
    free(o->logit_bias.p);
    opt_strs *const lists[] = { &o->bench.api_key, &o->bench.header, &o->bench.goodput,
                                &o->bench.metadata };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        free(lists[i]->p);
        *lists[i] = (opt_strs){ 0 };
    }
    o->stop = (opt_strs){ 0 };
    o->stop_id = (opt_ids){ 0 };
    o->logit_bias = (opt_biases){ 0 };
}

nb_sampling opts_sampling(const opts *o)
{
    nb_sampling s = o->sampling;
    s.stop = o->stop.p;
    s.n_stop = o->stop.n;
    s.stop_id = o->stop_id.p;
    s.n_stop_id = o->stop_id.n;
    s.logit_bias = o->logit_bias.p;
    s.n_logit_bias = o->logit_bias.n;
    return s;
}

nb_engine_options opts_engine(const opts *o)
{
    const char *kv = o->kv_cache_dtype; /* two spellings of vLLM */
    if (kv && strcmp(kv, "fp8_e4m3") == 0) kv = "fp8";
    if (kv && strcmp(kv, "bfloat16") == 0) kv = "bf16";
    return (nb_engine_options){
        .model = o->model,
        .load_format = o->load_format,
        .dummy_seed = o->dummy_seed,
        .kv_cache_dtype = kv,
        .kv_cache_mode = o->kv_cache_mode,
        .kv_rope_dtype = o->kv_rope_dtype,
        .mla = o->mla,
        .cpu_caps = o->cpu_caps,
        .chat_template = o->chat_template,
        .n_thread = o->threads,
        .max_model_len = o->max_model_len,
        .prefill_chunk = o->prefill_chunk,
        .no_text = o->skip_tokenizer_init,
        .progress = cli_progress,
    };
}

/* ---- help ---------------------------------------------------------------- */

enum { HELP_COLUMN = 30, HELP_WIDTH = 96 };

/* text wrapped at HELP_WIDTH, from the column where the cursor is not yet. */
static void print_wrapped(const char *text, size_t column)
{
    size_t at = column;
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (at > column && at + 1 + n > HELP_WIDTH) {
            (void)printf("\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            (void)fputc(' ', stdout);
            at++;
        }
        (void)fwrite(text, 1, n, stdout);
        at += n;
        text += n + (text[n] == ' ');
    }
    (void)fputc('\n', stdout);
}

static void print_row(const opt_row *r)
{
    char head[128], text[640], range[256];
    int n = snprintf(head, sizeof head, r->letter ? "  -%c, " : "      ", r->letter);
    n += snprintf(head + n, sizeof head - (size_t)n, "--%s%s%s%s",
                  r->type == OPT_BOOL ? "[no-]" : "", r->name, r->arg ? " " : "",
                  r->arg ? r->arg : "");
    (void)printf("%-*s", HELP_COLUMN, head);
    if (n >= HELP_COLUMN) (void)printf("\n%*s", HELP_COLUMN, "");
    n = snprintf(text, sizeof text, "%s", r->help);
    if (r->type == OPT_CHOICE) n += snprintf(text + n, sizeof text - (size_t)n, "; %s", r->choices);
    if (r->type == OPT_NUM || r->type == OPT_SIZE || r->type == OPT_INT || r->type == OPT_BIAS) {
        range_text(r, range, sizeof range);
        n += snprintf(text + n, sizeof text - (size_t)n, "; %s", range);
    }
    if (r->alias) n += snprintf(text + n, sizeof text - (size_t)n, "; also --%s", r->alias);
    const bool number = r->type == OPT_NUM || (r->type == OPT_SIZE && r->lo <= 0);
    if (r->type == OPT_BOOL)
        (void)snprintf(text + n, sizeof text - (size_t)n, " (default: %s)", r->def ? "yes" : "no");
    else if (r->def || number)
        (void)snprintf(text + n, sizeof text - (size_t)n, " (default: %s)", r->def ? r->def : "0");
    print_wrapped(text, HELP_COLUMN);
}

void opts_print_help(const command *c)
{
    static const char *const groups[N_GROUP] = { "Input", "Output", "Sampling", "Model and engine",
                                                 "Server" };
    const opt_row *r;
    (void)printf("nibble %s: %s\n\n", c->name, c->help);
    for (const char *p = c->forms; *p;) {
        const size_t n = strcspn(p, "\n");
        (void)printf("%s nibble %s %.*s\n", p == c->forms ? "usage:" : "      ", c->name, (int)n,
                     p);
        p += n + (p[n] == '\n');
    }
    if (!c->no_model)
        (void)puts(
            "\nMODEL is a directory with a Hugging Face checkpoint (or, with dummy weights, a config.json;\n"
            "for tokenize and render, tokenizer files are enough).");
    for (unsigned g = 0; g < N_GROUP; g++) {
        bool any = false;
        for (size_t i = 0; (r = row_at(i)) != NULL; i++) {
            if (!(r->cmds & c->bit) || r->group != g) continue;
            if (!any) (void)printf("\n%s\n", groups[g]);
            any = true;
            print_row(r);
        }
    }
    (void)puts("\nExit codes: 0 done, 1 failed, 2 wrong usage.");
}
