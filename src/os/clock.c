/* clock.c - see clock.h. */
#include "os/clock.h"

#include <time.h>

uint64_t nb_clock_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
