/* cores.c - counting physical cores this process may use: the allowed CPUs whose
 * (package, core) pair was not seen before, from /sys; falls back to the number
 * of allowed CPUs where /sys has no topology.  A control group's quota limits it. */
#define _GNU_SOURCE /* sched_getaffinity and CPU_* are glibc extensions */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "os/pool.h"

enum { MAX_CPU = CPU_SETSIZE };

static long topology(int cpu, const char *what)
{
    char path[128];
    long v = -1;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    if (fscanf(f, "%ld", &v) != 1) v = -1;
    (void)fclose(f);
    return v;
}

/* A container's share of the processor in whole cores (rounded up), 0: no limit.
 * More threads than that would be throttled in the middle of their work. */
static size_t cpu_quota(void)
{
    long long quota = 0, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2) quota = 0; /* "max": no number */
        (void)fclose(f);
    } else {
        static const char *const v1[] = { "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
                                          "/sys/fs/cgroup/cpu/cpu.cfs_period_us" };
        long long *const to[] = { &quota, &period };
        for (int i = 0; i < 2; i++) {
            f = fopen(v1[i], "r");
            if (!f) return 0;
            if (fscanf(f, "%lld", to[i]) != 1) *to[i] = 0;
            (void)fclose(f);
        }
    }
    return quota > 0 && period > 0 ? (size_t)((quota + period - 1) / period) : 0;
}

size_t nb_os_n_core(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        const long n = sysconf(_SC_NPROCESSORS_ONLN);
        return n > 0 ? (size_t)n : 1;
    }
    long seen[MAX_CPU][2];
    size_t n = 0;
    for (size_t c = 0; c < MAX_CPU; c++) {
        if (!CPU_ISSET(c, &set)) continue;
        const long pkg = topology((int)c, "physical_package_id"),
                   core = topology((int)c, "core_id");
        bool dup = false;
        for (size_t i = 0; i < n && core >= 0 && !dup; i++)
            dup = seen[i][0] == pkg && seen[i][1] == core;
        if (dup) continue;
        seen[n][0] = pkg;
        seen[n][1] = core;
        n++;
    }
    const size_t quota = cpu_quota();
    if (quota && quota < n) n = quota;
    return n ? n : 1;
}
