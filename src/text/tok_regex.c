/* tok_regex.c - compiling and running patterns with PCRE2 (see tok_regex.h).
 *
 * The JIT is used where the library has it.  Its code does not count the
 * steps of a loop over a single class, so that an unfortunate pattern could be
 * quadratic in a long run without ever meeting the match limit; callers set
 * `interpret` for texts with very long runs. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tok_regex.h"

#include <pcre2.h>
#include <stdio.h>

enum {
    MATCH_LIMIT = 10 * 1000 * 1000, /* PCRE2's default                          */
    HEAP_LIMIT_KIB = 64 * 1024,     /* backtracking memory of the interpreter   */
    JIT_STACK_MIN = 32 * 1024,
    JIT_STACK_MAX = 8 * 1024 * 1024
};

bool nb_tok_regex_is_script(const char *name)
{
    char pattern[96];
    int code_error;
    PCRE2_SIZE where;
    if (strlen(name) > 64) return false;
    (void)snprintf(pattern, sizeof pattern, "\\p{sc:%s}", name);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                                     &code_error, &where, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

nb_status nb_tok_regex_compile(nb_str pattern, bool allow_native, nb_tok_regex *out, nb_error *err)
{
    const nb_tok_native native = allow_native ? nb_tok_native_find(pattern) : NB_NATIVE_NONE;
    if (native != NB_NATIVE_NONE) {
        *out = (nb_tok_regex){ .native = native };
        return NB_OK;
    }
    nb_buf text = { 0 };
    pcre2_compile_context *cc = NULL;
    pcre2_code *code = NULL;
    nb_status st = nb_tok_regex_translate(pattern, &text, err);
    if (st != NB_OK) goto out;
    cc = pcre2_compile_context_create(NULL);
    if (!cc) {
        st = nb_fail(err, NB_ERR_NOMEM, "out of memory for a regular expression");
        goto out;
    }
    (void)pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
    int code_error = 0;
    PCRE2_SIZE where = 0;
    code = pcre2_compile((PCRE2_SPTR)(text.p ? text.p : ""), text.n_bytes,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                         &code_error, &where, cc);
    if (!code) {
        PCRE2_UCHAR why[128] = { 0 };
        (void)pcre2_get_error_message(code_error, why, sizeof why);
        st = nb_fail(err, NB_ERR_FORMAT, "regular expression \"%.*s\": %s",
                     (int)(pattern.n_bytes < 200 ? pattern.n_bytes : 200), pattern.p,
                     (const char *)why);
        goto out;
    }
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without it: interpreted */
    *out = (nb_tok_regex){ .native = NB_NATIVE_NONE, .code = code };
out:
    pcre2_compile_context_free(cc);
    nb_buf_deinit(&text);
    return st;
}

void nb_tok_regex_deinit(nb_tok_regex *re)
{
    pcre2_code_free(re->code);
    *re = (nb_tok_regex){ 0 };
}

void nb_tok_regex_run_deinit(nb_tok_regex_run *run)
{
    pcre2_match_data_free(run->match_data);
    pcre2_match_context_free(run->match_context);
    pcre2_jit_stack_free(run->jit_stack);
    *run = (nb_tok_regex_run){ 0 };
}

static nb_status run_prepare(nb_tok_regex_run *run)
{
    run->match_data = pcre2_match_data_create(1, NULL);
    run->match_context = pcre2_match_context_create(NULL);
    run->jit_stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (!run->match_data || !run->match_context) {
        nb_tok_regex_run_deinit(run);
        return NB_ERR_NOMEM;
    }
    (void)pcre2_set_match_limit(run->match_context, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(run->match_context, HEAP_LIMIT_KIB);
    if (run->jit_stack) pcre2_jit_stack_assign(run->match_context, NULL, run->jit_stack);
    return NB_OK;
}

nb_status nb_tok_regex_next(const nb_tok_regex *re, nb_tok_regex_run *run, const uint16_t *classes,
                            nb_str s, size_t from, bool *found, size_t *start, size_t *end,
                            nb_error *err)
{
    if (re->native != NB_NATIVE_NONE) {
        *found = nb_tok_native_next(re->native, classes, s, from, start, end);
        return NB_OK;
    }
    if (!run->match_data) NB_TRY(run_prepare(run));
    const uint32_t options = PCRE2_NO_UTF_CHECK | (run->interpret ? PCRE2_NO_JIT : 0);
    const PCRE2_SPTR p = (PCRE2_SPTR)(s.p ? s.p : "");
    int rc =
        pcre2_match(re->code, p, s.n_bytes, from, options, run->match_data, run->match_context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(re->code, p, s.n_bytes, from, options | PCRE2_NO_JIT, run->match_data,
                         run->match_context);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *found = false;
        return NB_OK;
    }
    if (rc < 0) {
        if (rc == PCRE2_ERROR_NOMEMORY)
            return nb_fail(err, NB_ERR_NOMEM, "out of memory in a regular expression");
        PCRE2_UCHAR why[128] = { 0 };
        (void)pcre2_get_error_message(rc, why, sizeof why);
        return nb_fail(err, NB_ERR_LIMIT,
                       "a regular expression of the tokenizer gives up on this text: %s",
                       (const char *)why);
    }
    const PCRE2_SIZE *ov = pcre2_get_ovector_pointer(run->match_data);
    *found = true;
    *start = ov[0];
    *end = ov[1];
    /* \K in a look-ahead could put the start after the end or before `from` */
    if (*start < from || *end < *start || *end > s.n_bytes)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "a regular expression with an inverted match");
    return NB_OK;
}
