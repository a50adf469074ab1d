/* lib.c - dlopen, and /proc/self/exe. */
#include "os/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef RTLD_NODELETE
#define RTLD_NODELETE 0
#endif

nb_status nb_lib_open(const char *path, nb_lib **out, nb_error *err)
{
    if (access(path, R_OK) != 0)
        return nb_fail(err, errno == ENOENT || errno == ENOTDIR ? NB_ERR_NOT_FOUND : NB_ERR_IO,
                       "%s: %s", path, strerror(errno));
    char here[4096]; /* a name without a slash would be looked for in the system's folders */
    (void)snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *handle = dlopen(here, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        const char *why = dlerror();
        return nb_fail(err, NB_ERR_UNSUPPORTED, "cannot be loaded: %s", why ? why : path);
    }
    *out = handle;
    return NB_OK;
}

void nb_lib_close(nb_lib *l)
{
    if (l) (void)dlclose(l);
}

nb_lib_fn *nb_lib_function(nb_lib *l, const char *name)
{
    void *p = dlsym(l, name);
    nb_lib_fn *fn = NULL;
    memcpy(&fn, &p, sizeof fn); /* POSIX lets a function have the bits of an object's address */
    return fn;
}

bool nb_program_folder(char *out, size_t n_bytes)
{
    const ssize_t n = readlink("/proc/self/exe", out, n_bytes);
    if (n <= 0 || (size_t)n >= n_bytes) return false;
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}
