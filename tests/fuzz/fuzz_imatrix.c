/* fuzz_imatrix.c - any bytes as an importance matrix of llama.cpp: it opens, or one line says why not; weights are asked
 * for by names that it may have, and are finite and positive. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "convert/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const nb_error *e)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status == NB_OK) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

static void ask(const nb_imatrix *m, const char *name, nb_imatrix_part part, size_t head, size_t cols)
{
    float w[64];
    nb_imatrix_found found;
    nb_error e = { 0 };
    if (nb_imatrix_weights(m, name, part, head, cols, w, &found, &e) != NB_OK)
        check_error(&e);
    else
        for (size_t i = 0; found != NB_IMATRIX_NONE && i < cols; i++)
            if (!isfinite(w[i]) || !(w[i] > 0)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const names[] = {
        "model.layers.0.self_attn.q_proj.weight",          "model.layers.0.self_attn.kv_b_proj.weight",
        "model.layers.1.mlp.experts.0.gate_proj.weight",   "model.layers.1.mlp.experts.3.down_proj.weight",
        "model.layers.1.mlp.experts.999999.up_proj.weight"
    };
    nb_imatrix *m = NULL;
    nb_error e = { 0 };
    if (nb_imatrix_open_bytes((nb_str){ (const char *)data, n }, "fuzz", &m, &e) != NB_OK) {
        check_error(&e);
        return 0;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t cols = 1; cols <= 64; cols *= 2) {
            ask(m, names[i], NB_IMATRIX_WHOLE, 0, cols);
            ask(m, names[i], NB_IMATRIX_UK, 1, cols);
            ask(m, names[i], NB_IMATRIX_UV, 7, cols);
        }
    nb_imatrix_destroy(m);
    return 0;
}
