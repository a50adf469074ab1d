/* opts_serve.h - the options of `nibble serve`: opts_table_serve.c. */
#ifndef NB_APPS_OPTS_SERVE_H
#define NB_APPS_OPTS_SERVE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A list of strings.  preset: it comes from the configuration file, and what the command line
 * gives replaces it. */
typedef struct opt_strs {
    const char **p;
    size_t n;
    bool preset;
} opt_strs;

#define OPT_AUTO SIZE_MAX /* value of a count that was given as auto or -1 */

typedef struct serve_opts {
    /* network */
    const char *host, *uds, *tls_cert, *tls_key, *tls_key_password, *tls_ca;
    size_t port; /* 0: the system chooses */
    opt_strs api_key, cors_origin;
    const char *api_key_file;
    size_t max_header_bytes, max_body_bytes, max_connections;
    double read_timeout_s, idle_timeout_s, write_timeout_s, drain_s;
    bool request_id_headers;
    /* requests */
    opt_strs served_name;
    size_t max_queued_reqs, max_queued_tok, max_logprobs, max_n, max_stop;
    double request_timeout_s;
    const char *generation_config, *scheduling_policy;
    double priority_age_s, max_step_ms; /* the latter: 0 is derived */
    uint64_t seed;
    bool force_include_usage, dev_endpoints, page;
    struct json_t *override_generation_config, *chat_template_kwargs; /* objects, or NULL */
    const char *chat_content_format;
    bool tokens_as_token_ids, hide_unused_tools;
    const char *tool_call_parser, *reasoning_parser;
    bool auto_tool_choice; /* without effect */
    /* engine */
    const char *dtype, *tokenizer;
    double gpu_utilization, memory_utilization; /* 0: not given */
    size_t kv_cache_bytes, n_block, max_model_len, max_num_seqs, max_batched_tok, max_chunk_tok;
    size_t block_tok;
    bool prefix_caching, cache_answers;
    size_t n_node, node_rank, master_port, rendezvous_s; /* n_node: OPT_AUTO is from the environment */
    const char *master_addr, *rendezvous_secret_file;
    /* logs */
    const char *log_format, *log_file;
    bool log_requests, exit_on_failure;
} serve_opts;

#endif
