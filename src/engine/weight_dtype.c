/* weight_dtype.c - --weight-dtype: as the checkpoint has them, or as INT8 or FP8; --activation-dtype: what products
 * make of activations. */
#include <stdio.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "model/quantize.h"
#include "os/file.h"
#include "os/sys.h"

nb_status nb_engine_read_weight_dtype(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const char *t = o->weight_dtype ? o->weight_dtype : "auto";
    e->fp8 = !strcmp(t, "fp8");
    e->quantized = e->fp8 || !strcmp(t, "int8");
    if (e->quantized || !strcmp(t, "auto")) return NB_OK;
    return nb_fail(err, NB_ERR_ARG, "--weight-dtype %.100s: expected auto, int8 or fp8", t);
}

nb_status nb_engine_read_activation_dtype(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const char *t = o->activation_dtype;
    if (nb_acts_parse(t, &e->acts)) return NB_OK;
    return nb_fail(err, NB_ERR_ARG,
                   "--activation-dtype %.100s: expected auto, float, bf16, int16, int8 or fp8", t);
}

static nb_status allocate(nb_engine *e, nb_error *err)
{
    const uint64_t ram = nb_os_ram_bytes();
    const char *name = e->fp8 ? "FP8" : "INT8";
    e->codes_bytes = e->fp8 ? nb_model_fp8_bytes(&e->model) : nb_model_int8_bytes(&e->model);
    if (e->codes_bytes == 0) return NB_OK; /* all matrices are packed already */
    if (ram && e->codes_bytes > ram)
        return nb_fail(err, NB_ERR_NOMEM,
                       "%s weights of %zu MiB do not fit into the memory of %llu MiB", name,
                       e->codes_bytes >> 20, (unsigned long long)(ram >> 20));
    e->codes = nb_dev_alloc_shared(e->dev, e->codes_bytes);
    if (!e->codes)
        return nb_fail(err, NB_ERR_NOMEM, "no memory for %s weights of %zu MiB", name,
                       e->codes_bytes >> 20);
    nb_pages_prefer_huge(e->codes, e->codes_bytes);
    return NB_OK;
}

typedef struct report_ctx {
    nb_progress_fn *fn;
    void *ctx;
} report_ctx;

static void report(void *ctx, const char *label, uint64_t done, uint64_t total)
{
    const report_ctx *r = ctx;
    r->fn(r->ctx, label, done, total);
}

nb_status nb_engine_quantize(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    if (!e->quantized) return NB_OK;
    NB_TRY(allocate(e, err));
    report_ctx r = { o->progress, o->progress_ctx };
    const nb_quantize_options q = { .dev = e->dev,
                                    .fp8 = e->fp8,
                                    .memory = e->codes,
                                    .source = e->source,
                                    .progress = o->progress ? report : NULL,
                                    .progress_ctx = &r };
    return nb_model_quantize(&e->model, &q, err);
}

nb_status nb_engine_plan_weights(nb_engine *e, const nb_engine_options *o, uint64_t *n_bytes,
                                 nb_error *err)
{
    const nb_model_config c = e->model.c;
    const bool dummy = o->load_format && !strcmp(o->load_format, "dummy"); /* would make them */
    NB_TRY(dummy ? nb_model_shapes(&e->model, &c, err)
                 : nb_model_load(&e->model, &c, e->source, err));
    if (!dummy) NB_TRY(nb_engine_fold(e, err));
    *n_bytes = !e->quantized ? e->model.weight_bytes
               : e->fp8      ? nb_model_fp8_weight_bytes(&e->model)
                             : nb_model_int8_weight_bytes(&e->model);
    return NB_OK;
}
