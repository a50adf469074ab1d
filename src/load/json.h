/* json.h - JSON under limits, and text that is fit for error lines. */
#ifndef NB_LOAD_JSON_H
#define NB_LOAD_JSON_H
#include <jansson.h>

#include "base/str.h"

/* Bytes from outside made fit for an error line: valid UTF-8, no control or
 * direction-changing characters ('?' stands for each), at most 160 bytes ("..." where
 * it was cut).  nb_show_path keeps the end of a long path, where the name is. */
typedef struct nb_shown {
    char s[164];
} nb_shown;
nb_shown nb_show(nb_str text);
nb_shown nb_show_c(const char *text);
typedef struct nb_shown_path {
    char s[324];
} nb_shown_path;
nb_shown_path nb_show_path(const char *path);

/* Strict JSON (RFC 8259) under limits, found before anything is allocated for it:
 * nesting, and the number of values, which bounds the memory that the tree takes (at
 * most some 250 bytes per value).  Duplicate keys and NUL characters are refused.
 * Integers outside of int64 become reals (they occur: "model_max_length" of some
 * tokenizers is 1e30 written out).  name is put in front of error lines.
 * *out is the caller's to json_decref. */
typedef struct nb_json_limits {
    size_t max_bytes, max_depth, max_values;
} nb_json_limits;
nb_status nb_json_parse(nb_str json, const char *name, const nb_json_limits *lim, json_t **out,
                        nb_error *err);
/* What a value is, for error lines: "a string", "the integer 5", ... */
nb_shown nb_json_describe(const json_t *v);

#endif
