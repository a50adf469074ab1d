/* schema.h - JSON schemas (draft 2020-12) to rules; shared by schema*.c.
 *
 * A conjunction is a list of atoms that a value has to satisfy at once: an atom is one schema object,
 * either its own keywords (BASE) or one of its anyOf and oneOf, of which a branch is still to be
 * chosen.  $ref and allOf only add atoms.  Each conjunction becomes one rule, found again by its atoms,
 * so recursion ends where it says the same again. */
#ifndef NB_GRAMMAR_SCHEMA_H
#define NB_GRAMMAR_SCHEMA_H
#include <jansson.h>

#include "grammar/number.h"
#include "grammar/regex.h"

enum { S_BASE, S_ANY_OF, S_ONE_OF, S_PARTS };
enum {
    T_NULL = 1,
    T_BOOLEAN = 2,
    T_INTEGER = 4,
    T_NUMBER = 8, /* with T_INTEGER */
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64,
    T_ALL = 127
};

enum { S_MAX_DEPTH = 256, S_MAX_PATTERNS = 8, S_MAX_ENUM = 100000, S_MAX_ENUM_BYTES = 2 << 20 };

/* Atoms in the order in which they were met: schema * S_PARTS + part. */
typedef struct nb_conj {
    uint32_t *atom;
    uint32_t *seen; /* schemas that were expanded into it */
    size_t n, cap, n_seen, cap_seen;
    bool never; /* `false` is among them */
} nb_conj;

typedef struct nb_schema {
    nb_grammar *g;
    json_t *root;
    bool relaxed, has_ids;
    const json_t **schema; /* [n_schema] all that were met */
    size_t n_schema, cap_schema;
    uint32_t *by_ptr; /* [n_by_ptr], open addressing */
    size_t n_by_ptr;
    struct nb_memo *memo; /* conjunctions that have a rule */
    size_t n_memo, cap_memo;
    uint32_t memo_table[1024];
    const json_t *open[S_MAX_DEPTH]; /* schemas that are being expanded */
    size_t n_open, depth;
} nb_schema;

/* ---- schema.c ---- */

/* Fails with the JSON pointer of `s` and the keyword. */
nb_status nb_s_fail(nb_schema *x, const json_t *s, const char *keyword, nb_status st,
                    const char *fmt, ...) NB_PRINTF(5, 6);
/* NULL when it is absent. */
const json_t *nb_s_get(const json_t *s, const char *keyword);
/* A non-negative integer below 2^31 (larger ones: NB_G_INF for an upper bound). */
bool nb_s_count(nb_schema *x, const json_t *s, const char *keyword, uint32_t *out);
bool nb_s_types(nb_schema *x, const json_t *s, unsigned *types);
const json_t *nb_s_resolve(nb_schema *x, const json_t *s, const char *ref);
/* Whether all keywords are known and have the right form. */
bool nb_s_check(nb_schema *x, const json_t *s);

/* ---- schema_conj.c ---- */

void nb_s_free(nb_schema *x);
void nb_conj_deinit(nb_conj *c);
/* Adds a schema (an object, true or false). */
bool nb_conj_add(nb_schema *x, nb_conj *c, const json_t *s);
/* The rule of a conjunction; NB_G_NONE: no value satisfies it, or failure. */
uint32_t nb_conj_rule(nb_schema *x, const nb_conj *c);
/* The i-th atom's schema, if it is a BASE. */
static inline const json_t *nb_conj_base(const nb_schema *x, const nb_conj *c, size_t i)
{
    return c->atom[i] % S_PARTS == S_BASE ? x->schema[c->atom[i] / S_PARTS] : NULL;
}

/* ---- schema_value.c, schema_string.c, schema_object.c: a conjunction of BASE atoms ---- */

nb_gid nb_s_value(nb_schema *x, const nb_conj *c);
nb_gid nb_s_const(nb_schema *x, const json_t *v, nb_gid next);
nb_gid nb_s_string(nb_schema *x, const nb_conj *c, nb_gid next);
nb_gid nb_s_object(nb_schema *x, const nb_conj *c, nb_gid next);

/* What a string has to satisfy. */
typedef struct nb_strspec {
    const nb_re **re;
    bool *without;
    size_t n;
    uint32_t min, max;
} nb_strspec;
bool nb_s_strspec(nb_schema *x, const nb_conj *c, nb_strspec *out);
/* As an automaton for names; extra conditions are joined.  *empty as nb_re_dfa's. */
uint32_t nb_s_names(nb_schema *x, const nb_strspec *s, bool quote, bool *empty);
/* A text as JSON writes it, in canonical form, without the opening quote; close: with the closing one. */
nb_str nb_s_quoted(nb_grammar *g, nb_str text, bool close);
const nb_re *nb_s_format(nb_schema *x, const json_t *s, const char *name, const nb_re **without);

/* ---- schema_valid.c ---- */

/* Whether a value satisfies a schema, for values that enum and const list. */
bool nb_s_valid(nb_schema *x, const json_t *s, const json_t *v);
/* The same for a schema's own keywords, without anyOf, oneOf, allOf and $ref; listed: nor enum and
 * const. */
bool nb_s_own_valid(nb_schema *x, const json_t *s, const json_t *v, bool listed);
/* Whether two branches of oneOf, together with c, can never both match. */
bool nb_s_exclusive(nb_schema *x, const json_t *a, const json_t *b);

#endif
