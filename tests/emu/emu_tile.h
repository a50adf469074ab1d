/* emu_tile.h - AMX: the tile intrinsics, on thread-local tiles (emu_tile.c).
 *
 * What raises #UD or #GP on hardware says why and raises SIGILL here: an operation without
 * a configuration, a tile that is not configured, shapes that do not fit. */
#ifndef NB_EMU_TILE_H
#define NB_EMU_TILE_H
#include <stdbool.h>
#include <stddef.h>

void nb_emu_tile_loadconfig(const void *config);
void nb_emu_tile_storeconfig(void *config);
void nb_emu_tile_release(void);
void nb_emu_tile_zero(int t);
void nb_emu_tile_load(int t, const void *base, ptrdiff_t stride);
void nb_emu_tile_store(int t, void *base, ptrdiff_t stride);
void nb_emu_tile_dpbf16ps(int d, int a, int b);
void nb_emu_tile_dpb(int d, int a, int b, bool a_signed, bool b_signed);
/* For tests: is there a configuration, that is, was _tile_release forgotten? */
bool nb_emu_tile_in_use(void);

#define _tile_loadconfig(p) nb_emu_tile_loadconfig(p)
#define _tile_storeconfig(p) nb_emu_tile_storeconfig(p)
#define _tile_release() nb_emu_tile_release()
#define _tile_zero(t) nb_emu_tile_zero(t)
#define _tile_loadd(t, p, s) nb_emu_tile_load(t, p, (ptrdiff_t)(s))
#define _tile_stream_loadd(t, p, s) nb_emu_tile_load(t, p, (ptrdiff_t)(s))
#define _tile_stored(t, p, s) nb_emu_tile_store(t, p, (ptrdiff_t)(s))
#define _tile_dpbf16ps(d, a, b) nb_emu_tile_dpbf16ps(d, a, b)
#define _tile_dpbssd(d, a, b) nb_emu_tile_dpb(d, a, b, true, true)
#define _tile_dpbsud(d, a, b) nb_emu_tile_dpb(d, a, b, true, false)
#define _tile_dpbusd(d, a, b) nb_emu_tile_dpb(d, a, b, false, true)
#define _tile_dpbuud(d, a, b) nb_emu_tile_dpb(d, a, b, false, false)
#endif
