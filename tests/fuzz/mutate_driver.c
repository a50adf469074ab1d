/* mutate_driver.c - damages fuzz inputs.
 *
 * Without coverage feedback only damage that a parser is likely to meet is worth the time, so the
 * operations know three things about our formats: lengths and offsets are little-endian integers
 * (safetensors keeps one in its first eight bytes), JSON keeps them as decimal numbers, and nesting
 * and quoting are what parsers get wrong.  One to eight operations are applied to a random file of
 * the corpus; single-bit damage is the most frequent. */
#include "fuzz/mutate_driver.h"

#include <string.h>

#include "base/attr.h"
#include "base/rng.h"

typedef struct dice {
    uint64_t seed, n;
} dice;

static uint64_t roll(dice *d)
{
    return nb_rng_u64(d->seed, d->n++);
}

/* Uniform in [0, n), 0 for n == 0. */
static size_t below(dice *d, size_t n)
{
    return n ? (size_t)(roll(d) % n) : 0;
}

typedef struct text {
    uint8_t *p;
    size_t n, cap;
} text;

/* Replaces p[at .. at + drop) by the n bytes of src, which do not overlap p; what exceeds the
 * capacity is not inserted. */
static void replace(text *t, size_t at, size_t drop, const uint8_t *src, size_t n)
{
    if (at > t->n) at = t->n;
    if (drop > t->n - at) drop = t->n - at;
    if (n > t->cap - (t->n - drop)) n = t->cap - (t->n - drop);
    memmove(t->p + at + n, t->p + at + drop, t->n - at - drop);
    if (n) memcpy(t->p + at, src, n);
    t->n = t->n - drop + n;
}

static void flip_bit(text *t, dice *d)
{
    if (t->n) t->p[below(d, t->n)] ^= (uint8_t)(1u << below(d, 8));
}

static void set_byte(text *t, dice *d)
{
    static const uint8_t bytes[] = { 0,   1,   0x7f, 0x80, 0xff, '"', '\\', '{', '}',
                                     '[', ']', ',',  ':',  '-',  '0', '9',  '.', 'e',
                                     '/', ' ', '\n', 0xc0, 0xe2, 0xed, 0xf4, 0xfe };
    if (t->n) t->p[below(d, t->n)] = bytes[below(d, sizeof bytes)];
}

static void truncate_end(text *t, dice *d)
{
    t->n = below(d, t->n + 1);
}

static void delete_range(text *t, dice *d)
{
    const size_t at = below(d, t->n + 1);
    replace(t, at, 1 + below(d, below(d, 4) ? 8 : t->n), NULL, 0);
}

static void insert_noise(text *t, dice *d)
{
    uint8_t noise[64];
    const size_t n = 1 + below(d, sizeof noise);
    for (size_t i = 0; i < n; i++) noise[i] = (uint8_t)roll(d);
    replace(t, below(d, t->n + 1), below(d, 2) ? n : 0, noise, n);
}

/* Copies a stretch of the text itself elsewhere: duplicate keys, repeated entries. */
static void repeat_range(text *t, dice *d)
{
    uint8_t piece[256];
    if (!t->n) return;
    const size_t from = below(d, t->n);
    size_t n = 1 + below(d, sizeof piece);
    if (n > t->n - from) n = t->n - from;
    memcpy(piece, t->p + from, n);
    replace(t, below(d, t->n + 1), 0, piece, n);
}

/* A little-endian integer field, often one of the first: lengths, counts, offsets. */
static void edit_field(text *t, dice *d)
{
    static const uint64_t values[] = { 0, 1, 7, 8, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x10000,
                                       0x7fffffff, 0x80000000u, 0xffffffffu, 0x100000000u,
                                       0x7fffffffffffffffu, 0x8000000000000000u, UINT64_MAX,
                                       UINT64_MAX - 7 };
    static const size_t widths[] = { 1, 2, 4, 8 };
    const size_t w = widths[below(d, NB_COUNT(widths))];
    if (t->n < w) return;
    const size_t slots = t->n / w, at = w * (below(d, 3) ? below(d, slots < 4 ? slots : 4)
                                                         : below(d, slots));
    uint64_t v = 0;
    for (size_t i = 0; i < w; i++) v |= (uint64_t)t->p[at + i] << (8 * i);
    switch (below(d, 3)) {
    case 0: v = values[below(d, NB_COUNT(values))]; break;
    case 1: v += below(d, 17); break;
    default: v -= below(d, 17); break;
    }
    for (size_t i = 0; i < w; i++) t->p[at + i] = (uint8_t)(v >> (8 * i));
}

static int is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

/* A decimal number of a JSON text becomes an awkward one. */
static void edit_number(text *t, dice *d)
{
    static const char *const numbers[] = {
        "0", "-1", "1", "2", "127", "65536", "2147483647", "2147483648", "4294967295",
        "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551615",
        "18446744073709551616", "1e308", "1e999", "-0", "0.5", "1e-320", "null", "true", "\"1\"",
        "[]", "{}", "[1]", "NaN", "00", "1.", "99999999999999999999999999999999999999"
    };
    size_t at = below(d, t->n + 1), seen = 0;
    while (seen < t->n && (at >= t->n || !is_digit(t->p[at]))) {
        at = at + 1 >= t->n ? 0 : at + 1;
        seen++;
    }
    if (seen >= t->n) return; /* no digit at all */
    size_t end = at;
    while (end < t->n && is_digit(t->p[end])) end++;
    while (at > 0 && is_digit(t->p[at - 1])) at--;
    const char *s = numbers[below(d, NB_COUNT(numbers))];
    replace(t, at, end - at, (const uint8_t *)s, strlen(s));
}

/* Depth: the same opening token many times. */
static void nest(text *t, dice *d)
{
    static const char *const tokens[] = { "[", "{\"a\":", "(", "{% if 1 %}", "{{", "((?:", "\\\"" };
    const char *s = tokens[below(d, NB_COUNT(tokens))];
    const size_t at = below(d, t->n + 1), times = (size_t)1 << below(d, 12);
    for (size_t i = 0; i < times; i++) replace(t, at, 0, (const uint8_t *)s, strlen(s));
}

static void splice(text *t, dice *d, const nb_fuzz_input *corpus, size_t n_corpus)
{
    const nb_fuzz_input *other = &corpus[below(d, n_corpus)];
    const size_t from = below(d, other->n_bytes + 1);
    const size_t at = below(d, t->n + 1);
    const size_t n = below(d, 2) ? other->n_bytes - from : below(d, other->n_bytes - from + 1);
    replace(t, at, below(d, 2) ? t->n : 0, other->data + from, n);
}

size_t nb_fuzz_mutate(uint64_t seed, uint64_t index, const nb_fuzz_input *corpus, size_t n_corpus,
                      uint8_t *out, size_t cap)
{
    dice d = { nb_mix64(seed ^ nb_mix64(index)), 0 };
    text t = { out, 0, cap };
    const nb_fuzz_input *base = &corpus[below(&d, n_corpus)];
    replace(&t, 0, 0, base->data, base->n_bytes);
    const size_t n_ops = 1 + below(&d, below(&d, 2) ? 2 : 8);
    for (size_t i = 0; i < n_ops; i++) {
        switch (below(&d, 14)) {
        case 0: truncate_end(&t, &d); break;
        case 1: delete_range(&t, &d); break;
        case 2: insert_noise(&t, &d); break;
        case 3: repeat_range(&t, &d); break;
        case 4:
        case 5: edit_field(&t, &d); break;
        case 6:
        case 7: edit_number(&t, &d); break;
        case 8: nest(&t, &d); break;
        case 9: splice(&t, &d, corpus, n_corpus); break;
        case 10:
        case 11: set_byte(&t, &d); break;
        default: flip_bit(&t, &d); break;
        }
    }
    return t.n;
}
