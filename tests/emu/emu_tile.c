/* emu_tile.c - the state of AMX as 8 KiB per thread, its operations, and VDPBF16PS.
 *
 * Definitions: Intel SDM volume 1 chapter 18 (configuration, what faults), volume 2
 * (operations).  The BF16 operations round to nearest even with denormals taken and
 * given as zero, whatever MXCSR says: it is set around them; the loops are functions of
 * their own that work on memory, so that no operation moves over the write of MXCSR. */
#include <immintrin.h>

enum { N_TILE = 8, MAX_ROW = 16, MAX_COLSB = 64 };

typedef struct config { /* the 64 bytes of LDTILECFG */
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
} config;

typedef union tile {
    uint8_t u8[MAX_ROW][MAX_COLSB];
    int8_t s8[MAX_ROW][MAX_COLSB];
    uint16_t u16[MAX_ROW][MAX_COLSB / 2];
    int32_t s32[MAX_ROW][MAX_COLSB / 4];
    uint32_t u32[MAX_ROW][MAX_COLSB / 4];
    float f32[MAX_ROW][MAX_COLSB / 4];
} tile;

static _Thread_local config cfg;
static _Thread_local tile tiles[N_TILE];

void nb_emu_tile_loadconfig(const void *p)
{
    config c;
    memcpy(&c, p, sizeof c);
    if (c.palette > 1) emu_fault("LDTILECFG: palette is neither 0 nor 1 (#GP)");
    for (int j = 0; j < 14; j++)
        if (c.palette && c.reserved[j]) emu_fault("LDTILECFG: reserved bytes are not zero (#GP)");
    for (int t = 0; t < 16 && c.palette; t++) {
        if (t >= N_TILE && (c.rows[t] || c.colsb[t]))
            emu_fault("LDTILECFG: there are 8 tiles, a higher one has a shape (#GP)");
        if (c.rows[t] > MAX_ROW || c.colsb[t] > MAX_COLSB)
            emu_fault("LDTILECFG: more than 16 rows or 64 bytes (#GP)");
        if ((c.rows[t] == 0) != (c.colsb[t] == 0))
            emu_fault("LDTILECFG: rows without columns or columns without rows (#GP)");
    }
    memset(tiles, 0, sizeof tiles);
    if (c.palette == 0) memset(&c, 0, sizeof c);
    cfg = c;
}

void nb_emu_tile_storeconfig(void *p)
{
    memcpy(p, &cfg, sizeof cfg);
}

void nb_emu_tile_release(void)
{
    memset(&cfg, 0, sizeof cfg);
    memset(tiles, 0, sizeof tiles);
}

bool nb_emu_tile_in_use(void)
{
    return cfg.palette != 0;
}

/* A configured tile, or a fault. */
static tile *get(int t)
{
    if (cfg.palette == 0) emu_fault("a tile operation without LDTILECFG (#UD)");
    if (t < 0 || t >= N_TILE) emu_fault("a tile that does not exist (#UD)");
    if (cfg.rows[t] == 0) emu_fault("an operation on a tile without a shape (#UD)");
    return &tiles[t];
}

void nb_emu_tile_zero(int t)
{
    memset(get(t), 0, sizeof(tile));
}

void nb_emu_tile_load(int t, const void *base, ptrdiff_t stride)
{
    tile *d = get(t);
    memset(d, 0, sizeof *d);
    for (int r = 0; r < cfg.rows[t]; r++)
        memcpy(d->u8[r], (const char *)base + r * stride, cfg.colsb[t]);
    cfg.start_row = 0;
}

void nb_emu_tile_store(int t, void *base, ptrdiff_t stride)
{
    const tile *s = get(t);
    for (int r = 0; r < cfg.rows[t]; r++) memcpy((char *)base + r * stride, s->u8[r], cfg.colsb[t]);
    cfg.start_row = 0;
}

/* d [rows][n] += a [rows][k] b [k][n] of groups of 4 bytes: do the shapes fit? */
static void check_shapes(int d, int a, int b)
{
    get(d), get(a), get(b);
    if (d == a || d == b || a == b) emu_fault("TDP: the three tiles are not distinct (#UD)");
    if (cfg.colsb[d] % 4 || cfg.colsb[a] % 4 || cfg.colsb[b] % 4)
        emu_fault("TDP: columns that are no multiple of 4 bytes (#UD)");
    if (cfg.rows[d] != cfg.rows[a]) emu_fault("TDP: rows of the sum and of A differ (#UD)");
    if (cfg.colsb[d] != cfg.colsb[b]) emu_fault("TDP: columns of the sum and of B differ (#UD)");
    if (cfg.colsb[a] / 4 != cfg.rows[b])
        emu_fault("TDP: columns of A (in groups of 4 bytes) and rows of B differ (#UD)");
}

void nb_emu_tile_dpb(int d, int a, int b, bool a_signed, bool b_signed)
{
    check_shapes(d, a, b);
    tile *c = &tiles[d];
    const tile *x = &tiles[a], *y = &tiles[b];
    for (int m = 0; m < cfg.rows[d]; m++)
        for (int k = 0; k < cfg.rows[b]; k++)
            for (int n = 0; n < cfg.colsb[d] / 4; n++) {
                uint32_t sum = c->u32[m][n];
                for (int j = 0; j < 4; j++) {
                    const int u = a_signed ? x->s8[m][4 * k + j] : x->u8[m][4 * k + j];
                    const int v = b_signed ? y->s8[k][4 * n + j] : y->u8[k][4 * n + j];
                    sum += (uint32_t)(u * v);
                }
                c->u32[m][n] = sum;
            }
}

/* BF16 in lane j, as float: the even ones are the low halves of words of 32 bits. */
static __m256 even(__m256i w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
static __m256 odd(__m256i w)
{
    return _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32((int)0xffff0000)));
}

enum { NEAREST_FTZ_DAZ = 0x9fc0 };

static __attribute__((__noinline__)) void tile_bf16(tile *c, const tile *x, const tile *y, int rows,
                                                    int n_k)
{
    __asm__ volatile("" ::: "memory");
    /* Four rows side by side hide the latency of the FMA; rows beyond the tile's are zero. */
    for (int m = 0; m < rows; m += 4)
        for (int h = 0; h < 16; h += 8) { /* columns beyond the tile's are zero in c and y */
            __m256 s[4][2] = { { _mm256_setzero_ps() } };
            for (int k = 0; k < n_k; k++) {
                const __m256i v = _mm256_loadu_si256((const __m256i *)&y->s32[k][h]);
                const __m256 v0 = even(v), v1 = odd(v);
                for (int i = 0; i < 4; i++) {
                    const __m256i u = _mm256_set1_epi32(x->s32[m + i][k]);
                    s[i][0] = _mm256_fmadd_ps(even(u), v0, s[i][0]);
                    s[i][1] = _mm256_fmadd_ps(odd(u), v1, s[i][1]);
                }
            }
            for (int i = 0; i < 4 && m + i < rows; i++) {
                float *p = &c->f32[m + i][h];
                const __m256 sum = _mm256_add_ps(s[i][0], s[i][1]);
                _mm256_storeu_ps(p, _mm256_add_ps(_mm256_loadu_ps(p), sum));
            }
        }
    __asm__ volatile("" ::: "memory");
}

void nb_emu_tile_dpbf16ps(int d, int a, int b)
{
    check_shapes(d, a, b);
    const unsigned old = _mm_getcsr();
    _mm_setcsr(NEAREST_FTZ_DAZ);
    tile_bf16(&tiles[d], &tiles[a], &tiles[b], cfg.rows[d], cfg.rows[b]);
    _mm_setcsr(old);
    /* Products with the zeros beyond the columns may be NaN: those lanes stay zero. */
    for (int m = 0; m < MAX_ROW; m++)
        memset(&tiles[d].u8[m][cfg.colsb[d]], 0, (size_t)(MAX_COLSB - cfg.colsb[d]));
}

static __attribute__((__noinline__)) void dot_bf16(float *s, const uint16_t *a, const uint16_t *b,
                                                   int n)
{
    __asm__ volatile("" ::: "memory");
    for (int j = 0; j < n; j++)
        for (int h = 1; h >= 0; h--) {
            const uint32_t u = (uint32_t)a[2 * j + h] << 16, v = (uint32_t)b[2 * j + h] << 16;
            float x, y;
            memcpy(&x, &u, 4);
            memcpy(&y, &v, 4);
            s[j] = fmaf(x, y, s[j]);
        }
    __asm__ volatile("" ::: "memory");
}

void nb_emu_dpbf16(float *s, const uint16_t *a, const uint16_t *b, int n)
{
    const unsigned old = _mm_getcsr();
    _mm_setcsr(NEAREST_FTZ_DAZ);
    dot_bf16(s, a, b, n);
    _mm_setcsr(old);
}
