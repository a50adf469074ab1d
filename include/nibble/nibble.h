/* nibble.h - the public C API of nibble.  measure.h adds what measurements need, status.h has the
 * error codes.  Version 0 of the ABI: it may change with every release.
 *
 * There are two objects.  An nb_text is a tokenizer with its chat template; tokenizer files are
 * enough for it.  An nb_engine is a loaded model with its text, KV pool and threads.
 *
 * Errors: functions return 0 or a negative nb_status; `err` (may be NULL) then holds one line.
 * Ownership: out-parameters are written on success only; free memory returned through them with
 * nb_free unless noted otherwise.
 * Threads: an engine computes many requests at once on a thread of its own.  Its functions may be
 * called from any thread, except create and destroy; nb_engine_cancel also from a signal handler.
 * Callbacks run on the engine's thread: they must be quick and must not call nb_generate, nb_logits
 * or nb_engine_destroy.  Any number of threads may use an nb_text. */
#ifndef NIBBLE_H
#define NIBBLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibble/grammar.h"
#include "nibble/status.h"

#ifdef __cplusplus
extern "C" {
#endif

NB_API const char *nb_version(void);
/* The instruction set levels detected on this machine, such as "avx2" or "avx512". */
NB_API const char *nb_cpu_levels(void);
NB_API void nb_free(void *p);

/* Finds a model's files.  An existing path is returned as it is.  A Hugging Face id (ORG/NAME, or
 * ORG/NAME@REVISION with a branch, tag or commit) becomes its snapshot in the local hub cache:
 * HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub.  Every function that takes a model calls this itself.
 * NB_ERR_NOT_FOUND: the id is not in the cache. */
NB_API nb_status nb_model_find(const char *model, char **path, nb_error *err);

/* ---- text ------------------------------------------------------------- */

typedef struct nb_text nb_text;

/* Reads tokenizer.json or tiktoken.model, tokenizer_config.json and the chat
 * template from the model's directory; chat_template (a path or NULL) overrides the
 * template.  Only nb_text_render needs a template. */
NB_API nb_status nb_text_create(const char *model, const char *chat_template, nb_text **out,
                                nb_error *err);
NB_API void nb_text_destroy(nb_text *t);
NB_API size_t nb_text_vocab_size(const nb_text *t);

enum {
    NB_TEXT_ADD_SPECIAL = 1,  /* add the beginning-of-text token if the tokenizer has one */
    NB_TEXT_PARSE_SPECIAL = 2 /* turn control tokens spelled out in the text into tokens  */
};
NB_API nb_status nb_text_tokenize(const nb_text *t, const char *text, size_t n_bytes,
                                  unsigned flags, uint32_t **ids, size_t *n_ids, nb_error *err);
/* The text of ids, NUL-terminated; skip_special leaves special tokens out. */
NB_API nb_status nb_text_detokenize(const nb_text *t, const uint32_t *ids, size_t n_ids,
                                    bool skip_special, char **text, size_t *n_bytes,
                                    nb_error *err);
/* The bytes of one token (not always UTF-8), owned by t.  Empty for an unknown id. */
NB_API const char *nb_text_token_bytes(const nb_text *t, uint32_t id, size_t *n_bytes);
NB_API bool nb_text_has_template(const nb_text *t);
/* Whether the chat template mentions a word, such as "tools" or "enable_thinking": what it does not
 * mention has no effect on the prompt.  False without a template. */
NB_API bool nb_text_template_mentions(const nb_text *t, const char *word);
/* Renders an OpenAI chat request body (JSON: messages, tools, chat_template_kwargs,
 * add_generation_prompt, add_special_tokens) with the chat template.  Calls, results, roles and tools
 * are brought into the form that the template takes; where it prints no tools, a text of nibble's own
 * declares them.  Messages and tools cannot spell control tokens. */
NB_API nb_status nb_text_render(const nb_text *t, const char *request_json, size_t n_bytes,
                                char **text, size_t *text_bytes, uint32_t **ids, size_t *n_ids,
                                nb_error *err);

/* ---- engine ----------------------------------------------------------- */

typedef struct nb_engine nb_engine;

/* What is being done ("reading weights", "quantising weights", ...) and how far it is, in bytes.
 * Each phase begins with done == 0; total == 0: how long it takes is not known. */
typedef void nb_progress_fn(void *ctx, const char *label, uint64_t done, uint64_t total);

/* Something has happened to the engine, as one line.  failed: it serves no more; else a warning. */
typedef void nb_news_fn(void *ctx, bool failed, const char *line);

/* Zero-initialise and set what differs; NULL or 0 means the default.
 *
 * While weight files are mapped, a handler of SIGBUS is installed: a file that is truncated fails the
 * engine, not the process.  A SIGBUS elsewhere goes to the handler that was there before. */
typedef struct nb_engine_options {
    const char *model;           /* Hugging Face directory or id (nb_model_find); with dummy weights
                                    also a config.json                                      */
    const char
        *load_format; /* auto (default) and safetensors: weight files are mapped, and must not
                                    change while the engine lives; copy: they are read into
                                    memory (on a GPU they are in any case); dummy           */
    uint64_t dummy_seed;
    bool strict; /* weights that config.json does not use are an error, not a warning */
    const char *weight_dtype;    /* auto (default): as in the checkpoint; int8: quantised per row
                                    while loading                                           */
    const char *activation_dtype; /* what products make of activations: auto (default), float, bf16;
                                    on a CPU int16, int8 (a scale per 32 columns); on a GPU fp8
                                    (a scale per 128 columns)                               */
    const char *kv_cache_dtype;  /* auto (default), f32, bf16, fp8, nvfp4, if4, mxfp4, int4, fp8_ds_mla */
    const char *kv_cache_mode;   /* encoder of 4-bit records: basic, 4over6, search         */
    const char *kv_rope_dtype;   /* int8 (default), fp8 (default where a checkpoint's FP8
                                    scale is used), bf16                                    */
    const char *kv_calibration;  /* path of a file written by `nibble calibrate`, or NULL   */
    const char *kv_transform;    /* none, or center, equalize, hadamard joined by +; default:
                                    the calibration's choice, else none                     */
    size_t kv_outliers;          /* channels of a layer kept in BF16; needs kv_calibration  */
    size_t kv_sinks;             /* first tokens of a sequence kept in BF16, at most 64     */
    const char *kv_skip_layers;  /* "0,2,5-7": these layers in the model's own type         */
    const char *kv_scales;       /* auto (default): the checkpoint's where it has some;
                                    checkpoint: required; dynamic: ignored                  */
    const char *kv_thrift;       /* off (default), token, block-mean, quest, block-prob: which
                                    cached tokens a decode step reads at 8 bits             */
    double kv_thrift_tau;        /* token: least attention probability; default 1e-3        */
    double kv_thrift_fraction;   /* most tokens (token: default 0.005) or blocks (others:
                                    default 0.05), as a share                               */
    double kv_thrift_pool;       /* share of rows kept near the kernels; default 0.02       */
    const char *mla;             /* auto (default), absorbed, expanded                      */
    const char *device;          /* cpu, cuda, cuda:N, cuda:N,M,... for ranks; auto (default): a GPU if there is one and
                                    it supports the options                                 */
    const char *cuda_library;    /* libnibble-cuda.so; default: beside the executable       */
    const char *cpu_experts;     /* with a GPU, of a model with routed experts: weights of these stay in
                                    host memory in the first so many layers that have some: a
                                    number, all, or auto (as many as do not fit); default 0 */
    double gpu_memory_utilization; /* on a GPU: share of its memory for everything; 0: a pool for
                                    one request of max_model_len                            */
    const char *cpu_caps;        /* highest instruction set level to use: c, avx2, ...      */
    const char *tune;            /* which level each operation uses: off (default): the best of the
                                    machine; auto: for models of 256 MiB and more what was measured,
                                    once, and is kept in the cache folder; on: for any; again:
                                    measured anew.  Without effect with cpu_caps and on a GPU */
    const char *chat_template;   /* path; overrides the model's                             */
    const char *tool_call_parser; /* auto (default): as the template and the tokens say; none; or
                                    a name of vLLM's: deepseek_v3, kimi_k2, glm47, hermes ... */
    const char *reasoning_parser; /* the same for thoughts: deepseek_r1, kimi_k2 ...         */
    size_t n_thread;              /* of all ranks; default: physical cores available         */
    size_t
        tensor_parallel_size; /* ranks that compute the same tokens together, each its heads, columns
                                    and experts, and a cache of its own: 1 (default) to 8, on a
                                    CPU or as many GPUs, with the same results              */
    size_t decode_context_parallel_size; /* 1 (default), or tensor_parallel_size: its ranks divide the cache by position
                                            instead of copying it; latent attention on a CPU; results are the same */
    size_t data_parallel_size;   /* ranks with requests and a cache of their own, 1 (default) to 8, on a CPU or
                                    as many GPUs, that divide the routed experts; results are the same */
    bool enable_expert_parallel; /* needed for data_parallel_size where there are experts   */
    size_t n_node, node_rank;    /* processes, perhaps on several machines, with one rank of tensor_parallel_size each;
                                    default 1.  Rank 0 has the requests, the others call nb_engine_follow */
    const char *master_addr;     /* where rank 0 listens for the others                     */
    unsigned master_port;
    const char *rendezvous_secret; /* of 16 bytes or more, the same for all                 */
    double rendezvous_s;         /* until all have come; default 600                        */
    const char *cpu_affinity;    /* auto (default), none, or CPUs for the threads: 0-3,8    */
    size_t max_model_len;        /* tokens of context; default: the model's maximum         */
    size_t prefill_chunk;        /* most prompt tokens of one request in a step; default
                                    max_num_batched_tokens if set, else 512 (GPU: 8192); while
                                    others wait, max_chunk_tok applies                      */
    size_t max_num_seqs;         /* requests that run at once; default 32, at most
                                    max_num_batched_tokens                                  */
    size_t max_num_batched_tokens; /* tokens of a step; default prefill_chunk, at least
                                    max_num_seqs                                            */
    size_t max_chunk_tok;        /* most prompt tokens of one request in a step while others
                                    wait; default half of max_num_batched_tokens            */
    double max_step_s;           /* of a step in which requests also generate: prompts are cut to fit,
                                    by what steps took before; 0 (default): no limit; negative:
                                    three times a step without prompts                      */
    uint64_t kv_cache_bytes;     /* of the pool; default: one request of max_model_len      */
    bool max_model_len_auto;     /* set max_model_len to what fits into kv_cache_bytes      */
    bool commit_memory;          /* touch the pool at create, so that it cannot fail later  */
    bool no_prefix_caching;      /* compute every prompt                                    */
    size_t n_snapshot;           /* models that keep a state per request: states kept at ends of
                                    blocks, where cached prefixes can be continued; default
                                    max_num_seqs, at least 8                                */
    size_t snapshot_tok;         /* tokens between these, a multiple of 64; default 512     */
    bool cache_answers;          /* while idle, compute answers again in a prompt's form, so that
                                    the next turn of a conversation finds them; takes effect
                                    with the prefix cache                                   */
    bool priority_scheduling;    /* by nb_request.priority, else first come, first served   */
    double priority_age_s;       /* seconds of waiting that count as one level; default 30  */
    bool no_text;                /* do not load a tokenizer (token ids only)                */
    nb_progress_fn *progress;    /* called while loading, may be NULL                       */
    void *progress_ctx;
    nb_news_fn *on_news; /* called on the engine's thread, may be NULL              */
    void *on_news_ctx;
} nb_engine_options;

NB_API nb_status nb_engine_create(const nb_engine_options *o, nb_engine **out, nb_error *err);
NB_API void nb_engine_destroy(nb_engine *e);
/* Of a process with node_rank > 0, whose engine takes no requests: computes its part of rank 0's steps on the calling
 * thread.  NB_OK when rank 0 has ended; else why it did not, or what has failed here or there. */
NB_API nb_status nb_engine_follow(nb_engine *e, nb_error *err);
/* The engine's text, owned by e.  NULL with no_text, or if the model has no tokenizer files: it can
 * still run on token ids. */
NB_API const nb_text *nb_engine_text(const nb_engine *e);
/* The model's format of tool calls, by its name, and the texts around its thoughts; NULL where none is
 * known.  Static. */
NB_API void nb_engine_formats(const nb_engine *e, const char **calls, const char **thought_open,
                              const char **thought_close);

typedef struct nb_engine_info {
    const char *family, *kv_dtype, *weights; /* "deepseek_v3", "nvfp4", "BF16"; owned by e  */
    uint64_t n_param, n_param_active;
    uint64_t weight_bytes;
    size_t n_layer, hidden, n_head, vocab;
    size_t max_model_len;
    double kv_bytes_per_tok;                 /* all layers */
    size_t kv_values_per_tok;                /* all layers */
    uint64_t kv_pool_bytes;
    size_t kv_pool_tok, n_thread;
    size_t n_rank;                           /* each has such a pool (kv_pool_bytes) */
    size_t n_data_rank;                      /* groups of ranks with requests of their own; 1: all have the same */
    size_t n_node, node_rank;                /* processes with a rank each; 1: all ranks are in this one */
    size_t n_block, block_tok;               /* blocks of the pool; tokens of a block (64) */
    uint64_t block_bytes,
        tail_bytes;    /* one block; open pages and states of max_num_seqs requests, and
                                         snapshots of states, of all ranks */
    size_t n_snapshot; /* of states; each of state_bytes, as a request's; 0: no states */
    uint64_t state_bytes;
    uint64_t workspace_bytes;         /* activations of all ranks and logits of a step */
    size_t max_num_seqs, max_num_batched_tokens;
    bool no_prefix_caching;                  /* as in the options */
    const char *kv_layout;                   /* planes of a page in words, "codes 64x256 + ..." */
    const char *kv_transform;                /* "none", "center+equalize", "per layer"          */
    const char *kv_thrift;                   /* "off", "token", ...                             */
    uint64_t residual_bytes, sink_bytes;     /* upper bounds, in addition to the pool           */
    const char *device;                      /* "cpu", or the GPU's name */
    uint64_t gpu_weight_bytes;               /* on the GPU; 0 on a CPU */
    size_t n_cpu_expert_layer;               /* layers whose routed experts are in host memory beside a GPU, */
    uint64_t cpu_expert_bytes;               /* and their weights */
    const char *kernels;                     /* "linear_bf16=avx2 attn=avx2 ..." */
    const char *tuned; /* path of the file that decided between levels; "": none did */
    const char *warnings; /* of the checkpoint: ignored fields, unused weights; or "" */
} nb_engine_info;
NB_API void nb_engine_get_info(const nb_engine *e, nb_engine_info *info);

/* The device that an engine with these options would use.  NB_ERR_ARG: no device has that name.
 * NB_ERR_NOT_FOUND and others: the device was named (not auto) and is not available. */
typedef struct nb_device_info {
    bool is_gpu;
    char name[96];                       /* "cpu", or the GPU's name */
    uint64_t memory_bytes, free_bytes;   /* of the GPU */
    char why_cpu[256];                   /* with auto: the reason why no GPU is used */
} nb_device_info;
NB_API nb_status nb_engine_find_device(const nb_engine_options *o, nb_device_info *out,
                                       nb_error *err);

/* The memory that an engine with these options takes, from the functions that allocate it.  Weights
 * are opened, not read.  The caller chooses the pool: blocks of block_bytes, at least enough for
 * one request of max_model_len. */
typedef struct nb_memory_plan {
    uint64_t memory_bytes; /* what the process may use of this machine; 0: unknown */
    uint64_t weight_bytes, workspace_bytes, tail_bytes, block_bytes;
    /* Per block in addition: the residual plane and its share of rows (kv_thrift), sinks (kv_sinks), the other
     * ranks' copies. */
    uint64_t residual_block_bytes;
    size_t block_tok, n_page; /* tokens of such a block, and its pages in one rank's pool: with decode_context_parallel_size
                                 the smallest pool is 8 pages of each rank, else both are those of one page */
    size_t max_model_len;  /* the model's own limit, whatever the options say */
    char dtype[16];        /* of the checkpoint: bfloat16, float16, float32, fp8 */
    char kv_dtype[16];     /* the record that kv_cache_dtype resolves to */
} nb_memory_plan;
NB_API nb_status nb_engine_plan_memory(const nb_engine_options *o, nb_memory_plan *out,
                                       nb_error *err);

/* Everything about a model that needs no weights: geometry, parameters, bytes per
 * token for each record, as one JSON object. MODEL as in nb_engine_options. */
NB_API nb_status nb_model_describe(const char *model, char **json, nb_error *err);
/* The same for the text of a config.json; name appears in error lines. */
NB_API nb_status nb_model_describe_config(const char *text, size_t n_bytes, const char *name,
                                          char **json, nb_error *err);

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
    double repetition_penalty; /* 1: off; counts prompt and output */
    double presence_penalty, frequency_penalty; /* 0: off; count the output */
    uint64_t seed;             /* same seed, same request: same tokens */
    const nb_logit_bias *logit_bias;
    size_t n_logit_bias;
    size_t max_tokens;         /* default 128; 0: compute the prompt only */
    size_t min_tokens;         /* no end of text and no stop before this many */
    bool ignore_eos;
    const char *const *stop;   /* stop strings, not part of the text */
    size_t n_stop;
    const uint32_t *stop_id;   /* in addition to the model's own end-of-text ids */
    size_t n_stop_id;
    int n_logprobs;            /* -1: none; k: of the token and of the k best (k <= 20) */
} nb_sampling;
NB_API void nb_sampling_default(nb_sampling *s);

typedef struct nb_token_logprob {
    uint32_t id;
    float logprob; /* natural logarithm, of the distribution before sampling changes it */
} nb_token_logprob;

/* A part of an answer that is taken apart (nb_request.split).  A call has one NB_PIECE_CALL, any
 * number of NB_PIECE_ARGUMENTS and one NB_PIECE_CALL_END, unless the answer is cut off before;
 * calls do not overlap.  The pieces of an answer are the same however it is cut into tokens. */
typedef enum nb_piece_kind {
    NB_PIECE_CONTENT,
    NB_PIECE_REASONING,
    NB_PIECE_CALL,      /* name, id */
    NB_PIECE_ARGUMENTS, /* the next part of the arguments' JSON */
    NB_PIECE_CALL_END
} nb_piece_kind;
typedef struct nb_piece {
    nb_piece_kind kind;
    size_t call; /* of calls: from 0 in this answer */
    const char *text;
    size_t text_bytes;
    const char *name, *id;
} nb_piece;

/* A tool that a model may call. */
typedef struct nb_tool {
    const char *name;
    const char *parameters; /* its JSON Schema, or NULL */
} nb_tool;

/* One generated token, borrowed for the call.  text is what can be shown now: whole UTF-8
 * sequences, without what may still become a stop string.  It may be empty. */
typedef struct nb_token_event {
    uint32_t id;
    const char *text;
    size_t text_bytes;
    float logprob;               /* valid when n_logprobs >= 0 */
    const nb_token_logprob *top; /* best first */
    size_t n_top;
    const nb_piece *piece; /* with nb_request.split: what can be shown now; text is that of content */
    size_t n_piece;
    bool in_thought;       /* the token belongs to the reasoning */
} nb_token_event;
/* A non-zero return value stops the generation (finish reason "cancelled"). */
typedef int nb_token_fn(void *ctx, const nb_token_event *ev);

typedef uint64_t nb_request_id; /* never 0 */

typedef struct nb_result {
    uint32_t *tokens; /* generated ids, with the end-of-text id if one ended it; nb_result_deinit */
    size_t n_tokens;
    char *text;       /* without special tokens and without the stop string; NUL-terminated */
    size_t text_bytes;
    const char *finish_reason; /* "stop", "length", "cancelled", "timeout" */
    int stop_index;            /* index of the stop string that ended it, else -1 */
    int64_t stop_token;        /* token of stop_id that ended it, else -1 */
    size_t n_calls, n_reasoning_tok; /* with nb_request.split; text is the content then */
    size_t n_prompt, n_cached; /* prompt tokens; how many of them the prefix cache had */
    size_t n_preempted;        /* how often the request was preempted */
    double queue_s, prefill_s, decode_s; /* until admission; then to the first token; to the last */
} nb_result;
NB_API void nb_result_deinit(nb_result *r);

/* The end of a submitted request: called exactly once, as the last of its callbacks.  If st is not
 * NB_OK, err says why and *r holds the tokens until then.  *r is borrowed for the call. */
typedef void nb_done_fn(void *ctx, nb_status st, const nb_result *r, const nb_error *err);

/* Zero-initialise and set what differs. */
typedef struct nb_request {
    const uint32_t *prompt;
    size_t n_prompt; /* >= 1 */
    nb_sampling sampling;
    nb_token_fn *on_token; /* may be NULL */
    void *on_token_ctx;    /* passed to all callbacks */
    /* If not NULL: called for each prompt token, in order, before the first on_token, with its
     * log-probability given the tokens before it (NaN for the first) and the n_prompt_top best.
     * Its event has no text.  Such a request computes its whole prompt without the prefix
     * cache. */
    nb_token_fn *on_prompt;
    int n_prompt_top;       /* 0..20 */
    nb_done_fn *on_done;    /* nb_engine_submit; may be NULL */
    const char *cache_salt; /* requests share cached prefixes only within one salt; NULL: none */
    int32_t priority;       /* lower first, with priority_scheduling */
    double timeout_s;       /* from submission to the last token; 0: none */
    /* Take the output apart into reasoning, content and calls, in the model's format.  Stop strings
     * look at content only.  Without tools no calls are looked for. */
    bool split;
    const nb_tool *tools;
    size_t n_tools;
    size_t n_history_calls; /* calls in the conversation so far */
    bool no_calls;          /* calls are not looked for although there are tools */
    bool stop_after_call;   /* the answer ends behind its first call */
    bool limit_thought;     /* the thought has at most max_thought tokens: then its end is forced */
    size_t max_thought;
    nb_request_id after;    /* not 0: wait until that request has computed its prompt, for
                               several choices of one prompt */
    nb_grammar *grammar;    /* not NULL: what the text has to satisfy; the request holds a reference.
                               It ends with "stop" where nothing more can follow.  A mask is applied
                               after min_tokens; log-probabilities stay those without it */
} nb_request;

/* Runs one request to its end, together with those of other threads. */
NB_API nb_status nb_generate(nb_engine *e, const nb_request *rq, nb_result *out, nb_error *err);
/* Makes running calls of nb_generate and nb_logits end soon. */
NB_API void nb_engine_cancel(nb_engine *e);

/* Queues a request and returns; everything in *rq is copied.  An invalid request is refused here
 * and gets no callback.  NB_ERR_FAILED: the engine has failed.  NB_ERR_CAPACITY: it is being
 * destroyed, or is full (65,536 requests or 64 Mi prompt tokens). */
NB_API nb_status nb_engine_submit(nb_engine *e, const nb_request *rq, nb_request_id *id,
                                  nb_error *err);
/* Ends a request in any state with "cancelled"; its blocks are free before the next step.  Unknown
 * and finished ids are ignored. */
NB_API void nb_engine_abort(nb_engine *e, nb_request_id id);
/* NB_OK, or NB_ERR_FAILED and the reason: the engine serves no more and has to be created anew. */
NB_API nb_status nb_engine_health(const nb_engine *e, nb_error *err);
/* Drops all cached prefixes.  *n_block (may be NULL) receives the number of blocks dropped. */
NB_API nb_status nb_engine_reset_prefix_cache(nb_engine *e, size_t *n_block);

enum { NB_STEP_TOK_BUCKETS = 13 }; /* 1, 8, 16, 32, ... 16384, and above: see step_tok */

enum { NB_MAX_DATA_RANK = 8 };
/* Requests and blocks of a data-parallel rank; fields as in nb_engine_stats. */
typedef struct nb_data_rank_stats {
    size_t n_running, n_waiting, n_deferred, n_block, n_block_held;
    uint64_t prefix_queries, prefix_hits, n_preempted;
} nb_data_rank_stats;

/* A snapshot taken between steps.  Counters are since creation. */
typedef struct nb_engine_stats {
    size_t n_running, n_waiting, n_deferred; /* deferred: those of waiting with `after` */
    size_t n_waiting_tok;                    /* prompt tokens not computed yet */
    size_t n_block, n_block_free, n_block_held, n_block_once, n_block_many; /* cached: once + many */
    uint64_t prefix_queries, prefix_hits;    /* tokens */
    uint64_t again_queries, again_hits;      /* tokens looked up again after preemption */
    uint64_t n_evicted, n_preempted, preempted_tok;
    uint64_t prompt_tok, prompt_tok_cached, generated_tok;
    uint64_t n_nonfinite;  /* requests ended because a value was not finite */
    uint64_t n_step, step_tok[NB_STEP_TOK_BUCKETS + 1], step_tok_sum; /* steps by number of tokens,
                              not cumulative */
    double step_s;         /* time spent in steps */
    /* cache_answers: texts that wait, and their tokens not computed yet; tokens computed, and the
     * time spent on them, which the steps above do not count; texts that are in the cache to their last full
     * block; texts given up. */
    size_t n_refill_waiting, refill_waiting_tok;
    uint64_t refill_tok, n_refill_done, n_refill_dropped;
    double refill_s;
    uint64_t n_saturated;  /* values cut off by a checkpoint's own scale */
    /* Thrift mode, all layers: cached tokens that decode steps scored; of these read at 8 bits;
     * selected beyond the limit; rows found in the pool; bytes read from records and from
     * residual planes. */
    uint64_t thrift_scored, thrift_refined, thrift_over, thrift_pool_hits, thrift_base_bytes,
        thrift_residual_bytes;
    double uptime_s;
    /* Each data-parallel rank; of requests and blocks above, the sums are there.  n_data_rank 1: one has all. */
    size_t n_data_rank;
    nb_data_rank_stats data_rank[NB_MAX_DATA_RANK];
} nb_engine_stats;
NB_API void nb_engine_get_stats(const nb_engine *e, nb_engine_stats *s);

/* The contents of the cache as JSON: state, class, holders, hits and parent of every block, and the
 * running requests (docs/serving-page.md describes the fields). */
NB_API nb_status nb_engine_cache_json(nb_engine *e, char **json, nb_error *err);
/* One page of real tokens of one layer in BF16, FP8 and 4 bits, as JSON: values, codes, scales,
 * decoded values and errors of its token `tok` (0..63).  NB_ERR_NOT_FOUND before the first
 * request. */
NB_API nb_status nb_engine_page_json(nb_engine *e, size_t layer, size_t tok, char **json,
                                     nb_error *err);
/* Checks the structures of scheduler and cache; NB_ERR_INTERNAL names what is broken. */
NB_API nb_status nb_engine_check(nb_engine *e, nb_error *err);

/* Logits of the prompt at the given positions (ascending): one call of sink per row, in order, with
 * n_vocab values.  A non-zero return value of sink ends it with NB_ERR_CANCELLED. */
typedef int nb_logits_fn(void *ctx, size_t row, const float *logits, size_t n_vocab);
NB_API nb_status nb_logits(nb_engine *e, const uint32_t *tokens, size_t n_tok, const size_t *rows,
                           size_t n_row, nb_logits_fn *sink, void *ctx, nb_error *err);

#ifdef __cplusplus
}
#endif
#endif
