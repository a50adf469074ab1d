/* variant.h - one way to run the cache, as a word of the command line.
 *
 *   DTYPE[:KEY=VALUE]...   nvfp4   if4:mode=search   nvfp4:transform=center+equalize:outliers=8
 *
 * Keys: mode, rope, transform, calibration, outliers, sinks, skip (layers, separated by + and -),
 * scales, thrift, tau, fraction, pool, mla.  Everything else of the engine stays as given. */
#ifndef NB_QUALITY_VARIANT_H
#define NB_QUALITY_VARIANT_H
#include "base/arena.h"
#include "nibble/nibble.h"

typedef struct nb_variant {
    const char *name; /* the word as it was written */
    nb_engine_options
        options; /* base with the word's changes; strings in the arena or the base's */
} nb_variant;

/* One word. The line of an error names the key and what it takes. */
nb_status nb_variant_parse(const char *word, const nb_engine_options *base, nb_arena *arena,
                           nb_variant *out, nb_error *err);
/* A list separated by commas; *out is [*n] in the arena; at most 32, no name twice. */
nb_status nb_variant_list(const char *words, const nb_engine_options *base, nb_arena *arena,
                          nb_variant **out, size_t *n, nb_error *err);
/* Appends the word of these options: all that is not the default, in the order above.  It reads
 * back as these options unless a path has a ":" in it. */
nb_status nb_variant_word(const nb_engine_options *o, nb_buf *to);

#endif
