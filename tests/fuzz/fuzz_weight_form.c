/* fuzz_weight_form.c - quantised matrices from tensors of any type, size and content.
 *
 * The input describes a well-formed file, so that mutations reach the checks behind the header: four bytes
 * for configuration, matrix and expert, six for each tensor (suffix, type, number of dimensions, three sizes), 0xff,
 * then the data, repeated.  A matrix that is taken is read to its end as floats. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/embed/embed.h"
#include "model/weight_form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const suffixes[] = {
    "weight",       "weight_packed", "weight_scale",       "weight_scale_inv", "weight_scale_2",
    "weight_shape", "weight_g_idx",  "weight_zero_point",  "qweight",          "qzeros",
    "scales",       "g_idx",         "weight_global_scale", "pre_quant_scale",
    "gate_up_proj_blocks", "gate_up_proj_scales", "down_proj_blocks", "down_proj_scales",
};
static const struct {
    const char *name;
    size_t n_bytes;
} types[] = { { "F32", 4 }, { "BF16", 2 }, { "F16", 2 },     { "F8_E4M3", 1 }, { "I32", 4 },
              { "I64", 8 }, { "U8", 1 },   { "I8", 1 } };
enum { MAX_TENSOR = 12 };

static void check_error(const nb_error *e, nb_status st)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status != st || st == NB_OK) abort();
    if (st != NB_ERR_NOMEM && !strstr(e->msg, "tensor 'x.")) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

/* Length, header and data of the tensors of *in, which is moved behind them. */
static bool build(const uint8_t **in, const uint8_t *end, nb_buf *out)
{
    nb_buf head = { 0 };
    size_t at = 0, n_tensor = 0;
    unsigned seen = 0;
    bool ok = nb_buf_add_ch(&head, '{') == NB_OK;
    for (; ok && n_tensor < MAX_TENSOR && end - *in >= 6 && **in != 0xff; *in += 6) {
        const uint8_t *p = *in;
        const size_t k = p[0] % NB_COUNT(suffixes), n_dim = p[2] % 5;
        size_t bytes = types[p[1] % NB_COUNT(types)].n_bytes;
        char text[200], shape[40] = "";
        if (seen >> k & 1) continue;
        seen |= 1u << k;
        for (size_t i = 0; i < n_dim; i++) {
            const unsigned dim = i < 3 ? p[3 + i] : 16;
            bytes *= dim;
            (void)snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%u", i ? "," : "",
                           dim);
        }
        if (at + bytes > 1 << 16) continue;
        (void)snprintf(text, sizeof text,
                       "%s\"x.%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                       n_tensor++ ? "," : "", suffixes[k], types[p[1] % NB_COUNT(types)].name, shape,
                       at, at + bytes);
        ok = nb_buf_add_c(&head, text) == NB_OK;
        at += bytes;
    }
    if (*in < end && **in == 0xff) ++*in;
    ok = ok && nb_buf_add_ch(&head, '}') == NB_OK;
    while (ok && head.n_bytes % 8) ok = nb_buf_add_ch(&head, ' ') == NB_OK;
    for (size_t i = 0; ok && i < 8; i++)
        ok = nb_buf_add_ch(out, (char)(head.n_bytes >> 8 * i & 0xff)) == NB_OK;
    ok = ok && nb_buf_add(out, head.p, head.n_bytes) == NB_OK;
    const size_t left = (size_t)(end - *in);
    for (size_t i = 0; ok && i < at; i++)
        ok = nb_buf_add_ch(out, left ? (char)(*in)[i % left] : 0) == NB_OK;
    nb_buf_deinit(&head);
    return ok;
}

static void read_all(const nb_weight *w)
{
    float *row = malloc(w->n_col * sizeof *row);
    for (uint32_t r = 0; row && r < w->n_row; r++)
        nb_embed_c(&(nb_embed_args){
            .y = row, .id = &r, .w = *w, .n_tok = 1, .y_stride = w->n_col, .factor = 1 });
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const unsigned char bits[] = { 0, 4, 8, 4 }, groups[] = { 0, 8, 16, 32 };
    const uint8_t *in = data + 4, *end = data + n;
    nb_buf file = { 0 };
    nb_source *s = NULL;
    nb_arena arena = { 0 };
    nb_error e = { 0 };
    if (n < 4) return 0;
    const nb_quant q = { .method = "fuzz",
                         .form = { { .bits = bits[data[0] & 3], .cols = groups[data[0] >> 2 & 3] },
                                   { .bits = 4, .fp4 = true } },
                         .n_form = (data[0] & 3) ? 2 : 0,
                         .pack = (nb_quant_pack)(data[0] >> 4 & 3) };
    if (!build(&in, end, &file)) goto out;
    if (nb_source_open_bytes(nb_buf_view(&file), "fuzz.safetensors", &s, &e) != NB_OK) {
        if (e.status != NB_ERR_NOMEM) abort();
        goto out;
    }
    nb_weight w;
    nb_form f = { s, &arena, &q, "x", (size_t)data[1] + 1, (size_t)data[2] + 1, &e };
    static const char *const parts[] = { "gate", "up", "down" };
    const size_t n_expert = (size_t)(data[3] >> 4) + 1;
    const bool stacked = nb_form_is_stacked(s, "x");
    const nb_status st = stacked ? nb_form_take_stacked(&f, n_expert - 1, n_expert, parts[data[3] % 3], &w)
                                 : nb_form_take(&f, &w);
    if (st != NB_OK)
        check_error(&e, st);
    else
        read_all(&w);
out:
    nb_source_close(s);
    nb_arena_deinit(&arena);
    nb_buf_deinit(&file);
    return 0;
}
