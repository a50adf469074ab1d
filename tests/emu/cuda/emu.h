/* emu.h - the parts of the emulation of CUDA among themselves (cu_emu.h). */
#ifndef NB_TESTS_EMU_CUDA_EMU_H
#define NB_TESTS_EMU_CUDA_EMU_H
#include "kernel/cuda/common/cu.cuh"

/* Dynamic shared memory of a block of compute capability 8.0, at most, and without being asked for. */
enum { NB_EMU_SHARED_MAX = 163 << 10, NB_EMU_SHARED_DEFAULT = 48 << 10, NB_EMU_CANARY = 0xa5 };

/* Runs a kernel.  order: bits that reverse threads, copy early in cp.async, reverse blocks.  A line when
 * it failed, valid until the next run; else NULL.  *again: it waits for another device and must be run again, then with
 * the seconds since its first start. */
const char *nb_emu_run(const nb_emu_call *c, unsigned order, double waited_s, bool *again);
void nb_emu_yield();
/* Saves the caller's registers and stack pointer in *save, and goes on where `to` was saved. */
extern "C" void nb_emu_switch(void **save, void *to);

#endif
