/* units_drive.h - the loops of products with packed weights: linear_units.h; included once, after units_k.h, by
 * each of linear_units_avx2.c and linear_units_avx512.c, which define before:
 *
 *   dots_of(type, eight, kind)    dot_fns of so many tokens: see there
 *   pair_of(type, eight, kind)    of two panels and MAX_TOK tokens, totals [panel][token]; or NULL
 *   add_to_y(y, n_row, total, first, bias)
 *
 * Segments are outermost, then panels of rows: with few tokens a panel (two where there is pair_of) is unpacked into L1 and
 * used at once, while rows to come are prefetched; with many PANELS panels are unpacked and used for all tokens, a tile of
 * tokens at a time, whose activations stay in L1. */

enum {
    PANELS = 4,
    BLOCK_TOK = 2048 / LANES,
    DIRECT_TOK = LANES == 16 ? 2 : 3, /* measured: a panel pays from there on */
    STREAM_TOK = 64, /* up to here memory is slower than sums */
    AHEAD = 3,
    ROW_BYTES = NB_PK_SEG * 34 + 64 /* of a row's segment: Q8_0 has the most */
};

/* The segment of r->n_row < LANES rows, or one that ends within 16 bytes of codes, in whole units. */
static void copy_rows(rows *r, size_t n_bytes, uint8_t *to)
{
    for (size_t i = 0; i < LANES; i++) {
        uint8_t *p = to + i * ROW_BYTES;
        if (i < r->n_row) memcpy(p, r->p + i * r->stride, n_bytes);
        memset(p + (i < r->n_row ? n_bytes : 0), 0, ROW_BYTES - (i < r->n_row ? n_bytes : 0));
    }
    r->p = to;
    r->stride = ROW_BYTES;
}

/* How a matrix is cut, computed once: a division takes as long as three units. */
typedef struct cut {
    size_t row_bytes, seg_bytes, n_seg; /* of a row; the last segment may be shorter */
    size_t span, n_group;
} cut;

static cut cut_of(const nb_weight *w)
{
    const nb_wtype_traits *x = &nb_wtypes[w->type];
    const bool grouped = w->type <= NB_W_FP4;
    cut c = { .row_bytes = nb_wtype_row_bytes(w->type, w->n_col), .span = nb_packed_span(w) };
    c.seg_bytes = grouped ? NB_PK_SEG * (w->type == NB_W_BYTE ? 32 : 16) : NB_PK_SEG_COL / x->block * x->block_bytes;
    c.n_seg = (c.row_bytes + c.seg_bytes - 1) / c.seg_bytes;
    if (grouped) c.n_group = nb_weight_n_group(w);
    return c;
}

/* The third segment on, of these rows or of the rows after them, is to be prefetched (quad()): the first line of
 * each row now, because quads of two segments may leave it out.  The pieces are too short for the hardware to see what
 * comes.  seg: this segment; n_panel: panels whose segments are read together. */
static void fetch_on(rows *r, const cut *c, size_t seg, size_t n_panel)
{
    size_t to = seg + AHEAD, below = 0;
    for (; to >= c->n_seg; to -= c->n_seg) below += n_panel * LANES * r->stride;
    r->ahead = below + (to - seg) * c->seg_bytes;
    for (size_t i = 0; i < LANES; i++)
        _mm_prefetch((const char *)r->p + i * r->stride + r->ahead, _MM_HINT_T0);
}

/* Rows [r, r + LANES) of the matrix, those before `end`, units [u, u + n_unit); a copy of what ends there.
 * together: n_panel of fetch_on(), or 0 to prefetch nothing. */
static rows rows_of(const nb_linear_args *a, const cut *c, size_t r, size_t end, size_t u, size_t n_unit, size_t together,
                    uint8_t *copy)
{
    const nb_wtype_traits *x = &nb_wtypes[a->w.type];
    const size_t at = u * c->seg_bytes / NB_PK_SEG, left = c->row_bytes - at; /* units begin where blocks do */
    size_t whole = c->seg_bytes;
    if (n_unit < NB_PK_SEG && a->w.type <= NB_W_FP4) whole = c->seg_bytes / NB_PK_SEG * n_unit;
    else if (n_unit < NB_PK_SEG) whole = (n_unit * NB_PK_UNIT + x->block - 1) / x->block * x->block_bytes;
    const size_t have = left < whole ? left : whole;
    rows s = { .p = (const uint8_t *)a->w.data + r * c->row_bytes + at,
               .stride = c->row_bytes,
               .w = &a->w,
               .row = r,
               .n_row = end - r < LANES ? end - r : LANES,
               .unit = u,
               .span = c->span,
               .n_group = c->n_group };
    if (s.n_row < LANES || have < whole)
        copy_rows(&s, have, copy);
    else if (together)
        fetch_on(&s, c, u / NB_PK_SEG, together);
    return s;
}

static void unpack_panel(const nb_linear_args *a, const cut *c, size_t r, size_t end, size_t u, size_t n_unit,
                         size_t together, panel *o)
{
    uint8_t copy[LANES * ROW_BYTES];
    const rows s = rows_of(a, c, r, end, u, n_unit, together, copy);
    unpacks[a->w.type](&s, n_unit, o);
}

/* A few tokens, one after the other, while the rows are in L1. */
static void linear_direct(const nb_linear_args *a, direct_fn *direct)
{
    panel p;
    uint8_t copy[LANES * ROW_BYTES];
    const size_t n_all = nb_pk_units(a->w.n_col);
    const cut c = cut_of(&a->w);
    for (size_t r = a->row_begin; r < a->row_end; r += LANES)
        for (size_t u = 0; u < n_all; u += NB_PK_SEG) {
            const size_t n_unit = n_all - u < NB_PK_SEG ? n_all - u : NB_PK_SEG, n_row = a->row_end - r;
            rows s = rows_of(a, &c, r, a->row_end, u, n_unit, 1, copy);
            for (size_t t = 0; t < a->n_tok; t++) {
                vf total = vf_set1(0);
                direct(&s, n_unit, &p, (const nb_pk_x *)a->xp + t * n_all + u, &total);
                add_to_y(a->y + t * a->y_stride + (r - a->row_begin), n_row < LANES ? n_row : LANES, total, u == 0,
                         u + n_unit == n_all && a->bias ? a->bias + r : NULL);
                s.ahead = 0;
            }
        }
}

/* Sums of a block of tokens times PANELS panels of rows: rows of y may lie so far apart that few of them fit in a cache. */
typedef struct block {
    const nb_linear_args *a;
    size_t r, t; /* first row, first token */
    _Alignas(64) float sum[BLOCK_TOK][PANELS * LANES];
} block;

/* Totals of panel `at` and tokens [t, t + n) of the block. */
INLINE void add_totals(block *b, size_t at, size_t t, size_t n, bool first, const vf *total)
{
    for (size_t i = 0; i < n; i++) {
        float *s = b->sum[t + i] + at * LANES;
        vf_store(s, first ? total[i] : vf_add(vf_load(s), total[i]));
    }
}

/* Tokens [t0, t0 + n_tok) of the block times an unpacked segment from unit u on. */
static void panel_times(block *b, const panel *p, size_t at, size_t u, size_t n_unit, size_t t0, size_t n_tok,
                        dot_fn *const *dot)
{
    const size_t n_all = nb_pk_units(b->a->w.n_col);
    for (size_t t = t0, n, k; t < t0 + n_tok; t += n) {
        vf total[MAX_TOK];
        for (k = DOT_SIZES - 1; (size_t)dot_size[k] > t0 + n_tok - t;) k--;
        n = (size_t)dot_size[k];
        dot[k](p, (const nb_pk_x *)b->a->xp + (b->t + t) * n_all + u, n_all, n_unit, total);
        add_totals(b, at, t, n, u == 0, total);
    }
}

/* MAX_TOK tokens from t on times two panels. */
static void pair_times(block *b, const panel *p, size_t at, size_t u, size_t n_unit, size_t t, dot_fn *two)
{
    const size_t n_all = nb_pk_units(b->a->w.n_col);
    vf total[2 * MAX_TOK];
    two(p, (const nb_pk_x *)b->a->xp + (b->t + t) * n_all + u, n_all, n_unit, total);
    for (size_t i = 0; i < 2; i++) add_totals(b, at + i, t, MAX_TOK, u == 0, total + i * MAX_TOK);
}

static void put_block(const block *b, size_t n_panel, size_t n_tok)
{
    const nb_linear_args *a = b->a;
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = b->r, i = 0; i < n_panel * LANES && r < a->row_end; i += LANES, r += LANES)
            add_to_y(a->y + (b->t + t) * a->y_stride + (r - a->row_begin), a->row_end - r < LANES ? a->row_end - r : LANES,
                     vf_load(b->sum[t] + i), true, a->bias ? a->bias + r : NULL);
}

/* n_panel panels of rows from r on times tokens from t on. */
static void block_times(const nb_linear_args *a, size_t r, size_t n_panel, size_t t0, dot_fn *const *dot, dot_fn *two)
{
    panel p[PANELS];
    block b;
    const size_t n_all = nb_pk_units(a->w.n_col), n_tok = a->n_tok - t0 < BLOCK_TOK ? a->n_tok - t0 : BLOCK_TOK;
    const cut c = cut_of(&a->w);
    b.a = a;
    b.r = r;
    b.t = t0;
    for (size_t u = 0; u < n_all; u += NB_PK_SEG) {
        const size_t n_unit = n_all - u < NB_PK_SEG ? n_all - u : NB_PK_SEG;
        size_t n = 0;
        for (; n < n_panel && r + n * LANES < a->row_end; n++)
            unpack_panel(a, &c, r + n * LANES, a->row_end, u, n_unit, n_panel < PANELS ? n_panel : 0, &p[n]);
        for (size_t t = 0; t < n_tok; t += MAX_TOK) {
            const size_t m = n_tok - t < MAX_TOK ? n_tok - t : MAX_TOK;
            size_t i = 0;
            for (; two && m == MAX_TOK && i + 2 <= n; i += 2) pair_times(&b, &p[i], i, u, n_unit, t, two);
            for (; i < n; i++) panel_times(&b, &p[i], i, u, n_unit, t, m, dot);
        }
    }
    put_block(&b, n_panel, n_tok);
}

static void linear_units(const nb_linear_args *a, bool eight)
{
    const size_t span = nb_packed_span(&a->w);
    const kind k = nb_packed_has_min(a->w.type) ? (span == 32 ? MIN_32 : MIN_16)
                   : span == 32               ? ZERO_32
                   : span == 16               ? ZERO_16
                                              : ZERO_8;
    direct_fn *direct = eight && a->n_tok <= DIRECT_TOK ? direct_of(&a->w, span) : NULL;
    if (direct) {
        linear_direct(a, direct);
        return;
    }
    dot_fn *const *dot = dots_of(a->w.type, eight, k), *two = pair_of(a->w.type, eight, k);
    for (size_t t = 0; t < a->n_tok; t += BLOCK_TOK)
        for (size_t r = a->row_begin, n; r < a->row_end; r += n * LANES) {
            n = a->n_tok > STREAM_TOK ? PANELS : two && a->n_tok >= MAX_TOK ? 2 : 1;
            block_times(a, r, n, t, dot, two);
        }
}
