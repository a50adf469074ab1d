/* emu_test.h - what the test of the emulation shares: inputs, results, cases.
 *
 * emu_cases.c is compiled twice, with the emulation and (where the compiler can) with
 * the real instructions. */
#ifndef NB_TESTS_EMU_TEST_H
#define NB_TESTS_EMU_TEST_H
#include <stddef.h>
#include <stdint.h>

typedef union emu_vec {
    uint8_t u8[64];
    int8_t s8[64];
    uint16_t u16[32];
    int16_t s16[32];
    uint32_t u32[16];
    int32_t s32[16];
    uint64_t u64[8];
    int64_t s64[8];
    float ps[16];
    double pd[8];
} emu_vec;

typedef struct emu_in {
    emu_vec a, b, c, f, g, h, d, e;
    uint64_t k;
    uint8_t mem[256];
} emu_in;

/* kind of the result: I F D 512 bits of integers, floats, doubles; Y G 256 bits of integers,
 * floats; Z 128 bits; M mask; S float; N int. */
typedef struct emu_case {
    const char *name;
    const char *kind;
    void (*run)(const emu_in *in, emu_vec *out);
} emu_case;

typedef struct emu_tile_in { /* shapes of d += a b, in rows and groups of 4 bytes */
    int m, k, n;
    uint8_t a[16][64], b[16][64];
    uint32_t c[16][16];
} emu_tile_in;

extern const emu_case emu_cases[], emu_hw_cases[];
/* op: 0 bf16, 1 ss, 2 su, 3 us, 4 uu; c is updated in place. */
void emu_tiles(int op, emu_tile_in *in);
void emu_hw_tiles(int op, emu_tile_in *in);
void emu_config(void *bytes64, int m, int k, int n); /* tiles 0: m x n, 1: m x k, 2: k x n */
/* Each must fault (SIGILL); number of them; what it is. */
extern const char *const emu_faults[];
void emu_run_fault(size_t i, void *aligned64);
/* Masked and tile accesses at the edge of memory: touches n bytes before `end` only. */
void emu_edge(uint8_t *end, int op);

#endif
