/* device.c - see device.h: the host and a GPU as rows of one table. */
#include "dev/device.h"

#include <stdio.h>
#include <string.h>

#include "os/sys.h"

/* ---- the host ---- */

static void *host_alloc(nb_device *d, size_t n_bytes)
{
    return nb_dev_alloc(d->dev, n_bytes);
}

static void host_free(nb_device *d, void *p, size_t n_bytes)
{
    if (d->dev) nb_dev_free(d->dev, p, n_bytes);
}

static void host_copy(nb_device *d, void *dst, const void *src, size_t n_bytes)
{
    (void)d;
    memcpy(dst, src, n_bytes);
}

static void host_clear(nb_device *d, void *dst, size_t n_bytes)
{
    (void)d;
    memset(dst, 0, n_bytes);
}

static nb_status host_sync(nb_device *d, nb_error *err)
{
    (void)d;
    (void)err;
    return NB_OK;
}

static void host_memory(nb_device *d, uint64_t *all, uint64_t *free_now)
{
    (void)d;
    *all = nb_os_ram_bytes();
    *free_now = 0;
}

static const nb_device_kind host = {
    .name = "cpu",
    .prefill_chunk = 512,
    .alloc = host_alloc,
    .free = host_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .read = host_copy,
    .copy = host_copy,
    .clear = host_clear,
    .sync = host_sync,
    .memory = host_memory,
};

/* ---- a GPU ---- */

static void *gpu_alloc(nb_device *d, size_t n_bytes)
{
    const nb_cuda_api *api = nb_gpu_api(d->gpu);
    void *p = api->alloc(nb_gpu_handle(d->gpu), n_bytes);
    if (p) api->fill(nb_gpu_handle(d->gpu), p, 0, n_bytes);
    return p;
}

static void gpu_free(nb_device *d, void *p, size_t n_bytes)
{
    (void)n_bytes;
    nb_gpu_api(d->gpu)->free(nb_gpu_handle(d->gpu), p);
}

static void *gpu_host_alloc(nb_device *d, size_t n_bytes)
{
    return nb_gpu_api(d->gpu)->host_alloc(nb_gpu_handle(d->gpu), n_bytes);
}

static void gpu_host_free(nb_device *d, void *p, size_t n_bytes)
{
    (void)n_bytes;
    nb_gpu_api(d->gpu)->host_free(nb_gpu_handle(d->gpu), p);
}

static nb_status gpu_sync(nb_device *d, nb_error *err)
{
    return nb_gpu_api(d->gpu)->sync(nb_gpu_handle(d->gpu), err);
}

static void gpu_read(nb_device *d, void *dst, const void *src, size_t n_bytes)
{
    nb_gpu_api(d->gpu)->download(nb_gpu_handle(d->gpu), dst, src, n_bytes);
    if (gpu_sync(d, NULL) != NB_OK) memset(dst, 0, n_bytes);
}

static void gpu_copy(nb_device *d, void *dst, const void *src, size_t n_bytes)
{
    nb_gpu_api(d->gpu)->copy(nb_gpu_handle(d->gpu), dst, src, n_bytes);
}

static void gpu_clear(nb_device *d, void *dst, size_t n_bytes)
{
    nb_gpu_api(d->gpu)->fill(nb_gpu_handle(d->gpu), dst, 0, n_bytes);
}

static void gpu_memory(nb_device *d, uint64_t *all, uint64_t *free_now)
{
    nb_cuda_info i;
    nb_gpu_api(d->gpu)->get_info(nb_gpu_handle(d->gpu), &i);
    *all = i.memory_bytes;
    *free_now = i.free_bytes;
}

static const nb_device_kind cuda = {
    .name = "cuda",
    .own_memory = true,
    .prefill_chunk = 8192,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .host_alloc = gpu_host_alloc,
    .host_free = gpu_host_free,
    .read = gpu_read,
    .copy = gpu_copy,
    .clear = gpu_clear,
    .sync = gpu_sync,
    .memory = gpu_memory,
};

/* ---- both ---- */

nb_device nb_device_of(nb_dev *dev, nb_gpu *gpu)
{
    nb_device d = { .kind = gpu ? &cuda : &host, .dev = dev, .gpu = gpu };
    nb_cuda_info i = { .name = "cpu" };
    if (gpu) nb_gpu_api(gpu)->get_info(nb_gpu_handle(gpu), &i);
    (void)snprintf(d.name, sizeof d.name, "%s", i.name);
    return d;
}

void nb_device_close(nb_device *d)
{
    nb_gpu_close(d->gpu);
    *d = (nb_device){ 0 };
}
