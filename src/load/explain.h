/* explain.h - why a MODEL cannot be read, in one line that says what it is and what to do. */
#ifndef NB_LOAD_EXPLAIN_H
#define NB_LOAD_EXPLAIN_H
#include "base/status.h"

/* After the configuration of `model` could not be read, with st and err: a better line where the path
 * does not exist, is another kind of file, or is a directory without a config.json; else err stays.
 * Returns st. */
nb_status nb_explain_model(const char *model, nb_status st, nb_error *err);
/* For a directory without safetensors files: names the weights that it has in other formats.
 * Returns NB_ERR_NOT_FOUND, with a line. */
nb_status nb_explain_weights(const char *dir, nb_error *err);

#endif
