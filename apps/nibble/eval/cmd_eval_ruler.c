/* cmd_eval_ruler.c - `nibble eval ruler`: retrieval under every variant of the cache, on the same
 * prompts.
 *
 * Three figures of a prompt: the share of the expected values that the generated answer holds
 * (RULER's score), whether it is exactly the expected one, and the log-probability of the expected
 * one, which moves long before an answer turns wrong.  Intervals are bootstraps that draw whole
 * texts, since the plain dialect asks several questions about one; exact answers also have
 * Wilson's interval and McNemar's test, which take prompts for independent.
 *
 * --json: { model..., "dialect", "tasks", "lengths", "depths" (0..1), "n_prompt", "n_context",
 *   "reference": V, "variants": [V, ...], with --detailed "prompts": [...] }
 * V: { "name", "bytes_per_token", "bits_per_value", "results": [R, ...], "heat": [{"depth", "length",
 *   "n", "match": CI}, ...] (Wilson's interval), with --detailed "prompts": [{"text", "match",
 *   "exact", "logprob", "total_logprob"}, ...] in the order of the first list }
 * R: { "task" (null: all), "length" (null: all), "n", "match": CI, "exact": CI, "exact_wilson": CI,
 *   "logprob": CI (mean over tokens of an answer), of variants also "difference": { "match": CI,
 *   "exact": CI, "logprob": CI, "lost", "gained" (exact answers), "p" } }.  CI: { "value", "lo", "hi" } */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quality/stats.h"
#include "ruler_run.h"

enum { MAX_KINDS = 64, MAX_LENGTHS = 64, ALL = -1, FILE_MAX_BYTES = 1 << 30, SMALL_BATCH = 8 };
static const double SMALL_PARAMS = 1e9;

typedef struct ruler_job {
    const opts *o;
    nb_ruler_set set;
    const char *dialect; /* "ruler", "plain", or "file" */
    size_t n_depth;
    const char *kind[MAX_KINDS];
    size_t length[MAX_LENGTHS];
    size_t n_kind, n_length;
    eval_variants v;
    ruler_outcome *ref, **out; /* out: [v.n]; may be ref */
    json_t *ref_cost, **cost;
    double *x[6]; /* [n] scratch: figures of a group, then of the reference */
    uint32_t *block;
} ruler_job;

enum { MATCH, EXACT, LOGPROB, N_FIGURE };
static const char *const figure_name[N_FIGURE] = { "match", "exact", "logprob" };

/* ---- prompts --------------------------------------------------------------------- */

static nb_status encode(void *ctx, const char *text, size_t n, uint32_t **ids, size_t *n_ids,
                        nb_error *err)
{
    return nb_text_tokenize(ctx, text, n, NB_TEXT_ADD_SPECIAL, ids, n_ids, err);
}

/* Parameters and context of the model. */
static int describe(const opts *o, double *n_param, size_t *context)
{
    char *text = NULL;
    nb_error err = { 0 };
    const nb_status st = nb_model_describe(o->path, &text, &err);
    if (st != NB_OK) return cli_status(st, &err);
    json_t *j = json_loads(text, 0, NULL);
    *n_param = json_number_value(json_object_get(j, "n_param"));
    *context = (size_t)json_number_value(json_object_get(j, "max_position"));
    if (o->max_model_len) *context = o->max_model_len;
    json_decref(j);
    nb_free(text);
    return CLI_OK;
}

static int make_set(ruler_job *k, nb_text *text, double n_param, size_t context)
{
    const eval_opts *e = &k->o->eval;
    size_t len[NB_RULER_MAX_LENGTHS] = { context / 4, context / 2, context }, n_len = 3;
    nb_error err = { 0 };
    unsigned tasks;
    const bool is_auto = !e->dialect || strcmp(e->dialect, "auto") == 0;
    k->dialect = !is_auto ? e->dialect : n_param < SMALL_PARAMS ? "plain" : "ruler";
    k->n_depth = e->n_depth ? e->n_depth : 5;
    if (nb_ruler_parse_tasks(e->tasks, k->dialect, &tasks, &err) != NB_OK)
        return cli_usage("--tasks: %s", err.msg);
    if (e->lengths && nb_ruler_parse_lengths(e->lengths, len, &n_len, &err) != NB_OK)
        return cli_usage("--lengths: %s", err.msg);
    for (size_t i = 0; i < n_len; i++)
        if (len[i] > context)
            return cli_failed("--lengths: %zu tokens; the model takes %zu", len[i], context);
    const nb_ruler_options ro = { .dialect = k->dialect,
                                  .tasks = tasks,
                                  .length = len,
                                  .n_length = n_len,
                                  .n_sample = e->n_sample ? e->n_sample : 20,
                                  .n_depth = k->n_depth,
                                  .seed = e->seed,
                                  .encode = encode,
                                  .encode_ctx = text };
    const nb_status st = nb_ruler_make(&ro, &k->set, &err);
    return st == NB_OK ? CLI_OK : cli_failed("--lengths, --tasks: %s", err.msg);
}

static int read_set(ruler_job *k, nb_text *text)
{
    const char *path = k->o->eval.prompts;
    char *data = NULL;
    size_t n = 0;
    nb_error err = { 0 };
    int code = cli_read_file(path, FILE_MAX_BYTES, &data, &n);
    if (code != CLI_OK) return code;
    if (nb_ruler_from_json((nb_str){ data, n }, encode, text, &k->set, &err) != NB_OK)
        code = cli_failed("%s: %s", path, err.msg);
    free(data);
    k->dialect = "file";
    k->n_depth = k->o->eval.n_depth; /* a file has indices; --depths says of how many */
    for (size_t i = 0; i < k->set.n; i++) {
        const size_t d = k->set.item[i].depth;
        if (d != NB_RULER_NO_DEPTH && d + 1 > k->n_depth) k->n_depth = d + 1;
    }
    return code;
}

/* The kinds and lengths that occur, in the order of the prompts. */
static int index_set(ruler_job *k)
{
    for (size_t i = 0; i < k->set.n; i++) {
        const nb_ruler_item *it = &k->set.item[i];
        size_t a = 0, b = 0;
        while (a < k->n_kind && strcmp(k->kind[a], it->kind) != 0) a++;
        while (b < k->n_length && k->length[b] != it->length) b++;
        if (a == MAX_KINDS || b == MAX_LENGTHS)
            return cli_failed("prompt %zu: more than %d kinds or lengths", i, (int)MAX_KINDS);
        k->kind[a] = it->kind;
        k->length[b] = it->length;
        if (a == k->n_kind) k->n_kind++;
        if (b == k->n_length) k->n_length++;
    }
    return CLI_OK;
}

static int write_prompts(const ruler_job *k, const char *path)
{
    json_t *j = nb_ruler_to_json(&k->set);
    char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    json_decref(j);
    const int code = text ? out_file_write(path, text, strlen(text)) : cli_failed("out of memory");
    free(text);
    return code;
}

static int load_prompts(ruler_job *k)
{
    const eval_opts *e = &k->o->eval;
    nb_text *text = NULL;
    nb_error err = { 0 };
    double n_param = 0;
    size_t context = 0;
    if (e->prompts && (e->tasks || e->lengths))
        return cli_usage(
            "--prompts: the file says tasks and lengths; leave out --tasks and --lengths");
    int code = describe(k->o, &n_param, &context);
    if (code != CLI_OK) return code;
    const nb_status st = nb_text_create(k->o->path, k->o->chat_template, &text, &err);
    if (st != NB_OK) return cli_status(st, &err);
    code = e->prompts ? read_set(k, text) : make_set(k, text, n_param, context);
    nb_text_destroy(text);
    if (code == CLI_OK) code = index_set(k);
    if (code == CLI_OK && e->write_prompts) code = write_prompts(k, e->write_prompts);
    return code;
}

/* ---- running ----------------------------------------------------------------------- */

/* Whether a variant of the reference's name is the reference: unlike it, variants take what the
 * options say of the cache. */
static bool is_reference(const ruler_job *k, const nb_variant *v)
{
    const nb_engine_options e = opts_engine(k->o);
    const char *const words[] = { e.kv_calibration, e.kv_cache_mode,  e.kv_rope_dtype, e.kv_scales,
                                  e.kv_transform,   e.kv_skip_layers, e.kv_thrift };
    if (strcmp(v->name, k->v.reference.name) != 0 || e.kv_outliers || e.kv_sinks) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i] && strcmp(words[i], "auto") != 0 && strcmp(words[i], "off") != 0) return false;
    return true;
}

static int run_all(ruler_job *k)
{
    const eval_opts *e = &k->o->eval;
    const size_t batch = e->batch ? e->batch : SMALL_BATCH, n = k->set.n;
    k->out = calloc(k->v.n, sizeof *k->out);
    k->cost = calloc(k->v.n, sizeof *k->cost);
    k->ref_cost = json_object();
    k->block = calloc(n, sizeof *k->block);
    bool ok = k->out && k->cost && k->ref_cost && k->block;
    for (size_t i = 0; i < 2 * N_FIGURE; i++) ok &= (k->x[i] = calloc(n, sizeof(double))) != NULL;
    for (size_t i = 0; ok && i < k->v.n; i++) ok = (k->cost[i] = json_object()) != NULL;
    if (!ok) return cli_failed("out of memory");
    int code = ruler_run(&k->v.reference, &k->set, batch, k->ref_cost, &k->ref);
    for (size_t i = 0; code == CLI_OK && i < k->v.n; i++) {
        if (is_reference(k, &k->v.v[i])) {
            k->out[i] = k->ref; /* computed once */
            (void)json_object_update(k->cost[i], k->ref_cost);
        } else {
            code = ruler_run(&k->v.v[i], &k->set, batch, k->cost[i], &k->out[i]);
        }
    }
    return code;
}

static void job_deinit(ruler_job *k)
{
    for (size_t i = 0; i < k->v.n; i++) {
        if (k->out && k->out[i] != k->ref) ruler_outcomes_free(k->out[i], k->set.n);
        if (k->cost) json_decref(k->cost[i]);
    }
    ruler_outcomes_free(k->ref, k->set.n);
    json_decref(k->ref_cost);
    free(k->out);
    free(k->cost);
    free(k->block);
    for (size_t i = 0; i < 2 * N_FIGURE; i++) free(k->x[i]);
    eval_variants_deinit(&k->v);
    nb_ruler_set_deinit(&k->set);
}

/* ---- figures ------------------------------------------------------------------------ */

typedef struct group_result {
    size_t n;
    nb_ci of[N_FIGURE], diff[N_FIGURE], wilson;
    size_t lost, gained;
    double p;
} group_result;

static double figure(const ruler_outcome *r, size_t which)
{
    return which == MATCH ? r->match : which == EXACT ? r->exact : r->logprob;
}

/* Of the prompts of a kind and a length (ALL: of all). */
static int group(ruler_job *k, const ruler_outcome *out, int kind, int length, group_result *g)
{
    const uint64_t seed = k->o->eval.seed;
    const size_t n_round = k->o->eval.n_round;
    size_t n_exact = 0;
    nb_status st = NB_OK;
    *g = (group_result){ 0 };
    for (size_t i = 0; i < k->set.n; i++) {
        const nb_ruler_item *it = &k->set.item[i];
        if (kind != ALL && strcmp(it->kind, k->kind[kind]) != 0) continue;
        if (length != ALL && it->length != k->length[length]) continue;
        for (size_t f = 0; f < N_FIGURE; f++) {
            k->x[f][g->n] = figure(&out[i], f);
            k->x[N_FIGURE + f][g->n] = figure(&k->ref[i], f);
        }
        n_exact += out[i].exact > 0;
        g->lost += k->ref[i].exact > out[i].exact;
        g->gained += k->ref[i].exact < out[i].exact;
        k->block[g->n++] = it->context;
    }
    if (g->n == 0) return CLI_OK;
    for (size_t f = 0; st == NB_OK && f < N_FIGURE; f++) {
        st = nb_bootstrap_mean(k->x[f], k->block, g->n, n_round, seed, &g->of[f]);
        if (st == NB_OK)
            st = nb_bootstrap_diff(k->x[f], k->x[N_FIGURE + f], k->block, g->n, n_round, seed,
                                   &g->diff[f]);
    }
    g->wilson = nb_wilson(n_exact, g->n);
    g->p = nb_mcnemar(g->lost, g->gained);
    return st == NB_OK ? CLI_OK : cli_failed("%s", nb_status_text(st));
}

/* Share of expected values found, at a depth and a length; with Wilson's interval. */
static nb_ci heat(const ruler_job *k, const ruler_outcome *out, size_t depth, size_t length,
                  size_t *n)
{
    double sum = 0;
    *n = 0;
    for (size_t i = 0; i < k->set.n; i++) {
        const nb_ruler_item *it = &k->set.item[i];
        if (it->depth != depth || it->length != k->length[length]) continue;
        sum += out[i].match;
        ++*n;
    }
    if (*n == 0) return (nb_ci){ NAN, NAN, NAN };
    nb_ci ci = nb_wilson((size_t)(sum + 0.5), *n); /* shares of a prompt rounded to prompts */
    ci.value = sum / (double)*n;
    return ci;
}

static double depth_share(const ruler_job *k, size_t d)
{
    return k->n_depth > 1 ? (double)d / (double)(k->n_depth - 1) : 0.5;
}

static void length_text(size_t length, char out[24])
{
    if (length)
        (void)snprintf(out, 24, "%zu", length);
    else
        (void)snprintf(out, 24, "file");
}

/* ---- JSON ---------------------------------------------------------------------------- */

static json_t *group_json(const ruler_job *k, int kind, int length, const group_result *g,
                          bool difference)
{
    json_t *j = json_object();
    (void)json_object_set_new(j, "task", kind == ALL ? json_null() : json_string(k->kind[kind]));
    (void)json_object_set_new(
        j, "length", length == ALL ? json_null() : json_integer((json_int_t)k->length[length]));
    (void)json_object_set_new(j, "n", json_integer((json_int_t)g->n));
    for (size_t f = 0; f < N_FIGURE; f++)
        (void)json_object_set_new(j, figure_name[f], eval_json_ci(g->of[f]));
    (void)json_object_set_new(j, "exact_wilson", eval_json_ci(g->wilson));
    if (!difference) return j;
    json_t *d = json_object();
    for (size_t f = 0; f < N_FIGURE; f++)
        (void)json_object_set_new(d, figure_name[f], eval_json_ci(g->diff[f]));
    (void)json_object_set_new(d, "lost", json_integer((json_int_t)g->lost));
    (void)json_object_set_new(d, "gained", json_integer((json_int_t)g->gained));
    (void)json_object_set_new(d, "p", json_real(g->p));
    (void)json_object_set_new(j, "difference", d);
    return j;
}

static json_t *heat_json(const ruler_job *k, const ruler_outcome *out)
{
    json_t *a = json_array();
    for (size_t d = 0; d < k->n_depth; d++)
        for (size_t l = 0; l < k->n_length; l++) {
            size_t n;
            const nb_ci c = heat(k, out, d, l, &n);
            if (n == 0) continue;
            (void)json_array_append_new(a, json_pack("{s:f, s:I, s:I, s:o}", "depth",
                                                     depth_share(k, d), "length",
                                                     (json_int_t)k->length[l], "n", (json_int_t)n,
                                                     "match", eval_json_ci(c)));
        }
    return a;
}

/* Generated bytes need not be UTF-8: what is not becomes '?'. */
static json_t *any_text(const char *s)
{
    json_t *j = json_string(s);
    char *copy = j ? NULL : strdup(s);
    if (!copy) return j;
    for (char *p = copy; *p; p++)
        if ((unsigned char)*p >= 0x80) *p = '?';
    j = json_string(copy);
    free(copy);
    return j;
}

static json_t *details_json(const ruler_job *k, const ruler_outcome *out)
{
    json_t *a = json_array();
    for (size_t i = 0; i < k->set.n; i++)
        (void)json_array_append_new(a, json_pack("{s:o, s:f, s:b, s:f, s:f}", "text",
                                                 any_text(out[i].text), "match", out[i].match,
                                                 "exact", out[i].exact > 0, "logprob",
                                                 out[i].logprob, "total_logprob", out[i].total));
    return a;
}

static int variant_json(ruler_job *k, const char *name, json_t *cost, const ruler_outcome *out,
                        bool difference, json_t **result)
{
    json_t *j = json_pack("{s:s}", "name", name), *rows = json_array();
    int code = j && rows ? CLI_OK : cli_failed("out of memory");
    if (code == CLI_OK) (void)json_object_update(j, cost);
    for (int kind = ALL; code == CLI_OK && kind < (int)k->n_kind; kind++)
        for (int l = ALL; code == CLI_OK && l < (int)k->n_length; l++) {
            group_result g;
            code = group(k, out, kind, l, &g);
            if (code == CLI_OK && g.n)
                (void)json_array_append_new(rows, group_json(k, kind, l, &g, difference));
        }
    (void)json_object_set_new(j, "results", rows);
    (void)json_object_set_new(j, "heat", heat_json(k, out));
    if (k->o->eval.detailed) (void)json_object_set_new(j, "prompts", details_json(k, out));
    *result = j;
    return code;
}

static int report_json(ruler_job *k, eval_report *r)
{
    json_t *j = r->json = json_object(), *list = json_array(), *v = NULL;
    int code = j && list ? eval_json_head(j, k->o, NULL) : cli_failed("out of memory");
    json_t *tasks = json_array(), *lengths = json_array(), *depths = json_array();
    for (size_t i = 0; i < k->n_kind; i++)
        (void)json_array_append_new(tasks, json_string(k->kind[i]));
    for (size_t i = 0; i < k->n_length; i++)
        (void)json_array_append_new(lengths, json_integer((json_int_t)k->length[i]));
    for (size_t i = 0; i < k->n_depth; i++)
        (void)json_array_append_new(depths, json_real(depth_share(k, i)));
    (void)json_object_set_new(j, "dialect", json_string(k->dialect));
    (void)json_object_set_new(j, "tasks", tasks);
    (void)json_object_set_new(j, "lengths", lengths);
    (void)json_object_set_new(j, "depths", depths);
    (void)json_object_set_new(j, "n_prompt", json_integer((json_int_t)k->set.n));
    (void)json_object_set_new(j, "n_context", json_integer((json_int_t)k->set.n_context));
    if (code == CLI_OK) {
        code = variant_json(k, k->v.reference.name, k->ref_cost, k->ref, false, &v);
        (void)json_object_set_new(j, "reference", v);
    }
    for (size_t i = 0; code == CLI_OK && i < k->v.n; i++) {
        code = variant_json(k, k->v.v[i].name, k->cost[i], k->out[i], true, &v);
        (void)json_array_append_new(list, v);
    }
    (void)json_object_set_new(j, "variants", list);
    if (code == CLI_OK && k->o->eval.detailed) {
        json_t *p = nb_ruler_to_json(&k->set);
        if (!p || json_object_set_new(j, "prompts", p) != 0) code = cli_failed("out of memory");
    }
    return code;
}

/* ---- tables --------------------------------------------------------------------------- */

/* Column c: the reference, then the variants that are not it. */
static const ruler_outcome *column(const ruler_job *k, size_t c, const char **name)
{
    size_t at = 0;
    *name = k->v.reference.name;
    if (c == 0) return k->ref;
    for (size_t i = 0; i < k->v.n; i++) {
        if (k->out[i] == k->ref || ++at != c) continue;
        *name = k->v.v[i].name;
        return k->out[i];
    }
    return NULL;
}

/* One text alone has no interval. */
static void cell_ci(eval_table *t, double scale, int digits, bool plus, nb_ci c)
{
    const double v[] = { scale * c.value, scale * c.lo, scale * c.hi };
    char text[3][32];
    for (size_t i = 0; i < 3; i++)
        (void)snprintf(text[i], sizeof text[i], plus ? "%+.*f" : "%.*f", digits, v[i]);
    if (isfinite(c.lo) && isfinite(c.hi))
        eval_table_cell(t, "%s (%s, %s)", text[0], text[1], text[2]);
    else
        eval_table_cell(t, "%s", text[0]);
}

static void cell_of(eval_table *t, size_t f, const group_result *g)
{
    if (g->n == 0)
        eval_table_cell(t, "-");
    else if (f == LOGPROB)
        cell_ci(t, 1, 4, false, g->of[f]);
    else
        cell_ci(t, 100, 1, false, g->of[f]);
}

/* Columns are too wide to stand side by side: a row is a task, a length and a variant's figures
 * are a column. */
static int figure_table(ruler_job *k, size_t f, nb_buf *to)
{
    eval_table t = { 0 };
    const char *name;
    int code = CLI_OK;
    eval_table_cell(&t, "task");
    eval_table_cell(&t, "tokens");
    for (size_t c = 0; column(k, c, &name); c++) eval_table_cell(&t, "%s", name);
    eval_table_row(&t);
    for (int kind = 0; code == CLI_OK && kind <= (int)k->n_kind; kind++)
        for (int l = 0; code == CLI_OK && l < (int)k->n_length; l++) {
            char len[24];
            const ruler_outcome *out;
            length_text(k->length[l], len);
            eval_table_cell(&t, "%s", kind < (int)k->n_kind ? k->kind[kind] : "all");
            eval_table_cell(&t, "%s", len);
            for (size_t c = 0; code == CLI_OK && (out = column(k, c, &name)); c++) {
                group_result g;
                code = group(k, out, kind < (int)k->n_kind ? kind : ALL, l, &g);
                cell_of(&t, f, &g);
            }
            eval_table_row(&t);
        }
    if (eval_table_print(&t, to) != NB_OK && code == CLI_OK) code = cli_failed("out of memory");
    return code;
}

static int compare_table(ruler_job *k, nb_buf *to)
{
    eval_table t = { 0 };
    int code = CLI_OK;
    static const char *const head[] = {
        "variant", "B/token", "found, points",          "exact, points", "lost",
        "gained",  "p",       "log-probability a token"
    };
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) eval_table_cell(&t, "%s", head[i]);
    eval_table_row(&t);
    for (size_t i = 0; code == CLI_OK && i < k->v.n; i++) {
        group_result g;
        code = group(k, k->out[i], ALL, ALL, &g);
        const nb_ci *d = g.diff;
        eval_table_cell(&t, "%s", k->v.v[i].name);
        eval_table_cell(&t, "%.0f",
                        json_number_value(json_object_get(k->cost[i], "bytes_per_token")));
        for (size_t f = MATCH; f <= EXACT; f++) cell_ci(&t, 100, 2, true, d[f]);
        eval_table_cell(&t, "%zu", g.lost);
        eval_table_cell(&t, "%zu", g.gained);
        eval_table_cell(&t, "%.2g", g.p);
        cell_ci(&t, 1, 5, true, d[LOGPROB]);
        eval_table_row(&t);
    }
    if (eval_table_print(&t, to) != NB_OK && code == CLI_OK) code = cli_failed("out of memory");
    return code;
}

static bool has_depths(const ruler_job *k)
{
    for (size_t i = 0; i < k->set.n; i++)
        if (k->set.item[i].depth != NB_RULER_NO_DEPTH) return true;
    return false;
}

/* Rows are depths, columns lengths of every variant. */
static int heat_table(ruler_job *k, nb_buf *to)
{
    eval_table t = { 0 };
    const char *name;
    const ruler_outcome *out;
    eval_table_cell(&t, "depth");
    for (size_t c = 0; column(k, c, &name); c++)
        for (size_t l = 0; l < k->n_length; l++) {
            char len[24];
            length_text(k->length[l], len);
            eval_table_cell(&t, "%s %s", name, len);
        }
    eval_table_row(&t);
    for (size_t d = 0; d < k->n_depth; d++) {
        eval_table_cell(&t, "%.0f %%", 100 * depth_share(k, d));
        for (size_t c = 0; (out = column(k, c, &name)); c++)
            for (size_t l = 0; l < k->n_length; l++) {
                size_t n;
                const nb_ci x = heat(k, out, d, l, &n);
                if (n)
                    eval_table_cell(&t, "%.1f", 100 * x.value);
                else
                    eval_table_cell(&t, "-");
            }
        eval_table_row(&t);
    }
    return eval_table_print(&t, to) == NB_OK ? CLI_OK : cli_failed("out of memory");
}

static int report_text(ruler_job *k, eval_report *r)
{
    nb_buf *b = &r->text;
    nb_status st = nb_buf_printf(
        b,
        "%zu prompts about %zu texts, dialect %s; intervals of 95 %%, texts resampled\n\n"
        "expected values found, %%\n",
        k->set.n, k->set.n_context, k->dialect);
    int code = st == NB_OK ? figure_table(k, MATCH, b) : CLI_OK;
    if (st == NB_OK && code == CLI_OK) st = nb_buf_add_c(b, "\nexact answers, %\n");
    if (st == NB_OK && code == CLI_OK) code = figure_table(k, EXACT, b);
    if (st == NB_OK && code == CLI_OK)
        st = nb_buf_add_c(b, "\nlog-probability of the expected answer, a token\n");
    if (st == NB_OK && code == CLI_OK) code = figure_table(k, LOGPROB, b);
    if (st == NB_OK && code == CLI_OK && has_depths(k)) {
        st = nb_buf_add_c(b, "\nexpected values found by depth of the needle, %\n");
        if (st == NB_OK) code = heat_table(k, b);
    }
    if (st == NB_OK && code == CLI_OK)
        st = nb_buf_printf(
            b, "\nagainst %s, the same prompts (lost, gained: exact answers, p: McNemar)\n",
            k->v.reference.name);
    if (st == NB_OK && code == CLI_OK) code = compare_table(k, b);
    return st == NB_OK ? code : cli_failed("out of memory");
}

/* ---- plots ------------------------------------------------------------------------------ */

enum { MAX_ROWS = 200, LABEL_BYTES = 64 };

/* Rows are depths of every variant, columns lengths. */
static int heat_plot(ruler_job *k, eval_report *r)
{
    static char label[MAX_ROWS][LABEL_BYTES], len[MAX_LENGTHS][24];
    static double cell[MAX_ROWS * MAX_LENGTHS];
    const char *row[MAX_ROWS], *col[MAX_LENGTHS], *name;
    const ruler_outcome *out;
    size_t n = 0;
    for (size_t l = 0; l < k->n_length; l++) {
        length_text(k->length[l], len[l]);
        col[l] = len[l];
    }
    for (size_t c = 0; (out = column(k, c, &name)); c++)
        for (size_t d = 0; d < k->n_depth && n < MAX_ROWS; d++, n++) {
            (void)snprintf(label[n], LABEL_BYTES, "%.40s, %.0f %%", name, 100 * depth_share(k, d));
            row[n] = label[n];
            for (size_t l = 0; l < k->n_length; l++) {
                size_t unused;
                cell[n * k->n_length + l] = heat(k, out, d, l, &unused).value;
            }
        }
    eval_plot *p = &r->plot[r->n_plot++];
    p->title = "expected values found, by length and depth of the needle";
    const nb_svg_axes axes = { .title = p->title, .x_label = "tokens", .y_label = "depth" };
    return nb_svg_heat(&p->svg, &axes, row, n, col, k->n_length, cell) == NB_OK
               ? CLI_OK
               : cli_failed("out of memory");
}

/* What the expected answer loses in log-probability, variant by variant. */
static int logprob_plot(ruler_job *k, eval_report *r)
{
    enum { MOST = 32 };
    const char *label[MOST];
    double y[MOST], lo[MOST], hi[MOST];
    size_t n = 0;
    for (size_t i = 0; i < k->v.n && n < MOST; i++) {
        group_result g;
        const int code = group(k, k->out[i], ALL, ALL, &g);
        if (code != CLI_OK) return code;
        label[n] = k->v.v[i].name;
        y[n] = -g.diff[LOGPROB].value;
        lo[n] = -g.diff[LOGPROB].hi;
        hi[n++] = -g.diff[LOGPROB].lo;
    }
    eval_plot *p = &r->plot[r->n_plot++];
    p->title = "log-probability of the expected answer lost, nats a token";
    const nb_svg_axes axes = { .title = p->title, .y_label = "nats a token" };
    return nb_svg_bars(&p->svg, &axes, label, y, lo, hi, n) == NB_OK ? CLI_OK
                                                                     : cli_failed("out of memory");
}

/* ---- the command -------------------------------------------------------------------------- */

int eval_ruler_run(const opts *o, eval_report *out)
{
    ruler_job k = { .o = o };
    int code = load_prompts(&k);
    if (code == CLI_OK) code = eval_read_variants(o, k.set.max_tok, true, &k.v);
    if (code == CLI_OK) code = run_all(&k);
    if (code == CLI_OK) code = report_json(&k, out);
    if (code == CLI_OK) code = report_text(&k, out);
    if (code == CLI_OK && has_depths(&k)) code = heat_plot(&k, out);
    if (code == CLI_OK) code = logprob_plot(&k, out);
    job_deinit(&k);
    return code;
}

int cmd_eval_ruler(const opts *o)
{
    eval_report r = { 0 };
    int code = eval_try_outputs(o);
    if (code == CLI_OK) code = eval_ruler_run(o, &r);
    return eval_finish(o, code, &r);
}
