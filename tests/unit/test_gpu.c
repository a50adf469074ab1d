/* test_gpu.c - the loader of the GPU library: what is refused and with which line; the device's own
 * functions, with the emulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "dev/gpu.h"
#include "os/lib.h"

/* The library of the build that must be refused with this status and these words. */
static void refused(const char *library, int index, nb_status want, const char *a, const char *b)
{
    nb_gpu *d = NULL;
    nb_error err = { 0 };
    const nb_status s = nb_gpu_open(library, index, &d, &err);
    if (s != want || err.status != want || !strstr(err.msg, a) || !strstr(err.msg, b) ||
        strchr(err.msg, '\n'))
        fail_msg("%s: %d `%s`, expected %d with `%s` and `%s`", library ? library : "default",
                 (int)s, err.msg, (int)want, a, b);
    assert_null(d);
    assert_int_equal(nb_gpu_open(library, index, &d, NULL), want);
}

static const char *fake(const char *name, char out[512])
{
    (void)snprintf(out, 512, "%s/%s", getenv("NB_FAKE_GPU_FOLDER"), name);
    return out;
}

static void test_files(void **state)
{
    char path[512], folder[512], version[64];
    (void)state;
    refused("/nowhere/libnibble-cuda.so", 0, NB_ERR_NOT_FOUND, "/nowhere/libnibble-cuda.so",
            "No such file");
    refused("README.md", 0, NB_ERR_UNSUPPORTED, "README.md", "cannot be loaded");
    refused("", 0, NB_ERR_NOT_FOUND, "", "No such file");
    assert_true(nb_program_folder(folder, sizeof folder));
    refused(NULL, 0, NB_ERR_NOT_FOUND, NB_GPU_LIBRARY, folder);
    assert_false(nb_program_folder(folder, 4));
    if (!getenv("NB_FAKE_GPU_FOLDER")) skip();
    (void)snprintf(version, sizeof version, "version %d of its interface", NB_CUDA_VERSION + 7);
    refused(fake("fake1.so", path), 0, NB_ERR_UNSUPPORTED, "fake1.so", version);
    refused(fake("fake2.so", path), 0, NB_ERR_UNSUPPORTED, "fake2.so", "interface of 8 bytes");
    refused(fake("fake3.so", path), 0, NB_ERR_UNSUPPORTED, "fake3.so", "nb_cuda_get_api");
}

static const char *emulation(void)
{
    const char *s = getenv("NB_CUDA_EMU_LIBRARY");
    return s && *s ? s : NULL;
}

static void test_device(void **state)
{
    (void)state;
    const char *library = emulation();
    if (!library) skip();
    refused(library, 1, NB_ERR_RANGE, "GPU 1", "no such device");
    refused(library, -1, NB_ERR_RANGE, "GPU -1", "no such device");

    nb_gpu *d = NULL, *second = NULL;
    nb_error err = { 0 };
    nb_cuda_info info;
    assert_int_equal(nb_gpu_open(library, 0, &d, &err), NB_OK);
    assert_int_equal(nb_gpu_open(library, 0, &second, &err), NB_OK); /* two engines of a process */
    nb_gpu_close(second);
    const nb_cuda_api *api = nb_gpu_api(d);
    nb_cuda *g = nb_gpu_handle(d);
    assert_int_equal(api->n_device(&err), 1);
    api->get_info(g, &info);
    assert_true(info.emulated && info.cc == 80 && info.name[0] && info.memory_bytes > 0);
    assert_null(api->alloc(g, SIZE_MAX - 4096)); /* refused, and nothing sticks */
    assert_int_equal(api->error(g, &err), NB_OK);

    enum { N = 1000 };
    unsigned char *x = api->alloc(g, N), *y = api->alloc(g, N), *pinned = api->host_alloc(g, N);
    unsigned char in[N], out[N];
    assert_int_equal((uintptr_t)x % 256, 0);
    for (size_t i = 0; i < N; i++) in[i] = (unsigned char)(i * 7);
    api->upload(g, x, in, N);
    api->fill(g, y, 0x5a, N);
    api->copy(g, y + 10, x, 100);
    api->download(g, pinned, y, N);
    api->mark(g, 0);
    api->mark(g, 63);
    assert_int_equal(api->sync(g, &err), NB_OK);
    assert_true(api->elapsed_s(g, 0, 63) >= 0);
    assert_true(api->elapsed_s(g, 0, 64) != api->elapsed_s(g, 0, 64)); /* NaN */
    assert_memory_equal(pinned + 10, in, 100);
    assert_int_equal(pinned[9], 0x5a);
    assert_int_equal(pinned[110], 0x5a);

    api->graph_begin(g); /* copies are recorded as launches are */
    api->copy(g, x, y, N);
    nb_cuda_graph *graph = api->graph_end(g);
    assert_non_null(graph);
    api->download(g, out, x, N);
    assert_memory_equal(out, in, N);
    api->graph_launch(g, graph);
    api->download(g, out, x, N);
    assert_int_equal(api->sync(g, &err), NB_OK);
    assert_memory_equal(out, pinned, N);
    api->graph_destroy(g, graph);
    assert_null(api->graph_end(g)); /* without a beginning */
    api->graph_destroy(g, NULL);
    api->free(g, x);
    api->free(g, y);
    api->free(g, NULL);
    api->host_free(g, pinned);
    nb_gpu_close(d);
    nb_gpu_close(NULL);
}

/* Every operation is there, and the tables are well-formed. */
static void test_table(void **state)
{
    (void)state;
    nb_gpu *d = NULL;
    if (!emulation()) skip();
    assert_int_equal(nb_gpu_open(emulation(), 0, &d, NULL), NB_OK);
    const nb_cuda_api *api = nb_gpu_api(d);
    void (*ops[(sizeof *api - offsetof(nb_cuda_api, embed)) / sizeof(void *)])(void);
    memcpy(ops, (const char *)api + offsetof(nb_cuda_api, embed), sizeof ops);
    for (size_t i = 0; i < NB_COUNT(ops); i++) assert_non_null(ops[i]);
    size_t n = 0;
    for (const nb_cuda_linear_row *r = api->linear; r->name; r++, n++)
        assert_true(r->can && r->fn && r->cc >= 80);
    assert_true(n > 0);
    for (const nb_cuda_experts_row *r = api->experts; r->name; r++)
        assert_true(r->can && r->fn && r->cc >= 80);
    for (const nb_cuda_mla_row *r = api->mla; r->name; r++)
        assert_true(r->can && r->fn && r->scratch && r->units.rest > 0 && r->error > 0);
    nb_gpu_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
