/* gguf_out.c - see gguf_out.h. */
#include "convert/gguf_out.h"

#include <string.h>

static void add(nb_gguf_out *g, const void *p, size_t n)
{
    if (nb_buf_add(&g->kv, p, n) != NB_OK) g->failed = true;
}

static void put_le(uint8_t *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static void add_le(nb_gguf_out *g, uint64_t v, int n)
{
    uint8_t b[8];
    put_le(b, v, n);
    add(g, b, (size_t)n);
}

static void add_key(nb_gguf_out *g, const char *key, nb_gguf_type type)
{
    nb_gguf_item_str(g, nb_str_c(key));
    add_le(g, (uint64_t)type, 4);
    g->n_kv++;
}

void nb_gguf_item_str(nb_gguf_out *g, nb_str v)
{
    add_le(g, v.n_bytes, 8);
    add(g, v.p, v.n_bytes);
}
void nb_gguf_item_i32(nb_gguf_out *g, int32_t v)
{
    add_le(g, (uint32_t)v, 4);
}
void nb_gguf_item_f32(nb_gguf_out *g, float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    add_le(g, u, 4);
}
void nb_gguf_put_u32(nb_gguf_out *g, const char *key, uint32_t v)
{
    add_key(g, key, NB_GGUF_U32);
    add_le(g, v, 4);
}
void nb_gguf_put_f32(nb_gguf_out *g, const char *key, float v)
{
    add_key(g, key, NB_GGUF_F32);
    nb_gguf_item_f32(g, v);
}
void nb_gguf_put_bool(nb_gguf_out *g, const char *key, bool v)
{
    add_key(g, key, NB_GGUF_BOOL);
    add_le(g, v, 1);
}
void nb_gguf_put_str(nb_gguf_out *g, const char *key, nb_str v)
{
    add_key(g, key, NB_GGUF_STRING);
    nb_gguf_item_str(g, v);
}
void nb_gguf_put_array(nb_gguf_out *g, const char *key, nb_gguf_type type, uint64_t n)
{
    add_key(g, key, NB_GGUF_ARRAY);
    add_le(g, (uint64_t)type, 4);
    add_le(g, n, 8);
}

static nb_status add_tensor(nb_buf *out, const nb_gguf_out_tensor *t, uint64_t offset)
{
    uint8_t b[8];
    const size_t n = strlen(t->name);
    put_le(b, n, 8);
    NB_TRY(nb_buf_add(out, b, 8));
    NB_TRY(nb_buf_add(out, t->name, n));
    put_le(b, t->n_dim, 4);
    NB_TRY(nb_buf_add(out, b, 4));
    for (size_t i = 0; i < t->n_dim; i++) {
        put_le(b, t->ne[i], 8);
        NB_TRY(nb_buf_add(out, b, 8));
    }
    put_le(b, t->type->type, 4);
    NB_TRY(nb_buf_add(out, b, 4));
    put_le(b, offset, 8);
    return nb_buf_add(out, b, 8);
}

nb_status nb_gguf_out_head(nb_gguf_out *g, const nb_gguf_out_tensor *t, size_t n, nb_buf *out)
{
    uint8_t head[24] = "GGUF";
    uint64_t at = 0;
    put_le(head + 4, 3, 4);
    put_le(head + 8, n, 8);
    put_le(head + 16, g->n_kv, 8);
    if (g->failed) return NB_ERR_NOMEM;
    NB_TRY(nb_buf_add(out, head, sizeof head));
    NB_TRY(nb_buf_add(out, g->kv.p, g->kv.n_bytes));
    for (size_t i = 0; i < n; i++) {
        NB_TRY(add_tensor(out, &t[i], at));
        at += (t[i].bytes + NB_GGUF_ALIGN - 1) / NB_GGUF_ALIGN * NB_GGUF_ALIGN;
    }
    while (out->n_bytes % NB_GGUF_ALIGN) NB_TRY(nb_buf_add_ch(out, 0));
    return NB_OK;
}
