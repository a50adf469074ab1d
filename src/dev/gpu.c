/* gpu.c - finds, loads and checks the library of GPU kernels. */
#include "dev/gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "nb_config.h"
#include "os/lib.h"

struct nb_gpu {
    nb_lib *lib;
    const nb_cuda_api *api;
    nb_cuda *g;
};

enum { PATH_BYTES = 4096 };

/* Loads the library from where it is by default. */
static nb_status open_default(nb_lib **out, char path[PATH_BYTES], nb_error *err)
{
    char folder[PATH_BYTES];
    if (nb_installed_path(NB_PLACE_LIB, NB_GPU_LIBRARY, path, PATH_BYTES))
        return nb_lib_open(path, out, err);
    const bool known = nb_program_folder(folder, sizeof folder);
    return nb_fail(err, NB_ERR_NOT_FOUND, "there is no %s in %s or in its " NB_BIN_TO_LIB "/nibble",
                   NB_GPU_LIBRARY, known ? folder : "the program's folder");
}

/* Is it the library that this program was built with? */
static nb_status get_api(nb_lib *lib, const char *path, const nb_cuda_api **out, nb_error *err)
{
    nb_cuda_get_api_fn *get = (nb_cuda_get_api_fn *)nb_lib_function(lib, NB_CUDA_SYMBOL);
    if (!get)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: not a library of GPU kernels (no function %s)",
                       path, NB_CUDA_SYMBOL);
    const nb_cuda_api *api = get();
    if (api->version != NB_CUDA_VERSION)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: version %u of its interface, expected %u",
                       path, api->version, (unsigned)NB_CUDA_VERSION);
    if (api->api_bytes != sizeof *api)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: of another build (an interface of %u bytes, expected %zu)", path,
                       api->api_bytes, sizeof *api);
    *out = api;
    return NB_OK;
}

nb_status nb_gpu_open(const char *library, int index, nb_gpu **out, nb_error *err)
{
    char path[PATH_BYTES];
    nb_status st = NB_OK;
    nb_gpu *d = calloc(1, sizeof *d);
    if (!d) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (library) {
        (void)snprintf(path, sizeof path, "%s", library);
        NB_TRY_OUT(nb_lib_open(library, &d->lib, err));
    } else {
        NB_TRY_OUT(open_default(&d->lib, path, err));
    }
    NB_TRY_OUT(get_api(d->lib, path, &d->api, err));
    NB_TRY_OUT(d->api->open(index, &d->g, err));
    *out = d;
    return NB_OK;
out:
    nb_gpu_close(d);
    return st;
}

void nb_gpu_close(nb_gpu *d)
{
    if (!d) return;
    if (d->g) d->api->close(d->g);
    nb_lib_close(d->lib);
    free(d);
}

const nb_cuda_api *nb_gpu_api(const nb_gpu *d)
{
    return d->api;
}
nb_cuda *nb_gpu_handle(const nb_gpu *d)
{
    return d->g;
}
