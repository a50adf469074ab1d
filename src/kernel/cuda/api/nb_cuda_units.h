/* nb_cuda_units.h - how the context is split into units; shared by the host and the kernels.
 *
 * A unit is a fixed range of pages whose attention is one partial state (nb_cuda_ops.h): the field's "split".  A super
 * is a fixed group of units whose states are combined in order: a group of splits.
 *
 * The boundaries are constants of a kernel, so only the position determines them (docs/decisions/024): n_first units
 * of `first` pages from position 0 on, then units of `rest` pages.  The short units let one short sequence use many
 * SMs.  A long sequence has enough long units, which leave fewer states.
 *
 * A super covers `super` pages, counted from position 0.  States are combined in two steps: those of a super in order,
 * then the supers in order.  So a kernel that has all units of a super may combine them itself, wherever in the
 * sequence the super is.  No unit crosses a boundary of supers.  A super has at most 32 units, and their number
 * divides 32. */
#ifndef NB_KERNEL_CUDA_API_NB_CUDA_UNITS_H
#define NB_KERNEL_CUDA_API_NB_CUDA_UNITS_H
#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define NB_CUDA_BOTH __host__ __device__ static inline
#else
#define NB_CUDA_BOTH static inline
#endif

typedef struct nb_cuda_units {
    uint32_t n_first, first, rest; /* rest > 0; first > 0 where n_first > 0 */
    uint32_t super;                /* pages of a super */
    /* What the host needs to balance work; it changes no bit. */
    uint32_t blocks; /* blocks of the kernel that an SM runs at a time */
    uint32_t heads;  /* heads that a block takes; a query with more needs several blocks */
    uint32_t cost;   /* what ending an item costs, in pages */
} nb_cuda_units;

/* Number of pages of unit u. */
NB_CUDA_BOTH uint32_t nb_cuda_unit_pages(nb_cuda_units s, uint32_t u)
{
    return u < s.n_first ? s.first : s.rest;
}

/* First page of unit u. */
NB_CUDA_BOTH size_t nb_cuda_unit_page(nb_cuda_units s, size_t u)
{
    return u < s.n_first ? u * s.first : (size_t)s.n_first * s.first + (u - s.n_first) * s.rest;
}

/* The unit that contains a page. */
NB_CUDA_BOTH size_t nb_cuda_unit_of(nb_cuda_units s, size_t page)
{
    const size_t small = (size_t)s.n_first * s.first;
    return page < small ? page / s.first : s.n_first + (page - small) / s.rest;
}

/* Number of units in n_page pages; each query has one state per unit, and one for its own page. */
NB_CUDA_BOTH size_t nb_cuda_n_unit(nb_cuda_units s, size_t n_page)
{
    return n_page ? nb_cuda_unit_of(s, n_page - 1) + 1 : 0;
}

/* The super that contains unit u. */
NB_CUDA_BOTH uint32_t nb_cuda_super_of(nb_cuda_units s, uint32_t u)
{
    return (uint32_t)(nb_cuda_unit_page(s, u) / s.super);
}

#endif
