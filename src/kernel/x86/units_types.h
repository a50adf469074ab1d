/* units_types.h - a panel of packed weights (units_panel.h); shared by the files that make panels and those that
 * multiply them.  LANES, the rows of a panel, is defined before; included once by each of them. */
#include "kernel/linear/linear_units.h"

/* Codes: four columns of each row in a vector, a byte each. */
typedef struct panel {
    _Alignas(64) uint8_t code[NB_PK_SEG][8][LANES * 4];
    float scale[NB_PK_SEG * 4][LANES]; /* of each span */
    float min[NB_PK_SEG * 2][LANES];
    uint32_t zero[NB_PK_SEG * 4][LANES]; /* zero | 128 zero << 16 */
} panel;

/* Rows [r, r + 16) of the matrix, those before `end`, units [u, u + n_unit) of one segment. */
void nb_units_panel_avx512(const nb_linear_args *a, size_t r, size_t end, size_t u, size_t n_unit, panel *o);
