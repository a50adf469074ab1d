/* pattern.c - see pattern.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "load/pattern.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "load/load_internal.h"

enum { MAX_PATTERN_BYTES = 1024, MATCH_LIMIT = 20000, HEAP_LIMIT_KIB = 1024 };

/* A shell pattern as a regular expression. */
static nb_status add_wild(const char *text, nb_buf *out)
{
    nb_status st = nb_buf_add_c(out, "\\A");
    bool in_set = false;
    for (const char *p = text; *p && st == NB_OK; p++) {
        const char c[2] = { *p, 0 };
        if (in_set) {
            st = nb_buf_add_c(out, *p == '\\' ? "\\\\" : c);
            in_set = *p != ']';
        } else if (*p == '[' && strchr(p, ']')) {
            in_set = true;
            st = nb_buf_add_c(out, p[1] == '!' ? "[^" : "[");
            p += p[1] == '!';
        } else if (*p == '*' || *p == '?') {
            st = nb_buf_add_c(out, *p == '*' ? ".*" : ".");
        } else {
            st = strchr("\\^$.|()[]{}+", *p) ? nb_buf_add_ch(out, '\\') : NB_OK;
            if (st == NB_OK) st = nb_buf_add_ch(out, *p);
        }
    }
    return st == NB_OK ? nb_buf_add_c(out, "\\z") : st;
}

static nb_status compile(nb_pattern *p, nb_str text, nb_error *err)
{
    int code = 0;
    PCRE2_SIZE where = 0;
    const uint32_t start = p->kind == NB_PATTERN_REGEX ? PCRE2_ANCHORED : 0;
    p->code = pcre2_compile((PCRE2_SPTR)text.p, text.n_bytes,
                            start | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF, &code, &where, NULL);
    if (!p->code && code == PCRE2_ERROR_HEAP_FAILED) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (!p->code) {
        PCRE2_UCHAR why[128] = { 0 };
        (void)pcre2_get_error_message(code, why, sizeof why);
        return nb_fail(err, NB_ERR_FORMAT, "regular expression \"%s\": %s", nb_show_c(p->text).s,
                       (const char *)why);
    }
    p->match = pcre2_match_data_create(1, NULL);
    return p->match ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
}

nb_status nb_pattern_init(nb_pattern *p, nb_pattern_kind kind, const char *text, nb_error *err)
{
    nb_buf wild = { 0 };
    *p = (nb_pattern){ .kind = kind, .text = text };
    if (kind < NB_PATTERN_WILD) return NB_OK;
    if (strlen(text) > MAX_PATTERN_BYTES)
        return nb_fail(err, NB_ERR_LIMIT, "pattern \"%.40s...\" has more than %d bytes",
                       nb_show_c(text).s, MAX_PATTERN_BYTES);
    nb_status st = NB_OK;
    if (kind == NB_PATTERN_WILD && add_wild(text, &wild) != NB_OK)
        st = nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st == NB_OK)
        st = compile(p, kind == NB_PATTERN_WILD ? nb_buf_view(&wild) : nb_str_c(text), err);
    nb_buf_deinit(&wild);
    if (st != NB_OK) nb_pattern_deinit(p);
    return st;
}

void nb_pattern_deinit(nb_pattern *p)
{
    pcre2_code_free(p->code);
    pcre2_match_data_free(p->match);
    *p = (nb_pattern){ 0 };
}

static bool has_part(const char *name, const char *part)
{
    const size_t n = strlen(part);
    for (const char *p = name; n && (p = strstr(p, part)) != NULL; p++)
        if ((p == name || p[-1] == '.') && (p[n] == '.' || p[n] == 0)) return true;
    return false;
}

static nb_status run(const nb_pattern *p, const char *name, bool *yes, nb_error *err)
{
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    if (!limits) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    (void)pcre2_set_match_limit(limits, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(limits, HEAP_LIMIT_KIB);
    const int rc = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, PCRE2_NO_JIT, p->match,
                               limits);
    pcre2_match_context_free(limits);
    *yes = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return NB_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    return nb_fail(err, NB_ERR_LIMIT, "pattern \"%s\" needs too many steps on the name %s",
                   nb_show_c(p->text).s, name);
}

nb_status nb_pattern_match(const nb_pattern *p, const char *name, bool *yes, nb_error *err)
{
    if (p->code) return run(p, name, yes, err);
    *yes = p->kind == NB_PATTERN_NAME ? strcmp(name, p->text) == 0
           : p->kind == NB_PATTERN_PART ? has_part(name, p->text)
                                        : *p->text && strstr(name, p->text) != NULL;
    return NB_OK;
}
