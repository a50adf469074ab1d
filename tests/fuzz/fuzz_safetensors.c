/* fuzz_safetensors.c - any bytes as one safetensors file, then tensors taken from it.
 *
 * The bytes are opened at two alignments, so that the copying of misaligned tensors is
 * reached.  Every tensor is asked for with wants that fit, that fit by wildcard, and
 * that do not; what is handed out is read to its end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "load/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const nb_error *e)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status == NB_OK || !strstr(e->msg, "fuzz.safetensors")) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

static unsigned read_all(const nb_tensor *t)
{
    unsigned sum = 0;
    const size_t elem = nb_dtype_bytes(t->dtype);
    if (elem == 0 || (uintptr_t)t->data % elem) abort();
    size_t n = elem;
    for (size_t i = 0; i < t->n_dim; i++) n *= t->dim[i];
    if (n != t->n_bytes) abort();
    for (size_t i = 0; i < n; i++) sum += ((const unsigned char *)t->data)[i];
    return sum;
}

static void take_all(nb_source *s)
{
    static volatile unsigned sink;
    nb_error e;
    nb_tensor t;
    size_t skipped = 0;
    for (size_t round = 0; round < 64; round++) {
        const char *name = nb_source_leftover(s, skipped);
        if (!name) break;
        if (!nb_source_has(s, name)) abort();
        bool got = false;
        for (size_t n_dim = 0; n_dim <= NB_TENSOR_MAX_DIM; n_dim++) {
            nb_tensor_want w = { .name = name,
                                 .dtypes = round % 3 ? UINT32_MAX : 1u << NB_DT_BF16,
                                 .n_dim = n_dim,
                                 .dim = { round % 5 == 4 ? 3 : 0 } };
            if (nb_source_take(s, &w, &t, &e) != NB_OK) {
                check_error(&e);
                continue;
            }
            got = true;
            sink = sink + read_all(&t);
            memcpy(w.dim, t.dim, sizeof w.dim); /* the exact shape fits, another does not */
            if (nb_source_take(s, &w, &t, &e) != NB_OK) abort();
            if (n_dim == 0) continue;
            w.dim[n_dim - 1] = t.dim[n_dim - 1] + 1;
            if (nb_source_take(s, &w, &t, &e) != NB_ERR_FORMAT) abort();
            check_error(&e);
        }
        skipped += got ? 0 : 1;
    }
    const nb_tensor_want none = { .name = "no such tensor", .dtypes = UINT32_MAX };
    if (nb_source_take(s, &none, &t, &e) == NB_OK) return; /* the input may have it */
    if (e.status != NB_ERR_NOT_FOUND && e.status != NB_ERR_FORMAT) abort();
    check_error(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    for (size_t shift = 0; shift < 2; shift++) {
        char *p = malloc(n + shift + (n + shift == 0));
        if (!p) return 0;
        if (n) memcpy(p + shift, data, n);
        nb_source *s = NULL;
        nb_error e;
        if (nb_source_open_bytes((nb_str){ p + shift, n }, "fuzz.safetensors", &s, &e) == NB_OK)
            take_all(s);
        else
            check_error(&e);
        nb_source_close(s);
        free(p);
    }
    return 0;
}
