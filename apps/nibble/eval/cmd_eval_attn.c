/* cmd_eval_attn.c - `nibble eval attn`: what cache records do to the attention of each layer, on
 * the tensors of a text, or on generated ones that break low bits.
 *
 * The model runs once, with an exact cache; every format and every selection of Thrift mode is
 * then computed from the same captured tensors, so that nothing but the record differs. */
#include <stdlib.h>
#include <string.h>

#include "eval_attn.h"

static const char DEFAULT_FORMATS[] =
    "bf16,fp8,nvfp4:mode=basic,nvfp4,nvfp4:mode=search,if4,mxfp4,int4";
static const char DEFAULT_FRACTIONS[] = "0.001,0.0025,0.005,0.02,0.05,0.1,0.25";
static const char DEFAULT_METHODS[] = "token,block-mean,block-prob";
static const char ALL_METHODS[] =
    "token,token-top,block-mean,block-mean-causal,quest,local,block-prob,oracle,paper-fp4";

/* ---- lists ------------------------------------------------------------------- */

/* Whether x stands in "0,3-5"; *ok is cleared where that is no such list. */
static bool in_list(const char *list, size_t x, bool *ok)
{
    bool found = false;
    for (const char *p = list;; p++) {
        char *end;
        if (*p < '0' || *p > '9') break;
        const unsigned long lo = strtoul(p, &end, 10);
        unsigned long hi = lo;
        if (*end == '-') {
            if (end[1] < '0' || end[1] > '9') break;
            hi = strtoul(end + 1, &end, 10);
        }
        if (hi < lo || (*end && *end != ',')) break;
        found = found || (x >= lo && x <= hi);
        if (!*end) return found;
        p = end;
    }
    *ok = false;
    return false;
}

/* METHOD[:head][:fp8|:bf16|:residual] */
static int add_method(eval_attn *a, char *word)
{
    static const char *const refine[] = { ":residual", ":fp8", ":bf16" };
    nb_attn_refine kind = NB_REFINE_RESIDUAL;
    bool given = false;
    char name[64];
    if (strcmp(word, "none") == 0) return CLI_OK;
    if (strcmp(word, "paper-fp4") == 0) {
        a->paper = true;
        return CLI_OK;
    }
    (void)snprintf(name, sizeof name, "%s", word);
    for (size_t i = 0; i < NB_COUNT(refine); i++) {
        const size_t n = strlen(word), m = strlen(refine[i]);
        if (n <= m || strcmp(word + n - m, refine[i]) != 0) continue;
        kind = (nb_attn_refine)i;
        given = true;
        word[n - m] = 0;
        break;
    }
    nb_thrift_method m;
    if (strlen(name) >= sizeof m.name || nb_thrift_method_parse(word, &m) != NB_OK)
        return cli_usage("--methods: %s: expected none, token, token-top, block-mean, "
                         "block-mean-causal, quest, local, block-prob, oracle, oracle-token "
                         "(each also with :head, :fp8, :bf16), paper-fp4 or all",
                         name);
    if (a->n_method == NB_THRIFT_MAX_METHODS)
        return cli_usage("--methods: more than %d", NB_THRIFT_MAX_METHODS);
    (void)snprintf(m.name, sizeof m.name, "%.*s", (int)sizeof m.name - 1, name);
    /* A residual plane is of one segment: with K and V apart it would refine half of a token. */
    if (!given && a->stress.kv_heads > 0 && a->o->eval.stress) kind = NB_REFINE_BF16;
    a->method[a->n_method] = m;
    a->refine[a->n_method++] = kind;
    return CLI_OK;
}

static int read_methods(eval_attn *a)
{
    const char *list = a->o->eval.methods ? a->o->eval.methods : DEFAULT_METHODS;
    if (strcmp(list, "all") == 0) list = ALL_METHODS;
    int code = CLI_OK;
    for (const char *p = list; code == CLI_OK;) {
        char word[64];
        const size_t n = strcspn(p, ",");
        (void)snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), p);
        code = add_method(a, word);
        p += n;
        if (!*p++) break;
    }
    nb_error err = { 0 };
    const char *f = a->o->eval.fractions ? a->o->eval.fractions : DEFAULT_FRACTIONS;
    if (code == CLI_OK && nb_thrift_fractions(f, a->fraction, &a->n_fraction, &err) != NB_OK)
        code = cli_usage("--%s", err.msg);
    return code;
}

/* ---- formats ------------------------------------------------------------------ */

static bool is_word(const char *s, const char *word)
{
    return s && strcmp(s, word) == 0;
}

/* In the arena, or NULL without memory. */
static const char *word_of(eval_attn *a, const nb_engine_options *o)
{
    nb_buf b = { 0 };
    const char *word =
        nb_variant_word(o, &b) == NB_OK ? nb_arena_strdup(&a->arena, nb_buf_view(&b)) : NULL;
    nb_buf_deinit(&b);
    return word;
}

/* The formats, with bf16 in front where it is not among them. */
static int read_forms(eval_attn *a)
{
    nb_error err = { 0 };
    const opts *o = a->o;
    const nb_engine_options base = opts_engine(o);
    const bool said = o->kv_cache_dtype && strcmp(o->kv_cache_dtype, "auto") != 0;
    const char *list = o->eval.formats ? o->eval.formats
                       : said          ? base.kv_cache_dtype
                                       : DEFAULT_FORMATS;
    nb_variant *v;
    size_t n;
    if (nb_variant_list(list, &base, &a->arena, &v, &n, &err) != NB_OK)
        return cli_usage("--formats: %s", err.msg);
    a->v = nb_arena_array(&a->arena, n + 1, sizeof *a->v);
    if (!a->v) return cli_failed("out of memory");
    if (!o->eval.formats && said && !(v[0].name = word_of(a, &v[0].options)))
        return cli_failed("out of memory");
    a->n_form = 0;
    bool has_floor = false;
    for (size_t i = 0; i < n; i++) has_floor = has_floor || is_word(v[i].name, "bf16");
    if (!has_floor)
        a->v[a->n_form++] = (nb_variant){ .name = "bf16", .options = { .kv_cache_dtype = "bf16" } };
    for (size_t i = 0; i < n; i++) a->v[a->n_form++] = v[i];
    a->base = a->n_form;
    for (size_t i = 0; i < a->n_form; i++) {
        const nb_engine_options *e = &a->v[i].options;
        a->word[i] = word_of(a, e);
        if (!a->word[i]) return cli_failed("out of memory");
        if (is_word(a->v[i].name, "bf16")) a->floor = i;
        const bool thrift = e->kv_thrift && strcmp(e->kv_thrift, "off") != 0;
        const bool four =
            !thrift && (is_word(e->kv_cache_dtype, "nvfp4") || is_word(e->kv_cache_dtype, "if4"));
        if (four && a->base == a->n_form) a->base = i;
        /* Of equal rank: the default encoder of nvfp4. */
        if (is_word(a->v[i].name, "nvfp4")) a->base = i;
        if (e->kv_calibration && a->o->eval.stress)
            return cli_usage("%s: a calibration is of a model, not of generated tensors",
                             a->v[i].name);
        if (!e->kv_calibration) continue;
        if (nb_kv_calib_read(e->kv_calibration, &a->calib[i], &err) != NB_OK)
            return cli_failed("%s: %s", a->v[i].name, err.msg);
        a->has_calib[i] = true;
    }
    if (a->base < a->n_form) return CLI_OK;
    if (o->eval.methods && a->n_method)
        return cli_usage("--methods: nothing to refine: --formats has no nvfp4 and no if4");
    a->n_method = 0;
    return CLI_OK;
}

/* What variant i is in this layer. */
static int form_opts(const eval_attn *a, size_t i, const nb_capture_layer *l, nb_attn_form_opts *f)
{
    const nb_engine_options *e = &a->v[i].options;
    nb_error err = { 0 };
    bool ok = true;
    *f = (nb_attn_form_opts){ .name = a->v[i].name };
    const char *type = e->kv_cache_dtype, *mode = e->kv_cache_mode, *rope = e->kv_rope_dtype;
    f->n_outlier = e->kv_outliers;
    f->n_sink = e->kv_sinks;
    if (e->kv_thrift && strcmp(e->kv_thrift, "off") != 0) {
        f->thrift = e->kv_thrift;
        f->tau = e->kv_thrift_tau;
        f->fraction = e->kv_thrift_fraction;
    }
    if (a->has_calib[i]) {
        const nb_kv_calib *c = &a->calib[i];
        if (strcmp(c->model_hash, a->hash) != 0)
            return cli_failed("%s: %s is of another model", a->v[i].name, e->kv_calibration);
        if (c->n_layer != l->n_layer)
            return cli_failed("%s: %s has %zu layers, the model %zu", a->v[i].name,
                              e->kv_calibration, c->n_layer, l->n_layer);
        f->calib = &c->layer[l->layer];
        f->by_calib = !e->kv_transform;
        if ((!type || strcmp(type, "auto") == 0) && f->calib->kv_dtype[0]) {
            type = f->calib->kv_dtype;
            if (!mode && f->calib->kv_mode[0]) mode = f->calib->kv_mode;
            if (!rope && l->is_mla) rope = nb_rope_fmt_name(f->calib->rope);
            if (!f->n_outlier) f->n_outlier = f->calib->n_outlier;
            f->rope_outlier = f->calib->rope_outlier;
            f->n_rope_outlier = f->calib->n_rope_outlier;
        }
    }
    if (e->kv_skip_layers && in_list(e->kv_skip_layers, l->layer, &ok)) {
        type = "bf16";
        f->n_outlier = 0;
        f->thrift = NULL;
    }
    if (!ok) return cli_usage("%s: skip: expected layers such as 0+3-5", a->v[i].name);
    if (nb_attn_form_parse(f, type, mode, rope, e->kv_transform, &err) != NB_OK)
        return cli_usage("%s: %s", a->v[i].name, err.msg);
    return CLI_OK;
}

/* ---- layers ------------------------------------------------------------------- */

typedef struct walk {
    eval_attn *a;
    size_t window, n_done, n_all;
    int code;
    nb_arena work;
} walk;

static int measure(walk *w, const nb_capture_layer *l)
{
    eval_attn *a = w->a;
    nb_error err = { 0 };
    nb_attn_form_opts form[EVAL_ATTN_FORMS];
    bool ok = true;
    int code = CLI_OK;
    a->n_layer = l->n_layer;
    const bool on = !a->o->eval.layers || in_list(a->o->eval.layers, l->layer, &ok);
    if (!ok) return cli_usage("--layers %s: expected layers such as 0,3-5", a->o->eval.layers);
    if (!on) return CLI_OK;
    for (size_t i = 0; i < a->n_form && code == CLI_OK; i++) code = form_opts(a, i, l, &form[i]);
    if (code == CLI_OK && a->o->eval.dump) {
        char name[64];
        (void)snprintf(name, sizeof name, "window%zu_layer%zu", w->window, l->layer);
        code = eval_attn_dump(a->o->eval.dump, name, l);
    }
    if (code != CLI_OK) return code;
    nb_attn_refine refine[NB_THRIFT_MAX_METHODS];
    for (size_t i = 0; i < a->n_method; i++)
        refine[i] =
            !l->is_mla && a->refine[i] == NB_REFINE_RESIDUAL ? NB_REFINE_BF16 : a->refine[i];
    memcpy(a->refine, refine, a->n_method * sizeof *refine);
    const nb_attn_plan plan = { .form = form,
                                .n_form = a->n_form,
                                .base = a->base,
                                .method = a->method,
                                .refine = a->refine,
                                .n_method = a->n_method,
                                .fraction = a->fraction,
                                .n_fraction = a->n_fraction,
                                .tau = a->o->eval.tau > 0 ? a->o->eval.tau : 1e-3,
                                .paper = a->paper,
                                .paper_fraction = 0.05 };
    if (NB_GROW(a->r, a->cap_r, a->n_r) != NB_OK) return cli_failed("out of memory");
    nb_arena_reset(&w->work);
    const nb_status st = nb_attn_layer_run(&plan, l, &a->arena, &w->work, &a->r[a->n_r], &err);
    if (st != NB_OK) return cli_status(st, &err);
    a->n_r++;
    cli_progress(NULL, "layers", ++w->n_done, w->n_all);
    return CLI_OK;
}

static int on_layer(void *ctx, const nb_capture_layer *l)
{
    walk *w = ctx;
    if (w->n_all == 0) w->n_all = l->n_layer * w->a->n_window;
    w->code = measure(w, l);
    return w->code != CLI_OK;
}

static int run_stress(eval_attn *a, walk *w)
{
    const size_t n_layer = (size_t)a->stress.n_layer;
    nb_arena arena = { 0 };
    int code = CLI_OK;
    a->n_window = 1;
    w->n_all = n_layer;
    for (size_t i = 0; i < n_layer && code == CLI_OK; i++) {
        nb_error err = { 0 };
        nb_stress_layer l;
        nb_arena_reset(&arena);
        const nb_status st = nb_stress_make(&a->stress, i, &arena, &l, &err);
        if (st != NB_OK)
            code = cli_status(st, &err);
        else if (nb_stress_print(&l.drawn, &a->drawn) != NB_OK ||
                 nb_buf_add_ch(&a->drawn, 0) != NB_OK)
            code = cli_failed("out of memory");
        else
            code = measure(w, &l.view);
    }
    nb_arena_deinit(&arena);
    return code;
}

/* Positions of the queries: evenly over the text behind its first page. */
static size_t positions(size_t n_tok, size_t n_query, size_t *pos)
{
    const size_t first = n_tok > 128 ? 64 : n_tok / 2, span = n_tok - first;
    const size_t n = n_query < span ? n_query : span;
    for (size_t i = 0; i < n; i++) pos[i] = first + (i + 1) * span / n - 1;
    return n;
}

static int run_text(eval_attn *a, walk *w)
{
    const opts *o = a->o;
    nb_error err = { 0 };
    eval_windows win = { 0 };
    nb_engine *e = NULL;
    nb_variant exact = { .name = "bf16" };
    size_t *pos = NULL;
    opts plain = *o;
    plain.kv_cache_dtype = "auto";
    plain.device = "cpu"; /* attention inputs are taken there */
    plain.kv_cache_mode = plain.kv_rope_dtype = plain.kv_calibration = plain.kv_transform =
        plain.kv_skip_layers = plain.kv_scales = plain.kv_thrift = NULL;
    plain.kv_outliers = plain.kv_sinks = 0;
    int code = eval_read_windows(o, o->eval.context ? o->eval.context : EVAL_CONTEXT_DEFAULT, &win);
    const nb_engine_options base = opts_engine(&plain);
    const char *ref = o->eval.reference ? o->eval.reference : "bf16";
    if (code == CLI_OK && nb_variant_parse(ref, &base, &a->arena, &exact, &err) != NB_OK)
        code = cli_usage("--reference: %s", err.msg);
    exact.options.max_model_len = win.context;
    exact.options.no_text = true;
    const size_t n_query = o->eval.n_query ? o->eval.n_query : 64;
    if (code == CLI_OK) pos = calloc(n_query, sizeof *pos);
    if (code == CLI_OK && !pos) code = cli_failed("out of memory");
    if (code == CLI_OK) code = eval_open_engine(&exact, &e, NULL);
    if (code == CLI_OK && nb_engine_model_hash(e, a->hash, &err) != NB_OK)
        code = cli_failed("%s", err.msg);
    a->n_window = win.n;
    for (w->window = 0; w->window < win.n && code == CLI_OK; w->window++) {
        const size_t begin = win.begin[w->window], n = win.begin[w->window + 1] - begin;
        const size_t n_pos = positions(n, n_query, pos);
        const nb_status st =
            nb_engine_capture(e, win.ids + begin, n, pos, n_pos, on_layer, w, &err);
        code = w->code != CLI_OK ? w->code : st != NB_OK ? cli_status(st, &err) : CLI_OK;
    }
    nb_engine_destroy(e);
    free(pos);
    eval_windows_deinit(&win);
    return code;
}

int eval_attn_run(const opts *o, eval_report *out)
{
    eval_attn a = { .o = o };
    walk w = { .a = &a };
    nb_error err = { 0 };
    int code = CLI_OK;
    nb_stress_defaults(&a.stress, o->eval.seed);
    if (o->eval.n_query) a.stress.n_query = (double)o->eval.n_query;
    if (o->eval.stress_set && !o->eval.stress)
        code = cli_usage("--stress-set: only with --stress");
    else if (o->eval.stress_set && nb_stress_set(&a.stress, o->eval.stress_set, &err) != NB_OK)
        code = cli_usage("--stress-set: %s", err.msg);
    else if (o->eval.stress && nb_stress_check(&a.stress, &err) != NB_OK)
        code = cli_usage("%s", err.msg);
    if (code == CLI_OK) code = read_methods(&a);
    if (code == CLI_OK) code = read_forms(&a);
    if (code == CLI_OK) code = o->eval.stress ? run_stress(&a, &w) : run_text(&a, &w);
    cli_progress_end();
    if (code == CLI_OK && a.n_r == 0)
        code = cli_failed("--layers %s: no such layer", o->eval.layers ? o->eval.layers : "");
    if (code == CLI_OK) code = eval_attn_report(&a, out);
    for (size_t i = 0; i < EVAL_ATTN_FORMS; i++)
        if (a.has_calib[i]) nb_kv_calib_deinit(&a.calib[i]);
    nb_arena_deinit(&w.work);
    nb_arena_deinit(&a.arena);
    nb_buf_deinit(&a.drawn);
    free(a.r);
    return code;
}

int cmd_eval_attn(const opts *o)
{
    eval_report r = { 0 };
    if (!o->eval.stress && !o->eval.text && !o->eval.tokens)
        return cli_usage("eval attn: --text FILE is missing (or --stress)");
    int code = eval_try_outputs(o);
    if (code == CLI_OK) code = eval_attn_run(o, &r);
    return eval_finish(o, code, &r);
}
