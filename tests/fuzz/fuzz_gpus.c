/* fuzz_gpus.c - any bytes as a file of devices: what is accepted has figures that the planner can
 * divide by, what is refused has changed nothing and is named in one line. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "capacity/machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void need(int ok)
{
    if (!ok) abort();
}

static void check_row(const nb_machines *ms, const nb_machine *m)
{
    need(memchr(m->name, 0, sizeof m->name) && m->name[0]);
    need(memchr(m->title, 0, sizeof m->title) != NULL);
    need(memchr(m->source, 0, sizeof m->source) != NULL);
    need(memchr(m->price_source, 0, sizeof m->price_source) != NULL);
    need(isfinite(m->memory_bytes) && m->memory_bytes > 0 && m->memory_bytes <= 1.1e15);
    need(isfinite(m->bandwidth) && m->bandwidth > 0 && isfinite(m->bf16) && m->bf16 > 0);
    need(isfinite(m->fp8) && m->fp8 >= 0 && isfinite(m->fp4) && m->fp4 >= 0);
    need(isfinite(m->link) && m->link >= 0 && isfinite(m->price) && m->price >= 0);
    need(nb_machines_find(ms, m->name) != NULL && nb_machines_nearest(ms, m->name) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_machines ms = { 0 };
    nb_error e = { 0 };
    char *p = malloc(n + (n == 0)); /* its own block: reading beyond it is found */
    if (!p) return 0;
    if (n) memcpy(p, data, n);
    const nb_status st = nb_machines_builtin(&ms, &e);
    need(st == NB_OK || st == NB_ERR_NOMEM);
    const size_t before = ms.n;
    if (st == NB_OK && nb_machines_add(&ms, (nb_str){ p, n }, "fuzz.json", &e) != NB_OK) {
        const char *end = memchr(e.msg, 0, sizeof e.msg);
        need(end && end > e.msg && e.status != NB_OK && ms.n == before);
        for (const char *q = e.msg; q < end; q++) need((unsigned char)*q >= 0x20 && *q != 0x7f);
    }
    need(ms.n <= NB_MAX_MACHINE && ms.n >= before);
    for (size_t i = 0; i < ms.n; i++) check_row(&ms, &ms.m[i]);
    nb_machines_deinit(&ms);
    free(p);
    return 0;
}
