/* llama_peer.c - times whole steps of llama.cpp or ik_llama.cpp through the public API of llama.h.
 *
 *   llama_peer steps MODEL.gguf THREADS TYPE CHUNK TOKENS DEPTH...    TYPE of the cache: f16 q8_0 q4_0 ...
 *   llama_peer quantize IN.gguf OUT.gguf TYPE THREADS                 TYPE: a value of enum llama_ftype
 *
 * steps: the depths rise.  The context is computed up to each; a prompt of CHUNK tokens behind it is
 * timed, then TOKENS single steps behind the same context.  Prints one line of JSON per depth: tokens
 * per second of both (of the median step), and the peak of resident memory.
 * build_llama.sh compiles it against either library; with -DPEER_IK for ik_llama.cpp, whose interface
 * has other names.  For llama.cpp, GGML_CPU_LIBRARY names the libggml-cpu-*.so to load (the best one
 * beside libllama otherwise).  None of their code is in this repository. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "ggml.h"
#include "llama.h"
#ifndef PEER_IK
#include "ggml-backend.h"
#endif

enum { MAX_STEPS = 4096, KEEP_FROM = 4096 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what, const char *which)
{
    fprintf(stderr, "llama_peer: %s: %s\n", which, what);
    exit(1);
}

static int number(const char *s, int lo, int hi)
{
    char *end;
    const long n = strtol(s, &end, 10);
    if (*end || end == s || n < lo || n > hi) {
        fprintf(stderr, "llama_peer: %s: expected a number in %d..%d\n", s, lo, hi);
        exit(2);
    }
    return (int)n;
}

/* Errors only: both libraries print pages about a model. */
static void quiet(enum ggml_log_level level, const char *text, void *unused)
{
    (void)unused;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static enum ggml_type type_of(const char *name)
{
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const char *s = ggml_type_name((enum ggml_type)t);
        if (s && strcmp(s, name) == 0) return (enum ggml_type)t;
    }
    die("no type", name);
    return GGML_TYPE_COUNT;
}

static void start(const char *dir)
{
    llama_log_set(quiet, NULL);
#ifndef PEER_IK
    const char *cpu = getenv("GGML_CPU_LIBRARY");
    if (!cpu)
        ggml_backend_load_all_from_path(dir);
    else if (!ggml_backend_load(cpu))
        die("cannot be loaded as a library of ggml", cpu);
#else
    (void)dir;
#endif
    llama_backend_init();
}

/* ---- steps ---------------------------------------------------------------------- */

typedef struct peer {
    struct llama_context *c;
    struct llama_batch b;
    int n_vocab, pos;
    uint64_t seed;
} peer;

static void decode(peer *p, int n)
{
    for (int i = 0; i < n; i++) {
        p->seed = p->seed * 6364136223846793005u + 1442695040888963407u;
        p->b.token[i] = (llama_token)((p->seed >> 33) % (uint64_t)p->n_vocab);
        p->b.pos[i] = p->pos + i;
        p->b.n_seq_id[i] = 1;
        p->b.seq_id[i][0] = 0;
        p->b.logits[i] = i == n - 1;
    }
    p->b.n_tokens = n;
    if (llama_decode(p->c, p->b) != 0) die("llama_decode failed", "steps");
    llama_synchronize(p->c);
    p->pos += n;
}

static void rewind_to(peer *p, int pos)
{
#ifdef PEER_IK
    const bool ok = llama_kv_cache_seq_rm(p->c, 0, pos, -1);
#else
    const bool ok = llama_memory_seq_rm(llama_get_memory(p->c), 0, pos, -1);
#endif
    if (!ok) die("the cache cannot be cut", "steps");
    p->pos = pos;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A long context takes a minute to compute; its cache is kept in PEER_STATE.depth, where that is set. */
static void advance(peer *p, int chunk, int depth)
{
    const char *state = getenv("PEER_STATE");
    char file[4096];
    llama_token *none = calloc((size_t)depth, sizeof *none);
    size_t n = 0;
    if (!none) die("no memory", "steps");
    const bool keeps = state && depth >= KEEP_FROM &&
                       (size_t)snprintf(file, sizeof file, "%s.%d", state, depth) < sizeof file;
    FILE *f = keeps ? fopen(file, "rb") : NULL;
    if (f) {
        fclose(f);
        if (!llama_state_seq_load_file(p->c, file, 0, none, (size_t)depth, &n) || n != (size_t)depth)
            die("not a state of this model, cache type and depth", file);
        p->pos = depth;
    }
    while (p->pos < depth) decode(p, depth - p->pos < chunk ? depth - p->pos : chunk);
    if (keeps && !f && !llama_state_seq_save_file(p->c, file, 0, none, (size_t)depth))
        die("cannot be written", file);
    free(none);
}

static void point(peer *p, int chunk, int n_tok, int depth)
{
    static double step[MAX_STEPS];
    advance(p, chunk, depth);
    const double t = now_s();
    decode(p, chunk);
    const double prompt = now_s() - t;
    rewind_to(p, depth);
    for (int i = 0; i < n_tok; i++) {
        const double t0 = now_s();
        decode(p, 1);
        step[i] = now_s() - t0;
    }
    rewind_to(p, depth);
    qsort(step, (size_t)n_tok, sizeof *step, by_value);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"depth\": %d, \"prompt\": %.2f, \"decode\": %.3f, \"decode_best\": %.3f, \"peak_mib\": %.1f}\n", depth,
           (double)chunk / prompt, 1 / step[n_tok / 2], 1 / step[0], (double)u.ru_maxrss / 1024);
    fflush(stdout);
}

static void best_of_peer(struct llama_model_params *m, struct llama_context_params *c)
{
#ifdef PEER_IK /* -mla 3 -fa on -rtr; the other switches have the defaults of its programs */
    m->mla = 3;
    m->repack_tensors = true;
    m->use_mmap = false;
    m->flash_attn = true;
    c->flash_attn = true;
    c->mla_attn = 3;
    c->attn_max_batch = 256;
    c->fused_moe_up_gate = c->fused_up_gate = c->fused_mmad = c->graph_reuse = true;
#else
    (void)m;
    c->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    c->no_perf = true;
#endif
}

static int steps(int argc, char **argv)
{
    if (argc < 8) return 2;
    const int threads = number(argv[3], 1, 1024), chunk = number(argv[5], 1, 65536);
    const int n_tok = number(argv[6], 1, MAX_STEPS), last = number(argv[argc - 1], 1, 1 << 24);
    struct llama_model_params mp = llama_model_default_params();
    struct llama_context_params cp = llama_context_default_params();
    best_of_peer(&mp, &cp);
    cp.n_ctx = (uint32_t)((last + (chunk > n_tok ? chunk : n_tok) + 255) / 256 * 256);
    cp.n_batch = cp.n_ubatch = (uint32_t)chunk;
    cp.n_threads = cp.n_threads_batch = (unsigned)threads;
    cp.type_k = cp.type_v = type_of(argv[4]);
    struct llama_model *m = llama_model_load_from_file(argv[2], mp);
    if (!m) die("cannot be loaded", argv[2]);
    peer p = { .c = llama_init_from_model(m, cp), .b = llama_batch_init(chunk, 0, 1), .seed = 1 };
    if (!p.c) die("no context with this cache type", argv[4]);
#ifdef PEER_IK
    p.n_vocab = llama_n_vocab(m);
#else
    p.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
#endif
    decode(&p, chunk); /* warms up: pages are touched, weights repacked */
    decode(&p, 1);
    rewind_to(&p, 0);
    int before = 0;
    for (int i = 7; i < argc; i++) {
        const int depth = number(argv[i], before + 1, last);
        point(&p, chunk, n_tok, depth);
        before = depth;
    }
    return 0;
}

static int quantize(int argc, char **argv)
{
    if (argc != 6) return 2;
    struct llama_model_quantize_params q = llama_model_quantize_default_params();
    q.ftype = (enum llama_ftype)number(argv[4], 0, 1023);
    q.nthread = number(argv[5], 1, 1024);
    q.allow_requantize = true;
    if (llama_model_quantize(argv[2], argv[3], &q) != 0) die("cannot be quantised", argv[2]);
    return 0;
}

int main(int argc, char **argv)
{
    int rc = 2;
    if (argc > 2) {
        char dir[4096];
        (void)snprintf(dir, sizeof dir, "%s", getenv("LLAMA_LIBRARY_DIR") ? getenv("LLAMA_LIBRARY_DIR") : ".");
        start(dir);
        rc = strcmp(argv[1], "steps") == 0 ? steps(argc, argv) :
             strcmp(argv[1], "quantize") == 0 ? quantize(argc, argv) : 2;
    }
    if (rc == 2)
        fprintf(stderr, "usage: llama_peer steps MODEL THREADS TYPE CHUNK TOKENS DEPTH... | "
                        "llama_peer quantize IN OUT FTYPE THREADS\n");
    return rc;
}
