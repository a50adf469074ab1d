/* opts.h - the options of the command.
 *
 * Tables (opts_table*.c) say of each option its name, argument, type, range, default,
 * help and the commands that take it; parsing, --help and the error lines come from it.
 * Names may be written with dashes or underscores, values as `--name value` or
 * `--name=value`; of an option given twice the last counts, unless it is a list. */
#ifndef NB_APPS_OPTS_H
#define NB_APPS_OPTS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibble/nibble.h"

#include "opts_convert.h"
#include "opts_eval.h"
#include "opts_hub.h"
#include "opts_plan.h"
#include "opts_serve.h"
#include "opts_trace.h"

typedef struct opt_ids {
    uint32_t *p;
    size_t n;
} opt_ids;
typedef struct opt_biases {
    nb_logit_bias *p;
    size_t n;
} opt_biases;

/* Of `nibble bench serve` and `nibble bench throughput`: opts_table_bench.c. */
typedef struct bench_opts {
    /* workload */
    const char *dataset_name, *dataset_path, *tokenizer;
    size_t num_prompts, num_warmups, vocab_size;
    uint64_t seed;
    bool disable_shuffle, no_oversample;
    size_t random_input_len, random_output_len, random_prefix_len;
    const char *random_range_ratio;
    size_t prefix_len, suffix_len, num_prefixes, prefix_output_len;
    int custom_output_len, sharegpt_output_len;
    size_t trace_chunk;
    double trace_multiplier;
    const char *trace_timestamp, *trace_input, *trace_output, *trace_hashes;
    /* pace */
    const char *request_rate, *burstiness;
    size_t max_concurrency; /* 0: no limit */
    bool self_timed;
    const char *ramp_up;
    double ramp_start, ramp_end;
    /* server */
    const char *backend, *base_url, *host, *endpoint, *uds;
    size_t port;
    opt_strs api_key, header;
    const char *request_id_prefix, *extra_body;
    double timeout_s, ready_timeout_s, disconnect_rate;
    bool keep_alive;
    /* fields of requests; NULL: not sent */
    const char *temperature, *top_p, *top_k, *min_p, *presence_penalty, *frequency_penalty,
        *repetition_penalty, *logprobs;
    bool ignore_eos;
    /* results */
    opt_strs goodput, metadata;
    const char *percentile_metrics, *metric_percentiles;
    bool save_result, save_detailed, append_result, quiet;
    const char *result_dir, *result_filename, *label;
    /* of throughput: points instead of a workload */
    const char *depth, *prefill, *batch;
    size_t point_tokens, repeat;
    bool fill;
    /* serve, throughput, load: how often all is measured; load: which of them */
    size_t runs;
    const char *cache;
    /* of matrix; lists */
    const char *records, *contexts, *concurrency;
    size_t matrix_prefill, memory_bytes; /* 0: none; a share of what there is */
    double price;                        /* per hour; 0: not given */
} bench_opts;

/* Of `nibble bench kernel`: opts_table_bench.c.  Lists are words joined by commas. */
typedef struct kernel_opts {
    const char *device, *cuda_library, *op, *record, *rope, *weight, *act, *caps, *context, *cache;
    size_t heads, queries, batch, rows, cols, tokens, threads, repeat, set_mib; /* 0: default */
    double sample_ms;
    uint64_t seed;
} kernel_opts;

/* Filled by opts_parse from the defaults of the table and the command line.  Strings
 * point into argv. */
typedef struct opts {
    /* model and engine */
    const char *model, *load_format, *kv_cache_dtype, *kv_cache_mode, *kv_rope_dtype, *mla;
    const char *kv_calibration, *kv_transform, *kv_skip_layers, *kv_scales, *kv_thrift;
    const char *weight_dtype, *activation_dtype, *tune;
    size_t kv_outliers, kv_sinks, n_snapshot, snapshot_tok;
    double kv_thrift_tau, kv_thrift_fraction, kv_thrift_pool;
    const char *device, *cuda_library, *cpu_experts;
    const char *cpu_caps, *cpu_affinity, *chat_template;
    size_t threads, tensor_parallel, context_parallel, data_parallel, max_model_len, prefill_chunk;
    uint64_t dummy_seed;
    bool skip_tokenizer_init, mmap, strict, expert_parallel;
    /* input */
    const char *prompt, *tokens, *file, *decode, *messages, *system, *rows;
    bool chat, add_special, parse_special, skip_special, generation_prompt;
    /* output */
    const char *output;
    bool json, stats, echo, history;
    /* sampling; its lists are set by opts_sampling */
    nb_sampling sampling;
    opt_strs stop;
    opt_ids stop_id;
    opt_biases logit_bias;
    bench_opts bench;
    kernel_opts kernel;
    serve_opts serve;
    eval_opts eval;
    plan_opts plan;
    trace_opts trace;
    hub_opts hub;
    convert_opts convert;
    const char *revision, *gguf_file;
    const char *path, *id; /* where MODEL is, and its id or NULL: model_find */
    const char *config;    /* path of a YAML file */
    bool config_model;     /* model comes from it */
    opt_strs warning;      /* a line for each option that was given and has no effect */
    const char **given;    /* by row: the option as it was written, or NULL; opts_given */
    char **owned;          /* opts_keep */
    size_t n_owned;
} opts;

enum { /* commands, as bits */
       CMD_RUN = 1,
       CMD_CHAT = 2,
       CMD_INFO = 4,
       CMD_LOGITS = 8,
       CMD_TOKENIZE = 16,
       CMD_RENDER = 32,
       CMD_SERVE = 64,
       CMD_BENCH_SERVE = 256,
       CMD_BENCH_THROUGHPUT = 512,
       CMD_EVAL_ATTN = 1024,
       CMD_EVAL_KL = 2048,
       CMD_EVAL_PPL = 4096,
       CMD_EVAL_RULER = 8192,
       CMD_EVAL_COMPARE = 16384,
       CMD_CALIBRATE = 32768,
       CMD_BENCH_KERNEL = 65536,
       CMD_PLAN = 131072,
       CMD_BENCH_LOAD = 1 << 20,
       CMD_BENCH_MATRIX = 1 << 21,
       CMD_BENCH_TUNE = 1 << 24,
       CMD_PULL = 1 << 22,
       CMD_VERIFY = 1 << 23,
       CMD_CONVERT = 1 << 25,
       CMD_EVAL = CMD_EVAL_ATTN | CMD_EVAL_KL | CMD_EVAL_PPL | CMD_EVAL_RULER | CMD_EVAL_COMPARE
};

typedef struct command {
    const char *name; /* one word, or two */
    unsigned bit;
    const char *forms; /* usage, one form a line, without "nibble NAME " */
    const char *help;
    int (*main)(const opts *o);
    enum {
        MODEL_FILES, /* MODEL is a path or an id in the hub cache: o->path */
        MODEL_NAME,  /* the command looks it up itself */
        MODEL_ID,    /* always an id of the hub */
        MODEL_NONE,  /* no such argument */
        MODEL_AND_OUT /* as MODEL_FILES, and a second argument: o->convert.out */
    } model;
    const char *examples; /* one a line, without "nibble NAME "; or NULL */
} command;
extern const command commands[]; /* ends at name == NULL */

/* argv[0..argc) are the arguments after the command's name.  Returns CLI_OK, or CLI_USAGE
 * after an error line; *help: what opts_print_help is to show when --help was among them, else
 * NULL.  opts_deinit in any case. */
int opts_parse(const command *c, int argc, char **argv, opts *o, const char **help);
void opts_deinit(opts *o);
/* A copy that lives as long as o; NULL: no memory. */
const char *opts_keep(opts *o, const char *s);
/* How an option of command `cmd` was written, such as "--tp", on the command line or in the
 * configuration file; NULL: it was not given.  name: without dashes, not an alias. */
const char *opts_given(const opts *o, unsigned cmd, const char *name);

/* opts_help.c.  what: "" for the options of nibble, "all" also for those of other servers that it
 * knows, else for those whose name or help has this text. */
void opts_print_help(const command *c, const char *what);
/* The name among the commands that is nearest to a misspelt one, or NULL. */
const char *opts_nearest_command(const char *name);

/* What the table filled, as the API wants it; borrows from o. */
nb_sampling opts_sampling(const opts *o);
nb_engine_options opts_engine(const opts *o);
/* --max-num-batched-tokens, or what stands for 0. */
size_t opts_step_tok(const opts *o, bool gpu);

#endif
