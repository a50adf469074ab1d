/* cmd_calibrate.c - `nibble calibrate`: measures how a model's cache is best kept and writes the
 * file that --kv-calibration loads.  The work is in src/calibrate/calibrate.h. */
#include <stdlib.h>
#include <string.h>

#include "calibrate/calibrate.h"
#include "cmd_eval.h"

enum { CALIBRATE_TOKENS_DEFAULT = 32768 };

static int check_options(const opts *o)
{
    const nb_engine_options e = opts_engine(o);
    if (!o->eval.text == !o->eval.tokens)
        return cli_usage("calibrate: give the text with --text FILE or with --tokens FILE%s",
                         o->eval.text ? ", not both" : "");
    if (!o->output) return cli_usage("calibrate: --output FILE is missing");
    if (o->eval.target_bits > 0 && o->eval.max_error > 0)
        return cli_usage("calibrate: --target-bits and --max-error exclude each other");
    if (e.kv_calibration || e.kv_transform || e.kv_skip_layers || e.kv_sinks ||
        (e.kv_thrift && strcmp(e.kv_thrift, "off") != 0))
        return cli_usage("calibrate: --kv-calibration, --kv-transform, --kv-sinks, --kv-thrift and "
                         "--kv-cache-dtype-skip-layers are for what comes after it");
    return CLI_OK;
}

/* The record that is asked for: nvfp4 unless --kv-cache-dtype says another. */
static int read_record(const opts *o, nb_calib_record *r)
{
    const nb_engine_options e = opts_engine(o);
    const char *type =
        e.kv_cache_dtype && strcmp(e.kv_cache_dtype, "auto") != 0 ? e.kv_cache_dtype : "nvfp4";
    *r = (nb_calib_record){ .n_outlier = e.kv_outliers, .rope = nb_rope_fmt_default(true) };
    if (nb_kv_type_parse(type, &r->type) != NB_OK || r->type == NB_KV_F32)
        return cli_usage("calibrate: --kv-cache-dtype %s: expected a record that rounds", type);
    r->mode = nb_kv_mode_default(r->type);
    if (e.kv_cache_mode && nb_kv_mode_parse(e.kv_cache_mode, &r->mode) != NB_OK)
        return cli_usage("calibrate: --kv-cache-mode %s: expected basic, 4over6 or search",
                         e.kv_cache_mode);
    if (e.kv_rope_dtype && nb_rope_fmt_parse(e.kv_rope_dtype, &r->rope) != NB_OK)
        return cli_usage("calibrate: --kv-rope-dtype %s: expected fp8, bf16 or int8",
                         e.kv_rope_dtype);
    return CLI_OK;
}

/* An engine that computes what is measured exactly, of the windows' length. */
static int open_engine(const opts *o, const eval_windows *w, nb_engine **out)
{
    nb_error err = { 0 };
    nb_engine_options e = opts_engine(o);
    nb_engine_info info;
    e.device = "cpu"; /* attention inputs are taken there */
    e.kv_cache_dtype = "bf16";
    e.kv_cache_mode = e.kv_rope_dtype = NULL;
    e.kv_scales = "dynamic";
    e.kv_outliers = 0;
    e.kv_thrift = NULL;
    e.max_model_len = w->context;
    e.max_num_seqs = 1;
    e.no_text = true;
    const nb_status st = nb_engine_create(&e, out, &err);
    cli_progress_end();
    if (st != NB_OK) return cli_status(st, &err);
    nb_engine_get_info(*out, &info);
    if (info.warnings && *info.warnings) cli_note("warning: %s", info.warnings);
    return CLI_OK;
}

/* ---- what has come of it ---------------------------------------------------- */

static void transform_text(const nb_kv_calib_layer *l, char out[32])
{
    out[0] = 0;
    if (l->use_center) strcat(out, "+center");
    if (l->use_equalize) strcat(out, "+equalize");
    if (l->use_hadamard) strcat(out, "+hadamard");
    if (out[0])
        memmove(out, out + 1, strlen(out));
    else
        strcpy(out, "none");
}

/* Its format, and how many values stay in BF16. */
static void rope_text(const nb_kv_calib_layer *l, char out[32])
{
    if (l->n_rope_outlier)
        (void)snprintf(out, 32, "%s+%zu bf16", nb_rope_fmt_name(l->rope), l->n_rope_outlier);
    else
        (void)snprintf(out, 32, "%s", nb_rope_fmt_name(l->rope));
}

static json_t *rope_json(const nb_kv_calib_layer *l)
{
    json_t *j = json_object(), *dims = json_array(), *error = json_object();
    int bad = json_object_set_new(j, "rope", json_string(nb_rope_fmt_name(l->rope)));
    for (size_t i = 0; i < l->n_rope_outlier; i++)
        bad |= json_array_append_new(dims, json_integer((json_int_t)l->rope_outlier[i]));
    for (size_t i = 0; i < NB_ROPE_WAYS; i++)
        bad |= json_object_set_new(error, nb_rope_ways[i].name, json_real(l->rope_error[i]));
    bad |= json_object_set_new(j, "rope_outliers", dims);
    bad |= json_object_set_new(j, "rope_error", error);
    if (!bad) return j;
    json_decref(j);
    return NULL;
}

static json_t *layer_json(const nb_kv_calib_layer *l, size_t i, bool is_mla)
{
    char transform[32];
    transform_text(l, transform);
    json_t *j =
        json_pack("{s:I, s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f}", "layer", (json_int_t)i,
                  "transform", transform, "kv_dtype", l->kv_dtype, "kv_mode", l->kv_mode,
                  "outliers", (json_int_t)l->n_outlier, "bits_per_value", l->bits, "plain_error",
                  l->plain_error, "error", l->error, "token_amax", (double)l->token_amax);
    json_t *rope = is_mla ? rope_json(l) : json_object();
    const int bad = json_object_update(j, rope);
    json_decref(rope);
    if (!bad) return j;
    json_decref(j);
    return NULL;
}

static int make_json(const opts *o, const nb_kv_calib *c, double seconds, json_t **out)
{
    json_t *j = json_object(), *layers = json_array();
    int code = j && layers ? CLI_OK : cli_failed("out of memory");
    if (code == CLI_OK) code = eval_json_head(j, o, c->model_hash);
    for (size_t i = 0; i < c->n_layer && code == CLI_OK; i++)
        if (json_array_append_new(layers, layer_json(&c->layer[i], i, c->is_mla)) != 0)
            code = cli_failed("out of memory");
    json_t *rest =
        json_pack("{s:s, s:I, s:f, s:f, s:O}", "output", o->output, "tokens", (json_int_t)c->n_tok,
                  "mean_bits_per_value", c->mean_bits, "seconds", seconds, "layers", layers);
    if (code == CLI_OK && (!rest || json_object_update(j, rest) != 0))
        code = cli_failed("out of memory");
    json_decref(rest);
    json_decref(layers);
    *out = j;
    return code;
}

/* What the rope key's format does, whichever it is in the file. */
static nb_status rope_table(const nb_kv_calib *c, nb_buf *to)
{
    static const char *const head[NB_ROPE_WAYS] = { "fp8", "int8", "bf16", "fp8+4 pairs",
                                                    "int8+4 pairs" };
    eval_table t = { 0 };
    eval_table_cell(&t, "plain error, rope key in");
    for (size_t i = 0; i < NB_ROPE_WAYS; i++) eval_table_cell(&t, "%s", head[i]);
    eval_table_row(&t);
    for (size_t i = 0; i < c->n_layer; i++) {
        eval_table_cell(&t, "layer %zu", i);
        for (size_t k = 0; k < NB_ROPE_WAYS; k++)
            eval_table_cell(&t, "%.3f%%", 100 * c->layer[i].rope_error[k]);
        eval_table_row(&t);
    }
    return eval_table_print(&t, to);
}

static int make_table(const opts *o, const nb_kv_calib *c, nb_buf *to)
{
    static const char *const head[] = { "layer",    "transform", "record",      "rope",
                                        "outliers", "bits",      "plain error", "error" };
    eval_table t = { 0 };
    for (size_t i = 0; i < NB_COUNT(head); i++) eval_table_cell(&t, "%s", head[i]);
    eval_table_row(&t);
    double plain = 0, error = 0;
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_kv_calib_layer *l = &c->layer[i];
        char transform[32], rope[32];
        transform_text(l, transform);
        rope_text(l, rope);
        eval_table_cell(&t, "%zu", i);
        eval_table_cell(&t, "%s", transform);
        eval_table_cell(&t, "%s%s%s", l->kv_dtype, l->kv_mode[0] ? " " : "", l->kv_mode);
        eval_table_cell(&t, "%s", c->is_mla ? rope : "-");
        eval_table_cell(&t, "%zu", l->n_outlier);
        eval_table_cell(&t, "%.3f", l->bits);
        eval_table_cell(&t, "%.3f%%", 100 * l->plain_error);
        eval_table_cell(&t, "%.3f%%", 100 * l->error);
        eval_table_row(&t);
        plain += l->plain_error / (double)c->n_layer;
        error += l->error / (double)c->n_layer;
    }
    nb_status st = eval_table_print(&t, to);
    if (st == NB_OK && c->is_mla) st = rope_table(c, to);
    if (st == NB_OK)
        st = nb_buf_printf(to,
                           "mean: %.3f bits per value, error of the attention output %.3f%% "
                           "(plain record: %.3f%%),\n"
                           "on the windows that chose: optimistic, measure on another text (nibble "
                           "eval kl)\n"
                           "%s: written, statistics of %llu tokens\n",
                           c->mean_bits, 100 * error, 100 * plain, o->output,
                           (unsigned long long)c->n_tok);
    return st == NB_OK ? CLI_OK : cli_failed("out of memory");
}

static int calibrate(const opts *o, nb_engine *e, const eval_windows *w, nb_calib_record record)
{
    nb_error err = { 0 };
    nb_kv_calib c = { 0 };
    eval_report r = { 0 };
    const nb_calibrate_options co = { .ids = w->ids,
                                      .begin = w->begin,
                                      .n_window = w->n,
                                      .held_out = o->eval.held_out,
                                      .seed = o->eval.seed,
                                      .candidates = o->eval.candidates,
                                      .record = record,
                                      .target_bits = o->eval.target_bits,
                                      .max_error = o->eval.max_error,
                                      .progress = cli_progress };
    const double begun = cli_seconds();
    nb_status st = nb_calibrate(e, &co, &c, &err);
    cli_progress_end();
    if (st != NB_OK) return cli_status(st, &err);
    st = nb_kv_calib_write(&c, o->output, &err);
    int code = st == NB_OK ? CLI_OK : cli_status(st, &err);
    if (code == CLI_OK)
        code =
            o->json ? make_json(o, &c, cli_seconds() - begun, &r.json) : make_table(o, &c, &r.text);
    nb_kv_calib_deinit(&c);
    return eval_finish(o, code, &r);
}

int cmd_calibrate(const opts *o)
{
    nb_calib_record record;
    eval_windows w = { 0 };
    nb_engine *e = NULL;
    int code = check_options(o);
    if (code == CLI_OK) code = read_record(o, &record);
    if (code == CLI_OK) code = eval_try_file(o->output);
    if (code == CLI_OK) code = eval_read_windows(o, CALIBRATE_TOKENS_DEFAULT, &w);
    if (code == CLI_OK && w.n < 2)
        code = cli_failed("the text makes one window of %zu tokens: calibration needs two (a "
                          "longer text, or a smaller --context)",
                          w.n_tok);
    if (code == CLI_OK) code = open_engine(o, &w, &e);
    if (code == CLI_OK) code = calibrate(o, e, &w, record);
    nb_engine_destroy(e);
    eval_windows_deinit(&w);
    return code;
}
