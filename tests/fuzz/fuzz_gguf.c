/* fuzz_gguf.c - any bytes as a GGUF: its metadata as config.json and tokenizer files, which are then read, and its
 * tensors, each of which is taken and read to its end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "load/gguf.h"
#include "model/config.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const nb_error *e)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status == NB_OK) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

static void read_config(nb_str text)
{
    static nb_model_config c;
    nb_doc *doc = NULL;
    nb_error e = { 0 };
    if (nb_doc_parse(text, "fuzz.gguf", &doc, &e) != NB_OK ||
        nb_model_config_read(doc, &c, &e) != NB_OK)
        check_error(&e);
    nb_doc_destroy(doc);
}

static void read_tokenizer(nb_str text, nb_str config)
{
    static const char sample[] = "Once upon a time, 123 caf\xc3\xa9 <s>";
    const nb_tokenizer_files f = { .tokenizer_json = text, .tokenizer_config_json = config };
    nb_tokenizer *t = NULL;
    uint32_t *ids = NULL;
    size_t n = 0;
    nb_error e = { 0 };
    if (nb_tokenizer_create(&f, &t, &e) != NB_OK) {
        check_error(&e);
        return;
    }
    if (nb_tokenizer_encode(t, nb_str_c(sample), NB_TOK_ADD_SPECIAL, &ids, &n, &e) != NB_OK)
        check_error(&e);
    free(ids);
    nb_tokenizer_destroy(t);
}

static void texts(const nb_gguf *g)
{
    static const char *const names[] = { "config.json", "tokenizer.json", "tokenizer_config.json",
                                         "merges.txt" };
    nb_buf text[NB_COUNT(names)] = { { 0 } };
    nb_error e = { 0 };
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        bool found = false;
        if (nb_gguf_text(g, names[i], &text[i], &found, &e) != NB_OK) {
            check_error(&e);
            text[i].n_bytes = 0;
        }
        if (i == 3 && found) abort();
    }
    if (text[0].n_bytes) read_config(nb_buf_view(&text[0]));
    if (text[1].n_bytes) read_tokenizer(nb_buf_view(&text[1]), nb_buf_view(&text[2]));
    for (size_t i = 0; i < NB_COUNT(names); i++) nb_buf_deinit(&text[i]);
}

static void tensors(nb_source *s)
{
    static volatile unsigned sink;
    nb_error e;
    nb_tensor t;
    size_t skipped = 0;
    for (size_t round = 0; round < 64; round++) {
        const char *name = nb_source_leftover(s, skipped);
        if (!name) break;
        bool got = false;
        for (size_t n_dim = 1; n_dim <= NB_GGUF_MAX_DIM; n_dim++) {
            const nb_tensor_want w = { .name = name, .dtypes = UINT32_MAX, .n_dim = n_dim };
            if (nb_source_take(s, &w, &t, &e) != NB_OK) {
                check_error(&e);
                continue;
            }
            got = true;
            for (size_t i = 0; i < t.n_bytes; i++) sink = sink + ((const unsigned char *)t.data)[i];
        }
        skipped += got ? 0 : 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *p = malloc(n + (n == 0)); /* of exactly this size, for the sanitizer */
    if (!p) return 0;
    if (n) memcpy(p, data, n);
    const nb_str bytes = { p, n };
    nb_gguf *g = NULL;
    nb_source *s = NULL;
    nb_error e = { 0 };
    if (nb_gguf_open_bytes(bytes, "fuzz.gguf", &g, &e) == NB_OK)
        texts(g);
    else
        check_error(&e);
    nb_gguf_close(g);
    if (n >= 4 && memcmp(p, "GGUF", 4) == 0) {
        if (nb_source_open_bytes(bytes, "fuzz.gguf", &s, &e) == NB_OK)
            tensors(s);
        else
            check_error(&e);
    }
    nb_source_close(s);
    free(p);
    return 0;
}
