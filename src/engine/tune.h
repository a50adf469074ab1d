/* tune.h - which level of instruction sets each operation uses, chosen by measuring.
 *
 * The tables of kernels are ordered by what is usually fastest.  Here the levels that a machine has are timed
 * at the model's shapes, and the fastest is taken; one that is higher in the order keeps its place unless
 * another beats it by 10 %.  Levels differ in the last bits of results, so the choice is made once per machine
 * and kept in a file (docs/decisions/034): a run either reads it, or measures and writes it, or uses the
 * order of the tables.  It never uses what it could not keep. */
#ifndef NB_ENGINE_TUNE_H
#define NB_ENGINE_TUNE_H
#include "base/caps.h"
#include "nibble/status.h"

struct nb_engine;
struct nb_engine_options;

/* Sets e->levels, and e->stats.tuned to the file's path where one decided, for options->tune.  Call it when
 * weights and records are known and before the rank is made.  A file that cannot be read, is damaged or
 * cannot be written is a warning; errors are those of memory and of a wrong option. */
nb_status nb_engine_tune(struct nb_engine *e, const struct nb_engine_options *o, nb_caps caps,
                         nb_error *err);

#endif
