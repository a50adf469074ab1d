/* fuzz_convert_gguf.c - {"config": config.json, "tokenizer": tokenizer.json, "tokenizer_config": ...} as the metadata of a
 * GGUF file.  What is not refused in one line must be a file that opens, and whose config.json can be made of it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "convert/gguf_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const nb_error *e)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status == NB_OK) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

/* The file with an embedding of one column and as many rows as the vocabulary, and nothing else. */
static void read_back(nb_gguf_out *g, size_t n_vocab)
{
    nb_gguf_out_tensor t = { .name = "token_embd.weight",
                             .type = nb_gguf_dtype_of(0),
                             .n_dim = 2,
                             .ne = { 1, n_vocab, 1 },
                             .bytes = n_vocab * sizeof(float) };
    static const char zeros[4096];
    nb_buf file = { 0 };
    nb_error e = { 0 };
    nb_gguf *in = NULL;
    json_t *config = NULL;
    nb_status st = nb_gguf_out_head(g, &t, 1, &file);
    for (size_t left = t.bytes; st == NB_OK && left;) {
        const size_t k = left < sizeof zeros ? left : sizeof zeros;
        st = nb_buf_add(&file, zeros, k);
        left -= k;
    }
    if (st == NB_OK) {
        if (nb_gguf_open_bytes(nb_buf_view(&file), "fuzz.gguf", &in, &e) != NB_OK) {
            check_error(&e);
            if (e.status != NB_ERR_NOMEM) abort();
        } else if (nb_gguf_config(in, &config, &e) != NB_OK) {
            check_error(&e);
        }
    }
    json_decref(config);
    nb_gguf_close(in);
    nb_buf_deinit(&file);
}

static void convert(json_t *o)
{
    const nb_convert_options opt = { .model = "no/such/folder",
                                     .gguf_pre = json_string_value(json_object_get(o, "pre")) };
    nb_convert_report report = { 0 };
    nb_error e = { 0 };
    nb_conv c = {
        .o = &opt, .report = &report, .err = &e, .config = o, .text = json_object_get(o, "config")
    };
    nb_gguf_out g = { 0 };
    nb_gguf_model *model = calloc(1, sizeof *model);
    if (!model) return;
    nb_status st = nb_gguf_put_model(&c, &g, model);
    if (st == NB_OK && (model->head == 0 || model->kv_head == 0 || !model->arch)) abort();
    if (st == NB_OK && json_object_get(o, "tokenizer")) {
        nb_gguf_vocab v = { .c = &c,
                            .g = &g,
                            .json = json_object_get(o, "tokenizer"),
                            .config = json_object_get(o, "tokenizer_config") };
        st = nb_gguf_put_vocab(&v);
    }
    const json_int_t n = json_integer_value(json_object_get(c.text, "vocab_size"));
    if (st == NB_OK)
        read_back(&g, n > 0 && n < 65536 ? (size_t)n : 1);
    else
        check_error(&e);
    nb_buf_deinit(&g.kv);
    free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const nb_str text = { (const char *)data, n };
    nb_error e = { 0 };
    json_t *o = NULL;
    if (nb_json_parse(text, "fuzz.json", &(nb_json_limits){ 1 << 20, 64, 100000 }, &o, &e) ==
            NB_OK &&
        json_is_object(o))
        convert(o);
    json_decref(o);
    return 0;
}
