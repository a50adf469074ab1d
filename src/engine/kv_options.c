/* kv_options.c - calibration, transforms and checkpoints' scales of the KV cache. */
#include <stdio.h>

#include "engine/engine_internal.h"

nb_status nb_engine_read_kv(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    if (o->kv_calibration || (o->kv_transform && *o->kv_transform))
        return nb_fail(err, NB_ERR_UNSUPPORTED, "--kv-calibration and --kv-transform are not built");
    (void)snprintf(e->kvo.transform_text, sizeof e->kvo.transform_text, "none");
    return NB_OK;
}

nb_status nb_engine_fold(nb_engine *e, nb_error *err)
{
    (void)e;
    (void)err;
    return NB_OK;
}

void nb_engine_kv_deinit(nb_engine_kv *k)
{
    nb_arena_deinit(&k->arena);
}
