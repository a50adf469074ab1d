/* alloc_driver.h - makes one allocation of a fuzz target fail. */
#ifndef NB_TESTS_ALLOC_DRIVER_H
#define NB_TESTS_ALLOC_DRIVER_H
#include <stdint.h>

/* Starts counting allocations at 0; number `fail_at` will fail.  UINT64_MAX: none does. */
void nb_fuzz_alloc_arm(uint64_t fail_at);

/* Ends it, and returns the number of allocations since. */
uint64_t nb_fuzz_alloc_disarm(void);

#endif
