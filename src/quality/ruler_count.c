/* ruler_count.c - cwe and fwe: words to be counted instead of a needle in a haystack.
 *
 * The text is a function of the number of units n alone: cwe has n rare words beside its 10
 * common ones, fwe has n words drawn with zeta frequencies. */
#include <math.h>
#include <stdlib.h>

#include "quality/ruler_internal.h"

enum { CWE_COMMON = 10, FWE_ASKED = 3, FWE_WORD = 6 };

/* Words are compounds of two nouns: lists of single words are too short for long texts. */
static const char *new_compound(nb_ruler_context *c)
{
    for (size_t i = 0;; i++) {
        const char *a = nb_ruler_pick(&c->rng, NB_RULER_NOUNS),
                   *b = nb_ruler_pick(&c->rng, NB_RULER_NOUNS);
        const char *s =
            i < 32 ? nb_ruler_fmt(c, "%s%s", a, b)
                   : nb_ruler_fmt(c, "%s%s%s", a, b, nb_ruler_pick(&c->rng, NB_RULER_NOUNS));
        if (c->failed) return "";
        const nb_status st = nb_ruler_seen_add(&c->seen, s);
        if (st == NB_OK) return s;
        if (st == NB_ERR_NOMEM) c->failed = st;
    }
}

static const char *new_coded(nb_ruler_context *c)
{
    for (;;) {
        char w[FWE_WORD + 1] = "";
        for (size_t k = 0; k < FWE_WORD; k++) w[k] = (char)('a' + nb_ruler_below(&c->rng, 26));
        const char *s = nb_ruler_fmt(c, "%s", w);
        if (c->failed) return "";
        const nb_status st = nb_ruler_seen_add(&c->seen, s);
        if (st == NB_OK) return s;
        if (st == NB_ERR_NOMEM) c->failed = st;
    }
}

static void more_words(nb_ruler_context *c, size_t n, const char *(*make)(nb_ruler_context *))
{
    if (n <= c->n_pool || c->failed) return;
    const char **p = realloc(c->pool, n * sizeof *p);
    if (!p) {
        c->failed = NB_ERR_NOMEM;
        return;
    }
    c->pool = p;
    while (c->n_pool < n && !c->failed) p[c->n_pool++] = make(c);
}

/* The words of order[] in random order, the same on every call with the same n. */
static size_t *shuffled(nb_ruler_context *c, size_t n_item, const size_t *count, size_t *n_all)
{
    size_t n = 0;
    for (size_t i = 0; i < n_item; i++) n += count[i];
    size_t *order = malloc((n ? n : 1) * sizeof *order), k = 0;
    if (!order) {
        c->failed = NB_ERR_NOMEM;
        return NULL;
    }
    for (size_t i = 0; i < n_item; i++)
        for (size_t j = 0; j < count[i]; j++) order[k++] = i;
    nb_ruler_rng r = c->hay_rng;
    for (size_t i = n; i > 1; i--) {
        const size_t j = nb_ruler_below(&r, i), t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
    *n_all = n;
    return order;
}

/* pool[0..common) are the common words. */
static nb_status write_list(nb_ruler_context *c, const char *const *pool, size_t n_item,
                            const size_t *count, bool numbered, nb_buf *out)
{
    size_t n = 0;
    nb_status st = NB_OK;
    size_t *order = shuffled(c, n_item, count, &n);
    for (size_t i = 0; order && st == NB_OK && i < n; i++)
        st = numbered ? nb_buf_printf(out, "%s%zu. %s", i ? " " : "", i + 1, pool[order[i]])
                      : nb_buf_printf(out, "%s%s", i ? " " : "", pool[order[i]]);
    free(order);
    if (c->failed) return c->failed;
    return st == NB_OK ? nb_buf_add_ch(out, '\n') : st;
}

/* ---- cwe ---- */

#define CWE_ASK                                                                                    \
    "Question: What are the 10 most common words in the list above?\nAnswer: The 10 words that "   \
    "appear most often in the list are:"
static const char cwe_intro[] = "Below is a numbered list of words. Some of them appear more often "
                                "than others. Remember those that appear most often.\n";

static nb_status cwe_write(nb_ruler_context *c, size_t n, nb_buf *out)
{
    more_words(c, CWE_COMMON + n, new_compound);
    size_t *count = malloc((CWE_COMMON + n) * sizeof *count);
    if (!count) c->failed = NB_ERR_NOMEM;
    nb_status st = c->failed;
    if (st == NB_OK) {
        for (size_t i = 0; i < CWE_COMMON + n; i++)
            count[i] = i < CWE_COMMON ? c->n_often : c->n_rare;
        st = write_list(c, c->pool, CWE_COMMON + n, count, true, out);
    }
    free(count);
    return st;
}

static const char *numbered(nb_ruler_context *c, const char *const *w)
{
    const char *line[CWE_COMMON];
    for (size_t i = 0; i < CWE_COMMON; i++) line[i] = nb_ruler_fmt(c, "%zu. %s", i + 1, w[i]);
    return nb_ruler_join(c, line, CWE_COMMON, NB_RULER_SPACES);
}

void nb_ruler_cwe_context(nb_ruler_context *c)
{
    enum { EXAMPLE = 20 };
    nb_ruler_question *q = &c->q[c->n_q++];
    const char *w[EXAMPLE];
    size_t count[EXAMPLE];
    nb_buf b = { 0 };
    for (size_t i = 0; i < EXAMPLE; i++) {
        w[i] = new_compound(c);
        count[i] = i < CWE_COMMON ? 3 : 1;
    }
    if (!c->failed) c->failed = write_list(c, w, EXAMPLE, count, true, &b);
    c->intro = nb_ruler_fmt(c, "%s%s" CWE_ASK " %s\n\n%s", cwe_intro, b.p ? b.p : "",
                            numbered(c, w), cwe_intro);
    nb_buf_deinit(&b);
    c->n_often = c->length < 4096 ? 6 : 30;
    c->n_rare = c->length < 4096 ? 1 : 3;
    more_words(c, CWE_COMMON, new_compound);
    *q = (nb_ruler_question){ .task = NB_RULER_CWE,
                              .depth = NB_RULER_NO_DEPTH,
                              .text = CWE_ASK,
                              .n_ref = CWE_COMMON,
                              .max_tok = 120 };
    if (c->failed) return;
    q->answer = nb_ruler_fmt(c, " %s", numbered(c, c->pool));
    q->refs = nb_ruler_keep(c, c->pool, CWE_COMMON);
    c->write = cwe_write;
}

/* ---- fwe ---- */

/* Rank k of n words appears n * k^-2 / zeta(2) times; the commonest is written as dots. */
static nb_status fwe_write(nb_ruler_context *c, size_t n, nb_buf *out)
{
    static const double zeta2 = 1.6449340668482264;
    const size_t n_rank = c->n_pool;
    size_t *count = malloc(n_rank * sizeof *count);
    if (!count) return c->failed = NB_ERR_NOMEM;
    for (size_t k = 0; k < n_rank; k++)
        count[k] = (size_t)((double)n / ((double)(k + 1) * (double)(k + 1) * zeta2));
    const nb_status st = write_list(c, c->pool, n_rank, count, false, out);
    free(count);
    return st;
}

void nb_ruler_fwe_context(nb_ruler_context *c)
{
    nb_ruler_question *q = &c->q[c->n_q++];
    const size_t vocab = c->length / 50;
    more_words(c, vocab < 8 ? 8 : vocab, new_coded);
    *q = (nb_ruler_question){
        .task = NB_RULER_FWE,
        .depth = NB_RULER_NO_DEPTH,
        .n_ref = FWE_ASKED,
        .max_tok = 50,
        .text = "Question: What are the three most frequent words in the coded text above, leaving "
                "out the dots?\nAnswer: According to the coded text above, the three most frequent "
                "words are:",
    };
    c->intro = "Read the coded text below and count how often each coded word appears. Find the "
               "three most frequent ones.\n";
    if (c->failed) return;
    c->pool[0] = "...";
    q->refs = nb_ruler_keep(c, c->pool + 1, FWE_ASKED);
    q->answer = nb_ruler_fmt(c, " %s", nb_ruler_join(c, c->pool + 1, FWE_ASKED, NB_RULER_SPACES));
    c->write = fwe_write;
}
