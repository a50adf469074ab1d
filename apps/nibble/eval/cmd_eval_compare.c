/* cmd_eval_compare.c - `nibble eval compare`: every measurement of a list of formats, on one page.
 *
 * The measurements are those of the other commands, with the same options; a measurement that
 * fails (a model that a part cannot do) leaves a hole in the page and the command's exit code. */
#include <math.h>
#include <stdlib.h>

#include "eval_page.h"

enum { KL, ATTN, RULER, N_PART };
static const char DEFAULT_FORMATS[] = "fp8,nvfp4,if4,mxfp4,int4";

typedef int run_fn(const opts *o, eval_report *out);
static const struct {
    const char *id, *title, *about;
    run_fn *run;
} PART[N_PART] = {
    { "kl", "Next-token distributions on the text",
      "Each window of the text under the reference and under every format: Kullback-Leibler "
      "divergence of the predictions, whether the best token stays the same, and the loss on the "
      "token that follows.",
      eval_kl_run },
    { "attn", "Attention output, layer by layer",
      "Queries and cached values of the text, captured with an exact cache; each format's effect "
      "on the output of every head, alone, without the layers around it.",
      eval_attn_run },
    { "ruler", "Retrieval and aggregation over long prompts",
      "Generated prompts in the manner of RULER with one answer each, written greedily.",
      eval_ruler_run },
};

/* Options of the parts that this command does not have get the defaults they have there. */
static opts part_options(const opts *o)
{
    opts p = *o;
    if (!p.eval.formats) p.eval.formats = DEFAULT_FORMATS;
    p.eval.plot = NULL;
    p.eval.methods = "none"; /* selections of Thrift mode are `eval attn`'s own subject */
    if (p.eval.n_query == 0) p.eval.n_query = 64;
    if (p.eval.n_depth == 0) p.eval.n_depth = 5;
    if (!(p.eval.tau > 0)) p.eval.tau = 1e-3;
    return p;
}

/* ---- the summary ----------------------------------------------------------------- */

/* The object of a list whose "name" is name. */
static json_t *named(const json_t *report, const char *name)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(report, "variants"), i, v)
    {
        const char *n = json_string_value(json_object_get(v, "name"));
        if (n && strcmp(n, name) == 0) return v;
    }
    return NULL;
}

/* Ruler: over all tasks and lengths. */
static const json_t *overall(const json_t *variant)
{
    const json_t *list = json_object_get(variant, "results");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_null(json_object_get(v, "task")) && json_is_null(json_object_get(v, "length")))
            return json_object_get(v, "match");
    }
    return NULL;
}

static eval_page_row row_of(const eval_section *s, const char *name)
{
    const json_t *kl = named(s[KL].report.json, name), *attn = named(s[ATTN].report.json, name),
                 *ruler = named(s[RULER].report.json, name);
    const json_t *any = kl ? kl : ruler ? ruler : attn;
    return (eval_page_row){
        .name = name,
        .bits = json_number_value(json_object_get(any, "bits_per_value")),
        .bytes = json_number_value(json_object_get(any, "bytes_per_token")),
        .kl = json_object_get(json_object_get(kl, "kl"), "mean"),
        .ppl_ratio = json_object_get(kl, "perplexity_ratio"),
        .top1 = json_object_get(kl, "top1"),
        .attn = json_object_get(attn, "rel_l2"),
        .score = overall(ruler),
    };
}

/* The reference has no distance from itself, but a cost and a score. */
static eval_page_row reference_row(const eval_section *s, const char *name)
{
    const json_t *kl = json_object_get(s[KL].report.json, "reference"),
                 *ruler = json_object_get(s[RULER].report.json, "reference");
    const json_t *any = kl ? kl : ruler;
    return (eval_page_row){
        .name = name,
        .bits = json_number_value(json_object_get(any, "bits_per_value")),
        .bytes = json_number_value(json_object_get(any, "bytes_per_token")),
        .score = overall(ruler),
    };
}

static void ci_cell(eval_table *t, const json_t *ci, double scale, double minus)
{
    const json_t *v = json_object_get(ci, "value"), *lo = json_object_get(ci, "lo"),
                 *hi = json_object_get(ci, "hi");
    if (!json_is_number(v)) {
        eval_table_cell(t, "-");
        return;
    }
    eval_table_ci(
        t, (nb_ci){ scale * (json_number_value(v) - minus),
                    json_is_number(lo) ? scale * (json_number_value(lo) - minus) : (double)NAN,
                    json_is_number(hi) ? scale * (json_number_value(hi) - minus) : (double)NAN });
}

static nb_status summary_text(const eval_page_row *row, size_t n_row, nb_buf *to)
{
    static const char *const heading[] = { "format",        "bits",           "B/token",
                                           "KL, nats",      "perplexity, %+", "same best, %",
                                           "attn error, %", "retrieval, %" };
    eval_table t = { 0 };
    for (size_t i = 0; i < NB_COUNT(heading); i++) eval_table_cell(&t, "%s", heading[i]);
    eval_table_row(&t);
    for (size_t i = 0; i < n_row; i++) {
        const json_t *attn = json_object_get(row[i].attn, "mean");
        eval_table_cell(&t, "%s", row[i].name);
        eval_table_cell(&t, "%.2f", row[i].bits);
        eval_table_cell(&t, "%.0f", row[i].bytes);
        ci_cell(&t, row[i].kl, 1, 0);
        ci_cell(&t, row[i].ppl_ratio, 100, 1);
        ci_cell(&t, row[i].top1, 100, 0);
        if (json_is_number(attn))
            eval_table_cell(&t, "%.2f", 100 * json_number_value(attn));
        else
            eval_table_cell(&t, "-");
        ci_cell(&t, row[i].score, 100, 0);
        eval_table_row(&t);
    }
    return eval_table_print(&t, to);
}

/* ---- the parts ------------------------------------------------------------------- */

static int put_json(const opts *o, const eval_section *s, json_t *to)
{
    int code = eval_json_put(to, "what", json_string("compare"));
    if (code == CLI_OK)
        code = eval_json_head(
            to, o, json_string_value(json_object_get(s[KL].report.json, "model_sha256")));
    for (size_t i = 0; code == CLI_OK && i < N_PART; i++)
        code = eval_json_put(to, s[i].id,
                             s[i].report.json ? json_incref(s[i].report.json) : json_null());
    return code;
}

static nb_status put_text(const eval_section *s, const eval_page_row *row, size_t n_row, nb_buf *to)
{
    for (size_t i = 0; i < N_PART; i++) {
        NB_TRY(nb_buf_printf(to, "== %s\n\n", s[i].title));
        NB_TRY(nb_buf_add_c(to, s[i].code == CLI_OK ? s[i].report.text.p : "not measured\n"));
        NB_TRY(nb_buf_add_c(to, "\n"));
    }
    NB_TRY(nb_buf_add_c(to, "== Summary\n\n"));
    return summary_text(row, n_row, to);
}

static int write_page(const opts *o, const eval_section *s, const eval_page_row *row, size_t n_row,
                      const json_t *json)
{
    nb_buf page = { 0 }, title = { 0 }, path = { 0 };
    char *text = NULL;
    int code = CLI_OK;
    if (nb_buf_printf(&title, "%s: cache formats compared", eval_model_name(o)) != NB_OK ||
        nb_buf_printf(&path, "%s/index.html", o->eval.out_dir) != NB_OK ||
        eval_page_write(title.p,
                        "What each format of the key-value cache costs in memory and in quality, "
                        "on this model and this input. compare.json beside this page has every "
                        "figure.",
                        row, n_row, s, N_PART, &page) != NB_OK)
        code = cli_failed("out of memory");
    if (code == CLI_OK) code = out_file_write(path.p, page.p, page.n_bytes);
    path.n_bytes = 0;
    if (code == CLI_OK && nb_buf_printf(&path, "%s/compare.json", o->eval.out_dir) != NB_OK)
        code = cli_failed("out of memory");
    if (code == CLI_OK)
        text = json_dumps(json, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_ENSURE_ASCII);
    if (code == CLI_OK && !text) code = cli_failed("out of memory");
    if (code == CLI_OK) code = out_file_write(path.p, text, strlen(text));
    free(text);
    nb_buf_deinit(&path);
    nb_buf_deinit(&title);
    nb_buf_deinit(&page);
    return code;
}

/* All parts are through: their report. */
static int put_together(const opts *o, const eval_variants *v, const eval_section *s,
                        eval_report *out)
{
    const size_t n_row = v->n + 1;
    eval_page_row *row = calloc(n_row, sizeof *row);
    out->json = json_object();
    int code = row && out->json ? put_json(o, s, out->json) : cli_failed("out of memory");
    if (code == CLI_OK) {
        row[0] = reference_row(s, v->reference.name);
        for (size_t i = 0; i < v->n; i++) row[i + 1] = row_of(s, v->v[i].name);
        if (put_text(s, row, n_row, &out->text) != NB_OK) code = cli_failed("out of memory");
    }
    if (code == CLI_OK && o->eval.out_dir) code = write_page(o, s, row, n_row, out->json);
    if (code == CLI_OK && o->eval.out_dir &&
        nb_buf_printf(&out->text, "\n%s/index.html, compare.json\n", o->eval.out_dir) != NB_OK)
        code = cli_failed("out of memory");
    free(row);
    return code;
}

int cmd_eval_compare(const opts *o)
{
    const opts p = part_options(o);
    eval_section s[N_PART] = { 0 };
    eval_variants v = { 0 };
    eval_report r = { 0 };
    if (!o->eval.text && !o->eval.tokens)
        return cli_usage("expected either --text FILE or --tokens FILE");
    int code = eval_read_variants(&p, 0, false, &v), worst = CLI_OK;
    if (code == CLI_OK) code = eval_try_outputs(&p);
    size_t n_good = 0;
    for (size_t i = 0; code == CLI_OK && i < N_PART; i++) {
        s[i] = (eval_section){ PART[i].id, PART[i].title, PART[i].about, { 0 }, CLI_OK };
        s[i].code = PART[i].run(&p, &s[i].report);
        cli_progress_end();
        if (s[i].code == CLI_OK) n_good++;
        if (s[i].code != CLI_OK) worst = s[i].code;
        if (s[i].code != CLI_OK) eval_report_deinit(&s[i].report);
    }
    if (code == CLI_OK) code = n_good ? put_together(&p, &v, s, &r) : worst;
    for (size_t i = 0; i < N_PART; i++) eval_report_deinit(&s[i].report);
    eval_variants_deinit(&v);
    code = eval_finish(&p, code, &r);
    return code == CLI_OK ? worst : code;
}
