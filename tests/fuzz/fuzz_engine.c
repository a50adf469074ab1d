/* fuzz_engine.c - any bytes as the config.json of a small checkpoint of tests/parity (the one
 * whose model_type the bytes name): described, loaded, and asked for two tokens.
 *
 * With failing allocations this goes through the creation of an engine and a request. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nibble/nibble.h"
#include "os/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(nb_status st, const nb_error *e)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status != st) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

static void ask(nb_engine *e)
{
    static const uint32_t prompt[66]; /* zeros */
    nb_request rq = { .prompt = prompt, .n_prompt = 66 };
    nb_sampling_default(&rq.sampling);
    rq.sampling.temperature = 0;
    rq.sampling.max_tokens = 2;
    rq.sampling.n_logprobs = 1;
    nb_result r = { 0 };
    nb_error err = { 0 };
    const nb_status st = nb_generate(e, &rq, &r, &err);
    if (st == NB_OK)
        nb_result_deinit(&r);
    else
        check_error(st, &err);
}

static void run(const char *dir, size_t n)
{
    static const char *const kv[] = { "nvfp4", "bf16", "int4", "auto", "fp8", "if4" };
    nb_engine *e = NULL;
    nb_error err = { 0 };
    char *json = NULL;
    nb_status st = nb_model_describe(dir, &json, &err);
    if (st == NB_OK)
        nb_free(json);
    else
        check_error(st, &err);
    err = (nb_error){ 0 };
    st = nb_engine_create(&(nb_engine_options){ .model = dir,
                                                .kv_cache_dtype = kv[n % NB_COUNT(kv)],
                                                .n_thread = 1,
                                                .max_model_len = 70,
                                                .prefill_chunk = 16 },
                          &e, &err);
    if (st != NB_OK) {
        check_error(st, &err);
        return;
    }
    ask(e);
    nb_engine_destroy(e);
}

static bool contains(const uint8_t *data, size_t n, const char *word)
{
    const size_t m = strlen(word);
    for (size_t i = 0; i + m <= n; i++)
        if (!memcmp(data + i, word, m)) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const weights[][2] = { { "minicpm3", "minicpm3_long" },
                                              { "deepseek", "v3" },
                                              { "", "llama3" } };
    const char *base = getenv("TMPDIR"), *root = getenv("NB_SOURCE_DIR");
    char dir[200], config[300], model[300], from[600], cwd[300];
    size_t k = 0;
    while (!contains(data, n, weights[k][0])) k++;
    if (!root && getcwd(cwd, sizeof cwd)) root = cwd;
    (void)snprintf(from, sizeof from, "%s/tests/parity/%s/model.safetensors", root ? root : "",
                   weights[k][1]);
    (void)snprintf(dir, sizeof dir, "%s/nibble-fuzz-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(dir)) exit(77);
    (void)snprintf(config, sizeof config, "%s/config.json", dir);
    (void)snprintf(model, sizeof model, "%s/model.safetensors", dir);
    const bool linked = symlink(from, model) == 0;
    if (linked && nb_file_write(config, data, n, NULL) == NB_OK) run(dir, n);
    (void)unlink(config);
    (void)unlink(model);
    (void)rmdir(dir);
    return 0;
}
