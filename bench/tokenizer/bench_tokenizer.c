/* bench_tokenizer.c - speed of creating a tokenizer and of encoding text.
 *
 *   bench_tokenizer [-c tokenizer_config.json] [-n REPEATS] TOKENIZER TEXT...
 *
 * TOKENIZER is a tokenizer.json, or else a tiktoken.model; files must be unpacked.  Prints one
 * line per text: bytes, ids, best MB/s over the repeats on one core. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/tokenizer.h"

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static nb_buf read_file(const char *path)
{
    nb_buf b = { 0 };
    char chunk[65536];
    FILE *f = fopen(path, "rb");
    if (!f) {
        (void)fprintf(stderr, "bench_tokenizer: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    for (size_t k; (k = fread(chunk, 1, sizeof chunk, f)) > 0;)
        if (nb_buf_add(&b, chunk, k) != NB_OK) exit(1);
    (void)fclose(f);
    return b;
}

static void bench_text(const nb_tokenizer *t, const char *path, int repeats)
{
    nb_buf text = read_file(path);
    double best = 1e30;
    size_t n_ids = 0;
    for (int r = 0; r < repeats; r++) {
        uint32_t *ids = NULL;
        nb_error err;
        const double start = now_s();
        if (nb_tokenizer_encode(t, nb_buf_view(&text), 0, &ids, &n_ids, &err) != NB_OK) {
            (void)fprintf(stderr, "bench_tokenizer: %s: %s\n", path, err.msg);
            exit(1);
        }
        const double took = now_s() - start;
        if (took < best) best = took;
        free(ids);
    }
    printf("%-40s %9zu bytes %8zu ids %7.2f MB/s\n", path, text.n_bytes, n_ids,
           (double)text.n_bytes / best * 1e-6);
    nb_buf_deinit(&text);
}

int main(int argc, char **argv)
{
    int repeats = 3, i = 1;
    nb_buf config = { 0 };
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (strcmp(argv[i], "-c") == 0)
            config = read_file(argv[i + 1]);
        else if (strcmp(argv[i], "-n") == 0)
            repeats = atoi(argv[i + 1]);
        else
            break;
    }
    if (i + 1 >= argc || repeats < 1) {
        (void)fprintf(stderr,
                      "usage: bench_tokenizer [-c CONFIG] [-n REPEATS] TOKENIZER TEXT...\n");
        return 2;
    }
    nb_buf file = read_file(argv[i]);
    nb_tokenizer_files files = { .tokenizer_config_json = nb_buf_view(&config) };
    if (file.n_bytes && file.p[0] == '{')
        files.tokenizer_json = nb_buf_view(&file);
    else
        files.tiktoken_model = nb_buf_view(&file);
    nb_tokenizer *t = NULL;
    nb_error err;
    const double start = now_s();
    if (nb_tokenizer_create(&files, &t, &err) != NB_OK) {
        (void)fprintf(stderr, "bench_tokenizer: %s\n", err.msg);
        return 1;
    }
    printf("create %.3f s, %zu ids\n", now_s() - start, nb_tokenizer_n_vocab(t));
    for (i++; i < argc; i++) bench_text(t, argv[i], repeats);
    nb_tokenizer_destroy(t);
    nb_buf_deinit(&file);
    nb_buf_deinit(&config);
    return 0;
}
