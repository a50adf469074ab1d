/* embedded.h - files that are part of the program: made by cmake/NbEmbed.cmake from files of this
 * folder. Static. */
#ifndef NB_CAPACITY_EMBEDDED_H
#define NB_CAPACITY_EMBEDDED_H
#include <stddef.h>

typedef struct nb_embedded {
    const char *name; /* of the file, without folder and suffix; NULL behind the last */
    const unsigned char *p;
    size_t n_bytes; /* not terminated */
} nb_embedded;

extern const nb_embedded nb_embedded_gpus[];    /* one: gpus.json */
extern const nb_embedded nb_embedded_configs[]; /* models/configs, by name */

#endif
