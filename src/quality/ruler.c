/* ruler.c - sets of prompts: which texts, how long, and the words of the command line.
 *
 * A text is laid out for a number of units (sentences, lines, rare words) and tokenised; the
 * largest number whose prompts fit is searched between a number that fits and one that does not,
 * each guess from the tokens per unit so far: four or five texts are tokenised for one. */
#include "quality/ruler.h"

#include <stdlib.h>

#include "quality/ruler_internal.h"

enum { SLACK_TOK = 8, MAX_LENGTH_TOK = 1 << 24, MAX_SAMPLE = 1000000, MAX_DEPTH = 100 };

/* ---- names ------------------------------------------------------------------ */

static const char *const task_name[NB_RULER_N_TASK] = {
    [NB_RULER_SINGLE] = "niah_single",
    [NB_RULER_MULTIKEY] = "niah_multikey",
    [NB_RULER_MULTIVALUE] = "niah_multivalue",
    [NB_RULER_MULTIQUERY] = "niah_multiquery",
    [NB_RULER_VT] = "vt",
    [NB_RULER_CWE] = "cwe",
    [NB_RULER_FWE] = "fwe",
};

static const struct dialect {
    const char *name;
    unsigned tasks;
} dialects[NB_RULER_N_DIALECT] = {
    { "ruler", (1u << NB_RULER_N_TASK) - 1 },
    { "plain", (1u << NB_RULER_CWE) - 1 },
};

const char *nb_ruler_task_name(nb_ruler_task t)
{
    return (unsigned)t < NB_RULER_N_TASK ? task_name[t] : "?";
}

unsigned nb_ruler_dialect_tasks(const char *dialect)
{
    for (size_t i = 0; i < NB_COUNT(dialects); i++)
        if (dialect && strcmp(dialects[i].name, dialect) == 0) return dialects[i].tasks;
    return 0;
}

static nb_status unknown_task(nb_str w, unsigned has, const char *dialect, nb_error *err)
{
    char list[256] = "";
    size_t n = 0;
    for (unsigned t = 0; t < NB_RULER_N_TASK; t++)
        if (has & 1u << t)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", task_name[t]);
    return nb_fail(err, NB_ERR_ARG, "task %.*s: the dialect %s has %s",
                   (int)(w.n_bytes < 64 ? w.n_bytes : 64), w.p, dialect, list);
}

nb_status nb_ruler_parse_tasks(const char *list, const char *dialect, unsigned *out, nb_error *err)
{
    const unsigned has = nb_ruler_dialect_tasks(dialect);
    unsigned bits = 0;
    if (!has)
        return nb_fail(err, NB_ERR_ARG, "dialect %s: expected ruler or plain",
                       dialect ? dialect : "");
    if (!list) {
        *out = has;
        return NB_OK;
    }
    for (const char *p = list;; p++) {
        const nb_str w = { p, strcspn(p, ",") };
        unsigned bit = 0;
        for (unsigned t = 0; t < NB_RULER_N_TASK; t++)
            if (nb_str_eqc(w, task_name[t])) bit = 1u << t;
        if (!(bit & has)) return unknown_task(w, has, dialect, err);
        if (bits & bit)
            return nb_fail(err, NB_ERR_ARG, "task %.*s is named twice", (int)w.n_bytes, w.p);
        bits |= bit;
        p += w.n_bytes;
        if (!*p) break;
    }
    *out = bits;
    return NB_OK;
}

nb_status nb_ruler_parse_lengths(const char *list, size_t out[NB_RULER_MAX_LENGTHS], size_t *n,
                                 nb_error *err)
{
    size_t len[NB_RULER_MAX_LENGTHS], count = 0;
    for (const char *p = list ? list : "";; p++) {
        const char *begin = p;
        uint64_t v = 0;
        for (; *p >= '0' && *p <= '9' && v <= MAX_LENGTH_TOK; p++)
            v = v * 10 + (uint64_t)(*p - '0');
        const bool digits = p > begin;
        if (*p == 'k' || *p == 'K') {
            v *= 1024;
            p++;
        }
        if (!digits || (*p && *p != ',') || v < 1 || v > MAX_LENGTH_TOK)
            return nb_fail(err, NB_ERR_ARG,
                           "lengths %s: expected tokens such as 512,2k,4k, at most %d",
                           list ? list : "", (int)MAX_LENGTH_TOK);
        if (count == NB_RULER_MAX_LENGTHS)
            return nb_fail(err, NB_ERR_LIMIT, "lengths %s: at most %d", list,
                           (int)NB_RULER_MAX_LENGTHS);
        if (count && v <= len[count - 1])
            return nb_fail(err, NB_ERR_ARG, "lengths %s: expected them ascending, each once", list);
        len[count++] = (size_t)v;
        if (!*p) break;
    }
    memcpy(out, len, sizeof len);
    *n = count;
    return NB_OK;
}

/* ---- the text of n units ----------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const nb_ruler_needle *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* Inside a paragraph a needle is a sentence of it, before a paragraph a paragraph of its own. */
static nb_status lay_out(nb_ruler_context *c, size_t n, nb_buf *out)
{
    const char *end = "\n";
    size_t k = 0;
    NB_TRY(nb_ruler_hay_reserve(c, n));
    for (size_t i = 0; i <= n; i++) {
        for (; k < c->n_needle && (i == n || (size_t)(c->needle[k].at * (double)n + 0.5) <= i);
             k++) {
            if (!*end && i < n) {
                NB_TRY(nb_buf_printf(out, " %s", c->needle[k].text));
                continue;
            }
            if (!*end) NB_TRY(nb_buf_add_c(out, end = "\n"));
            NB_TRY(nb_buf_printf(out, "%s\n", c->needle[k].text));
        }
        if (i == n) break;
        const nb_ruler_unit *u = &c->hay.unit[i];
        NB_TRY(nb_buf_printf(out, "%s%s%s", *end ? "" : " ", u->text, u->end));
        end = u->end;
    }
    return *end ? NB_OK : nb_buf_add_ch(out, '\n');
}

static nb_status write_text(nb_ruler_context *c, size_t n, nb_buf *out)
{
    out->n_bytes = 0;
    NB_TRY(nb_buf_add_c(out, c->intro));
    NB_TRY(c->write ? c->write(c, n, out) : lay_out(c, n, out));
    return c->failed;
}

/* Tokens of the text with question q, and of what it may generate. */
typedef struct measured {
    uint32_t *ids, *full; /* of the caller: free */
    size_t n_ids, n_full, n_given, max_tok;
} measured;

static void measured_deinit(measured *m)
{
    free(m->ids);
    free(m->full);
    *m = (measured){ 0 };
}

static nb_status measure(const nb_ruler_options *o, nb_buf *text, const char *question,
                         const char *answer, size_t max_tok, measured *m, nb_error *err)
{
    const size_t n_text = text->n_bytes;
    nb_status st = nb_buf_add_c(text, question);
    if (st == NB_OK) st = o->encode(o->encode_ctx, text->p, text->n_bytes, &m->ids, &m->n_ids, err);
    if (st == NB_OK) st = nb_buf_add_c(text, answer);
    if (st == NB_OK)
        st = o->encode(o->encode_ctx, text->p, text->n_bytes, &m->full, &m->n_full, err);
    text->n_bytes = n_text;
    if (text->p) text->p[n_text] = 0;
    if (st != NB_OK) return st == NB_ERR_NOMEM ? nb_fail(err, st, "no memory for the prompts") : st;
    while (m->n_given < m->n_ids && m->n_given < m->n_full &&
           m->ids[m->n_given] == m->full[m->n_given])
        m->n_given++;
    if (m->n_given == 0 || m->n_given == m->n_full)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "this tokenizer makes no tokens of the answer \"%s\"", answer);
    m->max_tok = max_tok ? max_tok : m->n_full - m->n_given + SLACK_TOK;
    return NB_OK;
}

/* Tokens of the longest prompt of the text, with what it may generate. */
static nb_status longest(nb_ruler_context *c, nb_buf *text, size_t only, size_t *out, size_t *which,
                         nb_error *err)
{
    *out = 0;
    for (size_t i = 0; i < c->n_q; i++) {
        measured m = { 0 };
        if (only < c->n_q && i != only) continue;
        const nb_status st =
            measure(c->o, text, c->q[i].text, c->q[i].answer, c->q[i].max_tok, &m, err);
        const size_t n = m.n_ids + m.max_tok;
        measured_deinit(&m);
        if (st != NB_OK) return st;
        if (n > *out) {
            *out = n;
            *which = i;
        }
    }
    return NB_OK;
}

/* The most units that fit; the text for them is in *text. */
static nb_status fit(nb_ruler_context *c, nb_buf *text, nb_error *err)
{
    size_t lo = 0, hi = SIZE_MAX, lo_tok = 0, n = 0, n_tok = 0, which = 0, unused;
    const size_t floor_n = c->write ? 1 : 0;
    nb_status st = write_text(c, floor_n, text);
    if (st == NB_OK) st = longest(c, text, SIZE_MAX, &n_tok, &which, err);
    if (st != NB_OK) return st;
    if (n_tok > c->length)
        return nb_fail(err, NB_ERR_LIMIT,
                       "length %zu is too short for %s: it needs at least %zu tokens", c->length,
                       c->n_q > 1 ? "these tasks" : task_name[c->q[0].task], n_tok);
    lo = floor_n;
    lo_tok = n_tok;
    double per_unit = 12;
    while (hi - lo > 1) {
        const double step = (double)(c->length - lo_tok) / per_unit;
        n = lo + (step >= 1 ? (size_t)step : 1);
        if (n >= hi) n = lo + (hi - lo) / 2;
        if ((st = write_text(c, n, text)) != NB_OK) return st;
        if ((st = longest(c, text, which, &n_tok, &unused, err)) != NB_OK) return st;
        if (n_tok > lo_tok) per_unit = (double)(n_tok - lo_tok) / (double)(n - lo);
        if (n_tok <= c->length) {
            lo = n;
            lo_tok = n_tok;
        } else {
            hi = n;
        }
    }
    for (;; lo--) { /* questions that were not the longest at first */
        if ((st = write_text(c, lo, text)) != NB_OK) return st;
        if ((st = longest(c, text, SIZE_MAX, &n_tok, &unused, err)) != NB_OK) return st;
        if (n_tok <= c->length || lo == floor_n) return NB_OK;
    }
}

/* ---- a set -------------------------------------------------------------------- */

typedef struct maker {
    const nb_ruler_options *o;
    nb_ruler_set *set;
    size_t cap;
    nb_buf text;
} maker;

static void *keep(nb_arena *a, const void *p, size_t n_bytes)
{
    void *q = nb_arena_alloc(a, n_bytes ? n_bytes : 1);
    if (q && n_bytes) memcpy(q, p, n_bytes);
    return q;
}

static const char *keep_text(nb_arena *a, const char *s, size_t n)
{
    return nb_arena_strdup(a, (nb_str){ s, n });
}

/* Fills the parts of *it that follow from prompt, answer and max_tok. */
static nb_status finish_item(nb_ruler_set *set, nb_ruler_item *it, measured *m, nb_error *err)
{
    it->ids = keep(&set->arena, m->ids, m->n_ids * sizeof *m->ids);
    it->full = keep(&set->arena, m->full, m->n_full * sizeof *m->full);
    it->n_ids = m->n_ids;
    it->n_full = m->n_full;
    it->n_given = m->n_given;
    it->max_tok = m->max_tok;
    if (!it->ids || !it->full || !it->prompt || !it->answer || !it->kind || !it->refs)
        return nb_fail(err, NB_ERR_NOMEM, "no memory for the prompts");
    const size_t most = it->n_ids + it->max_tok > it->n_full ? it->n_ids + it->max_tok : it->n_full;
    if (most > set->max_tok) set->max_tok = most;
    set->n++;
    return NB_OK;
}

nb_status nb_ruler_add_item(nb_ruler_set *set, size_t *cap, const nb_ruler_item *it,
                            const nb_ruler_options *o, nb_error *err)
{
    measured m = { 0 };
    nb_buf b = { 0 };
    nb_status st = nb_buf_add_c(&b, it->prompt);
    if (st == NB_OK) st = measure(o, &b, "", it->answer, it->max_tok, &m, err);
    if (st == NB_OK && NB_GROW(set->item, *cap, set->n) != NB_OK)
        st = nb_fail(err, NB_ERR_NOMEM, "no memory for the prompts");
    if (st == NB_OK) {
        set->item[set->n] = *it;
        st = finish_item(set, &set->item[set->n], &m, err);
    }
    measured_deinit(&m);
    nb_buf_deinit(&b);
    return st;
}

static nb_status add_question(maker *k, nb_ruler_context *c, const nb_ruler_question *q,
                              nb_error *err)
{
    nb_arena *a = &k->set->arena;
    const size_t n_text = k->text.n_bytes, n_intro = strlen(c->intro);
    const char *needle = q->needle ? strstr(k->text.p + n_intro, q->needle) : NULL;
    const char **refs = nb_arena_array(a, q->n_ref, sizeof *refs);
    if (!refs || nb_buf_add_c(&k->text, q->text) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "no memory for the prompts");
    nb_ruler_item it = {
        .kind = task_name[q->task],
        .length = c->length,
        .depth = q->depth,
        .at = needle
                  ? (double)(needle - k->text.p - (ptrdiff_t)n_intro) / (double)(n_text - n_intro)
                  : -1,
        .context = (uint32_t)k->set->n_context,
        .prompt = keep_text(a, k->text.p, k->text.n_bytes),
        .answer = keep_text(a, q->answer, strlen(q->answer)),
        .refs = refs,
        .n_ref = q->n_ref,
        .first_line = strcmp(k->o->dialect, "plain") == 0,
        .max_tok = q->max_tok,
    };
    k->text.n_bytes = n_text;
    k->text.p[n_text] = 0;
    for (size_t i = 0; i < q->n_ref; i++)
        if (!(refs[i] = keep_text(a, q->refs[i], strlen(q->refs[i]))))
            return nb_fail(err, NB_ERR_NOMEM, "no memory for the prompts");
    if (!it.prompt || !it.answer) return nb_fail(err, NB_ERR_NOMEM, "no memory for the prompts");
    return nb_ruler_add_item(k->set, &k->cap, &it, k->o, err);
}

static nb_status add_context(maker *k, size_t length, unsigned tasks, size_t n_question,
                             size_t first, nb_error *err)
{
    const bool plain = strcmp(k->o->dialect, "plain") == 0;
    nb_ruler_context c = { .o = k->o, .length = length };
    c.rng = nb_ruler_rng_of(k->o->seed, length,
                            2 * (uint64_t)first * NB_RULER_N_TASK + (plain ? 0 : tasks));
    c.hay_rng = nb_ruler_rng_of(c.rng.seed, 1, 0);
    if (plain) {
        nb_ruler_plain_context(&c, tasks, n_question, first);
    } else {
        unsigned t = 0;
        while (!(tasks & 1u << t)) t++;
        nb_ruler_ruler_context(&c, (nb_ruler_task)t, first);
    }
    nb_status st = c.failed;
    if (st == NB_OK && c.n_needle) qsort(c.needle, c.n_needle, sizeof *c.needle, by_place);
    if (st == NB_OK) st = fit(&c, &k->text, err);
    for (size_t i = 0; st == NB_OK && i < c.n_q; i++) st = add_question(k, &c, &c.q[i], err);
    k->set->n_context++;
    nb_ruler_context_deinit(&c);
    return st == NB_ERR_NOMEM ? nb_fail(err, st, "no memory for the prompts") : st;
}

/* Questions of a task about one text of the plain dialect: short texts have less room. */
static size_t plain_questions(size_t length)
{
    return length < 768 ? 1 : length < 1536 ? 2 : 4;
}

static nb_status check_options(const nb_ruler_options *o, nb_error *err)
{
    const unsigned has = nb_ruler_dialect_tasks(o->dialect);
    if (!has)
        return nb_fail(err, NB_ERR_ARG, "dialect %s: expected ruler or plain",
                       o->dialect ? o->dialect : "");
    if (!o->tasks || (o->tasks & ~has))
        return nb_fail(err, NB_ERR_ARG, "the dialect %s has not all of these tasks", o->dialect);
    if (o->n_sample < 1 || o->n_sample > MAX_SAMPLE)
        return nb_fail(err, NB_ERR_ARG, "%zu samples: expected 1 to %d", o->n_sample,
                       (int)MAX_SAMPLE);
    if (o->n_depth < 1 || o->n_depth > MAX_DEPTH)
        return nb_fail(err, NB_ERR_ARG, "%zu depths: expected 1 to %d", o->n_depth, (int)MAX_DEPTH);
    if (!o->length || o->n_length < 1 || !o->encode)
        return nb_fail(err, NB_ERR_ARG, "no lengths or no tokenizer given");
    for (size_t i = 0; i < o->n_length; i++)
        if (o->length[i] < 1 || o->length[i] > MAX_LENGTH_TOK)
            return nb_fail(err, NB_ERR_ARG, "length %zu: expected 1 to %d tokens", o->length[i],
                           (int)MAX_LENGTH_TOK);
    return NB_OK;
}

static nb_status make_plain(maker *k, size_t length, nb_error *err)
{
    const size_t each = plain_questions(length), n = k->o->n_sample;
    for (size_t at = 0; at < n; at += each)
        NB_TRY(add_context(k, length, k->o->tasks, n - at < each ? n - at : each, at, err));
    return NB_OK;
}

static nb_status make_ruler(maker *k, size_t length, nb_error *err)
{
    for (unsigned t = 0; t < NB_RULER_N_TASK; t++)
        for (size_t i = 0; (k->o->tasks & 1u << t) && i < k->o->n_sample; i++)
            NB_TRY(add_context(k, length, 1u << t, 1, i, err));
    return NB_OK;
}

nb_status nb_ruler_make(const nb_ruler_options *o, nb_ruler_set *out, nb_error *err)
{
    *out = (nb_ruler_set){ 0 };
    NB_TRY(check_options(o, err));
    maker k = { .o = o, .set = out };
    nb_status st = NB_OK;
    for (size_t i = 0; st == NB_OK && i < o->n_length; i++)
        st = strcmp(o->dialect, "plain") == 0 ? make_plain(&k, o->length[i], err)
                                              : make_ruler(&k, o->length[i], err);
    nb_buf_deinit(&k.text);
    return st;
}

void nb_ruler_set_deinit(nb_ruler_set *s)
{
    free(s->item);
    nb_arena_deinit(&s->arena);
    *s = (nb_ruler_set){ 0 };
}
