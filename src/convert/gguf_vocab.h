/* gguf_vocab.h - a vocabulary on its way from tokenizer.json to a GGUF file: what gguf_vocab.c and gguf_spm.c share. */
#ifndef NB_CONVERT_GGUF_VOCAB_H
#define NB_CONVERT_GGUF_VOCAB_H
#include "convert/gguf_out.h"

/* llama.cpp's kinds of tokens. */
enum {
    NB_GGUF_NORMAL = 1,
    NB_GGUF_UNKNOWN,
    NB_GGUF_CONTROL,
    NB_GGUF_USER,
    NB_GGUF_UNUSED,
    NB_GGUF_BYTE
};

typedef struct nb_gguf_vocab {
    nb_conv *c;
    nb_gguf_out *g;
    json_t *json, *config; /* tokenizer.json, tokenizer_config.json (or NULL) */
    const char **token;    /* [n]; NULL: no token of that id */
    unsigned char *type;   /* [n] */
    size_t n;
    bool spm; /* SentencePiece's BPE */
} nb_gguf_vocab;

/* All keys but the chat template, of v->json and v->config (borrowed). */
nb_status nb_gguf_put_vocab(nb_gguf_vocab *v);
nb_status nb_gguf_vocab_refuse(const nb_gguf_vocab *v, const char *what);
/* Scores, and how blanks are treated. */
nb_status nb_gguf_put_spm(const nb_gguf_vocab *v);
#endif
