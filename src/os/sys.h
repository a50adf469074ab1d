/* sys.h - facts about the machine. */
#ifndef NB_OS_SYS_H
#define NB_OS_SYS_H
#include <stdint.h>

uint64_t nb_os_ram_bytes(void); /* physical memory this process may use; 0: unknown */
int64_t nb_os_wall_s(void);     /* seconds since 1970, local wall clock (zone offset added) */
#endif
