/* cmd_convert.c - `nibble convert`: a checkpoint with its weights in another form.  With a text, the model first computes
 * it, and the mean squares of each product's inputs say how much columns count. */
#include <jansson.h>
#include <string.h>

#include "convert/convert.h"
#include "eval/cmd_eval.h"

enum { CALIBRATION_TOKENS_DEFAULT = 32768 };

/* ---- how much columns count ---- */

/* The engine computes the model as it is, in float. */
static int open_engine(const opts *o, const eval_windows *w, nb_engine **out)
{
    nb_error err = { 0 };
    nb_engine_options e = opts_engine(o);
    e.device = "cpu"; /* inputs of products are taken there */
    e.kv_cache_dtype = "bf16";
    e.kv_scales = "dynamic";
    e.activation_dtype = "float";
    e.max_model_len = w->context;
    e.max_num_seqs = 1;
    e.no_text = true;
    const nb_status st = nb_engine_create(&e, out, &err);
    cli_progress_end();
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

static int run_text(const eval_windows *w, nb_engine *e, nb_imatrix **out)
{
    nb_error err = { 0 };
    nb_status st = nb_imatrix_create(out, &err);
    for (size_t i = 0; st == NB_OK && i < w->n; i++) {
        cli_progress(NULL, "computing the text", i, w->n);
        st = nb_engine_products(e, w->ids + w->begin[i], w->begin[i + 1] - w->begin[i],
                                nb_imatrix_add, *out, &err);
    }
    cli_progress_end();
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

/* *n_tok: tokens of the text. */
static int measure(const opts *o, nb_imatrix **out, size_t *n_tok)
{
    eval_windows w = { 0 };
    nb_engine *e = NULL;
    opts with = *o;
    with.eval.text = o->convert.calibration;
    int code = eval_read_windows(&with, CALIBRATION_TOKENS_DEFAULT, &w);
    if (code == CLI_OK) code = open_engine(o, &w, &e);
    if (code == CLI_OK) code = run_text(&w, e, out);
    *n_tok = w.n_tok;
    nb_engine_destroy(e);
    eval_windows_deinit(&w);
    return code;
}

static int importance(const opts *o, nb_imatrix **out, size_t *n_tok)
{
    nb_error err = { 0 };
    if (o->convert.calibration) return measure(o, out, n_tok);
    if (!o->convert.imatrix) return CLI_OK;
    const nb_status st = nb_imatrix_open(o->convert.imatrix, out, &err);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

/* ---- the command ---- */

static void print_importance(const opts *o, const nb_convert_report *r, size_t n_tok)
{
    const char *from = o->convert.calibration ? o->convert.calibration : o->convert.imatrix;
    if (!from) return;
    (void)printf("%s: the inputs of %zu matrices", from, r->n_weighted + r->n_shared);
    if (n_tok) (void)printf(" in %zu tokens", n_tok);
    (void)printf(" say how much columns count\n");
    if (r->n_shared)
        (void)printf("%zu of them use the mean of their layer: an expert saw fewer than %d tokens\n",
                     r->n_shared, NB_IMATRIX_FEW_ROWS);
    if (r->n_unweighted)
        (void)printf("%zu matrices have no inputs there: their columns count alike\n",
                     r->n_unweighted);
}

static int print(const opts *o, const nb_convert_report *r, size_t n_tok, double seconds)
{
    if (o->json) {
        json_t *j =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "out",
                      o->convert.out,
                      "weight_format", o->convert.format, "quantised", (json_int_t)r->n_quantised,
                      "kept", (json_int_t)r->n_kept, "fallback", (json_int_t)r->n_fallback,
                      "left_out", (json_int_t)r->n_left_out, "in_bytes", (json_int_t)r->in_bytes,
                      "out_bytes", (json_int_t)r->out_bytes, "weighted",
                      (json_int_t)r->n_weighted, "shared", (json_int_t)r->n_shared, "unweighted",
                      (json_int_t)r->n_unweighted, "calibration_tokens", (json_int_t)n_tok, "seconds",
                      seconds);
        if (!j) return cli_failed("out of memory");
        (void)json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        (void)fputc('\n', stdout);
        json_decref(j);
        return CLI_OK;
    }
    char in[CLI_FIGURE_BYTES], out[CLI_FIGURE_BYTES];
    cli_bytes_text((double)r->in_bytes, in, sizeof in);
    cli_bytes_text((double)r->out_bytes, out, sizeof out);
    (void)printf("%s: %zu matrices of the layers in %s, %s instead of %s, %.1f s\n", o->convert.out,
                 r->n_quantised, o->convert.format, out, in, seconds);
    if (r->n_kept) (void)printf("%zu matrices are as they were\n", r->n_kept);
    if (r->n_fallback)
        (void)printf(
            "%zu matrices have another type, because their columns are no multiple of 256\n",
            r->n_fallback);
    if (r->n_left_out)
        (void)printf("%zu tensors of layers for speculation are left out\n", r->n_left_out);
    print_importance(o, r, n_tok);
    return CLI_OK;
}

static int check(const opts *o)
{
    const convert_opts *c = &o->convert;
    if (!c->out) return cli_usage("convert: OUT is missing; `nibble convert --help` says more");
    if (!c->format) return cli_usage("convert: --weight-format NAME is missing");
    const bool gguf = strncmp(c->format, "gguf:", 5) == 0;
    if (gguf && c->keep) return cli_usage("convert: --keep is for folders, not for gguf:...");
    if (!gguf && c->gguf_pre) return cli_usage("convert: --gguf-pre is for gguf:...");
    if (c->calibration && c->imatrix)
        return cli_usage("convert: give --calibration-text or --imatrix, not both");
    if ((c->calibration || c->imatrix) && !nb_convert_searches(c->format))
        return cli_usage("convert: %s changes nothing: scales of %s are not searched",
                         c->calibration ? "--calibration-text" : "--imatrix", c->format);
    if (!c->calibration && (o->eval.n_tok || o->eval.context))
        return cli_usage("convert: --n-tokens and --context are for --calibration-text");
    return CLI_OK;
}

int cmd_convert(const opts *o)
{
    const double begin = cli_seconds();
    nb_imatrix *imatrix = NULL;
    size_t n_tok = 0;
    nb_convert_report r;
    nb_error err = { 0 };
    int code = check(o);
    if (code != CLI_OK) return code;
    nb_convert_options c = { .model = o->path,
                             .out = o->convert.out,
                             .format = o->convert.format,
                             .keep = o->convert.keep,
                             .gguf_pre = o->convert.gguf_pre,
                             .max_shard_bytes = (uint64_t)o->convert.max_shard_mb * 1000000,
                             .n_thread = o->threads,
                             .progress = cli_progress };
    nb_status st = nb_convert_check(&c, &err);
    if (st == NB_OK) code = importance(o, &imatrix, &n_tok);
    c.imatrix = imatrix;
    if (st == NB_OK && code == CLI_OK) st = nb_convert(&c, &r, &err);
    cli_progress_end();
    if (st != NB_OK)
        code = cli_status(st, &err);
    else if (code == CLI_OK)
        code = print(o, &r, n_tok, cli_seconds() - begin);
    nb_imatrix_destroy(imatrix);
    return code;
}
