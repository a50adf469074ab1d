/* planes.c - Thrift mode in the engine: its options against the model and the records, and the
 * residual planes and the pool of their rows beside the KV pool. */
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "model/kv_size.h"

static nb_status lay_out(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t n_layer = e->model.c.n_layer;
    e->pages.plane_off = calloc(n_layer + 1, sizeof *e->pages.plane_off);
    if (!e->pages.plane_off) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    e->pages.n_plane_layer =
        nb_kv_plane_offsets(e->pages.record, n_layer, e->pages.plane_off, &e->pages.plane_row);
    e->pages.plane_block = e->pages.plane_off[n_layer];
    if (e->pages.n_plane_layer) return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   "--kv-thrift %s: residual planes refine records of nvfp4 or if4, and with "
                   "--kv-cache-dtype %s%s%s no layer has one",
                   o->kv_thrift, e->pages.kv_dtype,
                   o->kv_skip_layers ? " --kv-cache-dtype-skip-layers " : "",
                   o->kv_skip_layers ? o->kv_skip_layers : "");
}

nb_status nb_engine_read_thrift(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    NB_TRY(nb_thrift_parse(o->kv_thrift, o->kv_thrift_tau, o->kv_thrift_fraction, o->kv_thrift_pool,
                           &e->pages.thrift, err));
    if (e->pages.thrift.kind == NB_THRIFT_OFF) return NB_OK;
    if (nb_attn_any(&e->model.c, NB_ATTN_DSA))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-thrift %s: not with sparse attention (%s), whose indexer chooses the tokens; expected off",
                       o->kv_thrift, e->model.c.family);
    if (!nb_attn_all(&e->model.c, NB_ATTN_MLA))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-thrift %s: %s has no latent attention, which Thrift mode is made for; "
                       "expected off",
                       o->kv_thrift, e->model.c.family);
    if (e->step.form == NB_FORM_EXPANDED)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-thrift %s: generated tokens must be computed in the absorbed form; "
                       "expected --mla auto or absorbed",
                       o->kv_thrift);
    return lay_out(e, o, err);
}

/* Rows of the pool for n_block blocks. */
static size_t n_slot(const nb_engine *e, size_t n_block)
{
    const double n =
        e->pages.thrift.pool * (double)(n_block * NB_PAGE_TOK) * (double)e->pages.n_plane_layer;
    return n < (double)(UINT32_MAX - 1) ? (size_t)n : UINT32_MAX - 1;
}

size_t nb_engine_plane_bytes(const nb_engine *e, size_t n_block)
{
    if (e->pages.thrift.kind == NB_THRIFT_OFF) return 0;
    const size_t planes = n_block * e->pages.plane_block;
    return e->rank[0].device.kind->own_memory
               ? planes
               : planes + nb_thrift_pool_bytes(n_slot(e, n_block), e->pages.plane_row);
}

nb_status nb_engine_create_planes(nb_engine *e, nb_error *err)
{
    if (e->pages.thrift.kind == NB_THRIFT_OFF) return NB_OK;
    const size_t n_bytes = e->pages.n_block * e->pages.plane_block;
    e->rank[0].plane = e->rank[0].device.kind->host_alloc(&e->rank[0].device, n_bytes);
    if (!e->rank[0].plane)
        return nb_fail(err, NB_ERR_NOMEM,
                       "--kv-thrift %s: no memory for residual planes of %zu MiB (--max-model-len "
                       "takes a smaller context)",
                       nb_thrift_name(e->pages.thrift.kind), n_bytes >> 20);
    if (e->rank[0].device.kind->own_memory) return NB_OK; /* rows are read where they are */
    return nb_thrift_pool_create(n_slot(e, e->pages.n_block), e->pages.plane_row,
                                 &e->rank[0].thrift_pool, err);
}

void nb_engine_release_planes(nb_engine *e)
{
    e->rank[0].device.kind->host_free(&e->rank[0].device, e->rank[0].plane,
                                      e->pages.n_block * e->pages.plane_block);
    nb_thrift_pool_destroy(e->rank[0].thrift_pool);
}
