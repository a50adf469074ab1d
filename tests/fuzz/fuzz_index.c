/* fuzz_index.c - any bytes as model.safetensors.index.json beside two good shards. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load/source.h"
#include "os/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char head_1[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
                             "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}";
static const char head_2[] = "{\"c\":{\"dtype\":\"F8_E4M3\",\"shape\":[5],\"data_offsets\":[0,5]},"
                             "\"b\":{\"dtype\":\"U8\",\"shape\":[7],\"data_offsets\":[5,12]}}";

static void put(const char *dir, const char *name, const void *p, size_t n)
{
    char path[300];
    nb_error e;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (nb_file_write(path, p, n, &e) != NB_OK) {
        (void)fprintf(stderr, "%s\n", e.msg);
        exit(77);
    }
}

static void put_shard(const char *dir, const char *name, const char *head)
{
    unsigned char file[512] = { 0 };
    const size_t n = strlen(head);
    file[0] = (unsigned char)n; /* both headers are shorter than 256 bytes */
    memcpy(file + 8, head, n);
    put(dir, name, file, 8 + n + 12);
}

static void use(nb_source *s)
{
    static const char *const names[] = { "a", "b", "c", "d" };
    static volatile unsigned sink;
    nb_tensor t;
    nb_error e;
    for (size_t i = 0; i < NB_COUNT(names); i++)
        for (size_t n_dim = 0; n_dim < 3; n_dim++) {
            const nb_tensor_want w = { .name = names[i], .dtypes = UINT32_MAX, .n_dim = n_dim };
            if (nb_source_take(s, &w, &t, &e) != NB_OK) continue;
            for (size_t k = 0; k < t.n_bytes; k++) sink = sink + ((const unsigned char *)t.data)[k];
        }
    size_t left = 0;
    while (nb_source_leftover(s, left)) left++;
    if (left > nb_source_n_tensor(s)) abort();
    nb_source_prefault(s, NULL, NULL, NULL, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const files[] = { "m-1.safetensors", "m-2.safetensors",
                                         "model.safetensors.index.json" };
    const char *base = getenv("TMPDIR");
    char dir[200], path[300];
    (void)snprintf(dir, sizeof dir, "%s/nibble-fuzz-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(dir)) exit(77);
    put_shard(dir, files[0], head_1);
    put_shard(dir, files[1], head_2);
    put(dir, files[2], data, n);
    nb_source *s = NULL;
    nb_error e;
    if (nb_source_open_dir(dir, &s, &e) == NB_OK) {
        use(s);
    } else {
        const char *end = memchr(e.msg, 0, sizeof e.msg);
        /* The line names a file in dir; of a very long path only the end. */
        if (!end || end == e.msg || (!strstr(e.msg, "nibble-fuzz-") && end - e.msg < 320)) abort();
        for (const char *p = e.msg; p < end; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
    }
    nb_source_close(s);
    for (size_t i = 0; i < NB_COUNT(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
    return 0;
}
