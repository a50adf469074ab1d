/* bench_list.h - the lists of `nibble bench`: words and numbers joined by commas. */
#ifndef NB_APPS_BENCH_LIST_H
#define NB_APPS_BENCH_LIST_H
#include <stdbool.h>
#include <stddef.h>

enum { BENCH_MAX_LIST = 16, BENCH_WORD_BYTES = 24 };

typedef struct bench_words {
    char word[BENCH_MAX_LIST][BENCH_WORD_BYTES];
    size_t n;
} bench_words;
typedef struct bench_counts {
    size_t count[BENCH_MAX_LIST];
    size_t n;
} bench_counts;

/* False: empty words, more than there is room for, or not of `known` (ended by NULL); then *bad is
 * the word. "all" stands for all of them. */
bool bench_words_parse(const char *text, const char *const *known, bench_words *out,
                       bench_words *bad);
/* Numbers in lo..hi such as 512, 4k or 1M (times 1,024); false: something else, or too many. */
bool bench_counts_parse(const char *text, size_t lo, size_t hi, bench_counts *out);

#endif
