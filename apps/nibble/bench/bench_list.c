/* bench_list.c - see bench_list.h. */
#include "bench_list.h"

#include <string.h>

static bool add_word(bench_words *w, const char *s, size_t n)
{
    if (w->n == BENCH_MAX_LIST || n == 0 || n >= BENCH_WORD_BYTES) return false;
    memcpy(w->word[w->n], s, n);
    w->word[w->n++][n] = 0;
    return true;
}

bool bench_words_parse(const char *text, const char *const *known, bench_words *out,
                       bench_words *bad)
{
    out->n = bad->n = 0;
    if (strcmp(text, "all") == 0) {
        for (; *known; known++)
            if (!add_word(out, *known, strlen(*known))) return false;
        return out->n > 0;
    }
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, ",");
        const char *const *k = known;
        while (*k && (strlen(*k) != n || memcmp(*k, p, n) != 0)) k++;
        if (!*k || !add_word(out, p, n)) {
            (void)add_word(bad, p, n < BENCH_WORD_BYTES ? n : BENCH_WORD_BYTES - 1);
            return false;
        }
        p += n;
        if (!*p) return true;
    }
}

/* A number and its unit; the character behind it in *end. */
static bool count_of(const char *p, size_t hi, size_t *x, const char **end)
{
    size_t v = 0;
    if (*p < '0' || *p > '9') return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        v = v * 10 + (size_t)(*p - '0');
        if (v > hi) return false;
    }
    const size_t unit = *p == 'k' || *p == 'K' ? 1024 : *p == 'm' || *p == 'M' ? 1024 * 1024 : 1;
    if (v > hi / unit) return false;
    *x = v * unit;
    *end = p + (unit > 1);
    return true;
}

bool bench_counts_parse(const char *text, size_t lo, size_t hi, bench_counts *out)
{
    out->n = 0;
    for (const char *p = text;; p++) {
        size_t x;
        if (out->n == BENCH_MAX_LIST || !count_of(p, hi, &x, &p) || x < lo) return false;
        out->count[out->n++] = x;
        if (!*p) return true;
        if (*p != ',') return false;
    }
}
