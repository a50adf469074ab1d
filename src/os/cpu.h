/* cpu.h - which instruction-set levels (base/caps.h) this machine runs. */
#ifndef NB_OS_CPU_H
#define NB_OS_CPU_H
#include "base/caps.h"
#include "base/status.h"
#include "base/str.h"

/* What the processor has and the operating system saves; asked once, then
 * remembered.  AMX includes asking the kernel for permission (Linux).  Thread
 * safe: every caller computes the same value. */
nb_caps nb_cpu_caps(void);

/* The levels as text: "c", or names joined by '+' ("avx2", "avx2+avx512").
 * Device bits are left out.  Appends to out; NB_ERR_NOMEM. */
nb_status nb_cpu_caps_name(nb_caps caps, nb_buf *out);

/* One row per level, lowest first; ends at name == NULL.  mask holds the level
 * and everything below it on the same architecture. */
typedef struct nb_cpu_level {
    const char *name;
    nb_caps bit, mask;
} nb_cpu_level;
extern const nb_cpu_level nb_cpu_level_table[];

/* --cpu-caps: "c" (nothing beyond the baseline), "avx2", "avxvnni", "avx512", "avx512bf16", "amx" or
 * "neon" (that level and below), "all".  *mask also keeps the device bits; use it
 * as nb_cpu_caps() & *mask.  NB_ERR_ARG with a line that lists the names. */
nb_status nb_cpu_caps_parse(const char *s, nb_caps *mask, nb_error *err);

/* "AMD EPYC 7763 ..." as the processor or the system names itself; "unknown" if
 * it does not.  name gets at most n_bytes - 1 characters and a 0. */
void nb_cpu_model(char *name, size_t n_bytes);
#endif
