/* json_size.h - how much memory a JSON text takes once it is parsed, without parsing it. */
#ifndef NB_SERVE_JSON_SIZE_H
#define NB_SERVE_JSON_SIZE_H
#include "base/str.h"

typedef struct nb_json_size {
    size_t n_container; /* objects and arrays */
    size_t tree_bytes;  /* of jansson's tree, an upper bound but for a few percent */
} nb_json_size;

/* Of a text that may or may not be JSON: what is no JSON is for the parser to find. */
nb_json_size nb_json_measure(nb_str text);

#endif
