/* nibble.h - the public C API of nibble, and the only installed header beside
 * status.h.
 *
 * Two objects: an nb_text is a tokenizer with its chat template (tokenizer files
 * are enough); an nb_engine is a loaded model with its text, its KV pool and its
 * threads.  Functions return 0 or a negative nb_status; `err` (may be NULL) then
 * holds one line.  Out-parameters are written on success only.  Memory returned
 * through an out-parameter is freed with nb_free unless said otherwise.
 *
 * An engine computes on a thread of its own, many requests at once; its functions may
 * be called from any thread but for create and destroy, and nb_engine_cancel also from
 * a signal handler.  Callbacks of a request run on the engine's thread: they must be
 * quick and must not call nb_generate, nb_logits or nb_engine_destroy.  An nb_text may be
 * used by many threads. */
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
/* The bytes that one token stands for in a text (not always UTF-8); they live with t.
 * An unknown id has none. */
NB_API const char *nb_text_token_bytes(const nb_text *t, uint32_t id, size_t *n_bytes);
NB_API bool nb_text_has_template(const nb_text *t);
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
    const char *weight_dtype;    /* auto (default: as the checkpoint has them), int8: quantised
                                    per row while loading                                   */
    const char *kv_cache_dtype;  /* auto (default), f32, bf16, fp8, nvfp4, if4, mxfp4, int4, fp8_ds_mla */
    const char *kv_cache_mode;   /* encoder of 4-bit records: basic, 4over6, search         */
    const char *kv_rope_dtype;   /* int8 (default), fp8 (default where a checkpoint's FP8
                                    scale is used), bf16                                    */
    const char *kv_calibration;  /* path of a file of `nibble calibrate`, or NULL           */
    const char *kv_transform;    /* none, or center, equalize, hadamard joined by +; default:
                                    the calibration's choice, else none                     */
    size_t kv_outliers;          /* channels of a layer kept in BF16; needs kv_calibration  */
    size_t kv_sinks;             /* first tokens of a sequence kept in BF16, at most 64     */
    const char *kv_skip_layers;  /* "0,2,5-7": these layers in the model's own type         */
    const char *kv_scales;       /* auto (default: the checkpoint's, where it has some),
                                    checkpoint (required), dynamic (ignored)                */
    const char *kv_thrift;       /* off (default), token, block-mean, quest, block-prob: which
                                    cached tokens a decode step reads at 8 bits             */
    double kv_thrift_tau;        /* token: probability from which on; default 1e-3          */
    double kv_thrift_fraction;   /* of the tokens, at most (token: default 0.005), or of the
                                    blocks (others: default 0.05)                           */
    double kv_thrift_pool;       /* rows kept near the kernels, of all; default 0.02        */
    const char *mla;             /* auto (default), absorbed, expanded                      */
    const char *device;          /* auto (default: a GPU where there is one and the options ask
                                    for nothing that it lacks), cpu, cuda, cuda:N           */
    const char *cuda_library;    /* libnibble-cuda.so; default: beside the executable       */
    double gpu_memory_utilization; /* on a GPU: share of its memory for everything; 0: the pool
                                    is for one request of max_model_len                     */
    const char *cpu_caps;        /* highest instruction set level to use: c, avx2, ...      */
    const char *chat_template;   /* path; overrides the model's                             */
    size_t n_thread;             /* default: physical cores available                       */
    const char *cpu_affinity;    /* auto (default), none, or CPUs for the threads: 0-3,8    */
    size_t max_model_len;        /* tokens of context; default: the model's maximum         */
    size_t prefill_chunk;        /* prompt tokens of one request in a step; default
                                    max_num_batched_tokens where given, else 512 (GPU: 8192); less while
                                    others wait: max_chunk_tok                              */
    size_t max_num_seqs;         /* requests that run at once; default 32, at most
                                    max_num_batched_tokens                                  */
    size_t max_num_batched_tokens; /* tokens of a step; default prefill_chunk, at least
                                    max_num_seqs                                            */
    size_t max_chunk_tok;        /* prompt tokens of one request in a step while others
                                    could use them; default half of max_num_batched_tokens  */
    uint64_t kv_cache_bytes;     /* of the pool; default: one request of max_model_len      */
    bool max_model_len_auto;     /* max_model_len: what fits into kv_cache_bytes            */
    bool commit_memory;          /* touch the pool at create, so that it cannot fail later  */
    bool no_prefix_caching;      /* compute every prompt                                    */
    bool priority_scheduling;    /* by nb_request.priority, else first come, first served   */
    double priority_age_s;       /* waiting this long counts as one level; default 30       */
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
    size_t kv_values_per_tok;                /* all layers */
    uint64_t kv_pool_bytes;
    size_t kv_pool_tok, n_thread;
    size_t n_block, block_tok;               /* of the pool; tokens of a block (64) */
    uint64_t block_bytes, tail_bytes;        /* of a block; of the open pages of max_num_seqs */
    uint64_t workspace_bytes;                /* activations and logits of a step */
    size_t max_num_seqs, max_num_batched_tokens;
    bool no_prefix_caching;                  /* as asked for */
    const char *kv_layout;                   /* planes of a page in words, "codes 64x256 + ..." */
    const char *kv_transform;                /* "none", "center+equalize", "per layer"          */
    const char *kv_thrift;                   /* "off", "token", ...                             */
    uint64_t residual_bytes, sink_bytes;     /* at most, beside the pool; 0 without             */
    const char *device;                      /* "cpu", or the GPU's name */
    uint64_t gpu_weight_bytes;               /* on the GPU; 0 on a CPU */
    const char *kernels;                     /* "linear_bf16=avx2 attn=avx2 ..." */
    const char *warnings;                    /* configuration fields that were ignored, or "" */
} nb_engine_info;
NB_API void nb_engine_get_info(const nb_engine *e, nb_engine_info *info);

/* What an engine of these options would compute on.  NB_ERR_ARG for a device that has no such name,
 * NB_ERR_NOT_FOUND and others with a line when it is not auto and cannot be had. */
typedef struct nb_device_info {
    bool is_gpu;
    char name[96];                       /* "cpu", or the GPU's name */
    uint64_t memory_bytes, free_bytes;   /* of the GPU */
    char why_cpu[256];                   /* with auto: why no GPU is used */
} nb_device_info;
NB_API nb_status nb_engine_find_device(const nb_engine_options *o, nb_device_info *out,
                                       nb_error *err);

/* The memory that an engine of these options takes, from the functions that allocate it; weights
 * are looked at, not read.  The pool itself is what the caller makes of it: blocks of
 * block_bytes, at least enough for one request of max_model_len. */
typedef struct nb_memory_plan {
    uint64_t memory_bytes; /* of this machine that the process may use; 0: unknown */
    uint64_t weight_bytes, workspace_bytes, tail_bytes, block_bytes;
    /* Beside each block: kv_thrift's plane with its share of the pool of rows, and kv_sinks's rows. */
    uint64_t residual_block_bytes;
    size_t block_tok;
    size_t max_model_len;  /* the longest that the model can do, whatever the options say */
    char dtype[16];        /* of the checkpoint: bfloat16, float16, float32, fp8 */
    char kv_dtype[16];     /* record that kv_cache_dtype comes to */
} nb_memory_plan;
NB_API nb_status nb_engine_plan_memory(const nb_engine_options *o, nb_memory_plan *out,
                                       nb_error *err);

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
    size_t max_tokens;         /* default 128; 0: only the prompt is computed */
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

typedef uint64_t nb_request_id; /* never 0 */

typedef struct nb_result {
    uint32_t *tokens; /* generated ids, incl. the end-of-text id if one ended it; nb_result_deinit */
    size_t n_tokens;
    char *text;       /* without special tokens and without the stop string; terminated */
    size_t text_bytes;
    const char *finish_reason; /* "stop", "length", "cancelled", "timeout" */
    int stop_index;            /* "stop" by stop string: its index, else -1 */
    int64_t stop_token;        /* "stop" by a token of stop_id: it, else -1 (end of text) */
    size_t n_prompt, n_cached; /* prompt tokens; of these reused from the prefix cache */
    size_t n_preempted;        /* times the request was set back */
    double queue_s, prefill_s, decode_s; /* until admitted; first token; last token */
} nb_result;
NB_API void nb_result_deinit(nb_result *r);

/* The end of a submitted request, exactly one call, the last of its callbacks.  st != NB_OK:
 * err says why and *r holds what there was until then.  *r is borrowed. */
typedef void nb_done_fn(void *ctx, nb_status st, const nb_result *r, const nb_error *err);

/* Zero-initialise, set what differs. */
typedef struct nb_request {
    const uint32_t *prompt;
    size_t n_prompt; /* >= 1 */
    nb_sampling sampling;
    nb_token_fn *on_token; /* may be NULL */
    void *on_token_ctx;    /* of all callbacks */
    /* Not NULL: called for each prompt token, in order, before the first on_token, with its
     * log-probability after the tokens before it (NaN for the first) and the n_prompt_top
     * best; its event has no text.  Such a request computes its whole prompt, reading no
     * prefix cache. */
    nb_token_fn *on_prompt;
    int n_prompt_top;       /* 0..20 */
    nb_done_fn *on_done;    /* nb_engine_submit; may be NULL */
    const char *cache_salt; /* requests share cached prefixes only within one salt; NULL: none */
    int32_t priority;       /* lower first, with priority_scheduling */
    double timeout_s;       /* 0: none; from submission to the last token */
    nb_request_id after;    /* 0, or wait until that request has computed its prompt (choices
                               of one prompt) */
} nb_request;

/* Runs one request to its end, among those of other threads. */
NB_API nb_status nb_generate(nb_engine *e, const nb_request *rq, nb_result *out, nb_error *err);
NB_API void nb_engine_cancel(nb_engine *e); /* running calls of nb_generate and nb_logits end soon */

/* Queues a request and returns; everything in *rq is copied.  Errors of the request itself
 * are returned here, and then no callback comes.  NB_ERR_CAPACITY: the engine has failed or
 * is being destroyed, or as much is in it as it takes: 65,536 requests, or 64 Mi tokens of
 * prompts. */
NB_API nb_status nb_engine_submit(nb_engine *e, const nb_request *rq, nb_request_id *id,
                                  nb_error *err);
/* Ends a request soon, in whatever state, with "cancelled"; its blocks are free before the next
 * step. Unknown and finished ids are ignored. */
NB_API void nb_engine_abort(nb_engine *e, nb_request_id id);
/* NB_OK, or why the engine has stopped serving. */
NB_API nb_status nb_engine_health(const nb_engine *e, nb_error *err);
/* Forgets all cached prefixes; the number of blocks that were cached (may be NULL). */
NB_API nb_status nb_engine_reset_prefix_cache(nb_engine *e, size_t *n_block);

enum { NB_STEP_TOK_BUCKETS = 13 }; /* 1, 8, 16, 32, ... 16384, and above: see step_tok */

/* A snapshot, taken between steps.  Counters are since create. */
typedef struct nb_engine_stats {
    size_t n_running, n_waiting, n_deferred; /* deferred: part of waiting, `after` */
    size_t n_waiting_tok;                    /* prompt tokens not computed yet */
    size_t n_block, n_block_free, n_block_held, n_block_once, n_block_many; /* cached: once + many */
    uint64_t prefix_queries, prefix_hits;    /* tokens */
    uint64_t again_queries, again_hits;      /* tokens, after preemptions */
    uint64_t n_evicted, n_preempted, preempted_tok;
    uint64_t prompt_tok, prompt_tok_cached, generated_tok;
    uint64_t n_nonfinite;  /* requests ended because a value was not finite */
    uint64_t n_step, step_tok[NB_STEP_TOK_BUCKETS + 1], step_tok_sum; /* steps by their tokens,
                              not cumulated */
    double step_s;         /* time spent in steps */
    uint64_t n_saturated;  /* values that a checkpoint's own scale cut off */
    /* thrift: cached tokens that decode steps scored, of these read at 8 bits, selected but
     * beyond the cap; rows found in the pool; bytes read from records and from the residual
     * plane (all layers) */
    uint64_t thrift_scored, thrift_refined, thrift_over, thrift_pool_hits, thrift_base_bytes,
        thrift_residual_bytes;
    double uptime_s;
} nb_engine_stats;
NB_API void nb_engine_get_stats(const nb_engine *e, nb_engine_stats *s);

/* What the cache holds, for people to look at, as JSON: every block's state, class, holders,
 * hits and parent, and the running requests (docs/serving-page.md describes the fields). */
NB_API nb_status nb_engine_cache_json(nb_engine *e, char **json, nb_error *err);
/* One page of real tokens of one layer at BF16, FP8 and 4 bits: values, codes, scales, decoded
 * values and errors of its token `tok` (0..63), as JSON. NB_ERR_NOT_FOUND before anything ran. */
NB_API nb_status nb_engine_page_json(nb_engine *e, size_t layer, size_t tok, char **json,
                                     nb_error *err);
/* Walks the structures of the scheduler and the cache; NB_ERR_INTERNAL names what is broken. */
NB_API nb_status nb_engine_check(nb_engine *e, nb_error *err);

/* Logits of the prompt at the given positions (ascending), one call of sink per
 * row, in order: vocab values.  Non-zero return of sink ends with NB_ERR_CANCELLED. */
typedef int nb_logits_fn(void *ctx, size_t row, const float *logits, size_t n_vocab);
NB_API nb_status nb_logits(nb_engine *e, const uint32_t *tokens, size_t n_tok, const size_t *rows,
                           size_t n_row, nb_logits_fn *sink, void *ctx, nb_error *err);

#ifdef __cplusplus
}
#endif
#endif
