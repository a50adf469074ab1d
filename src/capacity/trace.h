/* trace.h - traces of requests: when they came, how long they are, what they have in common.
 *
 * Three formats; a stream's first bytes say which it is:
 *
 *   Mooncake  a line of JSON per request: timestamp (ms), input_length, output_length, hash_ids:
 *             names of the prompt's blocks of 512 tokens; equal names are equal text
 *   Azure     CSV: TIMESTAMP (date and time), ContextTokens, GeneratedTokens; no prefixes
 *   sessions  a JSON file per session: block_size, hash_id_scope, requests [{t (s), in, out,
 *             hash_ids, api_time (s)}], or {type: "subagent", t (s), duration_ms, requests: [...]}
 *             in between
 *
 * The first two are streams in order of time, read a line at a time from the mapped file.  A
 * session is read whole: its requests share nearly everything, so it is kept as a tree of blocks, in
 * which a request is a path (its last node), with the real key of every block (kv/kv_cache.h) of
 * tokens that stand for the name.  Hostile files are refused with `path:line: expected ...`.
 *
 * Times of a subagent's requests count from its start, which is its t less its duration: t is when
 * its parent had the result.  Of the 59 with a duration in the public archive (710 sessions), 57
 * start by this rule 0.09 to 1.05 s after the answer in which the parent called them (the other two
 * 40 hours after it, by hand); the four without one ("async_launched") have such a t themselves; and the
 * parent's next request, with their results, never comes before t.  So does the authors' replayer:
 * it starts subagents when the request before them is answered, and the parent waits for them.  (Its
 * flatten_requests, which would start them at t and let 50 parents go on without their results, is
 * not used.)
 *
 * The format of sessions is that of callanjfox/kv-cache-tester; of lines, FAST25-release of
 * kvcache-ai/Mooncake and Azure/AzurePublicDataset 2023. */
#ifndef NB_CAPACITY_TRACE_H
#define NB_CAPACITY_TRACE_H
#include <stdint.h>

#include "base/str.h"
#include "kv/kv_cache.h"

enum {
    NB_TRACE_MAX_TOK = 1 << 24,  /* of a prompt, and of an answer    */
    NB_TRACE_MAX_ID = 1 << 20,   /* names of a request               */
    NB_TRACE_MAX_NODE = 1 << 24, /* different blocks of a session    */
    NB_TRACE_MAX_REQ = 1 << 20,  /* requests of a session            */
    NB_TRACE_MAX_LINE = 1 << 24  /* bytes                            */
};
#define NB_TRACE_MAX_ID_VALUE ((uint64_t)1 << 53) /* names are numbers of JSON */

typedef enum nb_trace_format {
    NB_TRACE_MOONCAKE,
    NB_TRACE_AZURE,
} nb_trace_format;

/* ---- streams ---- */

typedef struct nb_trace nb_trace;

typedef struct nb_trace_req {
    double t_s;          /* since the first request, ascending                    */
    size_t n_in, n_out;  /* tokens; n_in >= 1                                     */
    const uint64_t *id;  /* [n_id] until the next call                            */
    size_t n_id, id_tok; /* names, and tokens of each; 0: no prefixes in the trace */
} nb_trace_req;

/* A stream; NB_ERR_IO, NB_ERR_FORMAT. */
nb_status nb_trace_open(const char *path, nb_trace **out, nb_error *err);
/* The same of bytes that outlive it; name is for error lines. */
nb_status nb_trace_open_text(const char *p, size_t n_bytes, const char *name, nb_trace **out,
                             nb_error *err);
void nb_trace_close(nb_trace *t);
nb_trace_format nb_trace_format_of(const nb_trace *t);
/* The next request; *more is false after the last. */
nb_status nb_trace_next(nb_trace *t, nb_trace_req *r, bool *more, nb_error *err);
void nb_trace_rewind(nb_trace *t);

/* ---- sessions ---- */

typedef struct nb_session_req {
    double t_s, api_s; /* when it came, since the session's first; how long it took, 0: unknown */
    uint32_t n_in, n_out;
    uint32_t node, n_id; /* its last block's node, and nodes to it; NB_BLOCK_NONE: no block    */
} nb_session_req;

typedef struct nb_session {
    nb_session_req *req; /* [n_req] by time                                  */
    size_t n_req;
    uint32_t *parent;  /* [n_node] NB_BLOCK_NONE: the first of a text       */
    nb_block_key *key; /* [n_node][id_tok / 64]                             */
    size_t n_node, id_tok;
} nb_session;

/* salt names the tenant: files whose hash_id_scope is "local" share nothing with others, so their
 * salt must be their own; with "global" it is not used. */
nb_status nb_session_load(const char *path, nb_str salt, nb_session *out, nb_error *err);
nb_status nb_session_parse(const char *p, size_t n_bytes, const char *name, nb_str salt,
                           nb_session *out, nb_error *err);
void nb_session_deinit(nb_session *s);

/* The key of each 64 tokens that a name stands for: key[id_tok / 64], after `parent`. */
nb_status nb_trace_keys(const nb_block_key *parent, uint64_t id, size_t id_tok, nb_block_key *key);

#endif
