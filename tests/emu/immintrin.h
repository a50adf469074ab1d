/* immintrin.h - AVX-VNNI, AVX-512 and AMX intrinsics in C, on top of AVX2.
 *
 * Stands before the compiler's own header in the include path of the preset `emu`
 * (cmake/NbEmulate.cmake), so that the unchanged sources x86/<op>_avxvnni.c, _avx512.c, _avx512bf16.c and _amx.c
 * run on any machine with AVX2.  For correctness only: nothing here is fast.
 *
 * The compiler's headers for AVX-512 and AMX are shut out by their own guards; the
 * names then are free, and each is defined here as a function.  An intrinsic that is
 * missing is an undeclared function: add it in the family it belongs to.
 * Definitions: Intel SDM volume 2; README.md in this folder says how to add one. */
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#include_next <immintrin.h>
#elif !defined(NB_EMU_IMMINTRIN_H)
#define NB_EMU_IMMINTRIN_H
#pragma GCC system_header
#include "emu_guards.h"
#include_next <immintrin.h>

#include "emu_base.h"
#include "emu_mask.h"
#include "emu_kmask.h"
#include "emu_mem.h"
#include "emu_arith.h"
#include "emu_shift.h"
#include "emu_perm.h"
#include "emu_part.h"
#include "emu_cmp.h"
#include "emu_cvt.h"
#include "emu_float.h"
#include "emu_dot.h"
#include "emu_tile.h"
#endif
