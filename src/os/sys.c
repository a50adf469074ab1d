/* sys.c - see sys.h.  In a container the limit of the control group counts. */
#include "os/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static uint64_t read_limit(const char *path)
{
    unsigned long long v = 0;
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%llu", &v) != 1) v = 0; /* "max" is no number: no limit */
    (void)fclose(f);
    return v;
}

uint64_t nb_os_ram_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t ram = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    static const char *const limits[] = { "/sys/fs/cgroup/memory.max",
                                          "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
    for (int i = 0; i < 2; i++) {
        const uint64_t v = read_limit(limits[i]);
        if (v && (!ram || v < ram)) ram = v;
    }
    return ram;
}

int64_t nb_os_wall_s(void)
{
    const time_t now = time(NULL);
    struct tm local, utc;
    if (!localtime_r(&now, &local) || !gmtime_r(&now, &utc)) return (int64_t)now;
    const int day = local.tm_year != utc.tm_year ? (local.tm_year > utc.tm_year ? 1 : -1)
                                                 : local.tm_yday - utc.tm_yday;
    return (int64_t)now + (int64_t)day * 86400 + (local.tm_hour - utc.tm_hour) * 3600 +
           (local.tm_min - utc.tm_min) * 60;
}

const char *nb_os_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

void nb_os_trim_memory(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
