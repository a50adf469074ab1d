/* leftover.h - tensors of a checkpoint that a model does not use. */
#ifndef NB_MODEL_LEFTOVER_H
#define NB_MODEL_LEFTOVER_H
#include "load/source.h"
#include "model/config.h"

/* After nb_model_load.  How many tensors were not taken although nothing explains it: they are no layers for
 * multi-token prediction, no parts for images, no constants that are computed here, no scales that are
 * chosen here.  names gets the first of them, for a line. */
size_t nb_model_leftovers(const nb_model_config *c, const nb_source *s, char *names,
                          size_t names_bytes);

#endif
