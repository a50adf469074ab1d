/* process.c - see process.h; from /proc/self, where there is one. */
#include "serve/process.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static bool read_memory(nb_process *p)
{
    uint64_t size = 0, resident = 0;
    const long page = sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return false;
    const bool ok = fscanf(f, "%" SCNu64 " %" SCNu64, &size, &resident) == 2 && page > 0;
    (void)fclose(f);
    p->virtual_bytes = size * (uint64_t)page;
    p->resident_bytes = resident * (uint64_t)page;
    return ok;
}

static bool count_fds(nb_process *p)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d) return false;
    uint64_t n = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    (void)closedir(d);
    p->n_fd = n > 0 ? n - 1 : 0; /* without the one that reads the list */
    return true;
}

bool nb_process_read(nb_process *p)
{
    struct rusage u;
    struct rlimit lim;
    *p = (nb_process){ 0 };
    if (!read_memory(p) || !count_fds(p)) return false;
    if (getrusage(RUSAGE_SELF, &u) == 0)
        p->cpu_s = (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec * 1e-6 +
                   (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec * 1e-6;
    if (getrlimit(RLIMIT_NOFILE, &lim) == 0) p->max_fd = (uint64_t)lim.rlim_cur;
    return true;
}
