/* hashes.c - what a model computes, as hashes: to see whether a change of the code changed a bit.
 *
 *   nibble-hashes [--caps LEVEL[,LEVEL...]] [--cuda LIBRARY] [--quick] MODEL...
 *
 * LEVEL is a value of --cpu-caps; default: c and all that this processor has.
 *
 * One line per model, level, cache format or option, and form of attention: the logits of a
 * prompt, the logits of generated tokens, and the bytes of the cache after both.  A combination
 * that the engine refuses is a line that says so.  tests/hashes.sh compares two builds. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "nibble/measure.h"

enum { N_TOK = 150, N_PROMPT = 70, SHOWN = 8 };

typedef struct variant {
    const char *name;
    nb_engine_options o;
    bool quick;
} variant;

static const variant variants[] = {
    { "f32", { .kv_cache_dtype = "f32" }, true },
    { "bf16", { .kv_cache_dtype = "bf16" }, true },
    { "fp8", { .kv_cache_dtype = "fp8" }, true },
    { "nvfp4", { .kv_cache_dtype = "nvfp4" }, true },
    { "if4", { .kv_cache_dtype = "if4" }, false },
    { "mxfp4", { .kv_cache_dtype = "mxfp4" }, false },
    { "int4", { .kv_cache_dtype = "int4" }, false },
    { "fp8_ds_mla", { .kv_cache_dtype = "fp8_ds_mla" }, false },
    { "nvfp4,basic", { .kv_cache_dtype = "nvfp4", .kv_cache_mode = "basic" }, false },
    { "nvfp4,search", { .kv_cache_dtype = "nvfp4", .kv_cache_mode = "search" }, false },
    { "nvfp4,rope-fp8", { .kv_cache_dtype = "nvfp4", .kv_rope_dtype = "fp8" }, false },
    { "nvfp4,rope-bf16", { .kv_cache_dtype = "nvfp4", .kv_rope_dtype = "bf16" }, false },
    { "nvfp4,hadamard", { .kv_cache_dtype = "nvfp4", .kv_transform = "hadamard" }, false },
    { "nvfp4,sinks", { .kv_cache_dtype = "nvfp4", .kv_sinks = 4 }, false },
    { "nvfp4,skip", { .kv_cache_dtype = "nvfp4", .kv_skip_layers = "0" }, false },
    { "nvfp4,thrift-token", { .kv_cache_dtype = "nvfp4", .kv_thrift = "token" }, false },
    { "nvfp4,thrift-block", { .kv_cache_dtype = "nvfp4", .kv_thrift = "block-mean" }, false },
    { "nvfp4,int8-weights", { .kv_cache_dtype = "nvfp4", .weight_dtype = "int8" }, false },
};
static const char *const forms[] = { "auto", "absorbed", "expanded" };

typedef struct digest {
    EVP_MD_CTX *md;
} digest;

static int on_logits(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    const digest *d = ctx;
    (void)row;
    return EVP_DigestUpdate(d->md, logits, n_vocab * sizeof *logits) == 1 ? 0 : 1;
}

static void on_pool(nb_engine *e, void *ctx)
{
    const digest *d = ctx;
    char *copy = malloc(e->pages.kv_bytes);
    if (!copy) abort();
    e->rank[0].device.kind->read(&e->rank[0].device, copy, e->rank[0].kv, e->pages.kv_bytes);
    (void)EVP_DigestUpdate(d->md, copy, e->pages.kv_bytes);
    free(copy);
}

static void begin(digest *d)
{
    if (!d->md) d->md = EVP_MD_CTX_new();
    if (!d->md || EVP_DigestInit_ex(d->md, EVP_sha256(), NULL) != 1) abort();
}

static void print_end(const digest *d)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(d->md, sum, &n) != 1) abort();
    printf(" ");
    for (unsigned i = 0; i < SHOWN; i++) printf("%02x", sum[i]);
}

/* The same ids for every build: a generator of its own. */
static void draw_tokens(uint32_t *tok, size_t n, size_t n_vocab)
{
    uint64_t s = 1;
    for (size_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        tok[i] = (uint32_t)((s >> 33) % n_vocab);
    }
}

static nb_status hash_engine(nb_engine *e, nb_error *err)
{
    nb_engine_info info;
    uint32_t tok[N_TOK];
    size_t rows[N_TOK];
    digest d = { NULL };
    nb_engine_get_info(e, &info);
    draw_tokens(tok, N_TOK, info.vocab);
    for (size_t i = 0; i < N_TOK; i++) rows[i] = i;
    begin(&d);
    nb_status st = nb_logits(e, tok, N_TOK, rows, N_TOK, on_logits, &d, err);
    if (st == NB_OK) {
        print_end(&d);
        begin(&d);
        st = nb_engine_call(e, on_pool, &d);
    }
    if (st == NB_OK) {
        print_end(&d);
        begin(&d);
        st = nb_engine_forced(e, tok, N_TOK, N_PROMPT, on_logits, &d, err);
    }
    if (st == NB_OK) {
        print_end(&d);
        begin(&d);
        st = nb_engine_call(e, on_pool, &d);
        print_end(&d);
    }
    EVP_MD_CTX_free(d.md);
    return st;
}

static bool hash_one(const char *model, const char *caps, const char *cuda, const variant *v,
                     const char *form)
{
    nb_engine_options o = v->o;
    nb_engine *e = NULL;
    nb_error err = { 0 };
    o.model = model;
    o.mla = form;
    o.cpu_caps = caps;
    o.device = cuda ? "cuda" : "cpu";
    o.cuda_library = cuda;
    o.n_thread = 2;
    o.prefill_chunk = 100;
    o.no_text = true;
    o.max_model_len = 192;
    const char *name = strrchr(model, '/');
    printf("%s %s %s %s", name ? name + 1 : model, cuda ? "cuda" : caps, v->name, form);
    nb_status st = nb_engine_create(&o, &e, &err);
    if (st == NB_OK) {
        st = hash_engine(e, &err);
        nb_engine_destroy(e);
        if (st != NB_OK) printf(" failed");
    } else {
        printf(" refused");
    }
    const bool fine = st == NB_OK || st == NB_ERR_UNSUPPORTED || st == NB_ERR_ARG || !e;
    if (st != NB_OK) (void)fprintf(stderr, "%s %s %s: %s\n", model, v->name, form, err.msg);
    printf("\n");
    (void)fflush(stdout);
    return fine;
}

static int usage(void)
{
    (void)fputs("usage: nibble-hashes [--caps LEVEL[,...]] [--cuda LIBRARY] [--quick] MODEL...\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    char levels[128];
    const char *cuda = NULL;
    bool quick = false, fine = true;
    int i = 1;
    (void)snprintf(levels, sizeof levels, "c,%s", nb_cpu_levels());
    for (char *p = levels; *p; p++)
        if (*p == '+') *p = ',';
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--caps") == 0 && i + 1 < argc)
            (void)snprintf(levels, sizeof levels, "%s", argv[++i]);
        else if (strcmp(argv[i], "--cuda") == 0 && i + 1 < argc)
            cuda = argv[++i];
        else
            return usage();
    }
    if (i == argc) return usage();
    for (; i < argc; i++) {
        char rest[sizeof levels], *save = NULL;
        memcpy(rest, levels, sizeof rest);
        for (char *caps = strtok_r(rest, ",", &save); caps; caps = strtok_r(NULL, ",", &save))
            for (size_t k = 0; k < NB_COUNT(variants) * NB_COUNT(forms); k++) {
                const variant *v = &variants[k / NB_COUNT(forms)];
                if (v->quick || !quick)
                    fine &= hash_one(argv[i], caps, cuda, v, forms[k % NB_COUNT(forms)]);
            }
    }
    return fine ? 0 : 1;
}
