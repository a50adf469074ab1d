/* tok_norm.c - the normalizer: a list of steps, each from text to text. */
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tok_internal.h"

static nb_status replace_regex(const nb_tokenizer *t, const nb_norm_step *step,
                               nb_tok_regex_run *run, nb_str s, nb_buf *out, nb_error *err)
{
    nb_tok_finder f = { .s = s };
    size_t done = 0;
    for (;;) {
        bool found;
        size_t a, b;
        NB_TRY(nb_tok_find_next(&f, &step->regex, run, t, &found, &a, &b, err));
        if (!found) break;
        NB_TRY(nb_buf_add(out, s.p + done, a - done));
        NB_TRY(nb_buf_add(out, step->text, step->n_text_bytes));
        done = b;
    }
    return nb_buf_add(out, s.p + done, s.n_bytes - done);
}

static nb_status replace_literal(const nb_norm_step *step, nb_str s, nb_buf *out)
{
    size_t done = 0, a;
    while ((a = nb_tok_find_literal(s, done, step->pattern, step->n_pattern_bytes)) < s.n_bytes) {
        NB_TRY(nb_buf_add(out, s.p + done, a - done));
        NB_TRY(nb_buf_add(out, step->text, step->n_text_bytes));
        done = a + step->n_pattern_bytes;
    }
    return nb_buf_add(out, s.p + done, s.n_bytes - done);
}

static nb_status strip_space(const nb_norm_step *step, nb_str s, nb_buf *out)
{
    size_t a = 0, b = s.n_bytes, at;
    uint32_t cp;
    unsigned len;
    while (step->left && a < b && (len = nb_tok_char(s.p + a, &cp), nb_tok_is_space(cp))) a += len;
    while (step->right && b > a && nb_tok_is_space(nb_tok_char_before(s.p, b, &at))) b = at;
    return nb_buf_add(out, s.p + a, b - a);
}

/* Up to strip_start leading and strip_stop trailing characters strip_char. */
static nb_status strip_char(const nb_norm_step *step, nb_str s, nb_buf *out)
{
    char c[4];
    const size_t n = (size_t)nb_utf8_encode(step->strip_char, c);
    size_t a = 0, b = s.n_bytes;
    for (size_t k = 0; k < step->strip_start && b - a >= n && memcmp(s.p + a, c, n) == 0; k++)
        a += n;
    for (size_t k = 0; k < step->strip_stop && b - a >= n && memcmp(s.p + b - n, c, n) == 0; k++)
        b -= n;
    return nb_buf_add(out, s.p + a, b - a);
}

nb_status nb_norm_apply(const nb_tokenizer *t, const nb_norm_step *step, nb_tok_regex_run *run,
                        nb_str s, nb_buf *out, nb_error *err)
{
    switch (step->kind) {
    case NB_NORM_FORM: return nb_tok_normalize(step->form, s, out);
    case NB_NORM_PREPEND:
        if (s.n_bytes) NB_TRY(nb_buf_add(out, step->text, step->n_text_bytes));
        return nb_buf_add_str(out, s);
    case NB_NORM_REPLACE:
        return step->use_regex ? replace_regex(t, step, run, s, out, err)
                               : replace_literal(step, s, out);
    case NB_NORM_STRIP: return strip_space(step, s, out);
    case NB_NORM_LOWER: return nb_tok_lower(s, out);
    case NB_NORM_STRIP_CHAR: return strip_char(step, s, out);
    }
    return NB_OK;
}

static nb_status run_list(const nb_tokenizer *t, const nb_norm_step *steps, size_t n_steps,
                          nb_tok_regex_run *run, nb_str s, nb_buf *out, nb_error *err)
{
    nb_buf a = { 0 }, b = { 0 };
    nb_status st = NB_OK;
    for (size_t k = 0; k < n_steps && st == NB_OK; k++) {
        nb_buf *to = k + 1 == n_steps ? out : k % 2 ? &b : &a;
        if (to != out) to->n_bytes = 0;
        st = nb_norm_apply(t, &steps[k], run, s, to, err);
        s = nb_buf_view(to);
    }
    if (!n_steps) st = nb_buf_add_str(out, s);
    nb_buf_deinit(&a);
    nb_buf_deinit(&b);
    return st;
}

nb_status nb_tok_normalize_run(const nb_tokenizer *t, nb_tok_regex_run *run, nb_str s, nb_buf *out,
                               nb_error *err)
{
    return run_list(t, t->norm, t->n_norm, run, s, out, err);
}

nb_status nb_tok_decode_steps(const nb_tokenizer *t, nb_tok_regex_run *run, nb_str s, nb_buf *out,
                              nb_error *err)
{
    return run_list(t, t->dec.steps, t->dec.n_steps, run, s, out, err);
}

void nb_norm_step_deinit(nb_norm_step *s)
{
    nb_tok_regex_deinit(&s->regex);
    free(s->pattern);
    free(s->text);
}

void nb_pre_step_deinit(nb_pre_step *s)
{
    nb_tok_regex_deinit(&s->regex);
    free(s->text);
}
