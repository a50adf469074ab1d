/* bench_grammar.c - speed of constrained output: vocabulary, compiling, masks.
 *
 *   bench_grammar [-n TOKENS] [-s SEED] TOKENIZER FILE...
 *
 * TOKENIZER is a tokenizer.json (unpacked).  A FILE is a JSON schema, or a request with tools: then each
 * tool's parameters are a schema.  For each schema: the time to compile it, to the first mask, and of each
 * mask along random texts that it allows, N tokens in all.  A last line sums up all of them. */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "grammar/grammar.h"
#include "text/tokenizer.h"

/* Time of this process on a processor: what others do on the machine does not count. */
static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_grammar: %s: %s\n", what, why);
    exit(1);
}

static nb_buf read_file(const char *path)
{
    nb_buf b = { 0 };
    char chunk[65536];
    FILE *f = fopen(path, "rb");
    if (!f) die(path, "cannot be read");
    for (size_t k; (k = fread(chunk, 1, sizeof chunk, f)) > 0;)
        if (nb_buf_add(&b, chunk, k) != NB_OK) die(path, "out of memory");
    (void)fclose(f);
    return b;
}

static nb_vocab_token token(const void *ctx, uint32_t id)
{
    return (nb_vocab_token){ nb_tokenizer_token_bytes(ctx, id), nb_tokenizer_is_control(ctx, id) };
}

/* Times in seconds. */
typedef struct times {
    double *t;
    size_t n, cap;
} times;

static void add_time(times *x, double t)
{
    if (NB_GROW(x->t, x->cap, x->n) != NB_OK) die("times", "out of memory");
    x->t[x->n++] = t;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_times(const char *name, times *x)
{
    double sum = 0;
    for (size_t i = 0; i < x->n; i++) sum += x->t[i];
    if (x->n == 0) return;
    qsort(x->t, x->n, sizeof *x->t, by_value);
    printf("%s: %zu, average %.1f us, p50 %.1f, p90 %.1f, p99 %.1f, max %.1f\n", name, x->n,
           sum / (double)x->n * 1e6, x->t[x->n / 2] * 1e6, x->t[x->n * 9 / 10] * 1e6,
           x->t[x->n * 99 / 100] * 1e6, x->t[x->n - 1] * 1e6);
}

typedef struct bench {
    nb_vocab *v;
    const nb_tokenizer *t;
    uint64_t seed, at;
    size_t n_token;
    times mask;
    double compile_s, first_s;
    size_t n_schema, n_refused, n_state, n_bytes;
    uint64_t n_visit, n_hit;
} bench;

static uint64_t draw(bench *b)
{
    return nb_rng_u64(b->seed, b->at++);
}

/* A token that the mask allows: a random one, in a third of the cases the first of eight that ends or
 * begins a part.  NB_GRAMMAR_NO_TOKEN: there is none. */
static uint32_t choose(bench *b, const uint64_t *mask)
{
    const size_t n = nb_vocab_size(b->v);
    const bool structure = draw(b) % 3 == 0;
    uint32_t last = NB_GRAMMAR_NO_TOKEN;
    for (size_t k = 0; k < 8; k++) {
        uint32_t id = (uint32_t)(draw(b) % n);
        size_t steps = 0;
        for (; steps < n && !(mask[id >> 6] >> (id & 63) & 1); steps++)
            id = id + 1 < n ? id + 1 : 0;
        if (steps == n) return NB_GRAMMAR_NO_TOKEN;
        last = id;
        if (!structure) return id;
        const nb_str s = nb_tokenizer_token_bytes(b->t, id);
        for (size_t i = 0; i < s.n_bytes; i++)
            if (strchr("\"{}[],:", s.p[i])) return id;
    }
    const uint32_t quote = nb_tokenizer_find(b->t, nb_str_c("\""));
    if (quote != NB_TOK_NONE && (mask[quote >> 6] >> (quote & 63) & 1)) return quote;
    return last;
}

static void walk(bench *b, nb_grammar *g, size_t n_token)
{
    nb_error err = { 0 };
    for (size_t done = 0; done < n_token;) {
        nb_match *m;
        if (nb_match_create(g, NB_MATCH_PLAIN, &m, &err) != NB_OK) die("match", err.msg);
        for (; done < n_token; done++) {
            const uint64_t *mask;
            const double start = now_s();
            const nb_status st = nb_match_mask(m, &mask);
            add_time(&b->mask, now_s() - start);
            if (st != NB_OK) die("mask", nb_status_text(st));
            if (nb_match_accepting(m) && draw(b) % 4 == 0) break;
            const uint32_t id = choose(b, mask);
            if (id == NB_GRAMMAR_NO_TOKEN) break;
            if (nb_match_accept(m, id) != NB_OK) die("accept", "a token of the mask is refused");
        }
        done++;
        const nb_match_stats s = nb_match_get_stats(m);
        b->n_visit += s.n_visit;
        b->n_hit += s.n_mask_hit;
        if (s.n_state > b->n_state) b->n_state = s.n_state;
        if (s.bytes > b->n_bytes) b->n_bytes = s.bytes;
        nb_match_destroy(m);
    }
}

static void bench_schema(bench *b, const char *name, const json_t *schema)
{
    char *text = json_dumps(schema, JSON_ENCODE_ANY);
    nb_grammar_spec spec = { .kind = NB_GRAMMAR_JSON_SCHEMA,
                             .text = text,
                             .text_bytes = strlen(text) };
    nb_error err = { 0 };
    nb_grammar *g;
    nb_match *m;
    const uint64_t *mask;
    const double start = now_s();
    nb_status st = nb_grammar_build(b->v, &spec, &g, &err);
    if (st != NB_OK) {
        printf("  %s: refused: %s\n", name, err.msg);
        b->n_refused++;
        spec.relaxed = true;
        st = nb_grammar_build(b->v, &spec, &g, &err);
        if (st != NB_OK) die(name, err.msg);
    }
    const double compiled = now_s();
    if (nb_match_create(g, NB_MATCH_PLAIN, &m, &err) != NB_OK || nb_match_mask(m, &mask) != NB_OK)
        die(name, "no first mask");
    const double first = now_s();
    nb_match_destroy(m);
    b->compile_s += compiled - start;
    b->first_s += first - compiled;
    b->n_schema++;
    walk(b, g, b->n_token);
    nb_grammar_unref(g);
    free(text);
}

/* All tools of a request as one grammar of calls: the time until its first mask. */
static void bench_calls(bench *b, const json_t *list)
{
    json_t *doc = json_pack("{s:s,s:s,s:O}", "format", "deepseek_v31", "calls", "required", "tools",
                            (json_t *)(uintptr_t)list);
    char *text = json_dumps(doc, JSON_COMPACT);
    const nb_grammar_spec spec = { .kind = NB_GRAMMAR_TOOLS,
                                   .text = text,
                                   .text_bytes = strlen(text) };
    nb_error err = { 0 };
    nb_grammar *g;
    nb_match *m;
    const uint64_t *mask;
    const double start = now_s();
    if (nb_grammar_build(b->v, &spec, &g, &err) != NB_OK) die("calls", err.msg);
    if (nb_match_create(g, NB_MATCH_PLAIN, &m, &err) != NB_OK || nb_match_mask(m, &mask) != NB_OK)
        die("calls", "no first mask");
    printf("%zu tools as calls: %.3f ms to the first mask, %zu nodes, %.1f KiB\n",
           json_array_size(list), (now_s() - start) * 1e3, nb_grammar_n_node(g),
           (double)nb_grammar_bytes(g) / 1024);
    nb_match_destroy(m);
    walk(b, g, b->n_token);
    nb_grammar_unref(g);
    free(text);
    json_decref(doc);
}

static void bench_file(bench *b, const char *path)
{
    json_error_t why;
    json_t *doc = json_load_file(path, 0, &why);
    if (!doc) die(path, why.text);
    const json_t *body = json_object_get(doc, "body");
    const json_t *tools = json_object_get(body ? body : doc, "tools");
    if (!tools) bench_schema(b, path, doc);
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i), *f = json_object_get(t, "function");
        const json_t *p = json_object_get(f ? f : t, "parameters");
        if (!p) p = json_object_get(t, "input_schema");
        const char *name = json_string_value(json_object_get(f ? f : t, "name"));
        if (!p || !name) continue;
        bench_schema(b, name, p);
        if (json_array_append_new(list, json_pack("{s:s,s:O}", "name", name, "parameters", p)) != 0)
            die(path, "out of memory");
    }
    if (json_array_size(list)) bench_calls(b, list);
    json_decref(list);
    json_decref(doc);
}

int main(int argc, char **argv)
{
    bench b = { .seed = 1, .n_token = 2000 };
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (strcmp(argv[i], "-n") == 0)
            b.n_token = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "-s") == 0)
            b.seed = strtoul(argv[i + 1], NULL, 10);
    }
    if (i + 1 >= argc) die("usage", "bench_grammar [-n TOKENS] [-s SEED] TOKENIZER FILE...");
    nb_buf file = read_file(argv[i]);
    const nb_tokenizer_files files = { .tokenizer_json = nb_buf_view(&file) };
    nb_tokenizer *t;
    nb_error err = { 0 };
    if (nb_tokenizer_create(&files, &t, &err) != NB_OK) die(argv[i], err.msg);
    const double start = now_s();
    if (nb_vocab_create(token, t, nb_tokenizer_n_vocab(t), &b.v, &err) != NB_OK)
        die(argv[i], err.msg);
    printf("vocabulary: %zu tokens, %.1f ms\n", nb_vocab_size(b.v), (now_s() - start) * 1e3);
    b.t = t;
    for (i++; i < argc; i++) bench_file(&b, argv[i]);
    printf("%zu schemas (%zu refused when strict): compiled in %.3f ms, first masks %.3f ms\n",
           b.n_schema, b.n_refused, b.compile_s * 1e3, b.first_s * 1e3);
    print_times("masks", &b.mask);
    printf("%.1f nodes visited per mask, %.0f %% found in the cache; most states %zu, most memory "
           "%.1f MiB\n",
           (double)b.n_visit / (double)(b.mask.n + 1),
           100.0 * (double)b.n_hit / (double)(b.mask.n + 1), b.n_state,
           (double)b.n_bytes / 1048576.0);
    free(b.mask.t);
    nb_vocab_destroy(b.v);
    nb_tokenizer_destroy(t);
    nb_buf_deinit(&file);
    return 0;
}
