/* plan_trace_setup.c - from the options of `nibble plan --trace` to files, caches and points. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../cli.h"
#include "capacity/configs.h"
#include "capacity/sizes.h"
#include "plan_trace.h"

enum { MAX_PATH = 1 << 20, WORD_BYTES = 32 };

/* ---- lists ---- */

/* The next word of a list; false at its end or, with *bad, at one that is empty or too long. */
static bool next_word(const char **at, char word[WORD_BYTES], bool *bad)
{
    *bad = false;
    if (!*at) return false;
    const size_t n = strcspn(*at, ",");
    *bad = n == 0 || n >= WORD_BYTES;
    if (*bad) return false;
    memcpy(word, *at, n);
    word[n] = 0;
    *at = (*at)[n] == ',' ? *at + n + 1 : NULL;
    return true;
}

/* A number and a unit, which `unit` stands for when there is none. */
static bool bytes_of(const char *word, double unit, double *out)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { "B", 1 },
                  { "kB", 1e3 },
                  { "KB", 1e3 },
                  { "MB", 1e6 },
                  { "GB", 1e9 },
                  { "TB", 1e12 },
                  { "KiB", 1024 },
                  { "MiB", 1048576 },
                  { "GiB", 1073741824 },
                  { "TiB", 1099511627776.0 } };
    char *end;
    if (strspn(word, "0123456789.") == 0) return false;
    const double x = strtod(word, &end);
    for (size_t i = 0; *end && i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, end) == 0) {
            unit = units[i].bytes;
            end += strlen(end);
        }
    *out = floor(x * unit);
    return !*end && *out >= 1 && *out <= 1e15;
}

/* All that the machine leaves, and shares of it. */
static int machine_sizes(trace_plan *t)
{
    static const double share[] = { 0.125, 0.25, 0.5, 1 };
    t->own_sizes = true;
    for (; t->n_size < NB_COUNT(share); t->n_size++)
        t->size[t->n_size] = floor(share[t->n_size] * t->machine_bytes);
    return CLI_OK;
}

static int read_sizes(trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    const char *name = o->cache ? "--cache" : "--kv-cache-memory-bytes";
    const char *list = o->cache ? o->cache : o->cache_bytes, *at = list;
    char word[WORD_BYTES];
    bool bad;
    if (!list && t->has_machine) return machine_sizes(t);
    if (!list || (o->cache && o->cache_bytes))
        return cli_usage("--trace: expected --cache or --kv-cache-memory-bytes, one of them%s",
                         list ? "" : ", or a machine: --gpu NAME or --memory SIZE");
    while (next_word(&at, word, &bad)) {
        if (t->n_size == TRACE_MAX_SIZE)
            return cli_usage("%s: more than %d sizes", name, TRACE_MAX_SIZE);
        if (!bytes_of(word, o->cache ? 1e9 : 1, &t->size[t->n_size++]))
            return cli_usage("%s %s: expected a size such as %s or 64GiB", name, word,
                             o->cache ? "40" : "40000000000");
    }
    return bad ? cli_usage("%s %s: expected sizes joined by commas", name, list) : CLI_OK;
}

/* 35136, or bytes of a layer times layers: 576x61. */
static bool token_bytes(const char *word, double *out)
{
    char *end;
    if (word[0] < '0' || word[0] > '9') return false;
    double x = strtod(word, &end);
    if (*end == 'x' && end[1] >= '0' && end[1] <= '9') x *= strtod(end + 1, &end);
    *out = x;
    return !*end && x >= 1 && x <= 1e9;
}

static int read_token_bytes(trace_plan *t)
{
    const char *at = t->o->trace.bytes_per_token;
    char word[WORD_BYTES];
    bool bad;
    while (next_word(&at, word, &bad)) {
        trace_record *r = &t->record[t->n_record];
        if (t->n_record == TRACE_MAX_RECORD)
            return cli_usage("--bytes-per-token: more than %d", TRACE_MAX_RECORD);
        double x;
        if (strlen(word) >= sizeof r->name || !token_bytes(word, &x))
            return cli_usage("--bytes-per-token %s: expected bytes such as 35136 or 576x61", word);
        memcpy(r->name, word, strlen(word) + 1);
        r->block_bytes = x * NB_BLOCK_TOK;
        t->n_record++;
    }
    return bad ? cli_usage("--bytes-per-token: expected numbers joined by commas") : CLI_OK;
}

static int add_records(trace_plan *t, const nb_sizes *sizes)
{
    const char *at = t->o->trace.records;
    char word[WORD_BYTES];
    bool bad;
    while (next_word(&at, word, &bad)) {
        trace_record *r = &t->record[t->n_record];
        const nb_record_size *s = nb_sizes_find(sizes, word);
        if (!s || strlen(word) >= sizeof r->name)
            return cli_usage("--records %s: not a record of this model; expected names as of "
                             "--kv-cache-dtype",
                             word);
        if (t->n_record == TRACE_MAX_RECORD)
            return cli_usage("--records: more than %d", TRACE_MAX_RECORD);
        memcpy(r->name, word, strlen(word) + 1);
        r->block_bytes = (double)s->block_bytes;
        t->n_record++;
    }
    return bad ? cli_usage("--records: expected names joined by commas") : CLI_OK;
}

static int read_records(trace_plan *t)
{
    nb_error err = { 0 };
    const char *note;
    if (t->o->trace.bytes_per_token) return read_token_bytes(t);
    if (t->has_machine) return add_records(t, &t->plan.sizes);
    nb_model_config *config = calloc(1, sizeof *config);
    nb_sizes *sizes = calloc(1, sizeof *sizes);
    int code = CLI_OK;
    if (!config || !sizes) code = cli_failed("out of memory");
    if (code == CLI_OK) {
        nb_status st = nb_capacity_read_config(t->o->model, config, &note, &err);
        if (st == NB_OK) st = nb_sizes_of(config, sizes, &err);
        code = st == NB_OK ? add_records(t, sizes) : cli_status(st, &err);
    }
    free(config);
    free(sizes);
    return code;
}

static int read_policies(trace_plan *t)
{
    const char *at = t->o->trace.policies;
    char word[WORD_BYTES];
    bool bad;
    if (strcmp(at, "all") == 0) {
        for (; t->n_policy < NB_KV_N_EVICT; t->n_policy++)
            t->policy[t->n_policy] = (nb_kv_evict)t->n_policy;
        return CLI_OK;
    }
    while (next_word(&at, word, &bad)) {
        size_t i = 0, k = 0;
        while (i < NB_KV_N_EVICT && strcmp(nb_kv_evict_name(i), word) != 0) i++;
        while (k < t->n_policy && t->policy[k] != (nb_kv_evict)i) k++;
        if (i == NB_KV_N_EVICT || k < t->n_policy)
            return cli_usage("--policies %s: expected classes, lru, fifo, lfu, aged, longest and "
                             "random, each once, or all",
                             word);
        t->policy[t->n_policy++] = (nb_kv_evict)i;
    }
    return bad ? cli_usage("--policies: expected names joined by commas") : CLI_OK;
}

/* ---- files ---- */

static bool ends_in(const char *s, const char *suffix)
{
    const size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_path(trace_plan *t, size_t *cap, const char *dir, const char *name)
{
    const size_t n_dir = strlen(dir), n = n_dir + strlen(name) + 2;
    if (t->n_path == *cap) {
        const size_t more = *cap ? 2 * *cap : 64;
        char **p = realloc(t->path, more * sizeof *p);
        if (!p) return cli_failed("out of memory");
        t->path = p;
        *cap = more;
    }
    char *path = malloc(n);
    if (!path) return cli_failed("out of memory");
    (void)snprintf(path, n, "%s%s%s", dir, *dir && dir[n_dir - 1] != '/' ? "/" : "", name);
    t->path[t->n_path++] = path;
    return CLI_OK;
}

/* The sessions of a folder, by name: the order of a directory is the file system's. */
static int read_folder(trace_plan *t, const char *path)
{
    size_t cap = 0;
    int code = CLI_OK;
    DIR *d = opendir(path);
    if (!d) return cli_failed("%s: %s", path, strerror(errno));
    for (const struct dirent *e; code == CLI_OK && (e = readdir(d));) {
        if (!ends_in(e->d_name, ".json") || e->d_name[0] == '.') continue;
        code = t->n_path == MAX_PATH ? cli_failed("%s: more than %d sessions", path, MAX_PATH)
                                     : add_path(t, &cap, path, e->d_name);
    }
    (void)closedir(d);
    if (code == CLI_OK && !t->n_path)
        return cli_failed("%s: no .json files; expected a folder of sessions", path);
    if (t->n_path) qsort(t->path, t->n_path, sizeof *t->path, by_name);
    return code;
}

static int read_files(trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    struct stat s;
    size_t cap = 0;
    if (stat(o->file, &s) != 0) return cli_failed("%s: %s", o->file, strerror(errno));
    const bool folder = S_ISDIR(s.st_mode);
    const int code = folder ? read_folder(t, o->file) : add_path(t, &cap, "", o->file);
    t->mix = (nb_mix_options){ .path = (const char *const *)t->path,
                               .n_path = t->n_path,
                               .sessions = folder || ends_in(o->file, ".json"),
                               .n_open = o->sessions,
                               .max_gap_s = o->max_gap_s,
                               .speed = o->speed,
                               .seed = 1,
                               .n_request = o->requests,
                               .max_tok = o->max_prompt };
    return code;
}

/* ---- points ---- */

static int make_points(trace_plan *t)
{
    const size_t n = t->n_size * t->n_record * t->n_policy;
    if (n > TRACE_MAX_POINT)
        return cli_usage("--trace: %zu sizes, %zu records and %zu policies are more than %d points",
                         t->n_size, t->n_record, t->n_policy, TRACE_MAX_POINT);
    t->point = calloc(n, sizeof *t->point);
    if (!t->point) return cli_failed("out of memory");
    for (size_t i = 0; i < t->n_size; i++)
        for (size_t k = 0; k < t->n_policy; k++)
            for (size_t r = 0; r < t->n_record; r++) {
                const bool all = t->own_sizes && i + 1 == t->n_size;
                const double n_block = all ? t->record[r].machine_blocks
                                           : floor(t->size[i] / t->record[r].block_bytes);
                if (n_block < 1 || n_block > 1 << 28)
                    return cli_usage("%s: %.0f bytes are %.0f blocks of %s; expected 1 to %d",
                                     t->own_sizes ? "--cache (not given: the machine's)"
                                                  : "--cache",
                                     t->size[i], n_block, t->record[r].name, 1 << 28);
                t->point[t->n_point++] = (trace_point){
                    .record = r, .size = i, .evict = t->policy[k], .n_block = (size_t)n_block
                };
            }
    return CLI_OK;
}

int trace_setup(const opts *o, trace_plan *t)
{
    *t = (trace_plan){ .o = o, .serve = strcmp(o->trace.replay, "serve") == 0 };
    int code = trace_machine(t);
    if (code == CLI_OK) code = read_sizes(t);
    if (code == CLI_OK) code = read_records(t);
    if (code == CLI_OK) code = trace_clocks(t);
    if (code == CLI_OK) code = read_policies(t);
    if (code == CLI_OK) code = read_files(t);
    if (code == CLI_OK) code = trace_check_options(t);
    if (code == CLI_OK) code = make_points(t);
    return code;
}

void trace_deinit(trace_plan *t)
{
    for (size_t i = 0; i < t->n_path; i++) free(t->path[i]);
    free(t->path);
    free(t->point);
    plan_deinit(&t->plan);
}
