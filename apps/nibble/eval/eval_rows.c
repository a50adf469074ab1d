/* eval_rows.c - see eval_rows.h.
 *
 * All engines are open at once: their weights are mapped, so what they have in common is in memory
 * once.  A window's rows of the reference are kept, and each variant's rows are compared with
 * them as they come.  Where they do not fit KEEP_BYTES a window is worked off in slices, whose
 * beginning is computed again for each: twice the work for the largest vocabularies, and never
 * more memory.
 *
 * Engines compute one after the other, so what they take from each other is nothing, and their
 * threads are the threads that were asked for. */
#include "eval_rows.h"

#include <stdlib.h>

static const size_t KEEP_BYTES = (size_t)1 << 30;

void eval_rows_deinit(eval_rows *r)
{
    eval_windows_deinit(&r->text);
    for (size_t i = 0; i < r->n_of; i++) {
        free(r->of[i].kl);
        free(r->of[i].nll);
        free(r->of[i].same);
        json_decref(r->of[i].cost);
    }
    json_decref(r->ref_cost);
    free(r->of);
    free(r->window);
    free(r->pos);
    free(r->next);
    free(r->nll_ref);
    *r = (eval_rows){ 0 };
}

nb_lockstep_rows eval_rows_view(const eval_rows *r, size_t i)
{
    return (nb_lockstep_rows){ .n = r->n,
                               .window = r->window,
                               .pos = r->pos,
                               .nll_ref = r->nll_ref,
                               .nll = r->of[i].nll,
                               .kl = r->of[i].kl,
                               .same = r->of[i].same };
}

/* ---- the work ----------------------------------------------------------------- */

typedef struct work {
    const opts *o;
    eval_rows *r;
    nb_engine **engine; /* [n_of + 1]: the reference, then r->of */
    float *keep;        /* [slice][vocab] rows of the reference */
    nb_row_ref *kept;   /* [slice] */
    size_t slice;
    size_t *want;         /* [slice] positions */
    size_t n_done, n_all; /* rows of all engines, for the progress bar */
    /* of the slice that is computed */
    size_t base;     /* row of r that its first position has */
    size_t first, n; /* positions first ... first + n - 1 */
    size_t system;   /* 0: the reference, i + 1: r->of[i] */
    nb_status st;
} work;

/* Position `row` of the window that is computed. */
static int on_row(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    work *w = ctx;
    eval_rows *r = w->r;
    if (row < w->first || row >= w->first + w->n) return 0;
    const size_t k = row - w->first, at = w->base + k;
    float *keep = w->keep + k * r->vocab;
    if (n_vocab != r->vocab) {
        w->st = NB_ERR_INTERNAL;
    } else if (w->system == 0) {
        memcpy(keep, logits, n_vocab * sizeof *keep);
        w->st = nb_lockstep_ref(logits, n_vocab, r->next[at], &w->kept[k]);
        r->nll_ref[at] = w->kept[k].nll;
    } else {
        nb_row_diff d = { 0 };
        eval_rows_of *of = &r->of[w->system - 1];
        w->st = nb_lockstep_diff(keep, &w->kept[k], logits, n_vocab, r->next[at], &d);
        of->kl[at] = d.kl;
        of->nll[at] = d.nll;
        of->same[at] = d.same_best;
    }
    cli_progress(NULL, "measuring", ++w->n_done, w->n_all);
    return w->st != NB_OK;
}

static const char *name_of(const work *w)
{
    return w->system ? w->r->of[w->system - 1].name : w->r->ref_name;
}

/* The rows of a slice under one engine; ids: of the window up to its last row. n_prompt: what is
 * computed as a prompt with --decode. */
static int compute(work *w, const uint32_t *ids, size_t n_ids, size_t n_prompt)
{
    nb_error err = { 0 };
    nb_engine *e = w->engine[w->system];
    for (size_t k = 0; k < w->n; k++) w->want[k] = w->first + k;
    w->st = NB_OK;
    const nb_status st = w->o->eval.decode && n_ids > n_prompt
                             ? nb_engine_forced(e, ids, n_ids, n_prompt, on_row, w, &err)
                             : nb_logits(e, ids, n_ids, w->want, w->n, on_row, w, &err);
    if (w->st != NB_OK)
        return cli_failed("%s: logits of a row: %s", name_of(w), nb_status_text(w->st));
    return st == NB_OK
               ? CLI_OK
               : cli_failed("%s: %s", name_of(w), err.msg[0] ? err.msg : nb_status_text(st));
}

static int measure_window(work *w, size_t window)
{
    const eval_windows *t = &w->r->text;
    const uint32_t *ids = t->ids + t->begin[window];
    const size_t n_ids = t->begin[window + 1] - t->begin[window];
    const size_t n_prompt = t->skip[window] ? t->skip[window] : 1, end = n_ids - 1;
    for (w->first = n_prompt - 1; w->first < end; w->first += w->n) {
        w->n = end - w->first < w->slice ? end - w->first : w->slice;
        for (w->system = 0; w->system <= w->r->n_of; w->system++) {
            const int code = compute(w, ids, w->first + w->n, n_prompt);
            if (code != CLI_OK) return code;
        }
        w->base += w->n;
    }
    return CLI_OK;
}

static int measure_all(work *w)
{
    eval_rows *r = w->r;
    w->slice = KEEP_BYTES / (r->vocab * sizeof *w->keep);
    if (w->slice > r->text.context) w->slice = r->text.context;
    if (w->slice == 0) w->slice = 1;
    w->n_all = r->n * (r->n_of + 1);
    w->keep = malloc(w->slice * r->vocab * sizeof *w->keep);
    w->kept = calloc(w->slice, sizeof *w->kept);
    w->want = calloc(w->slice, sizeof *w->want);
    int code = w->keep && w->kept && w->want ? CLI_OK : cli_failed("out of memory");
    for (size_t i = 0; code == CLI_OK && i < r->text.n; i++) code = measure_window(w, i);
    cli_progress_end();
    free(w->keep);
    free(w->kept);
    free(w->want);
    return code;
}

/* ---- setting up --------------------------------------------------------------- */

/* Row p of a window says how likely its token p + 1 is; those that are only context do not count. */
static int list_rows(eval_rows *r)
{
    const eval_windows *t = &r->text;
    for (size_t i = 0; i < t->n; i++)
        r->n += t->begin[i + 1] - t->begin[i] - (t->skip[i] ? t->skip[i] : 1);
    r->window = calloc(r->n, sizeof *r->window);
    r->pos = calloc(r->n, sizeof *r->pos);
    r->next = calloc(r->n, sizeof *r->next);
    r->nll_ref = calloc(r->n, sizeof *r->nll_ref);
    if (!r->window || !r->pos || !r->next || !r->nll_ref) return cli_failed("out of memory");
    size_t k = 0;
    for (size_t i = 0; i < t->n; i++) {
        const size_t n = t->begin[i + 1] - t->begin[i];
        for (size_t p = (t->skip[i] ? t->skip[i] : 1) - 1; p + 1 < n; p++, k++) {
            r->window[k] = (uint32_t)i;
            r->pos[k] = (uint32_t)p;
            r->next[k] = t->ids[t->begin[i] + p + 1];
            if (p > r->max_pos) r->max_pos = p;
        }
    }
    return CLI_OK;
}

static int check_ids(const eval_rows *r)
{
    for (size_t i = 0; i < r->text.n_tok; i++)
        if (r->text.ids[i] >= r->vocab)
            return cli_failed("token id %u: the model's vocabulary has %zu",
                              (unsigned)r->text.ids[i], r->vocab);
    return CLI_OK;
}

static int add_system(eval_rows *r, const char *name)
{
    eval_rows_of *of = &r->of[r->n_of++];
    *of = (eval_rows_of){ .name = name,
                          .kl = calloc(r->n, sizeof(double)),
                          .nll = calloc(r->n, sizeof(double)),
                          .same = calloc(r->n, sizeof(double)),
                          .cost = json_object() };
    return of->kl && of->nll && of->same && of->cost ? CLI_OK : cli_failed("out of memory");
}

static int open_one(const nb_variant *v, eval_rows *r, nb_engine **out, json_t *cost)
{
    nb_engine_info info;
    nb_variant mine = *v;
    mine.options.no_prefix_caching = true; /* every row is computed, by every engine */
    mine.options.max_num_seqs = 1;
    mine.options.max_model_len = r->text.context;
    const int code = eval_open_engine(&mine, out, &info);
    if (code != CLI_OK) return code;
    r->vocab = info.vocab;
    return eval_json_cost(cost, v, &info);
}

/* engine[0] reference, [1] floor, then the variants. */
static int open_all(const opts *o, const eval_variants *v, eval_rows *r, nb_engine **engine)
{
    nb_variant floor_v = v->reference;
    nb_error err = { 0 };
    r->ref_name = v->reference.name;
    r->ref_cost = json_object();
    r->of = calloc(v->n + 1, sizeof *r->of);
    if (!r->of || !r->ref_cost) return cli_failed("out of memory");
    r->chunk_ref = o->prefill_chunk ? o->prefill_chunk : 512;
    r->chunk_floor = r->chunk_ref == 192 ? 320 : 192;
    floor_v.options.prefill_chunk = r->chunk_floor;
    int code = open_one(&v->reference, r, &engine[0], r->ref_cost);
    if (code == CLI_OK) code = check_ids(r);
    if (code == CLI_OK && nb_engine_model_hash(engine[0], r->hash, &err) != NB_OK)
        code = cli_failed("%s", err.msg);
    if (code == CLI_OK) code = add_system(r, "floor");
    if (code == CLI_OK) code = open_one(&floor_v, r, &engine[1], r->of[0].cost);
    for (size_t i = 0; code == CLI_OK && i < v->n; i++) {
        code = add_system(r, v->v[i].name);
        if (code == CLI_OK) code = open_one(&v->v[i], r, &engine[i + 2], r->of[i + 1].cost);
    }
    return code;
}

int eval_rows_measure(const opts *o, const eval_variants *v, eval_rows *out)
{
    *out = (eval_rows){ 0 };
    nb_engine **engine = calloc(v->n + 2, sizeof(nb_engine *));
    if (!engine) return cli_failed("out of memory");
    int code = eval_read_windows(o, EVAL_TOKENS_DEFAULT, &out->text);
    if (code == CLI_OK) code = list_rows(out);
    if (code == CLI_OK) code = open_all(o, v, out, engine);
    if (code == CLI_OK) code = measure_all(&(work){ .o = o, .r = out, .engine = engine });
    for (size_t i = 0; i < v->n + 2; i++) nb_engine_destroy(engine[i]);
    free(engine);
    return code;
}
