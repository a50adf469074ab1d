/* alloc_driver.c - makes one allocation of a fuzz target fail.
 *
 * The build links fuzz targets with --wrap=malloc (calloc, realloc, aligned_alloc), so that calls from
 * our objects come here.  Libraries are left alone: jansson 2.14 fails an assertion of its own when its
 * lexer cannot grow a buffer (load.c, lex_unget_unsave), which would end every run. */
#include "fuzz/alloc_driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static atomic_bool armed;
static _Atomic uint64_t count, fail_number;

static bool refuse(void)
{
    if (!atomic_load_explicit(&armed, memory_order_relaxed)) return false;
    return atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) ==
           atomic_load_explicit(&fail_number, memory_order_relaxed);
}

void *__wrap_malloc(size_t n)
{
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refuse() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return refuse() ? NULL : __real_aligned_alloc(align, n);
}

void nb_fuzz_alloc_arm(uint64_t fail_at)
{
    atomic_store(&count, 0);
    atomic_store(&fail_number, fail_at);
    atomic_store(&armed, true);
}

uint64_t nb_fuzz_alloc_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&count);
}
