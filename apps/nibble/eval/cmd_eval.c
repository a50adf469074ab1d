/* cmd_eval.c - what the commands `nibble eval ...` share: cmd_eval.h.  The text is in
 * cmd_eval_text.c. */
#include "cmd_eval.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int no_memory(void)
{
    return cli_failed("out of memory");
}

/* ---- variants --------------------------------------------------------------- */

/* The one variant that the options say when there is no list. */
static nb_status variant_of_options(const nb_engine_options *base, eval_variants *out,
                                    nb_error *err)
{
    nb_buf word = { 0 };
    out->v = nb_arena_array(&out->arena, 1, sizeof *out->v);
    const nb_status st = nb_variant_word(base, &word);
    const char *name = st == NB_OK ? nb_arena_strdup(&out->arena, nb_buf_view(&word)) : NULL;
    nb_buf_deinit(&word);
    if (!out->v || !name) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    *out->v = (nb_variant){ .name = name, .options = *base };
    out->n = 1;
    return NB_OK;
}

/* The options without what they say of the cache. */
static nb_engine_options plain(const nb_engine_options *o)
{
    nb_engine_options p = *o;
    p.kv_cache_dtype = p.kv_cache_mode = p.kv_rope_dtype = p.kv_calibration = p.kv_transform =
        p.kv_skip_layers = p.kv_scales = p.kv_thrift = NULL;
    p.kv_outliers = p.kv_sinks = 0;
    p.kv_thrift_tau = p.kv_thrift_fraction = p.kv_thrift_pool = 0;
    return p;
}

int eval_read_variants(const opts *o, size_t max_model_len, bool text, eval_variants *out)
{
    nb_error err = { 0 };
    *out = (eval_variants){ 0 };
    nb_engine_options base = opts_engine(o);
    if (max_model_len) base.max_model_len = max_model_len;
    base.no_text = !text;
    const nb_engine_options without = plain(&base);
    const char *reference = o->eval.reference ? o->eval.reference : "bf16";
    nb_status st = o->eval.formats ? nb_variant_list(o->eval.formats, &base, &out->arena, &out->v,
                                                     &out->n, &err)
                                   : variant_of_options(&base, out, &err);
    if (st == NB_OK) {
        st = nb_variant_parse(reference, &without, &out->arena, &out->reference, &err);
        if (st != NB_OK) return cli_usage("--reference: %s", err.msg);
    }
    if (st == NB_OK) return CLI_OK;
    return st == NB_ERR_NOMEM ? no_memory() : cli_usage("--formats: %s", err.msg);
}

void eval_variants_deinit(eval_variants *v)
{
    nb_arena_deinit(&v->arena);
    *v = (eval_variants){ 0 };
}

int eval_open_engine(const nb_variant *v, nb_engine **out, nb_engine_info *info)
{
    nb_error err = { 0 };
    nb_engine_info own;
    *out = NULL;
    const nb_status st = nb_engine_create(&v->options, out, &err);
    cli_progress_end();
    if (st != NB_OK) {
        *out = NULL;
        return cli_failed("%s: %s", v->name, err.msg[0] ? err.msg : nb_status_text(st));
    }
    if (!info) info = &own;
    nb_engine_get_info(*out, info);
    if (info->warnings && *info->warnings) cli_note("warning: %s: %s", v->name, info->warnings);
    return CLI_OK;
}

/* ---- JSON ------------------------------------------------------------------- */

int eval_json_put(json_t *to, const char *key, json_t *v)
{
    return json_object_set_new(to, key, v) == 0 ? CLI_OK : no_memory();
}

json_t *eval_json_ci(nb_ci c)
{
    return json_pack("{s:o, s:o, s:o}", "value",
                     isfinite(c.value) ? json_real(c.value) : json_null(), "lo",
                     isfinite(c.lo) ? json_real(c.lo) : json_null(), "hi",
                     isfinite(c.hi) ? json_real(c.hi) : json_null());
}

const char *eval_model_name(const opts *o)
{
    const char *name = o->model ? o->model : "", *end = name;
    for (const char *p = name; *p; p++)
        if (*p == '/' && p[1]) end = p + 1;
    return end;
}

int eval_json_cost(json_t *to, const nb_variant *v, const nb_engine_info *info)
{
    nb_buf word = { 0 };
    const bool said = nb_variant_word(&v->options, &word) == NB_OK;
    const int code = eval_json_put(to, "format", said ? json_string(word.p) : NULL);
    nb_buf_deinit(&word);
    if (code != CLI_OK) return code;
    const double values = (double)info->kv_values_per_tok;
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:f}", "kv_dtype", info->kv_dtype, "kv_layout",
                          info->kv_layout ? info->kv_layout : "", "kv_transform",
                          info->kv_transform ? info->kv_transform : "none", "kv_thrift",
                          info->kv_thrift ? info->kv_thrift : "off", "bytes_per_token",
                          info->kv_bytes_per_tok);
    const int failed = !j || json_object_update(to, j) != 0;
    json_decref(j);
    if (failed) return no_memory();
    return eval_json_put(to, "bits_per_value",
                         values > 0 ? json_real(8 * info->kv_bytes_per_tok / values) : json_null());
}

/* JSON's integers end at 2^63 - 1 here: what is larger is a string of digits. */
static json_t *seed_json(uint64_t seed)
{
    if (seed <= INT64_MAX) return json_integer((json_int_t)seed);
    return json_sprintf("%" PRIu64, seed);
}

int eval_json_head(json_t *to, const opts *o, const char *hash)
{
    const size_t n_round = o->eval.n_round ? o->eval.n_round : 2000;
    int code = eval_json_put(to, "nibble", json_string(nb_version()));
    if (code == CLI_OK) code = eval_json_put(to, "model", json_string(eval_model_name(o)));
    if (code == CLI_OK && hash) code = eval_json_put(to, "model_sha256", json_string(hash));
    if (code == CLI_OK) code = eval_json_put(to, "seed", seed_json(o->eval.seed));
    return code == CLI_OK ? eval_json_put(to, "bootstrap", json_integer((json_int_t)n_round))
                          : code;
}

/* ---- tables ----------------------------------------------------------------- */

void eval_table_cell(eval_table *t, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (nb_buf_add(&t->cells, text, strlen(text) + 1) != NB_OK) t->failed = true;
    t->n_cell++;
}

void eval_table_row(eval_table *t)
{
    if (t->n_col == 0) t->n_col = t->n_cell;
    while (t->n_col && t->n_cell % t->n_col) eval_table_cell(t, "%s", "");
}

void eval_table_ci(eval_table *t, nb_ci c)
{
    if (!isfinite(c.lo) || !isfinite(c.hi)) {
        eval_table_cell(t, "%.4g", c.value);
        return;
    }
    /* As many digits behind the point as show the interval: 0.01234 [0.01198, 0.01270]. */
    const double width = c.hi - c.lo;
    int digits = width > 0 ? 2 - (int)floor(log10(width)) : 0;
    digits = digits < 0 ? 0 : digits > 9 ? 9 : digits;
    eval_table_cell(t, "%.*f [%.*f, %.*f]", digits, c.value, digits, c.lo, digits, c.hi);
}

/* Characters, not bytes. */
static size_t width_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static nb_status print_rows(const eval_table *t, const size_t *width, nb_buf *to)
{
    const char *cell = t->cells.p;
    for (size_t i = 0; i < t->n_cell; i++, cell += strlen(cell) + 1) {
        const size_t c = i % t->n_col, pad = width[c] - width_of(cell);
        const bool last = c + 1 == t->n_col;
        if (c) NB_TRY(nb_buf_add_c(to, "  "));
        if (c) NB_TRY(nb_buf_printf(to, "%*s", (int)pad, ""));
        NB_TRY(nb_buf_add_c(to, cell));
        if (!c && !last) NB_TRY(nb_buf_printf(to, "%*s", (int)pad, ""));
        if (last) NB_TRY(nb_buf_add_ch(to, '\n'));
    }
    return NB_OK;
}

nb_status eval_table_print(eval_table *t, nb_buf *to)
{
    nb_status st = t->failed ? NB_ERR_NOMEM : NB_OK;
    size_t *width = calloc(t->n_col + 1, sizeof *width);
    if (!width) st = NB_ERR_NOMEM;
    const char *cell = t->cells.p;
    for (size_t i = 0; st == NB_OK && i < t->n_cell; i++, cell += strlen(cell) + 1) {
        const size_t n = width_of(cell);
        if (n > width[i % t->n_col]) width[i % t->n_col] = n;
    }
    if (st == NB_OK) st = print_rows(t, width, to);
    free(width);
    nb_buf_deinit(&t->cells);
    *t = (eval_table){ 0 };
    return st;
}

/* ---- reports ---------------------------------------------------------------- */

void eval_report_deinit(eval_report *r)
{
    json_decref(r->json);
    nb_buf_deinit(&r->text);
    for (size_t i = 0; i < r->n_plot; i++) nb_buf_deinit(&r->plot[i].svg);
    *r = (eval_report){ 0 };
}

/* Whether a file can be made beside path, as out_file_write will: nothing of it stays. */
static int try_beside(const char *path)
{
    nb_buf temp = { 0 };
    int code = CLI_OK;
    if (nb_buf_printf(&temp, "%s.%ld.tmp", path, (long)getpid()) != NB_OK) {
        nb_buf_deinit(&temp);
        return no_memory();
    }
    const int fd = open(temp.p, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        code = out_file_failed(path);
    else if (close(fd) != 0 || unlink(temp.p) != 0)
        code = out_file_failed(path);
    nb_buf_deinit(&temp);
    return code;
}

int eval_try_file(const char *path)
{
    struct stat itself, there;
    if (!*path) {
        errno = ENOENT;
        return out_file_failed(path);
    }
    if (lstat(path, &itself) != 0) return try_beside(path);
    if (stat(path, &there) != 0) return CLI_OK; /* a link to what will be made */
    if (S_ISDIR(there.st_mode)) {
        errno = EISDIR;
        return out_file_failed(path);
    }
    /* To open a fifo or a terminal could wait, or be seen at its other end. */
    if (access(path, W_OK) != 0) return out_file_failed(path);
    return S_ISREG(itself.st_mode) ? try_beside(path) : CLI_OK;
}

int eval_try_dir(const char *path)
{
    nb_buf page = { 0 };
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return cli_failed("%s: cannot be created: %s", path, strerror(errno));
    int code = nb_buf_printf(&page, "%s/index.html", path) == NB_OK ? CLI_OK : no_memory();
    if (code == CLI_OK) code = eval_try_file(page.p);
    nb_buf_deinit(&page);
    return code;
}

int eval_try_outputs(const opts *o)
{
    int code = o->eval.plot ? eval_try_file(o->eval.plot) : CLI_OK;
    if (code == CLI_OK && o->eval.write_prompts) code = eval_try_file(o->eval.write_prompts);
    return code == CLI_OK && o->eval.out_dir ? eval_try_dir(o->eval.out_dir) : code;
}

static int print_report(const opts *o, const eval_report *r)
{
    if (!o->json) {
        (void)fwrite(r->text.p ? r->text.p : "", 1, r->text.n_bytes, stdout);
        return CLI_OK;
    }
    char *line = json_dumps(r->json, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_ENSURE_ASCII);
    if (!line) return no_memory();
    (void)puts(line);
    free(line);
    return CLI_OK;
}

int eval_finish(const opts *o, int code, eval_report *r)
{
    cli_progress_end();
    if (code == CLI_OK) code = print_report(o, r); /* even if the plot cannot be written */
    if (code == CLI_OK && o->eval.plot)
        code = r->n_plot ? out_file_write(o->eval.plot, r->plot[0].svg.p, r->plot[0].svg.n_bytes)
                         : cli_failed("%s: there is nothing to draw", o->eval.plot);
    eval_report_deinit(r);
    return code;
}
