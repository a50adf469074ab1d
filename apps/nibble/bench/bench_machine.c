/* bench_machine.c - see bench_machine.h. */
#define _GNU_SOURCE /* getloadavg, _SC_PHYS_PAGES */
#include "bench_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nb_config.h"
#include "nibble/nibble.h"
#include "timing/bench_kernel.h"

static uint64_t positive(long x)
{
    return x > 0 ? (uint64_t)x : 0;
}

/* Of the first processor: index 0 is its level-1 cache of data, 2 and 3 are the others. */
static uint64_t cache_bytes(int index)
{
    char path[96], unit = 0;
    unsigned long n = 0;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%lu%c", &n, &unit) < 1) n = 0;
    (void)fclose(f);
    return (uint64_t)n << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

void bench_machine_read(bench_machine *m)
{
    *m = (bench_machine){ .caps = nb_cpu_levels(),
                          .compiler = NB_COMPILER,
                          .build = NB_BUILD_TYPE,
                          .version = nb_version(),
                          .n_cpu = sysconf(_SC_NPROCESSORS_ONLN),
                          .load = -1 };
    nb_kbench_cpu(m->cpu, sizeof m->cpu);
    m->memory_bytes = positive(sysconf(_SC_PHYS_PAGES)) * positive(sysconf(_SC_PAGESIZE));
    m->l1_bytes = cache_bytes(0);
    m->l2_bytes = cache_bytes(2);
    m->l3_bytes = cache_bytes(3);
    double load[1];
    if (getloadavg(load, 1) == 1) m->load = load[0];
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "r");
    if (!f) return;
    if (!fgets(m->governor, sizeof m->governor, f)) m->governor[0] = 0;
    m->governor[strcspn(m->governor, "\n")] = 0;
    (void)fclose(f);
}

void bench_machine_print(FILE *f, const bench_machine *m)
{
    (void)fprintf(
        f, "machine: %s, %ld processors, %s, caches %llu KiB + %llu KiB + %llu MiB, %.1f GiB, ",
        m->cpu, m->n_cpu, m->caps, (unsigned long long)m->l1_bytes >> 10,
        (unsigned long long)m->l2_bytes >> 10, (unsigned long long)m->l3_bytes >> 20,
        (double)m->memory_bytes / (1 << 30));
    if (m->governor[0]) (void)fprintf(f, "governor %s, ", m->governor);
    if (m->load >= 0) (void)fprintf(f, "load %.2f, ", m->load);
    (void)fprintf(f, "nibble %s, %s %s\n", m->version, m->compiler, m->build);
}

json_t *bench_machine_json(const bench_machine *m)
{
    return json_pack("{s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:s, s:s, s:s}", "cpu", m->cpu,
                     "processors", (json_int_t)m->n_cpu, "caps", m->caps, "memory_bytes",
                     (json_int_t)m->memory_bytes, "l1_bytes", (json_int_t)m->l1_bytes, "l2_bytes",
                     (json_int_t)m->l2_bytes, "l3_bytes", (json_int_t)m->l3_bytes, "governor",
                     m->governor, "load_average", m->load, "version", m->version, "compiler",
                     m->compiler, "build", m->build);
}

const char *bench_machine_home(const bench_machine *m, double n_bytes, size_t n_thread)
{
    const double each = n_bytes / (double)(n_thread ? n_thread : 1);
    if (m->l1_bytes && each <= (double)m->l1_bytes) return "L1";
    if (m->l2_bytes && each <= (double)m->l2_bytes) return "L2";
    if (m->l3_bytes && n_bytes <= (double)m->l3_bytes) return "L3";
    return "memory";
}

uint64_t bench_peak_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1) break;
    (void)fclose(f);
    return (uint64_t)kib << 10;
}
