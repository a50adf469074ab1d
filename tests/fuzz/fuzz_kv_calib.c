/* fuzz_kv_calib.c - any bytes as a calibration file; what is accepted is used to its end, and is
 * written and read back. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "load/kv_calib.h"
#include "num/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void need(int ok)
{
    if (!ok) abort();
}

static void check_floats(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) need(isfinite(x[i]));
}

static void use(const nb_kv_calib *c)
{
    need(strlen(c->model_hash) == 64 && strlen(c->family) < sizeof c->family && c->n_tok > 0);
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_kv_calib_layer *l = &c->layer[i];
        need(l->n_values > 0 && l->n_values <= 65536 && l->n_outlier <= l->n_values);
        check_floats(l->mean, l->n_values);
        check_floats(l->sd, l->n_values);
        check_floats(l->amax, l->n_values);
        need(isfinite(l->token_amax) && isfinite(l->error) && isfinite(l->plain_error));
        uint16_t out[NB_MAX_OUTLIER];
        const size_t n_out = l->n_values < NB_MAX_OUTLIER ? l->n_values : NB_MAX_OUTLIER;
        nb_kv_calib_outliers(l, l->use_center, l->use_equalize, n_out, out);
        for (size_t k = 0; k < n_out; k++)
            need(out[k] < l->n_values && (k == 0 || out[k - 1] < out[k]));
        need(c->is_mla || (!l->perm && !l->use_center && !l->use_equalize && !l->use_hadamard));
        if (!c->is_mla) continue;
        check_floats(l->pair_max, l->n_pair);
        check_floats(l->pair_mean, l->n_pair);
        size_t sum = 0;
        for (size_t k = 0; k < l->n_values; k++) {
            need(abs(l->scale_log2[k]) <= NB_KV_SCALE_LOG2_MAX && l->perm[k] < l->n_values);
            sum += l->perm[k];
        }
        need(sum == l->n_values * (l->n_values - 1) / 2);
        need(!l->use_hadamard || l->hadamard);
        need(!l->hadamard || l->n_values % l->hadamard == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_kv_calib c = { 0 };
    nb_error e = { 0 };
    char *p = malloc(n + (n == 0)); /* its own block: reading beyond it is found */
    if (!p) return 0;
    if (n) memcpy(p, data, n);
    if (nb_kv_calib_parse(p, n, "fuzz.json", &c, &e) == NB_OK) {
        use(&c);
        const nb_status st = nb_kv_calib_write(&c, "/dev/null", &e);
        need(st == NB_OK || st == NB_ERR_NOMEM);
        nb_kv_calib_deinit(&c);
    } else {
        const char *end = memchr(e.msg, 0, sizeof e.msg);
        need(end && end > e.msg && e.status != NB_OK && strstr(e.msg, "fuzz.json") != NULL);
        for (const char *q = e.msg; q < end; q++) need((unsigned char)*q >= 0x20 && *q != 0x7f);
    }
    free(p);
    return 0;
}
