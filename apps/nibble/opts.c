/* opts.c - parsing, help and error lines, all from the tables in opts_table*.c. */
#include "opts.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "opts_table.h"

static const opt_table *const tables[] = { &opt_table_main,  &opt_table_kv,   &opt_table_serve,
                                           &opt_table_bench, &opt_table_eval, &opt_table_plan,
                                           &opt_table_trace };

const opt_row *opts_row_at(size_t i)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        if (i < tables[t]->n) return &tables[t]->rows[i];
        i -= tables[t]->n;
    }
    return NULL;
}

/* ---- names -------------------------------------------------------------- */

bool opts_canonical(const char *s, size_t n, char out[OPT_NAME_BYTES])
{
    if (n >= OPT_NAME_BYTES) return false;
    for (size_t i = 0; i < n; i++) out[i] = s[i] == '_' ? '-' : s[i];
    out[n] = 0;
    return true;
}

static bool row_has_name(const opt_row *r, const char *name)
{
    return strcmp(r->name, name) == 0 || (r->alias && strcmp(r->alias, name) == 0);
}

static bool negatable(const opt_row *r)
{
    return r->type == OPT_BOOL || r->type == OPT_ONLY_ON || r->type == OPT_ONLY_OFF ||
           r->type == OPT_IGNORE;
}

const opt_row *opts_find(unsigned cmd, const char *name, bool *negated)
{
    const opt_row *r;
    *negated = false;
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++)
        if (r->cmds & cmd && row_has_name(r, name)) return r;
    if (strncmp(name, "no-", 3) != 0) return NULL;
    *negated = true;
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++)
        if (r->cmds & cmd && negatable(r) && row_has_name(r, name + 3)) return r;
    return NULL;
}

static const opt_row *find_letter(unsigned cmd, char letter)
{
    const opt_row *r;
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++)
        if (r->cmds & cmd && r->letter == letter) return r;
    return NULL;
}

/* -tp, which vLLM writes with one dash: the n letters at s. */
static const opt_row *find_dash(unsigned cmd, const char *s, size_t n)
{
    const opt_row *r;
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++)
        if (r->cmds & cmd && r->dash && strlen(r->dash) == n && memcmp(r->dash, s, n) == 0)
            return r;
    return NULL;
}

/* Edit distance (Levenshtein) of two short names. */
static size_t distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    size_t row[OPT_NAME_BYTES + 1];
    if (n >= OPT_NAME_BYTES || m >= OPT_NAME_BYTES) return OPT_NAME_BYTES;
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
    size_t d = OPT_NAME_BYTES;
    for (const command *c = commands; c->name; c++) consider(name, c->name, &best, &d);
    return best;
}

int opts_unknown(const command *c, const char *given, const char *name)
{
    const char *best = NULL;
    size_t d = OPT_NAME_BYTES;
    bool negated;
    const opt_row *r;
    for (const command *other = commands; other->name; other++)
        if (other != c && opts_find(other->bit, name, &negated))
            return cli_usage("%s: no option of `nibble %s` (it is one of `nibble %s`)", given,
                             c->name, other->name);
    negated = strncmp(name, "no-", 3) == 0;
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++) {
        if (!(r->cmds & c->bit) || (negated && !negatable(r))) continue;
        consider(negated ? name + 3 : name, r->name, &best, &d);
        if (r->alias) consider(negated ? name + 3 : name, r->alias, &best, &d);
    }
    if (best)
        return cli_usage("%s: unknown option; did you mean --%s%s?", given, negated ? "no-" : "",
                         best);
    return cli_usage("%s: unknown option; `nibble %s --help` lists them", given, c->name);
}

/* ---- the command line ---------------------------------------------------- */

bool opts_takes_value(const opt_row *r)
{
    return r->type != OPT_FLAG && r->type != OPT_UNSET && !negatable(r);
}

static size_t row_number(const opt_row *r)
{
    size_t i = 0;
    while (opts_row_at(i) != r) i++;
    return i;
}

bool opts_given(const opts *o, unsigned cmd, const char *name)
{
    bool negated;
    const opt_row *r = opts_find(cmd, name, &negated);
    const size_t i = r ? row_number(r) : 0;
    return r && i < 8 * sizeof o->given && o->given[i / 64] >> i % 64 & 1;
}

static void mark_given(opts *o, const opt_row *r)
{
    const size_t i = row_number(r);
    if (i < 8 * sizeof o->given) o->given[i / 64] |= (uint64_t)1 << i % 64;
}

/* `--name` of an option of this command: hardly the value of another. */
static bool is_option(const command *c, const char *s)
{
    char name[OPT_NAME_BYTES];
    bool negated;
    return s[0] == '-' && s[1] == '-' && s[2] && opts_canonical(s + 2, strlen(s + 2), name) &&
           opts_find(c->bit, name, &negated);
}

/* argv[*i] is `--name`, `--name=value`, `-x`, or `-xvalue`. */
static int parse_option(const command *c, int argc, char **argv, int *i, opts *o)
{
    const char *given = argv[*i], *value = NULL;
    const opt_row *r;
    bool negated = false;
    char shown[OPT_NAME_BYTES + 3];
    if (given[1] == '-') {
        const size_t n = strcspn(given + 2, "=");
        char name[OPT_NAME_BYTES];
        if (!opts_canonical(given + 2, n, name)) return cli_usage("%.80s: unknown option", given);
        (void)snprintf(shown, sizeof shown, "--%s", name);
        if (given[2 + n] == '=') value = given + 2 + n + 1;
        r = opts_find(c->bit, name, &negated);
        if (!r) return opts_unknown(c, shown, name);
    } else if ((r = find_dash(c->bit, given + 1, strcspn(given + 1, "="))) != NULL) {
        (void)snprintf(shown, sizeof shown, "-%s", r->dash);
        const char *equals = strchr(given, '=');
        if (equals) value = equals + 1;
    } else {
        (void)snprintf(shown, sizeof shown, "-%c", given[1]);
        r = find_letter(c->bit, given[1]);
        if (!r)
            return cli_usage("%s: unknown option; `nibble %s --help` lists them", given, c->name);
        if (given[2]) value = given + 2;
    }
    mark_given(o, r);
    if (!opts_takes_value(r)) {
        if (value) return cli_usage("%s takes no value", shown);
        return opts_set(o, r, shown, negated ? "0" : "1");
    }
    if (!value) {
        if (++*i >= argc) return cli_usage("%s: its value %s is missing", shown, r->arg);
        value = argv[*i];
        if (is_option(c, value))
            return cli_usage(
                "%s: its value %s is missing before the option %s (--%s=%s if that is meant)",
                shown, r->arg, value, r->name, value);
    }
    int code = opts_set(o, r, shown, value);
    while (code == CLI_OK && r->type == OPT_WORDS && *i + 1 < argc && argv[*i + 1][0] != '-')
        code = opts_set(o, r, shown, argv[++*i]);
    return code;
}

static bool is_help(const char *s)
{
    return strcmp(s, "--help") == 0 || strcmp(s, "-h") == 0;
}

/* One pass over the arguments. */
static int parse_arguments(const command *c, int argc, char **argv, opts *o, bool *help)
{
    bool only_names = false, have_model = false;
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        if (!only_names && strcmp(a, "--") == 0) {
            only_names = true;
        } else if (!only_names && is_help(a)) {
            *help = true;
            return CLI_OK;
        } else if (!only_names && a[0] == '-' && a[1]) {
            const char *before = o->model;
            const int code = parse_option(c, argc, argv, &i, o);
            if (code != CLI_OK) return code;
            if (o->model != before) o->config_model = false;
        } else if (have_model || (o->model && !o->config_model)) {
            return cli_usage("%.80s: unexpected argument (MODEL is %.80s)", a, o->model);
        } else if (c->no_model) {
            return cli_usage("%.80s: unexpected argument", a);
        } else {
            o->model = a;
            have_model = true;
        }
    }
    return CLI_OK;
}

static void set_defaults(const command *c, opts *o)
{
    const opt_row *r;
    memset(o, 0, sizeof *o);
    nb_sampling_default(&o->sampling);
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++)
        if (r->cmds & c->bit && r->def) (void)opts_set(o, r, r->name, r->def);
}

int opts_parse(const command *c, int argc, char **argv, opts *o, bool *help)
{
    *help = false;
    set_defaults(c, o);
    int code = parse_arguments(c, argc, argv, o, help);
    if (code != CLI_OK || *help) return code;
    if (o->config) { /* the file first, then the command line over it */
        const char *path = o->config;
        opts_deinit(o);
        set_defaults(c, o);
        code = opts_load_config(c, o, path);
        if (code == CLI_OK) code = parse_arguments(c, argc, argv, o, help);
        if (code != CLI_OK) return code;
    }
    if ((!o->model || !*o->model) && !c->no_model && !o->eval.stress)
        return cli_usage("%s: MODEL is missing; `nibble %s --help` says more", c->name, c->name);
    return CLI_OK;
}

static void free_strs(opt_strs *list)
{
    free(list->p);
    *list = (opt_strs){ 0 };
}

void opts_deinit(opts *o)
{
    const opt_row *r;
    free(o->stop_id.p);
    free(o->logit_bias.p);
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++)
        if (r->type == OPT_STRS || r->type == OPT_WORDS)
            free_strs((opt_strs *)(void *)((char *)o + r->offset));
    free_strs(&o->ignored);
    for (size_t i = 0; i < o->n_owned; i++) free(o->owned[i]);
    free(o->owned);
    o->owned = NULL;
    o->n_owned = 0;
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
        .weight_dtype = o->weight_dtype,
        .kv_cache_dtype = kv,
        .kv_cache_mode = o->kv_cache_mode,
        .kv_rope_dtype = o->kv_rope_dtype,
        .kv_calibration = o->kv_calibration,
        .kv_transform = o->kv_transform,
        .kv_outliers = o->kv_outliers,
        .kv_sinks = o->kv_sinks,
        .kv_skip_layers = o->kv_skip_layers,
        .kv_scales = o->kv_scales,
        .kv_thrift = o->kv_thrift,
        .kv_thrift_tau = o->kv_thrift_tau,
        .kv_thrift_fraction = o->kv_thrift_fraction,
        .kv_thrift_pool = o->kv_thrift_pool,
        .mla = o->mla,
        .device = o->device,
        .cuda_library = o->cuda_library,
        .cpu_caps = o->cpu_caps,
        .chat_template = o->chat_template,
        .n_thread = o->threads,
        .cpu_affinity = o->cpu_affinity,
        .max_model_len = o->max_model_len,
        .prefill_chunk = o->prefill_chunk,
        .no_text = o->skip_tokenizer_init,
        .progress = cli_progress,
    };
}

size_t opts_step_tok(const opts *o, bool gpu)
{
    const size_t n = o->serve.max_batched_tok;
    return n ? n : gpu ? 8192 : 512;
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

/* One line, of what is accepted without effect. */
static void print_no_effect(const opt_row *r)
{
    char head[128], text[640], only[128] = "";
    const char *const slash = r->choices ? strrchr(r->choices, '|') : NULL;
    (void)snprintf(head, sizeof head, "      %s%s%s--%s%s%s", r->dash ? "-" : "",
                   r->dash ? r->dash : "", r->dash ? ", " : "", r->name, r->arg ? " " : "",
                   r->arg ? r->arg : "");
    if (r->type == OPT_ONLY && *r->choices)
        (void)snprintf(only, sizeof only, "only %s: ", slash ? slash + 1 : r->choices);
    else if (r->type == OPT_ONLY || r->type == OPT_ONLY_OFF)
        (void)snprintf(only, sizeof only, "refused: ");
    (void)snprintf(text, sizeof text, "%s%s", only, r->help ? r->help : "no effect");
    (void)printf("%-*s", HELP_COLUMN, head);
    if (strlen(head) >= HELP_COLUMN) (void)printf("\n%*s", HELP_COLUMN, "");
    print_wrapped(text, HELP_COLUMN);
}

static void print_row(const opt_row *r)
{
    if (r->group == GROUP_NO_EFFECT) {
        print_no_effect(r);
        return;
    }
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
        opts_range_text(r, range, sizeof range);
        n += snprintf(text + n, sizeof text - (size_t)n, "; %s", range);
    }
    if (r->alias) n += snprintf(text + n, sizeof text - (size_t)n, "; also --%s", r->alias);
    /* Of an OPT_NUM without a default 0 means "not given". */
    const bool number = r->type == OPT_SIZE && r->lo <= 0;
    if (r->type == OPT_BOOL)
        (void)snprintf(text + n, sizeof text - (size_t)n, " (default: %s)", r->def ? "yes" : "no");
    else if (r->def || number)
        (void)snprintf(text + n, sizeof text - (size_t)n, " (default: %s)", r->def ? r->def : "0");
    print_wrapped(text, HELP_COLUMN);
}

void opts_print_help(const command *c)
{
    static const char *const groups[N_GROUP] = { "Input",
                                                 "Output",
                                                 "Sampling",
                                                 "Model and engine",
                                                 "Server",
                                                 "Requests",
                                                 "Accepted as vLLM's options" };
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
        for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++) {
            if (!(r->cmds & c->bit) || r->group != g) continue;
            if (!any) (void)printf("\n%s\n", groups[g]);
            any = true;
            print_row(r);
        }
    }
    (void)puts("\nExit codes: 0 done, 1 failed, 2 wrong usage.");
}
