/* kv_size.c - see kv_size.h. */
#include "model/kv_size.h"

#include "num/residual.h"

nb_kv_type nb_kv_type_own(const nb_model_config *c)
{
    return c->dtype[5] == '3' ? NB_KV_F32 : NB_KV_BF16; /* "float32" */
}

nb_status nb_kv_record(const nb_attn_config *a, nb_kv_type type, nb_rope_fmt rope, nb_record *out,
                       nb_error *err)
{
    nb_record_opts o;
    nb_model_record_opts(a, type, nb_kv_mode_default(type), rope, &o);
    return nb_record_init(out, &o, err);
}

nb_status nb_kv_layer_offsets(const nb_record *record, size_t n_layer, size_t *off, nb_error *err)
{
    off[0] = 0;
    for (size_t i = 0; i < n_layer; i++) {
        if (record[i].page_bytes > SIZE_MAX / 2 - off[i])
            return nb_fail(err, NB_ERR_LIMIT, "a block of %zu layers is too large", n_layer);
        off[i + 1] = off[i] + record[i].page_bytes;
    }
    return NB_OK;
}

size_t nb_kv_plane_offsets(const nb_record *record, size_t n_layer, size_t *off, size_t *row)
{
    size_t n = 0;
    off[0] = *row = 0;
    for (size_t i = 0; i < n_layer; i++) {
        const bool here = nb_residual_possible(&record[i]);
        off[i + 1] = off[i] + (here ? nb_residual_page_bytes(&record[i]) : 0);
        if (here) *row = nb_residual_row_bytes(&record[i]);
        n += here;
    }
    return n;
}

size_t nb_kv_tail_offsets(const nb_record *record, size_t n_layer, size_t *off)
{
    size_t n = 0;
    for (size_t i = 0; i <= n_layer; i++) {
        if (off) off[i] = n;
        if (i < n_layer) n += record[i].n_row * record[i].n_values;
    }
    return n * sizeof(float);
}

size_t nb_kv_sink_offsets(const nb_record *record, size_t n_layer, size_t n_sink, size_t *off)
{
    size_t n = 0;
    for (size_t i = 0; i <= n_layer; i++) {
        if (off) off[i] = n;
        if (i < n_layer) n += n_sink * record[i].n_values;
    }
    return n * sizeof(uint16_t);
}
