/* find.c - where MODEL is: a path, or a Hugging Face id in the local hub cache; nb_free for such results. */
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "load/hub.h"

nb_status nb_model_find(const char *model, char **path, nb_error *err)
{
    nb_buf found = { 0 };
    if (!model || !*model || !path) return nb_fail(err, NB_ERR_ARG, "no model given");
    const nb_status st = nb_hub_model_path(model, &found, err);
    if (st == NB_OK)
        *path = found.p; /* malloc's, as nb_free wants */
    else
        nb_buf_deinit(&found);
    return st;
}

void nb_free(void *p)
{
    free(p);
}
