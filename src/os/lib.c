/* lib.c - dlopen, /proc/self/exe, and where the files of an installation are. */
#define _GNU_SOURCE /* dladdr */
#include "os/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "nb_config.h"

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

enum { PAGE_BYTES = 4096 };

/* Cuts a path behind its folder; false where it has none. */
static bool cut_name(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

bool nb_program_folder(char *out, size_t n_bytes)
{
    const ssize_t n = readlink("/proc/self/exe", out, n_bytes);
    if (n <= 0 || (size_t)n >= n_bytes) return false;
    out[n] = 0;
    return cut_name(out);
}

/* The folder of the shared object that has this code; false where it is part of the program. */
static bool library_folder(char out[PATH_MAX])
{
    static const char here;
    Dl_info info;
    if (dladdr(&here, &info) == 0 || !info.dli_fname) return false;
    /* The program's own headers begin in the first page of its file. */
    const uintptr_t base = (uintptr_t)info.dli_fbase, phdr = (uintptr_t)getauxval(AT_PHDR);
    if (phdr >= base && phdr - base < PAGE_BYTES) return false;
    return realpath(info.dli_fname, out) && cut_name(out);
}

bool nb_installed_path(nb_place place, const char *name, char *out, size_t n_bytes)
{
    /* Of a build folder; from the program's folder; from the library's. */
    static const char *const where[][3] = {
        [NB_PLACE_LIB] = { "", "/" NB_BIN_TO_LIB "/nibble", "/nibble" },
        [NB_PLACE_DATA] = { "/share/nibble", "/" NB_BIN_TO_DATA "/nibble",
                            "/" NB_LIB_TO_DATA "/nibble" },
    };
    char folder[2][PATH_MAX];
    const bool have[2] = { library_folder(folder[0]),
                           nb_program_folder(folder[1], sizeof folder[1]) };
    for (size_t i = 0; i < NB_COUNT(have); i++)
        for (size_t k = 0; have[i] && k < NB_COUNT(where[place]); k++) {
            const int n = snprintf(out, n_bytes, "%s%s/%s", folder[i], where[place][k], name);
            if (n > 0 && (size_t)n < n_bytes && access(out, F_OK) == 0) return true;
        }
    return false;
}
