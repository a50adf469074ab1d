/* nibble.h - the public C API of nibble, and the only installed header beside
 * status.h.
 *
 * Two objects: an nb_text is a tokenizer with its chat template (tokenizer files
 * are enough); an nb_engine is a loaded model with its text, its KV pool and its
 * threads.  Functions return 0 or a negative nb_status; `err` (may be NULL) then
 * holds one line.  Out-parameters are written on success only.  Memory returned
 * through an out-parameter is freed with nb_free unless said otherwise.
 *
 * An engine is used by one thread at a time; nb_engine_cancel may be called from
 * any thread and from a signal handler.  An nb_text may be used by many threads. */
#ifndef NIBBLE_H
#define NIBBLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibble/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NB_API __attribute__((visibility("default")))
#else
#define NB_API
#endif

NB_API const char *nb_version(void);
/* "avx2", "avx512", ...: the instruction set levels detected on this machine. */
NB_API const char *nb_cpu_levels(void);
NB_API void nb_free(void *p);

/* ---- text ------------------------------------------------------------- */

typedef struct nb_text nb_text;

/* Reads tokenizer.json or tiktoken.model, tokenizer_config.json and the chat
 * template from the directory; chat_template (a path or NULL) overrides the
 * template.  A missing template only matters to nb_text_render. */
NB_API nb_status nb_text_create(const char *model_dir, const char *chat_template, nb_text **out,
                                nb_error *err);
NB_API void nb_text_destroy(nb_text *t);
NB_API size_t nb_text_vocab_size(const nb_text *t);

enum {
    NB_TEXT_ADD_SPECIAL = 1,  /* beginning-of-text token where the tokenizer adds one     */
    NB_TEXT_PARSE_SPECIAL = 2 /* control tokens spelled out in the text become that token */
};
NB_API nb_status nb_text_tokenize(const nb_text *t, const char *text, size_t n_bytes,
                                  unsigned flags, uint32_t **ids, size_t *n_ids, nb_error *err);
/* The bytes of ids, terminated; skip_special leaves special tokens out. */
NB_API nb_status nb_text_detokenize(const nb_text *t, const uint32_t *ids, size_t n_ids,
                                    bool skip_special, char **text, size_t *n_bytes,
                                    nb_error *err);
/* Renders an OpenAI chat request body (JSON: messages, tools, chat_template_kwargs,
 * add_generation_prompt) with the chat template. */
NB_API nb_status nb_text_render(const nb_text *t, const char *request_json, size_t n_bytes,
                                char **text, size_t *text_bytes, uint32_t **ids, size_t *n_ids,
                                nb_error *err);

/* ---- engine ----------------------------------------------------------- */

typedef struct nb_engine nb_engine;

typedef void nb_progress_fn(void *ctx, const char *label, uint64_t done, uint64_t total);

/* Zero-initialise, set what differs; NULL / 0 means the default. */
typedef struct nb_engine_options {
    const char *model;           /* Hugging Face directory; with dummy weights also a config.json */
    const char *load_format;     /* auto (default), safetensors, dummy                      */
    uint64_t dummy_seed;
    const char *kv_cache_dtype;  /* auto (default), f32, bf16, fp8, nvfp4, if4, mxfp4, int4, fp8_ds_mla */
    const char *kv_cache_mode;   /* encoder of 4-bit records: basic, 4over6, search         */
    const char *kv_rope_dtype;   /* fp8 (default), bf16                                     */
    const char *mla;             /* auto (default), absorbed, expanded                      */
    const char *cpu_caps;        /* highest instruction set level to use: c, avx2, ...      */
    const char *chat_template;   /* path; overrides the model's                             */
    size_t n_thread;             /* default: physical cores available                       */
    size_t max_model_len;        /* tokens of context; default: the model's maximum         */
    size_t prefill_chunk;        /* tokens per prefill step; default 512                    */
    bool no_text;                /* do not load a tokenizer (token ids only)                */
    nb_progress_fn *progress;    /* called while loading, may be NULL                       */
    void *progress_ctx;
} nb_engine_options;

NB_API nb_status nb_engine_create(const nb_engine_options *o, nb_engine **out, nb_error *err);
NB_API void nb_engine_destroy(nb_engine *e);
/* The engine's text, or NULL with no_text (or where the files were absent: a
 * directory without a tokenizer can still run on token ids). Lives with e. */
NB_API const nb_text *nb_engine_text(const nb_engine *e);

typedef struct nb_engine_info {
    const char *family, *kv_dtype, *weights; /* "deepseek_v3", "nvfp4", "BF16"; live with e */
    uint64_t n_param, n_param_active;
    uint64_t weight_bytes;
    size_t n_layer, hidden, n_head, vocab;
    size_t max_model_len;
    double kv_bytes_per_tok;                 /* all layers */
    uint64_t kv_pool_bytes;
    size_t kv_pool_tok, n_thread;
    const char *kernels;                     /* "linear_bf16=avx2 attn=avx2 ..." */
    const char *warnings;                    /* configuration fields that were ignored, or "" */
} nb_engine_info;
NB_API void nb_engine_get_info(const nb_engine *e, nb_engine_info *info);

/* Everything about a model that needs no weights: geometry, parameters, bytes per
 * token for each record, as one JSON object. MODEL as in nb_engine_options. */
NB_API nb_status nb_model_describe(const char *model, char **json, nb_error *err);

typedef struct nb_logit_bias {
    uint32_t id;
    float bias;
} nb_logit_bias;

/* Zero-initialise with nb_sampling_default, then set what differs. */
typedef struct nb_sampling {
    double temperature;        /* 0: greedy.  default 1 */
    size_t top_k;              /* 0: off */
    double top_p;              /* 1: off */
    double min_p;              /* 0: off */
    double repetition_penalty; /* 1: off; over prompt and output */
    double presence_penalty, frequency_penalty; /* 0: off; over the output */
    uint64_t seed;             /* same seed, same request: same tokens */
    const nb_logit_bias *logit_bias;
    size_t n_logit_bias;
    size_t max_tokens;         /* default 128 */
    size_t min_tokens;         /* no end-of-text and no stop before this many */
    bool ignore_eos;
    const char *const *stop;   /* stop strings, not part of the text */
    size_t n_stop;
    const uint32_t *stop_id;   /* beside the model's own end-of-text ids */
    size_t n_stop_id;
    int n_logprobs;            /* -1: none; k >= 0: the token's and the k best (k <= 20) */
} nb_sampling;
NB_API void nb_sampling_default(nb_sampling *s);

typedef struct nb_token_logprob {
    uint32_t id;
    float logprob; /* natural log; of the unmodified distribution */
} nb_token_logprob;

/* One generated token.  text is what can be shown now: whole UTF-8 sequences,
 * with what might still become a stop string held back; it may be empty.
 * Borrowed for the duration of the call. */
typedef struct nb_token_event {
    uint32_t id;
    const char *text;
    size_t text_bytes;
    float logprob;               /* valid when n_logprobs >= 0 */
    const nb_token_logprob *top; /* best first */
    size_t n_top;
} nb_token_event;
/* Non-zero return stops the generation (finish reason "cancelled"). */
typedef int nb_token_fn(void *ctx, const nb_token_event *ev);

typedef struct nb_request {
    const uint32_t *prompt;
    size_t n_prompt; /* >= 1 */
    nb_sampling sampling;
    nb_token_fn *on_token; /* may be NULL */
    void *on_token_ctx;
} nb_request;

typedef struct nb_result {
    uint32_t *tokens; /* generated ids, incl. the end-of-text id if one ended it; nb_result_deinit */
    size_t n_tokens;
    char *text;       /* without special tokens and without the stop string; terminated */
    size_t text_bytes;
    const char *finish_reason; /* "stop", "length", "cancelled" */
    size_t n_prompt, n_cached; /* prompt tokens; of these reused from the previous request */
    double prefill_s, decode_s;
} nb_result;

/* Runs one request to its end.  The KV of the prompt stays, so that a next
 * request that begins with the same tokens reuses whole pages of it. */
NB_API nb_status nb_generate(nb_engine *e, const nb_request *rq, nb_result *out, nb_error *err);
NB_API void nb_result_deinit(nb_result *r);
NB_API void nb_engine_cancel(nb_engine *e); /* the running nb_generate ends soon */

/* Logits of the prompt at the given positions (ascending), one call of sink per
 * row, in order: vocab values.  Non-zero return of sink ends with NB_ERR_CANCELLED. */
typedef int nb_logits_fn(void *ctx, size_t row, const float *logits, size_t n_vocab);
NB_API nb_status nb_logits(nb_engine *e, const uint32_t *tokens, size_t n_tok, const size_t *rows,
                           size_t n_row, nb_logits_fn *sink, void *ctx, nb_error *err);

#ifdef __cplusplus
}
#endif
#endif
