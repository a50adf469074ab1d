/* nb_cuda_units.h - where the context is cut into units, each of which gives a state of attention
 * (nb_cuda_ops.h): for the host and for kernels.
 *
 * Boundaries are constants of a kernel, so that nothing but the position decides them
 * (docs/decisions/024): n_first units of `first` pages from position 0 on, then units of `rest` pages.
 * Small ones at first let one short sequence use many multiprocessors; with a long one there are
 * enough of the large, which leave fewer states.
 *
 * Units are gathered in supers of so many pages from position 0 on, and states are joined in two
 * steps: those of a super one after the other, then the supers'.  So a kernel that has all units of a
 * super may join them where they are, wherever in the sequence it is.  No unit crosses a border of
 * supers, but for those that are as large or larger: each is a super then.  A super has at most 32
 * units, their number divides 32. */
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
    uint32_t super;                /* pages */
    uint32_t blocks;               /* of the kernel, that a multiprocessor runs at a time */
} nb_cuda_units;

/* Pages of unit u. */
NB_CUDA_BOTH uint32_t nb_cuda_unit_pages(nb_cuda_units s, uint32_t u)
{
    return u < s.n_first ? s.first : s.rest;
}

/* First page of unit u. */
NB_CUDA_BOTH size_t nb_cuda_unit_page(nb_cuda_units s, size_t u)
{
    return u < s.n_first ? u * s.first : (size_t)s.n_first * s.first + (u - s.n_first) * s.rest;
}

/* The unit that a page is in. */
NB_CUDA_BOTH size_t nb_cuda_unit_of(nb_cuda_units s, size_t page)
{
    const size_t small = (size_t)s.n_first * s.first;
    return page < small ? page / s.first : s.n_first + (page - small) / s.rest;
}

/* Units of n_page pages: the states of each query are these and one for its own page. */
NB_CUDA_BOTH size_t nb_cuda_n_unit(nb_cuda_units s, size_t n_page)
{
    return n_page ? nb_cuda_unit_of(s, n_page - 1) + 1 : 0;
}

/* The super that unit u is in. */
NB_CUDA_BOTH uint32_t nb_cuda_super_of(nb_cuda_units s, uint32_t u)
{
    return s.rest >= s.super ? u : (uint32_t)(nb_cuda_unit_page(s, u) / s.super);
}

#endif
