/* machine.h - what one device gives: memory, bandwidth, arithmetic, price.
 *
 * The rows of gpus.json are part of the program; a file of the same form adds rows or replaces
 * them:
 *   {"gpus": {"NAME": {"title", "memory_mib", "bandwidth_gbs", "bf16_tflops", "fp8_tflops",
 *     "fp4_tflops", "link_gbs", "price", "price_source", "source"}}}
 * NAME is of a-z, 0-9 and '-'.  memory_mib, bandwidth_gbs, bf16_tflops and source must be there; of a rate
 * that is absent the device has no unit.  Rates are dense, GB and TFLOP in powers of ten. */
#ifndef NB_CAPACITY_MACHINE_H
#define NB_CAPACITY_MACHINE_H
#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

enum { NB_MAX_MACHINE = 256, NB_MACHINE_NAME = 32 };

typedef struct nb_machine {
    char name[NB_MACHINE_NAME], title[64];
    bool cpu;              /* no GPU: nibble keeps no copies of absorbed matrices there */
    double memory_bytes;   /* of one device, as its driver reports it */
    double bandwidth;      /* bytes/s, nominal; 0: unknown */
    double bf16, fp8, fp4; /* dense FLOP/s; 0: no such unit, bf16: unknown */
    double link;           /* bytes/s per device and direction to the others; 0: unknown */
    double price;          /* per hour, one device; 0: unknown */
    char price_source[96]; /* where and when */
    char source[384];      /* of the figures above */
} nb_machine;

typedef struct nb_machines {
    nb_machine *m; /* [n], owned */
    size_t n, cap;
} nb_machines;

/* Those of gpus.json; *out is initialised in any case, deinit it.  NB_ERR_NOMEM. */
nb_status nb_machines_builtin(nb_machines *out, nb_error *err);
/* Adds or replaces rows; nothing is changed on failure.  name: of the file, for error lines.
 * NB_ERR_FORMAT with a line that names the field, NB_ERR_LIMIT. */
nb_status nb_machines_add(nb_machines *ms, nb_str json, const char *name, nb_error *err);
nb_status nb_machines_read(nb_machines *ms, const char *path, nb_error *err);
void nb_machines_deinit(nb_machines *ms);

/* By name, letters in either case, '_' and ' ' as '-', or not at all ("RTX 4090").  NULL. */
const nb_machine *nb_machines_find(const nb_machines *ms, const char *name);
/* The row whose name is nearest to a misspelt one. NULL only when there are no rows. */
const nb_machine *nb_machines_nearest(const nb_machines *ms, const char *name);

#endif
