/* clock.h - monotonic time. */
#ifndef NB_OS_CLOCK_H
#define NB_OS_CLOCK_H
#include <stdint.h>

uint64_t nb_clock_ns(void);
static inline double nb_clock_s(void)
{
    return (double)nb_clock_ns() * 1e-9;
}
#endif
