/* opts.c - parsing and error lines, from the tables in opts_table*.c. */
#include "opts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "opts_table.h"

static const opt_table *const tables[] = { &opt_table_main,  &opt_table_kv,   &opt_table_serve,
                                           &opt_table_bench, &opt_table_eval, &opt_table_plan,
                                           &opt_table_trace, &opt_table_hub,  &opt_table_foreign };

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

/* The next of the names "a|b", into out; false at the end. */
static bool next_alias(const char **list, char out[OPT_NAME_BYTES])
{
    if (!*list || !**list) return false;
    const size_t n = strcspn(*list, "|");
    if (n >= OPT_NAME_BYTES) return false;
    memcpy(out, *list, n);
    out[n] = 0;
    *list += n + ((*list)[n] == '|');
    return true;
}

static bool row_has_name(const opt_row *r, const char *name)
{
    char alias[OPT_NAME_BYTES];
    if (strcmp(r->name, name) == 0) return true;
    for (const char *list = r->alias; next_alias(&list, alias);)
        if (strcmp(alias, name) == 0) return true;
    return false;
}

static bool negatable(const opt_row *r)
{
    return r->type == OPT_FLAG || r->type == OPT_BOOL || r->type == OPT_UNSET ||
           r->type == OPT_ONLY_ON || r->type == OPT_ONLY_OFF || r->type == OPT_IGNORE ||
           (r->type == OPT_REFUSED && !r->arg);
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

const opt_row *opts_lookup(unsigned cmd, const char *s, size_t n, char name[OPT_NAME_BYTES],
                           const char **path, bool *negated)
{
    const char *dot = memchr(s, '.', n);
    *path = dot ? dot + 1 : NULL;
    name[0] = 0;
    *negated = false;
    if (!opts_canonical(s, dot ? (size_t)(dot - s) : n, name)) return NULL;
    const opt_row *r = opts_find(cmd, name, negated);
    return dot && r && (!r->arg || strcmp(r->arg, "JSON") != 0) ? NULL : r;
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

/* Keeps in *best the name nearest to `name` that is near enough to be meant; whether it is the
 * candidate now. */
static bool consider(const char *name, const char *candidate, const char **best, size_t *best_d)
{
    const size_t d = distance(name, candidate), n = strlen(name);
    const size_t near = n < 4 ? 1 : n / 3;
    const bool begins = n >= 3 && strncmp(candidate, name, n) == 0;
    size_t rank = begins ? 0 : d;
    if (!begins && n >= 8) { /* a misspelt beginning of a long name */
        char begin[OPT_NAME_BYTES];
        (void)snprintf(begin, sizeof begin, "%.*s", (int)(n < sizeof begin ? n : 0), candidate);
        const size_t b = distance(name, begin);
        if (b <= 2 && b + 1 < rank) rank = b + 1;
    }
    if ((!begins && rank > near) || rank >= *best_d) return false;
    *best = candidate;
    *best_d = rank;
    return true;
}

bool opts_nearest_choice(const char *choices, const char *value, char out[OPT_NAME_BYTES])
{
    const char *best = NULL;
    size_t d = OPT_NAME_BYTES;
    char name[2][OPT_NAME_BYTES]; /* best may be in one of them: the other is free */
    bool k = false;
    for (const char *list = choices; next_alias(&list, name[k]);)
        if (consider(value, name[k], &best, &d)) k = !k;
    if (best) (void)snprintf(out, OPT_NAME_BYTES, "%s", best);
    return best != NULL;
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
    char alias[2][OPT_NAME_BYTES]; /* best may be in one of them: the other is free */
    bool negated, k = false;
    const opt_row *r;
    for (const command *other = commands; other->name; other++)
        if (other != c && opts_find(other->bit, name, &negated))
            return cli_usage("%s: no option of `nibble %s` (it is one of `nibble %s`)", given,
                             c->name, other->name);
    negated = strncmp(name, "no-", 3) == 0;
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++) {
        if (!(r->cmds & c->bit) || (negated && !negatable(r))) continue;
        const char *const base = negated ? name + 3 : name;
        consider(base, r->name, &best, &d);
        for (const char *list = r->alias; next_alias(&list, alias[k]);)
            if (consider(base, alias[k], &best, &d)) k = !k;
    }
    if (best)
        return cli_usage("%s: unknown option; did you mean --%s%s?", given, negated ? "no-" : "",
                         best);
    return cli_usage("%s: unknown option; `nibble %s --help` lists them", given, c->name);
}

/* ---- the command line ---------------------------------------------------- */

bool opts_takes_value(const opt_row *r)
{
    return !negatable(r);
}

static size_t row_number(const opt_row *r)
{
    size_t i = 0;
    while (opts_row_at(i) != r) i++;
    return i;
}

const char *opts_given(const opts *o, unsigned cmd, const char *name)
{
    bool negated;
    const opt_row *r = opts_find(cmd, name, &negated);
    return r && o->given ? o->given[row_number(r)] : NULL;
}

void opts_mark(opts *o, const opt_row *r, const char *shown)
{
    if (o->given) o->given[row_number(r)] = opts_keep(o, shown);
}

const char *opts_keep(opts *o, const char *s)
{
    char **list = realloc(o->owned, (o->n_owned + 1) * sizeof *list);
    if (!list) return NULL;
    o->owned = list;
    char *copy = malloc(strlen(s) + 1);
    if (!copy) return NULL;
    memcpy(copy, s, strlen(s) + 1);
    return o->owned[o->n_owned++] = copy;
}

/* `--name` of an option of this command: hardly the value of another. */
static bool is_option(const command *c, const char *s)
{
    char name[OPT_NAME_BYTES];
    const char *path;
    bool negated;
    return s[0] == '-' && s[1] == '-' && s[2] &&
           opts_lookup(c->bit, s + 2, strcspn(s + 2, "="), name, &path, &negated);
}

/* An option of the command line, taken apart. */
typedef struct written {
    const opt_row *r;
    const char *path;  /* keys of --name.key.key, or NULL */
    const char *value; /* behind the = or the letter, or NULL */
    bool negated;
    char shown[OPT_NAME_BYTES + 3]; /* for error lines: --name, -n, -name */
} written;

/* given is `--name`, `--name=value`, `--name.key=value`, `-x`, `-xvalue`, `-name` or `-name=value`. */
static int read_option(const command *c, const char *given, written *w)
{
    const bool is_long = given[1] == '-';
    const char *s = given + (is_long ? 2 : 1);
    const size_t n = strcspn(s, "=");
    char name[OPT_NAME_BYTES];
    *w = (written){ .value = s[n] ? s + n + 1 : NULL };
    if (is_long) {
        w->r = opts_lookup(c->bit, s, n, name, &w->path, &w->negated);
        (void)snprintf(w->shown, sizeof w->shown, "--%s", name);
        if (w->r) return CLI_OK;
        if (!*name || w->path) return cli_usage("%.80s: unknown option", given);
        return opts_unknown(c, w->shown, name);
    }
    const char *dot = memchr(s, '.', n);
    w->r = find_dash(c->bit, s, dot ? (size_t)(dot - s) : n);
    if (w->r) {
        w->path = dot ? dot + 1 : NULL;
        (void)snprintf(w->shown, sizeof w->shown, "-%s", w->r->dash);
        return CLI_OK;
    }
    w->r = find_letter(c->bit, s[0]);
    if (!w->r)
        return cli_usage("%.80s: unknown option; `nibble %s --help` lists them", given, c->name);
    (void)snprintf(w->shown, sizeof w->shown, "-%c", s[0]);
    w->value = s[1] ? s + 1 : NULL;
    return CLI_OK;
}

/* "a,b": of an option with one text, several words are a list; NULL: out of memory. */
static const char *join(opts *o, const char *a, const char *b)
{
    const size_t n = strlen(a) + strlen(b) + 2;
    char *both = malloc(n);
    if (both) (void)snprintf(both, n, "%s,%s", a, b);
    const char *own = both ? opts_keep(o, both) : NULL;
    free(both);
    return own;
}

/* argv[*i] is an option; *i moves to the last word that belongs to it. */
static int parse_option(const command *c, int argc, char **argv, int *i, opts *o)
{
    written w;
    int code = read_option(c, argv[*i], &w);
    if (code != CLI_OK) return code;
    const opt_row *r = w.r;
    opts_mark(o, r, w.shown);
    if (!opts_takes_value(r)) {
        if (w.value) return cli_usage("%s takes no value", w.shown);
        return opts_set(o, r, w.shown, NULL, w.negated ? "0" : "1");
    }
    if (!w.value && *i + 1 < argc && (r->words != OPT_MAYBE_WORD || argv[*i + 1][0] != '-')) {
        w.value = argv[++*i];
        if (is_option(c, w.value))
            return cli_usage("%s: its value %s is missing before the option %s (--%s=%s if that is "
                             "meant)",
                             w.shown, r->arg, w.value, r->name, w.value);
    }
    if (!w.value && r->words != OPT_MAYBE_WORD)
        return cli_usage("%s: its value %s is missing", w.shown, r->arg);
    if (!w.value) w.value = "";
    code = opts_set(o, r, w.shown, w.path, w.value);
    while (code == CLI_OK && r->words == OPT_MANY_WORDS && *i + 1 < argc &&
           argv[*i + 1][0] != '-') {
        const char *word = argv[++*i];
        if (r->type == OPT_STR) word = w.value = join(o, w.value, word);
        code = word ? opts_set(o, r, w.shown, NULL, word) : cli_failed("out of memory");
    }
    return code;
}

/* --help, -h: the empty string; --help=WHAT: WHAT; else NULL. */
static const char *help_asked(const char *s)
{
    if (strcmp(s, "--help") == 0 || strcmp(s, "-h") == 0) return "";
    return strncmp(s, "--help=", 7) == 0 ? s + 7 : NULL;
}

/* One pass over the arguments. */
static int parse_arguments(const command *c, int argc, char **argv, opts *o, const char **help)
{
    bool only_names = false, have_model = false;
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        if (!only_names && strcmp(a, "--") == 0) {
            only_names = true;
        } else if (!only_names && (*help = help_asked(a)) != NULL) {
            return CLI_OK;
        } else if (!only_names && a[0] == '-' && a[1]) {
            const char *before = o->model;
            const int code = parse_option(c, argc, argv, &i, o);
            if (code != CLI_OK) return code;
            if (o->model != before) o->config_model = false;
        } else if (have_model && c->model == MODEL_AND_OUT && !o->convert.out) {
            o->convert.out = a;
        } else if (have_model || (o->model && !o->config_model)) {
            return cli_usage("%.80s: unexpected argument (MODEL is %.80s)", a, o->model);
        } else if (c->model == MODEL_NONE) {
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
    size_t n = 0;
    memset(o, 0, sizeof *o);
    nb_sampling_default(&o->sampling);
    for (; (r = opts_row_at(n)) != NULL; n++)
        if (r->cmds & c->bit && r->def) (void)opts_set(o, r, r->name, NULL, r->def);
    o->given = calloc(n, sizeof *o->given);
}

int opts_parse(const command *c, int argc, char **argv, opts *o, const char **help)
{
    *help = NULL;
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
    if ((!o->model || !*o->model) && c->model != MODEL_NONE && !o->eval.stress)
        return cli_usage("%s: MODEL is missing; `nibble %s --help` says more", c->name, c->name);
    return CLI_OK;
}

static void free_strs(opt_strs *list)
{
    free(list->p);
    *list = (opt_strs){ 0 };
}

static void free_json(json_t **j)
{
    json_decref(*j);
    *j = NULL;
}

void opts_deinit(opts *o)
{
    const opt_row *r;
    free(o->stop_id.p);
    free(o->logit_bias.p);
    for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++)
        if (r->type == OPT_STRS)
            free_strs((opt_strs *)(void *)((char *)o + r->offset));
        else if (r->type == OPT_JSON)
            free_json((json_t **)(void *)((char *)o + r->offset));
    free_strs(&o->warning);
    free((void *)o->given);
    o->given = NULL;
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
    const bool mapped = o->load_format && (strcmp(o->load_format, "auto") == 0 ||
                                           strcmp(o->load_format, "safetensors") == 0);
    return (nb_engine_options){
        .model = o->path,
        .load_format = mapped && !o->mmap ? "copy" : o->load_format,
        .dummy_seed = o->dummy_seed,
        .strict = o->strict,
        .weight_dtype = o->weight_dtype,
        .activation_dtype = o->activation_dtype,
        .kv_cache_dtype = kv,
        .kv_cache_mode = o->kv_cache_mode,
        .kv_rope_dtype = o->kv_rope_dtype,
        .kv_calibration = o->kv_calibration,
        .kv_transform = o->kv_transform,
        .kv_outliers = o->kv_outliers,
        .kv_sinks = o->kv_sinks,
        .n_snapshot = o->n_snapshot,
        .snapshot_tok = o->snapshot_tok,
        .kv_skip_layers = o->kv_skip_layers,
        .kv_scales = o->kv_scales,
        .kv_thrift = o->kv_thrift,
        .kv_thrift_tau = o->kv_thrift_tau,
        .kv_thrift_fraction = o->kv_thrift_fraction,
        .kv_thrift_pool = o->kv_thrift_pool,
        .mla = o->mla,
        .device = o->device,
        .cuda_library = o->cuda_library,
        .cpu_experts = o->cpu_experts,
        .cpu_caps = o->cpu_caps,
        .tune = o->tune,
        .chat_template = o->chat_template,
        .n_thread = o->threads,
        .tensor_parallel_size = o->tensor_parallel,
        .decode_context_parallel_size = o->context_parallel,
        .data_parallel_size = o->data_parallel,
        .enable_expert_parallel = o->expert_parallel,
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
