/* configs.h - the config.json files of well-known models, as part of the program: sizes without
 * files (models/configs). */
#ifndef NB_CAPACITY_CONFIGS_H
#define NB_CAPACITY_CONFIGS_H
#include "base/str.h"
#include "model/config.h"

typedef struct nb_bundled_config {
    const char *name; /* of the file; static, as the rest */
    nb_str json;
    const char *note; /* in what the published checkpoint differs from what is counted, or NULL */
} nb_bundled_config;

/* By name: any case, '_' and '.' for '-', with or without an organisation ("deepseek-ai/DeepSeek-V3") and
 * suffixes that do not change the geometry (-Instruct, -Chat, -Base, ...); also by other names of the
 * same geometry ("deepseek-r1").  NB_ERR_NOT_FOUND: the line has the nearest name and all of them. */
nb_status nb_capacity_config(const char *name, nb_bundled_config *out, nb_error *err);
/* Number i of all, in the order of the files; false behind the last. */
bool nb_capacity_config_at(size_t i, nb_bundled_config *out);

/* The configuration of a MODEL: a directory, a config.json, an id in the hub cache, else a bundled name. *note (may be NULL):
 * as above.  NB_ERR_NOT_FOUND when it is none of them; errors of fields name these. */
nb_status nb_capacity_read_config(const char *model, nb_model_config *c, const char **note,
                                  nb_error *err);

#endif
