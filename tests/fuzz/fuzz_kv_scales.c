/* fuzz_kv_scales.c - what a checkpoint says of its KV cache.  The first byte of the input chooses:
 * the rest is a hf_quant_config.json, a config.json, or a safetensors file with scales. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "load/kv_scales.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const nb_error *e)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status == NB_OK) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

static void read_scales(nb_str bytes)
{
    enum { N_LAYER = 3 };
    nb_kv_scale s[N_LAYER];
    nb_source *src = NULL;
    nb_error e;
    size_t n_found = 0, n = 0;
    if (nb_source_open_bytes(bytes, "bytes", &src, &e) != NB_OK) {
        check_error(&e);
        return;
    }
    if (nb_kv_scales_read(src, N_LAYER, s, &n_found, &e) != NB_OK) {
        check_error(&e);
    } else {
        for (size_t i = 0; i < N_LAYER; i++) {
            if (!(s[i].k >= 0 && s[i].v >= 0) || !isfinite(s[i].k) || !isfinite(s[i].v)) abort();
            n += s[i].k > 0 || s[i].v > 0;
        }
        if (n != n_found) abort();
    }
    nb_source_close(src);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_kv_algo algo = NB_KV_ALGO_NONE;
    nb_error e;
    if (n == 0) return 0;
    const nb_str rest = { (const char *)data + 1, n - 1 };
    if (data[0] == 's') {
        read_scales(rest);
        return 0;
    }
    if (nb_kv_algo_parse(rest, "file.json", data[0] == 'c', &algo, &e) != NB_OK)
        check_error(&e);
    else if (algo != NB_KV_ALGO_NONE && algo != NB_KV_ALGO_FP8 && algo != NB_KV_ALGO_NVFP4)
        abort();
    return 0;
}
