/* places.c - see places.h.  Topology comes from /sys; binding memory takes two system calls that
 * glibc does not wrap, with the numbers of linux/mempolicy.h. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_*, syscall */
#include "os/places.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/pool.h"

enum { LIST_BYTES = 8192, MAX_NODE = 64, POLICY_DEFAULT = 0, POLICY_INTERLEAVE = 3 };

/* ---- lists ---- */

static bool number(const char **p, size_t *out)
{
    size_t v = 0;
    if (**p < '0' || **p > '9') return false;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        v = v * 10 + (size_t)(**p - '0');
        if (v >= NB_MAX_CPU) return false;
    }
    *out = v;
    return true;
}

nb_status nb_cpu_list_parse(const char *text, uint16_t cpu[NB_MAX_CPU], size_t *n, nb_error *err)
{
    bool seen[NB_MAX_CPU] = { false };
    uint16_t list[NB_MAX_CPU];
    size_t k = 0, a, b;
    const char *p = text;
    for (;; p++) {
        if (!number(&p, &a)) break;
        b = a;
        if (*p == '-') {
            p++;
            if (!number(&p, &b) || b < a) break;
        }
        for (; a <= b && !seen[a]; a++) {
            seen[a] = true;
            list[k++] = (uint16_t)a;
        }
        if (a <= b) break; /* twice */
        if (*p == ',') continue;
        while (*p == ' ' || *p == '\n') p++;
        if (*p) break;
        memcpy(cpu, list, k * sizeof *cpu);
        *n = k;
        return NB_OK;
    }
    return nb_fail(err, NB_ERR_ARG, "'%.40s': expected CPUs such as 0-3,8, each once and below %d",
                   text, NB_MAX_CPU);
}

static bool read_list(const char *path, uint16_t cpu[NB_MAX_CPU], size_t *n)
{
    char text[LIST_BYTES];
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const size_t got = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[got] = 0;
    if (got == sizeof text - 1 || memchr(text, 0, got)) return false;
    return nb_cpu_list_parse(text, cpu, n, NULL) == NB_OK;
}

/* ---- the machine ---- */

static long topology(const char *sys, size_t cpu, const char *what)
{
    char path[300];
    long v = -1;
    (void)snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%zu/topology/%s", sys, cpu, what);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    if (fscanf(f, "%9ld", &v) != 1) v = -1;
    (void)fclose(f);
    return v;
}

static void read_cores(nb_machine *m, const char *sys)
{
    static const char *const part[2] = { "physical_package_id", "core_id" };
    long seen[NB_MAX_CPU][2];
    for (size_t c = 0; c < NB_MAX_CPU; c++) {
        if (!m->allowed[c]) continue;
        const long pkg = topology(sys, c, part[0]), core = topology(sys, c, part[1]);
        bool dup = false;
        for (size_t i = 0; i < m->n_core && core >= 0 && !dup; i++)
            dup = seen[i][0] == pkg && seen[i][1] == core;
        m->n_allowed++;
        if (dup) continue;
        m->core[c] = true;
        seen[m->n_core][0] = pkg;
        seen[m->n_core++][1] = core;
    }
}

static void read_nodes(nb_machine *m, const char *sys)
{
    uint16_t node[NB_MAX_CPU], cpu[NB_MAX_CPU];
    size_t n_node = 0, n_cpu;
    char path[300];
    (void)snprintf(path, sizeof path, "%s/devices/system/node/online", sys);
    if (!read_list(path, node, &n_node)) n_node = 0;
    for (size_t i = 0; i < n_node; i++) {
        (void)snprintf(path, sizeof path, "%s/devices/system/node/node%u/cpulist", sys,
                       (unsigned)node[i]);
        if (!read_list(path, cpu, &n_cpu)) continue; /* memory without processors: an empty list */
        bool any = false;
        for (size_t k = 0; k < n_cpu; k++) {
            m->node[cpu[k]] = node[i];
            any |= m->allowed[cpu[k]];
        }
        if (!any) continue;
        m->n_node++;
        if (node[i] < MAX_NODE) m->node_mask |= UINT64_C(1) << node[i];
    }
    if (m->n_node == 0) m->n_node = 1;
}

void nb_machine_read(nb_machine *m, const char *sys)
{
    bool allowed[NB_MAX_CPU];
    memcpy(allowed, m->allowed, sizeof allowed);
    memset(m, 0, sizeof *m);
    memcpy(m->allowed, allowed, sizeof allowed);
    read_cores(m, sys);
    read_nodes(m, sys);
}

void nb_machine_here(nb_machine *m, bool *free)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    memset(m, 0, sizeof *m);
    const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    for (size_t c = 0; known && c < NB_MAX_CPU && c < CPU_SETSIZE; c++)
        m->allowed[c] = CPU_ISSET(c, &set) != 0;
    nb_machine_read(m, "/sys");
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    *free = known && online > 0 && m->n_allowed == (size_t)online && nb_os_n_core() == m->n_core;
}

/* ---- places ---- */

static nb_status choose_listed(const nb_machine *m, const char *affinity, size_t n_thread,
                               uint16_t cpu[NB_MAX_CPU], size_t *n, nb_error *err)
{
    uint16_t list[NB_MAX_CPU];
    size_t k;
    NB_TRY(nb_cpu_list_parse(affinity, list, &k, err));
    if (k < n_thread)
        return nb_fail(err, NB_ERR_ARG, "'%.40s': %zu CPUs for %zu threads", affinity, k, n_thread);
    for (size_t i = 0; i < n_thread; i++)
        if (!m->allowed[list[i]])
            return nb_fail(err, NB_ERR_ARG, "'%.40s': this process may not run on CPU %u", affinity,
                           (unsigned)list[i]);
    memcpy(cpu, list, n_thread * sizeof *cpu);
    *n = n_thread;
    return NB_OK;
}

nb_status nb_places_choose(const nb_machine *m, const char *affinity, bool free, size_t n_thread,
                           uint16_t cpu[NB_MAX_CPU], size_t *n, nb_error *err)
{
    *n = 0;
    if (affinity && strcmp(affinity, "none") == 0) return NB_OK;
    if (affinity && strcmp(affinity, "auto") != 0)
        return choose_listed(m, affinity, n_thread, cpu, n, err);
    /* Fewer threads than cores are left to the system: two programs of one thread each would
     * otherwise meet on the first core. */
    const bool all = n_thread == m->n_core, some = m->n_node > 1 && n_thread <= m->n_core;
    if (!free || n_thread < 2 || !(all || some)) return NB_OK;
    size_t k = 0;
    for (size_t node = 0; node < NB_MAX_CPU && k < n_thread; node++)
        for (size_t c = 0; c < NB_MAX_CPU && k < n_thread; c++)
            if (m->core[c] && m->node[c] == node) cpu[k++] = (uint16_t)c;
    *n = k;
    return NB_OK;
}

/* ---- memory ---- */

void nb_interleave(const nb_machine *m, void *p, size_t n_bytes)
{
    const unsigned long mask = (unsigned long)m->node_mask;
    if (m->n_node > 1 && p)
        (void)syscall(SYS_mbind, p, n_bytes, POLICY_INTERLEAVE, &mask, MAX_NODE + 1UL, 0U);
}

void nb_interleave_thread(const nb_machine *m, bool on)
{
    const unsigned long mask = (unsigned long)m->node_mask;
    if (m->n_node > 1)
        (void)syscall(SYS_set_mempolicy, on ? POLICY_INTERLEAVE : POLICY_DEFAULT, on ? &mask : NULL,
                      on ? MAX_NODE + 1UL : 0UL);
}
