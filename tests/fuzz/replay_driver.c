/* replay_driver.c - runs a fuzz target without libFuzzer.
 *
 *   fuzz_X [options] PATH...        replays every file, and every file of every folder
 *     --mutate N    instead: runs N damaged copies of those files (mutate_driver.c)
 *     --seed S      other damage (default 1)
 *     --fail-alloc N  instead: runs every file up to N times, another allocation failing each time
 *     --only I      runs input number I alone, in this process: for a debugger
 *     --timeout S   seconds that one input may take (default 20)
 *     --name X      how the target is called in messages
 *
 * Inputs run in child processes, a batch in each, so that a crash costs one input and not the rest;
 * the parent names the input, writes it beside the program and goes on.  Exit code 0: all ran; 1: a
 * crash, hang or leak; 2: usage; 77: no corpus.  The input ends at a page that cannot be read, so
 * reading past its end is found without a sanitizer; under ASan it is a heap block of its own. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz/alloc_driver.h"
#include "fuzz/mutate_driver.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX_INPUT_BYTES = 4 << 20, BATCH = 250, MAX_FAILURES = 5 };
#define MEMORY_LIMIT_BYTES ((rlim_t)4 << 30)

typedef struct run {
    const char *name;
    const char *program;
    nb_fuzz_input *corpus;
    size_t n_corpus, cap_corpus;
    uint64_t n_mutate, seed; /* n_mutate 0: replay */
    uint64_t n_fail;         /* allocations to fail per input; 0: none */
    uint64_t n_inputs;
    unsigned timeout_s;
    uint8_t *scratch; /* [MAX_INPUT_BYTES] */
} run;

/* What the child is doing, in memory shared with the parent. */
typedef struct place {
    _Atomic uint64_t input, alloc; /* alloc: number of the failing allocation, or UINT64_MAX */
} place;

static void die(const char *what, const char *arg)
{
    fprintf(stderr, "fuzz: %s: %s\n", what, arg);
    exit(2);
}

static void *must(void *p)
{
    if (!p) die("out of memory", "driver");
    return p;
}

/* ---- corpus ---------------------------------------------------------------------------------- */

static void add_file(run *r, const char *path, off_t n_bytes)
{
    if (n_bytes > MAX_INPUT_BYTES) die("larger than 4 MiB", path);
    FILE *f = fopen(path, "rb");
    if (!f) die(strerror(errno), path);
    nb_fuzz_input in = { must(strdup(path)), must(malloc((size_t)n_bytes + 1)), (size_t)n_bytes };
    if (fread(in.data, 1, in.n_bytes, f) != in.n_bytes) die("short read", path);
    fclose(f);
    if (r->n_corpus == r->cap_corpus) {
        r->cap_corpus = r->cap_corpus ? 2 * r->cap_corpus : 64;
        r->corpus = must(realloc(r->corpus, r->cap_corpus * sizeof *r->corpus));
    }
    r->corpus[r->n_corpus++] = in;
}

/* Folders in the order of names, so that input numbers are the same everywhere. */
static void add_path(run *r, const char *path)
{
    struct stat st;
    if (stat(path, &st)) {
        if (errno == ENOENT) return;
        die(strerror(errno), path);
    }
    if (!S_ISDIR(st.st_mode)) {
        add_file(r, path, st.st_size);
        return;
    }
    struct dirent **list = NULL;
    const int n = scandir(path, &list, NULL, alphasort);
    if (n < 0) die(strerror(errno), path);
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.') {
            const size_t len = strlen(path) + strlen(list[i]->d_name) + 2;
            char *sub = must(malloc(len));
            snprintf(sub, len, "%s/%s", path, list[i]->d_name);
            add_path(r, sub);
            free(sub);
        }
        free(list[i]);
    }
    free(list);
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Input number i; *data points into the corpus or the scratch buffer. */
static size_t input(run *r, uint64_t i, const uint8_t **data)
{
    if (r->n_mutate) {
        *data = r->scratch;
        return nb_fuzz_mutate(r->seed, i, r->corpus, r->n_corpus, r->scratch, MAX_INPUT_BYTES);
    }
    if (i == r->n_corpus) { /* after the files: the empty input */
        *data = r->scratch;
        return 0;
    }
    *data = r->corpus[i].data;
    return r->corpus[i].n_bytes;
}

/* Without failures once; with, once to count the allocations and then once for each that fails (evenly
 * spread where there are more than wanted). */
static void call_target(run *r, const uint8_t *data, size_t n, place *at)
{
    if (!r->n_fail) {
        LLVMFuzzerTestOneInput(data, n);
        return;
    }
    nb_fuzz_alloc_arm(UINT64_MAX);
    LLVMFuzzerTestOneInput(data, n);
    const uint64_t n_alloc = nb_fuzz_alloc_disarm();
    const uint64_t n_run = n_alloc < r->n_fail ? n_alloc : r->n_fail;
    for (uint64_t k = 0; k < n_run; k++) {
        const uint64_t number = k * n_alloc / n_run;
        atomic_store_explicit(&at->alloc, number, memory_order_relaxed);
        nb_fuzz_alloc_arm(number);
        LLVMFuzzerTestOneInput(data, n);
        (void)nb_fuzz_alloc_disarm();
    }
    atomic_store_explicit(&at->alloc, UINT64_MAX, memory_order_relaxed);
}

static void run_one(run *r, uint64_t i, place *at)
{
    const uint8_t *data;
    const size_t n = input(r, i, &data);
    if (SANITIZED) {
        uint8_t *copy = must(malloc(n ? n : 1));
        memcpy(copy, data, n);
        call_target(r, copy, n, at);
        free(copy);
        return;
    }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + page - 1) / page * page;
    uint8_t *map = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    if (map == MAP_FAILED) die("mmap", strerror(errno));
    uint8_t *copy = map + body - n;
    memcpy(copy, data, n);
    if (mprotect(map + body, page, PROT_NONE)) die("mprotect", strerror(errno));
    call_target(r, copy, n, at);
    munmap(map, body + page);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void report(run *r, uint64_t i, const char *how, place *at)
{
    const uint8_t *data;
    const size_t n = input(r, i, &data);
    char path[4096];
    snprintf(path, sizeof path, "%s-%s-%llu-%llu", r->program, r->n_mutate ? "mutation" : "replay",
             (unsigned long long)(r->n_mutate ? r->seed : 0), (unsigned long long)i);
    FILE *f = fopen(path, "wb");
    const int written = f && fwrite(data, 1, n, f) == n;
    if (f) fclose(f);
    printf("%s: %s on input %llu (%s), %zu bytes, %s %s\n", r->name, how, (unsigned long long)i,
           r->n_mutate ? "mutated" : i < r->n_corpus ? r->corpus[i].path : "empty", n,
           written ? "saved as" : "could not be saved as", path);
    const uint64_t alloc = atomic_load_explicit(&at->alloc, memory_order_relaxed);
    if (alloc != UINT64_MAX) printf("  while allocation %llu failed\n", (unsigned long long)alloc);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits for the child; kills it when its place stays the same for too long.  True: it was killed. */
static int wait_child(run *r, pid_t pid, place *at, int *status)
{
    uint64_t last = 0, last_alloc = 0;
    double since = now_s();
    for (;;) {
        if (waitpid(pid, status, WNOHANG) == pid) return 0;
        const uint64_t i = atomic_load_explicit(&at->input, memory_order_relaxed);
        const uint64_t alloc = atomic_load_explicit(&at->alloc, memory_order_relaxed);
        if (i != last || alloc != last_alloc) {
            last = i;
            last_alloc = alloc;
            since = now_s();
        } else if (now_s() - since > r->timeout_s) {
            kill(pid, SIGKILL);
            waitpid(pid, status, 0);
            return 1;
        }
        const struct timespec nap = { 0, 1000000 };
        nanosleep(&nap, NULL);
    }
}

/* Runs inputs [first, end) in a child.  Returns the first input that is still to be run; on a
 * failure, the one after the culprit. */
static uint64_t run_batch(run *r, uint64_t first, uint64_t end, place *at, int *failures)
{
    atomic_store_explicit(&at->input, first, memory_order_relaxed);
    atomic_store_explicit(&at->alloc, UINT64_MAX, memory_order_relaxed);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) die("fork", strerror(errno));
    if (pid == 0) {
        if (!SANITIZED) {
            const struct rlimit lim = { MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES };
            setrlimit(RLIMIT_AS, &lim);
        }
        for (uint64_t i = first; i < end; i++) {
            atomic_store_explicit(&at->input, i, memory_order_relaxed);
            run_one(r, i, at);
        }
        atomic_store_explicit(&at->input, end, memory_order_relaxed);
        exit(0); /* not _exit: LeakSanitizer looks now */
    }
    int status = 0;
    const int hung = wait_child(r, pid, at, &status);
    if (!hung && WIFEXITED(status) && WEXITSTATUS(status) == 0) return end;

    ++*failures;
    const uint64_t culprit = atomic_load_explicit(&at->input, memory_order_relaxed);
    if (culprit >= end) {
        printf("%s: exit code %d after inputs %llu..%llu (memory leak?)\n", r->name,
               WIFEXITED(status) ? WEXITSTATUS(status) : -1, (unsigned long long)first,
               (unsigned long long)(end - 1));
        return end;
    }
    char how[64];
    if (hung) snprintf(how, sizeof how, "hang (over %u s)", r->timeout_s);
    else if (WIFSIGNALED(status)) snprintf(how, sizeof how, "signal %d", WTERMSIG(status));
    else snprintf(how, sizeof how, "exit code %d", WEXITSTATUS(status));
    report(r, culprit, how, at);
    return culprit + 1;
}

static int run_all(run *r)
{
    place *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("mmap", strerror(errno));
    int failures = 0;
    uint64_t i = 0;
    while (i < r->n_inputs && failures < MAX_FAILURES) {
        const uint64_t batch = r->n_fail ? 1 : BATCH; /* a leak is then the leak of one input */
        const uint64_t end = r->n_inputs - i > batch ? i + batch : r->n_inputs;
        i = run_batch(r, i, end, at, &failures);
    }
    printf("%s: %llu %s inputs from %zu files%s, %d failures%s\n", r->name, (unsigned long long)i,
           r->n_mutate ? "mutated" : "replayed", r->n_corpus,
           r->n_fail ? ", failing allocations" : "", failures, i < r->n_inputs ? " (gave up)" : "");
    munmap(at, sizeof *at);
    return failures != 0;
}

/* ---- command line ---------------------------------------------------------------------------- */

static uint64_t number(const char *option, const char *s)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long v = s ? strtoull(s, &end, 10) : 0;
    if (!s || end == s || *end || errno || *s == '-') die("expected a number after", option);
    return v;
}

int main(int argc, char **argv)
{
    run r = { .name = argv[0], .program = argv[0], .seed = 1, .timeout_s = 20 };
    uint64_t only = UINT64_MAX;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--mutate")) r.n_mutate = number(argv[i], value), i++;
        else if (!strcmp(argv[i], "--seed")) r.seed = number(argv[i], value), i++;
        else if (!strcmp(argv[i], "--fail-alloc")) r.n_fail = number(argv[i], value), i++;
        else if (!strcmp(argv[i], "--only")) only = number(argv[i], value), i++;
        else if (!strcmp(argv[i], "--timeout")) r.timeout_s = (unsigned)number(argv[i], value), i++;
        else if (!strcmp(argv[i], "--name") && value) r.name = value, i++;
        else if (argv[i][0] == '-') die("unknown option", argv[i]);
        else add_path(&r, argv[i]);
    }
    if (!r.n_corpus) {
        printf("%s: skipped: no corpus files\n", r.name);
        return 77;
    }
    r.scratch = must(malloc(MAX_INPUT_BYTES));
    r.n_inputs = r.n_mutate ? r.n_mutate : r.n_corpus + 1;

    int rc = 0;
    if (only != UINT64_MAX) {
        if (only >= r.n_inputs) die("--only", "no such input");
        place at = { only, UINT64_MAX };
        run_one(&r, only, &at);
    } else {
        rc = run_all(&r);
    }
    for (size_t i = 0; i < r.n_corpus; i++) {
        free(r.corpus[i].path);
        free(r.corpus[i].data);
    }
    free(r.corpus);
    free(r.scratch);
    return rc;
}
