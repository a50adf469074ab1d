/* ruler_internal.h - between the files of ruler_*.c. */
#ifndef NB_QUALITY_RULER_INTERNAL_H
#define NB_QUALITY_RULER_INTERNAL_H
#include "base/rng.h"
#include "quality/ruler.h"

/* ---- random numbers: a stream of its own for every text ---- */

typedef struct nb_ruler_rng {
    uint64_t seed, next;
} nb_ruler_rng;
static inline nb_ruler_rng nb_ruler_rng_of(uint64_t seed, uint64_t a, uint64_t b)
{
    return (nb_ruler_rng){ .seed = nb_mix64(nb_mix64(nb_mix64(seed) ^ a) ^ b) };
}
static inline size_t nb_ruler_below(nb_ruler_rng *r, size_t n) /* 0..n-1, n >= 1 */
{
    return (size_t)(nb_rng_u64(r->seed, r->next++) % n);
}
static inline double nb_ruler_random(nb_ruler_rng *r)
{
    return nb_rng_unit(r->seed, r->next++);
}

/* RULER's planted sentence (key, number). */
#define NB_RULER_NEEDLE "One of the special magic numbers for %s is: %s."

/* Hashes of the keys and values that a text has: none is used twice. */
typedef struct nb_ruler_seen {
    uint64_t *slot; /* [cap], 0: empty; cap is a power of two */
    size_t n, cap;
} nb_ruler_seen;
/* NB_OK, NB_ERR_ARG when it was there, NB_ERR_NOMEM. */
nb_status nb_ruler_seen_add(nb_ruler_seen *s, const char *word);

/* ---- haystacks: ruler_prose.c ---- */

typedef enum nb_ruler_hay_kind {
    NB_RULER_HAY_NOISE,  /* plain: paragraphs of noise sentences   */
    NB_RULER_HAY_STORY,  /* short stories                          */
    NB_RULER_HAY_BLOCK,  /* ruler: the five noise sentences a line */
    NB_RULER_HAY_LINES,  /* ruler: one of them a line              */
    NB_RULER_HAY_NEEDLES /* ruler: needle sentences of other keys  */
} nb_ruler_hay_kind;

/* A sentence, or a line, of the haystack. */
typedef struct nb_ruler_unit {
    const char *text;
    const char *end; /* what follows it: "" inside a paragraph, "\n", "\n\n" */
} nb_ruler_unit;

typedef struct nb_ruler_hay {
    nb_ruler_hay_kind kind;
    nb_ruler_unit *unit; /* [n]; unit i is a function of the context and i */
    size_t n, cap;
    const char *hero, *place, *animal; /* of the story at hand */
    size_t left,
        n_story; /* sentences until the end of the paragraph; of the story (noise: its kind) */
} nb_ruler_hay;

/* ---- texts ---- */

typedef struct nb_ruler_needle {
    const char *text;
    double at; /* 0..1 of the haystack */
    size_t order;
} nb_ruler_needle;

typedef struct nb_ruler_question {
    nb_ruler_task task;
    const char *text;   /* what follows the haystack, up to the end of the prompt */
    const char *answer; /* continuation */
    const char *const *refs;
    size_t n_ref, depth;
    const char *needle; /* the sentence whose place is `depth`; NULL: none */
    size_t max_tok;     /* to generate; 0: as the answer needs, and some more */
} nb_ruler_question;

enum { NB_RULER_MAX_QUESTIONS = 32, NB_RULER_MAX_VALUES = 16 };

/* A text with its questions.  What it holds lives in its arena; `failed` is kept until the end
 * so that the generators need not look. */
typedef struct nb_ruler_context {
    nb_arena arena;
    const nb_ruler_options *o;
    nb_ruler_rng rng, hay_rng;
    size_t length;
    nb_status failed;
    const char *intro;
    nb_ruler_needle *needle;
    size_t n_needle, cap_needle;
    nb_ruler_question q[NB_RULER_MAX_QUESTIONS];
    size_t n_q;
    nb_ruler_hay hay;
    nb_ruler_seen seen;
    /* Not NULL: writes the text of n units instead of haystack and needles. */
    nb_status (*write)(struct nb_ruler_context *c, size_t n, nb_buf *out);
    const char **pool; /* of write: words by their rank; on the heap */
    size_t n_pool, n_often, n_rare;
} nb_ruler_context;

/* Both fill needles, questions and the kind of haystack of an empty context. */
void nb_ruler_plain_context(nb_ruler_context *c, unsigned tasks, size_t n_question, size_t first);
void nb_ruler_ruler_context(nb_ruler_context *c, nb_ruler_task task, size_t sample);
void nb_ruler_cwe_context(nb_ruler_context *c); /* ruler_count.c */
void nb_ruler_fwe_context(nb_ruler_context *c);

nb_status nb_ruler_hay_reserve(nb_ruler_context *c, size_t n); /* at least n units; ruler_prose.c */
void nb_ruler_context_deinit(nb_ruler_context *c);

/* Tokenises a prompt with its answer and appends it to the set; strings of *it live there already. */
nb_status nb_ruler_add_item(nb_ruler_set *set, size_t *cap, const nb_ruler_item *it,
                            const nb_ruler_options *o, nb_error *err);

/* ---- pieces of them: ruler_words.c ---- */

enum nb_ruler_list {
    NB_RULER_ADJECTIVES,
    NB_RULER_NOUNS,
    NB_RULER_NAMES,
    NB_RULER_PLACES,
    NB_RULER_OBJECTS,
    NB_RULER_MATERIALS,
    NB_RULER_NOISE,
    NB_RULER_PETS,
    NB_RULER_SYLLABLES,
    NB_RULER_N_LIST
};
typedef struct nb_ruler_words {
    const char *const *w;
    size_t n;
} nb_ruler_words;
extern const nb_ruler_words nb_ruler_list[NB_RULER_N_LIST];

/* Strings of the context's arena; "" once it has failed. */
const char *nb_ruler_fmt(nb_ruler_context *c, const char *fmt, ...) NB_PRINTF(2, 3);
const char *nb_ruler_pick(nb_ruler_rng *r, enum nb_ruler_list list);
/* None of them was in the context before. */
const char *nb_ruler_new_key(nb_ruler_context *c, nb_ruler_rng *r); /* adjective-noun */
const char *nb_ruler_new_name(nb_ruler_context *c); /* a person; stories have others */
const char *nb_ruler_new_number(nb_ruler_context *c, nb_ruler_rng *r, size_t n_digit);
const char *nb_ruler_new_made(nb_ruler_context *c);              /* a made-up word, "Paroli" */
const char *nb_ruler_new_letters(nb_ruler_context *c, size_t n); /* a variable */
/* "a, b, c", "a, b, and c", "a and b and c". */
enum nb_ruler_join { NB_RULER_COMMAS, NB_RULER_COMMAS_AND, NB_RULER_ANDS, NB_RULER_SPACES };
const char *nb_ruler_join(nb_ruler_context *c, const char *const *w, size_t n,
                          enum nb_ruler_join how);
const char *const *nb_ruler_keep(nb_ruler_context *c, const char *const *w, size_t n); /* a copy */

#endif
