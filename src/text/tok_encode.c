/* tok_encode.c - from text to ids: added tokens, normalizer, pre-tokenizer, BPE.
 *
 * The order is that of Hugging Face's tokenizers: added tokens that are not
 * `normalized` are cut out of the raw text; what lies between is normalized;
 * the `normalized` ones are cut out of that; each rest goes through the
 * pre-tokenizer steps.  A step hands each of its pieces to the next one at
 * once, so nothing is stored but the pieces of steps that rewrite text. */
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tok_internal.h"

enum {
    LONG_RUN_BYTES = 32768, /* from here on regexes run with counted steps */
    /* Kimi's tokenizer cuts its input: at most this many characters, and at
     * most this many of (non-)white space in a row (tokenization_kimi.py). */
    RUNS_MAX_CHARS = 400000,
    RUNS_MAX_SAME = 25000
};

size_t nb_tok_find_literal(nb_str s, size_t from, const char *lit, size_t n_lit_bytes)
{
    while (s.n_bytes - from >= n_lit_bytes && from < s.n_bytes) {
        const char *p = memchr(s.p + from, lit[0], s.n_bytes - from - n_lit_bytes + 1);
        if (!p) break;
        if (memcmp(p, lit, n_lit_bytes) == 0) return (size_t)(p - s.p);
        from = (size_t)(p - s.p) + 1;
    }
    return s.n_bytes;
}

nb_status nb_tok_find_next(nb_tok_finder *f, const nb_tok_regex *re, nb_tok_regex_run *run,
                           const nb_tokenizer *t, bool *found, size_t *start, size_t *end,
                           nb_error *err)
{
    *found = false;
    while (f->at <= f->s.n_bytes) {
        NB_TRY(nb_tok_regex_next(re, run, t->classes, f->s, f->at, found, start, end, err));
        if (!*found) return NB_OK;
        if (*start != *end || !f->have_last || f->last_end != *end) {
            f->at = f->last_end = *end;
            f->have_last = true;
            return NB_OK;
        }
        *found = false;
        f->at += f->at < f->s.n_bytes ? nb_tok_char_bytes(f->s.p + f->at) : 1;
    }
    return NB_OK;
}

/* ---- pre-tokenizer ------------------------------------------------------- */

static nb_status run_steps(nb_tok_enc *e, size_t k, nb_str s, bool at_start);

/* Collects matches and gaps of one text and forwards pieces to step k. */
typedef struct splitter {
    nb_tok_enc *e;
    size_t k;
    nb_str s;
    bool at_start;
    nb_split_behavior behavior;
    bool held, held_match; /* a piece that may still grow, and what its last part was */
    size_t from, to;
} splitter;

static nb_status forward(const splitter *sp, size_t a, size_t b)
{
    if (a == b) return NB_OK;
    return run_steps(sp->e, sp->k, (nb_str){ sp->s.p + a, b - a }, sp->at_start && a == 0);
}

static nb_status hold(splitter *sp, size_t a, size_t b)
{
    if (sp->held) NB_TRY(forward(sp, sp->from, sp->to));
    sp->held = true;
    sp->from = a;
    sp->to = b;
    return NB_OK;
}

static nb_status put(splitter *sp, size_t a, size_t b, bool match)
{
    const bool was_match = sp->held_match;
    sp->held_match = match;
    switch (sp->behavior) {
    case NB_SPLIT_ISOLATED: return forward(sp, a, b);
    case NB_SPLIT_REMOVED: return match ? NB_OK : forward(sp, a, b);
    case NB_SPLIT_CONTIGUOUS:
        if (!sp->held || was_match != match) return hold(sp, a, b);
        sp->to = b;
        return NB_OK;
    case NB_SPLIT_MERGED_PREVIOUS: /* a match joins the gap before it */
        if (!sp->held || !match || was_match) return hold(sp, a, b);
        sp->to = b;
        return NB_OK;
    case NB_SPLIT_MERGED_NEXT: /* a match waits for the gap after it */
        if (match) return hold(sp, a, b);
        if (sp->held) a = sp->from;
        sp->held = false;
        return forward(sp, a, b);
    }
    return NB_OK;
}

static nb_status put_end(splitter *sp)
{
    return sp->held ? forward(sp, sp->from, sp->to) : NB_OK;
}

static nb_status split_regex(splitter *sp, const nb_tok_regex *re, bool invert)
{
    nb_tok_enc *e = sp->e;
    nb_tok_finder f = { .s = sp->s };
    size_t done = 0, a = 0, b = 0;
    for (bool found;;) {
        if (re->native != NB_NATIVE_NONE) {
            found = nb_tok_native_next(re->native, e->t->classes, sp->s, done, &a, &b);
        } else {
            NB_TRY(nb_tok_find_next(&f, re, &e->run, e->t, &found, &a, &b, e->err));
        }
        if (!found) break;
        if (a > done) NB_TRY(put(sp, done, a, invert));
        NB_TRY(put(sp, a, b, !invert));
        done = b;
    }
    if (done < sp->s.n_bytes) NB_TRY(put(sp, done, sp->s.n_bytes, invert));
    return put_end(sp);
}

static nb_status split_literal(splitter *sp, const char *lit, size_t n, bool invert)
{
    size_t done = 0, a;
    while (n && (a = nb_tok_find_literal(sp->s, done, lit, n)) < sp->s.n_bytes) {
        if (a > done) NB_TRY(put(sp, done, a, invert));
        NB_TRY(put(sp, a, a + n, !invert));
        done = a + n;
    }
    if (done < sp->s.n_bytes) NB_TRY(put(sp, done, sp->s.n_bytes, invert));
    return put_end(sp);
}

static nb_status byte_level(nb_tok_enc *e, size_t k, nb_str s, bool at_start)
{
    const nb_pre_step *step = &e->t->pre[k];
    nb_buf spaced = { 0 };
    nb_status st = NB_OK;
    if (step->prefix_space && s.n_bytes && s.p[0] != ' ') {
        st = nb_buf_add_ch(&spaced, ' ');
        if (st == NB_OK) st = nb_buf_add_str(&spaced, s);
        s = nb_buf_view(&spaced);
    }
    if (st == NB_OK && step->use_regex) {
        splitter sp = { .e = e, .k = k + 1, .s = s, .at_start = at_start };
        st = split_regex(&sp, &step->regex, false);
    } else if (st == NB_OK) {
        st = run_steps(e, k + 1, s, at_start);
    }
    nb_buf_deinit(&spaced);
    return st;
}

static nb_status metaspace(nb_tok_enc *e, size_t k, nb_str s, bool at_start)
{
    const nb_pre_step *step = &e->t->pre[k];
    const size_t n = step->n_text_bytes;
    nb_buf text = { 0 };
    nb_status st = NB_OK;
    const bool starts =
        s.n_bytes && (s.p[0] == ' ' || (s.n_bytes >= n && memcmp(s.p, step->text, n) == 0));
    if (!starts &&
        (step->prepend == NB_PREPEND_ALWAYS || (step->prepend == NB_PREPEND_FIRST && at_start)))
        st = nb_buf_add(&text, step->text, n);
    for (size_t i = 0; i < s.n_bytes && st == NB_OK;) {
        const char *p = memchr(s.p + i, ' ', s.n_bytes - i);
        const size_t stop = p ? (size_t)(p - s.p) : s.n_bytes;
        st = nb_buf_add(&text, s.p + i, stop - i);
        if (st == NB_OK && p) st = nb_buf_add(&text, step->text, n);
        i = stop + (p ? 1 : 0);
    }
    if (st == NB_OK && step->split) {
        splitter sp = { .e = e,
                        .k = k + 1,
                        .s = nb_buf_view(&text),
                        .at_start = at_start,
                        .behavior = NB_SPLIT_MERGED_NEXT };
        st = split_literal(&sp, step->text, n, false);
    } else if (st == NB_OK) {
        st = run_steps(e, k + 1, nb_buf_view(&text), at_start);
    }
    nb_buf_deinit(&text);
    return st;
}

/* Python's str.isspace. */
static bool python_space(uint32_t c)
{
    return nb_tok_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static nb_status cut_runs(nb_tok_enc *e, size_t k, nb_str s, bool at_start)
{
    size_t from = 0, n_chars = 0, n_same = 0;
    bool last_space = false;
    if (s.n_bytes <= RUNS_MAX_SAME) return run_steps(e, k + 1, s, at_start);
    for (size_t i = 0; i < s.n_bytes;) {
        uint32_t cp;
        const unsigned len = nb_tok_char(s.p + i, &cp);
        const bool space = python_space(cp);
        bool cut = false;
        if (n_chars == RUNS_MAX_CHARS) { /* a new slice starts with fresh counts */
            cut = true;
            n_chars = n_same = 0;
        } else if (n_chars && space == last_space && n_same == RUNS_MAX_SAME) {
            cut = true;
            n_same = 0;
        } else if (n_chars && space != last_space) {
            n_same = 0;
        }
        if (cut) {
            NB_TRY(run_steps(e, k + 1, (nb_str){ s.p + from, i - from }, at_start && !from));
            from = i;
        }
        last_space = space;
        n_chars++;
        n_same++;
        i += len;
    }
    return run_steps(e, k + 1, (nb_str){ s.p + from, s.n_bytes - from }, at_start && !from);
}

/* Step k and all after it; recursion is as deep as there are steps. */
static nb_status run_steps(nb_tok_enc *e, size_t k, nb_str s, bool at_start)
{
    if (k == e->t->n_pre) return nb_bpe_piece(e, s);
    const nb_pre_step *step = &e->t->pre[k];
    splitter sp = { .e = e, .k = k + 1, .s = s, .at_start = at_start, .behavior = step->behavior };
    switch (step->kind) {
    case NB_PRE_REGEX: return split_regex(&sp, &step->regex, step->invert);
    case NB_PRE_LITERAL: return split_literal(&sp, step->text, step->n_text_bytes, step->invert);
    case NB_PRE_BYTELEVEL: return byte_level(e, k, s, at_start);
    case NB_PRE_METASPACE: return metaspace(e, k, s, at_start);
    case NB_PRE_RUNS: return cut_runs(e, k, s, at_start);
    }
    return NB_OK;
}

nb_status nb_tok_pretokenize(nb_tok_enc *e, nb_str s, bool at_start)
{
    return run_steps(e, 0, s, at_start);
}

/* ---- added tokens -------------------------------------------------------- */

static inline unsigned char pattern_byte(const nb_tokenizer *t, const nb_added_set *set, size_t i,
                                         size_t d)
{
    return (unsigned char)t->blob.p[t->added[set->item[i]].pattern.off + d];
}
static inline size_t pattern_bytes(const nb_tokenizer *t, const nb_added_set *set, size_t i)
{
    return t->added[set->item[i]].pattern.n_bytes;
}

/* Longest pattern of the set at s[i..]: its token, or NULL. */
static const nb_added *match_added(const nb_tokenizer *t, const nb_added_set *set, nb_str s,
                                   size_t i)
{
    const nb_added *best = NULL;
    size_t lo = 0, hi = set->n_items;
    for (size_t d = 0;; d++) {
        if (lo < hi && pattern_bytes(t, set, lo) == d) best = &t->added[set->item[lo]];
        while (lo < hi && pattern_bytes(t, set, lo) == d) lo++;
        if (lo == hi || i + d >= s.n_bytes) return best;
        const unsigned char c = (unsigned char)s.p[i + d];
        size_t a = lo, b = hi; /* first with byte d >= c */
        while (a < b) {
            const size_t m = a + (b - a) / 2;
            if (pattern_byte(t, set, m, d) < c)
                a = m + 1;
            else
                b = m;
        }
        lo = a;
        b = hi; /* first with byte d > c */
        while (a < b) {
            const size_t m = a + (b - a) / 2;
            if (pattern_byte(t, set, m, d) <= c)
                a = m + 1;
            else
                b = m;
        }
        hi = a;
    }
}

static bool is_word(const nb_tokenizer *t, uint32_t cp)
{
    return (nb_tok_class(t->classes, cp) & NB_CC_WORD) || cp == 0x200c || cp == 0x200d;
}

static bool word_beside(const nb_tokenizer *t, nb_str s, size_t start, size_t stop)
{
    uint32_t cp;
    size_t at;
    if (start > 0 && is_word(t, nb_tok_char_before(s.p, start, &at))) return true;
    if (stop == s.n_bytes) return false;
    (void)nb_tok_char(s.p + stop, &cp);
    return is_word(t, cp);
}

/* Whether a mark lies inside s[start..stop); marks and s are of one text. */
static bool has_mark(const nb_tok_enc *e, nb_str s, size_t start, size_t stop)
{
    if (!e->n_mark || s.p < e->text.p || s.p > e->text.p + e->text.n_bytes) return false;
    const size_t base = (size_t)(s.p - e->text.p);
    size_t lo = 0, hi = e->n_mark; /* the first mark behind the start */
    while (lo < hi) {
        const size_t m = lo + (hi - lo) / 2;
        if (e->mark[m] <= base + start)
            lo = m + 1;
        else
            hi = m;
    }
    return lo < e->n_mark && e->mark[lo] < base + stop;
}

typedef nb_status rest_fn(nb_tok_enc *e, nb_str s, bool at_start);

/* Emits the ids of the set's tokens in s and calls rest for what lies between. */
static nb_status cut_added(nb_tok_enc *e, const nb_added_set *set, nb_str s, bool at_start,
                           rest_fn *rest)
{
    const nb_tokenizer *t = e->t;
    size_t done = 0;
    for (size_t i = 0; set->n_items && i < s.n_bytes;) {
        while (i < s.n_bytes && !set->first[(unsigned char)s.p[i]]) i++;
        if (i == s.n_bytes) break;
        const nb_added *a = match_added(t, set, s, i);
        if (!a || (a->control && has_mark(e, s, i, i + a->pattern.n_bytes))) {
            i++;
            continue;
        }
        size_t start = i, stop = i + a->pattern.n_bytes;
        i = stop;
        if (a->single_word && word_beside(t, s, start, stop)) continue;
        if (a->lstrip) {
            size_t at;
            while (start > done && nb_tok_is_space(nb_tok_char_before(s.p, start, &at))) start = at;
        }
        if (a->rstrip) {
            uint32_t cp;
            unsigned len;
            while (stop < s.n_bytes && (len = nb_tok_char(s.p + stop, &cp), nb_tok_is_space(cp)))
                stop += len;
        }
        if (done < start) NB_TRY(rest(e, (nb_str){ s.p + done, start - done }, at_start && !done));
        NB_TRY(nb_tok_emit(e, a->id));
        done = stop;
    }
    if (done >= s.n_bytes) return NB_OK;
    return rest(e, (nb_str){ s.p + done, s.n_bytes - done }, at_start && !done);
}

static nb_status normalized_part(nb_tok_enc *e, nb_str s, bool at_start)
{
    const nb_tokenizer *t = e->t;
    const nb_added_set *set = &t->sets[e->parse][1];
    if (!t->n_norm) return cut_added(e, set, s, at_start, nb_tok_pretokenize);
    nb_buf text = { 0 };
    nb_status st = nb_tok_normalize_run(t, &e->run, s, &text, e->err);
    if (st == NB_OK) st = cut_added(e, set, nb_buf_view(&text), at_start, nb_tok_pretokenize);
    nb_buf_deinit(&text);
    return st;
}

/* ---- whole calls --------------------------------------------------------- */

static bool has_long_run(nb_str s)
{
    size_t from = 0;
    bool last = false;
    if (s.n_bytes <= LONG_RUN_BYTES) return false;
    for (size_t i = 0; i < s.n_bytes;) {
        uint32_t cp;
        i += nb_tok_char(s.p + i, &cp);
        const bool space = nb_tok_is_space(cp);
        if (space != last) from = i;
        last = space;
        if (i - from > LONG_RUN_BYTES) return true;
    }
    return false;
}

static nb_status encode_valid(nb_tok_enc *e, nb_str text, unsigned flags)
{
    const nb_tokenizer *t = e->t;
    const bool wrap = (flags & NB_TOK_ADD_SPECIAL) != 0;
    e->run.interpret = t->needs_run_check && has_long_run(text);
    for (size_t i = 0; wrap && i < t->n_prefix; i++) NB_TRY(nb_tok_emit(e, t->prefix[i]));
    NB_TRY(cut_added(e, &t->sets[e->parse][0], text, true, normalized_part));
    for (size_t i = 0; wrap && i < t->n_suffix; i++) NB_TRY(nb_tok_emit(e, t->suffix[i]));
    return NB_OK;
}

size_t nb_tokenizer_find_control(const nb_tokenizer *t, nb_str text, size_t from, size_t *n_bytes)
{
    for (size_t i = from; i < text.n_bytes; i++) {
        for (int k = 0; k < 2; k++) {
            const nb_added_set *set = &t->sets[1][k];
            if (!set->n_items || !set->first[(unsigned char)text.p[i]]) continue;
            const nb_added *a = match_added(t, set, text, i);
            if (!a || !a->control) continue;
            *n_bytes = a->pattern.n_bytes;
            return i;
        }
    }
    return text.n_bytes;
}

nb_status nb_tokenizer_encode(const nb_tokenizer *t, nb_str text, unsigned flags, uint32_t **ids,
                              size_t *n_ids, nb_error *err)
{
    return nb_tokenizer_encode_marked(t, text, flags, NULL, 0, ids, n_ids, err);
}

nb_status nb_tokenizer_encode_marked(const nb_tokenizer *t, nb_str text, unsigned flags,
                                     const size_t *mark, size_t n_mark, uint32_t **ids,
                                     size_t *n_ids, nb_error *err)
{
    const bool parse = (flags & NB_TOK_PARSE_SPECIAL) != 0;
    nb_tok_enc e = { .t = t, .err = err, .parse = parse, .guard = !parse || n_mark };
    nb_buf fixed = { 0 };
    nb_status st = NB_OK;
    nb_tok_error_clear(err);
    if (!nb_utf8_valid(text)) {
        st = n_mark ? nb_fail(err, NB_ERR_ARG, "a text with marks must be valid UTF-8")
                    : nb_tok_utf8_fix(text, &fixed);
        text = nb_buf_view(&fixed);
    }
    if (!text.p) text.p = "";
    e.text = text;
    e.mark = mark;
    e.n_mark = n_mark;
    if (st == NB_OK) st = encode_valid(&e, text, flags);
    nb_buf_deinit(&fixed);
    nb_tok_enc_deinit(&e);
    if (st != NB_OK || e.n_ids == 0) {
        free(e.ids);
        e.ids = NULL;
    }
    if (st != NB_OK) return nb_tok_error_fill(err, st, "encoding text");
    *ids = e.ids;
    *n_ids = e.n_ids;
    return NB_OK;
}
