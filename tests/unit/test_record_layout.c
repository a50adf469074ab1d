/* test_record_layout.c - where the bytes of a page lie, names, refusals, the check. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "num/traits.h"
#include "unit/record_data.h"

static nb_record init(nb_kv_type t, bool mla, nb_rope_fmt rope, size_t d0, size_t d1, size_t v)
{
    const nb_record_opts o = RD_CASE(t, NB_KV_4OVER6, mla, rope, d0, d1, v, v, );
    nb_record r;
    nb_error err = { 0 };
    if (nb_record_init(&r, &o, &err) != NB_OK) fail_msg("%s", err.msg);
    return r;
}

static void page_sizes(void **state)
{
    (void)state;
    const struct {
        nb_kv_type t;
        nb_rope_fmt rope;
        size_t bytes;
    } want[] = {
        { NB_KV_BF16, NB_ROPE_FP8, 73728 },        { NB_KV_FP8, NB_ROPE_FP8, 36992 },
        { NB_KV_NVFP4, NB_ROPE_FP8, 22656 },       { NB_KV_IF4, NB_ROPE_FP8, 22656 },
        { NB_KV_MXFP4, NB_ROPE_FP8, 21632 },       { NB_KV_INT4, NB_ROPE_FP8, 24704 },
        { NB_KV_FP8_DS_MLA, NB_ROPE_FP8, 41984 },  { NB_KV_NVFP4, NB_ROPE_BF16, 26752 },
        { NB_KV_FP8, NB_ROPE_BF16, 41088 },        { NB_KV_NVFP4, NB_ROPE_INT8, 22656 },
        { NB_KV_FP8, NB_ROPE_INT8, 36992 },        { NB_KV_BF16, NB_ROPE_INT8, 73728 },
        { NB_KV_FP8_DS_MLA, NB_ROPE_INT8, 41984 },
    };
    for (size_t i = 0; i < NB_COUNT(want); i++) {
        const nb_record r = init(want[i].t, true, want[i].rope, 512, 64, 1);
        assert_int_equal(r.page_bytes, want[i].bytes);
        assert_true(nb_record_bytes_per_tok(&r) == (double)want[i].bytes / 64);
        assert_int_equal(r.n_values, 576);
    }
    assert_true(nb_record_bytes_per_tok(&(nb_record){ .page_bytes = 22656 }) == 354);
}

static void plane_offsets(void **state)
{
    (void)state;
    const nb_record n = init(NB_KV_NVFP4, true, NB_ROPE_FP8, 512, 64, 1);
    assert_int_equal(n.seg[0].code_off, 0);
    assert_int_equal(n.seg[0].code_stride, 256);
    assert_int_equal(n.seg[0].n_group, 32);
    assert_int_equal(n.seg[0].scale_off, 16384);
    assert_int_equal(n.seg[0].scale_stride, 32);
    assert_int_equal(n.seg[1].code_off, 18432);
    assert_int_equal(n.seg[1].code_stride, 64);
    assert_int_equal(n.seg[0].outer_off, 22528);
    assert_int_equal(n.seg[1].outer_off, 22592);
    assert_int_equal(n.seg[0].outer_stride, 1);
    assert_int_equal(n.seg[1].scale_stride, 0);
    const nb_record d = init(NB_KV_FP8_DS_MLA, true, NB_ROPE_FP8, 512, 64, 1);
    assert_int_equal(d.seg[0].code_stride, 656);
    assert_int_equal(d.seg[0].scale_off, 512);
    assert_int_equal(d.seg[1].code_off, 528);
    assert_int_equal(d.seg[1].code_stride, 656);
    const nb_record k = init(NB_KV_INT4, false, NB_ROPE_FP8, 128, 128, 8);
    assert_int_equal(k.seg[0].fmt, NB_SEG_INT4_CH);
    assert_int_equal(k.seg[1].fmt, NB_SEG_INT4_TOK);
    assert_int_equal(k.seg[0].scale_stride, 8 * 128 * 4);
    assert_int_equal(k.seg[1].scale_stride, 8 * 4 * 4);
    assert_int_equal(k.page_bytes, 64 * 512 + 2 * 4096 + 64 * 512 + 64 * 128);
}

/* Outlier planes follow the outer scales; where nothing is lost there are none. */
static void outlier_planes(void **state)
{
    (void)state;
    nb_record_opts o =
        RD_CASE(NB_KV_NVFP4, NB_KV_4OVER6, true, NB_ROPE_FP8, 512, 64, 1, 1, RD_OUT(1, rd_pairs));
    nb_record r;
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    assert_int_equal(r.page_bytes, 22656 + 1024);
    assert_int_equal(r.seg[0].n_outlier, 0);
    assert_int_equal(r.seg[1].side_off, 22656);
    assert_int_equal(r.seg[1].side_stride, 16);
    assert_true(nb_record_bytes_per_tok(&r) == 370);
    o.seg[0].outlier = rd_ends;
    o.seg[0].n_outlier = 3;
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    assert_int_equal(r.seg[0].side_off, 22656);
    assert_int_equal(r.seg[0].side_stride, 6);
    assert_int_equal(r.seg[1].side_off, 22656 + 384);
    assert_int_equal(r.page_bytes, 22656 + 384 + 1024);
    assert_memory_equal(r.seg[1].outlier, rd_pairs, sizeof rd_pairs);
    o.rope = NB_ROPE_BF16;
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    assert_int_equal(r.seg[1].n_outlier, 0);
    assert_int_equal(r.page_bytes, 26752 - 64 + 64 + 384);
    const nb_kv_type whole[] = { NB_KV_BF16, NB_KV_F32, NB_KV_FP8_DS_MLA };
    o.rope = NB_ROPE_INT8;
    for (size_t i = 0; i < NB_COUNT(whole); i++) {
        o.type = whole[i];
        assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
        assert_true(r.seg[0].n_outlier == 0 && r.seg[1].n_outlier == 0);
        assert_int_equal(r.page_bytes, init(whole[i], true, NB_ROPE_FP8, 512, 64, 1).page_bytes);
    }
}

/* MLA with an indexer's key: its plane, and tokens that move to another page byte by byte. */
static void indexer_and_moves(void **state)
{
    static uint8_t from[1 << 18], to[1 << 18];
    static float a[64 * 700], b[64 * 700];
    (void)state;
    for (int type = 0; type < NB_KV_TYPE_COUNT; type++) {
        nb_record_opts o = { .type = (nb_kv_type)type, .mode = nb_kv_mode_default((nb_kv_type)type),
                             .rope = NB_ROPE_INT8, NB_SEGS_MLA(512, 64) };
        nb_error err = { 0 };
        nb_record r;
        o.seg[o.n_seg++] = (nb_seg_opts){ .role = NB_ROLE_INDEX, .dim = 124, .n_vec = 1 };
        if (nb_kv_traits[type]->in_rows) {
            assert_int_equal(nb_record_init(&r, &o, &err), NB_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.msg, "indexer"));
            continue;
        }
        assert_int_equal(nb_record_init(&r, &o, &err), NB_OK);
        assert_int_equal(r.seg[2].fmt, type == NB_KV_F32 ? NB_SEG_F32 : NB_SEG_E4M3);
        assert_true(r.n_seg == 3 && nb_record_is_mla(&r) && r.seg[2].first == 576 && r.n_values == 700);
        const bool can = nb_record_can_move(&r, 2);
        assert_true(can == (type != NB_KV_INT4));
        if (!can) continue;
        rd_page p = rd_make(&r, 0, 5);
        assert_int_equal(rd_encode(&r, from, &p), NB_OK);
        memset(to, 0xa5, r.page_bytes);
        for (size_t t = 0; t < NB_PAGE_TOK; t++) nb_record_move(&r, 2, to, t, from, 63 - t);
        for (size_t s = 0; s < 2; s++) {
            const size_t n = nb_seg_values(&r.seg[s]);
            nb_record_decode(&r, from, s, 0, 64, a, n);
            nb_record_decode(&r, to, s, 0, 64, b, n);
            for (size_t t = 0; t < NB_PAGE_TOK; t++)
                assert_memory_equal(b + t * n, a + (63 - t) * n, n * sizeof *a);
        }
        for (size_t i = 0; i < NB_PAGE_TOK * r.seg[2].code_stride; i++)
            assert_int_equal(to[r.seg[2].code_off + i], 0xa5);
        rd_free(&p);
    }
    nb_record_opts two = { .type = NB_KV_NVFP4, .mode = NB_KV_4OVER6, .n_seg = 1,
                           .seg[0] = { .role = NB_ROLE_INDEX, .dim = 8, .n_vec = 2 } };
    nb_record r;
    assert_int_equal(nb_record_init(&r, &two, NULL), NB_ERR_UNSUPPORTED);
}

/* A record of one to four segments: each has the codes and values that it has alone. */
static void one_to_four_segments(void **state)
{
    static uint8_t alone_page[1 << 16], page[1 << 18];
    static float alone_out[64 * 128], out[64 * 128];
    static const nb_seg_opts segs[NB_MAX_SEG] = {
        { .role = NB_ROLE_LATENT, .dim = 64, .n_vec = 1 },
        { .role = NB_ROLE_ROPE, .dim = 6, .n_vec = 1 },
        { .role = NB_ROLE_K, .dim = 33, .n_vec = 3 },
        { .role = NB_ROLE_V, .dim = 128, .n_vec = 1 },
    };
    (void)state;
    for (int type = 0; type < NB_KV_TYPE_COUNT; type++)
        for (size_t n = 1; n <= NB_MAX_SEG && !nb_kv_traits[type]->mla_only; n++) {
            nb_record_opts o = { .type = (nb_kv_type)type, .n_seg = n };
            nb_record r;
            memcpy(o.seg, segs, n * sizeof *segs);
            assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
            assert_true(r.n_seg == n && nb_record_is_mla(&r) == (n >= 2));
            rd_page p = rd_make(&r, 0, 77);
            assert_int_equal(rd_encode(&r, page, &p), NB_OK);
            assert_int_equal(nb_record_check_page(&r, page, NULL), NB_OK);
            for (size_t s = 0; s < n; s++) {
                const nb_record_opts one = { .type = (nb_kv_type)type,
                                             .n_seg = 1,
                                             .seg[0] = segs[s] };
                const size_t n_val = nb_seg_values(&r.seg[s]);
                nb_record a;
                assert_int_equal(nb_record_init(&a, &one, NULL), NB_OK);
                assert_int_equal(a.n_values, n_val);
                assert_int_equal(
                    nb_record_encode_page(&a, alone_page, rd_row(&r, &p, s, 0), p.stride), NB_OK);
                assert_memory_equal(page + r.seg[s].code_off, alone_page + a.seg[0].code_off,
                                    64 * a.seg[0].code_stride);
                nb_record_decode(&a, alone_page, 0, 0, 64, alone_out, n_val);
                nb_record_decode(&r, page, s, 0, 64, out, n_val);
                assert_memory_equal(out, alone_out, 64 * n_val * sizeof *out);
            }
            rd_free(&p);
        }
    nb_record r;
    nb_error err = { 0 };
    const nb_record_opts many = { .type = NB_KV_BF16, .n_seg = NB_MAX_SEG + 1 };
    assert_int_equal(nb_record_init(&r, &many, &err), NB_ERR_UNSUPPORTED);
    if (!strstr(err.msg, "1 to 4")) fail_msg("%s", err.msg);
    /* nothing of a token is cached */
    assert_int_equal(nb_record_init(&r, &(nb_record_opts){ .type = NB_KV_BF16 }, &err), NB_OK);
    assert_true(r.page_bytes == 0 && r.n_values == 0);
}

/* Planes lie inside the page, do not overlap, and start where the rules say. */
static void planes_disjoint(void **state)
{
    (void)state;
    for (size_t c = 0; c < RD_CASES; c++) {
        nb_record r;
        assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
        assert_int_equal(r.page_bytes % 128, 0);
        if (r.type == NB_KV_FP8_DS_MLA) continue;
        size_t off[8], end[8], n = 0;
        for (size_t s = 0; s < 2; s++) {
            const nb_record_seg *g = &r.seg[s];
            const size_t rows = g->fmt == NB_SEG_INT4_CH ? 2 : 64;
            const size_t o[4] = { g->code_off, g->scale_off, g->outer_off, g->side_off };
            const size_t b[4] = { g->code_stride * 64, g->scale_stride * rows, g->outer_stride * 64,
                                  g->n_outlier * 128 };
            for (size_t k = 0; k < 4; k++) {
                if (!b[k]) continue;
                assert_int_equal(o[k] % (k == 2 ? 64 : 128), 0);
                assert_true(o[k] + b[k] <= r.page_bytes);
                for (size_t j = 0; j < n; j++) assert_true(o[k] >= end[j] || o[k] + b[k] <= off[j]);
                off[n] = o[k];
                end[n++] = o[k] + b[k];
            }
        }
    }
}

static void names(void **state)
{
    (void)state;
    nb_kv_type t;
    nb_kv_mode m;
    for (int i = 0; i < NB_KV_TYPE_COUNT; i++) {
        assert_int_equal(nb_kv_type_parse(nb_kv_type_name((nb_kv_type)i), &t), NB_OK);
        assert_int_equal(t, i);
    }
    assert_int_equal(nb_kv_type_parse("fp8_e4m3", &t), NB_OK);
    assert_int_equal(t, NB_KV_FP8);
    assert_int_equal(nb_kv_type_parse("auto", &t), NB_ERR_ARG);
    assert_int_equal(nb_kv_type_parse("", &t), NB_ERR_ARG);
    assert_int_equal(nb_kv_mode_parse("basic", &m), NB_OK);
    assert_int_equal(m, NB_KV_BASIC);
    assert_int_equal(nb_kv_mode_parse("4over6", &m), NB_OK);
    assert_int_equal(m, NB_KV_4OVER6);
    assert_int_equal(nb_kv_mode_parse("search", &m), NB_OK);
    assert_int_equal(m, NB_KV_SEARCH);
    assert_int_equal(nb_kv_mode_parse("best", &m), NB_ERR_ARG);
    nb_rope_fmt f;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(nb_rope_fmt_parse(nb_rope_fmt_name((nb_rope_fmt)i), &f), NB_OK);
        assert_int_equal(f, i);
    }
    assert_int_equal(nb_rope_fmt_parse("int4", &f), NB_ERR_ARG);
    assert_string_equal(nb_rope_fmt_name((nb_rope_fmt)3), "?");
    assert_string_equal(nb_kv_type_name((nb_kv_type)99), "?");
}

static void refusals(void **state)
{
    static const uint16_t twice[] = { 0, 2, 2 }, back[] = { 1, 5, 3 };
    static uint16_t many[NB_MAX_OUTLIER + 1];
    (void)state;
    for (size_t i = 0; i < NB_COUNT(many); i++) many[i] = (uint16_t)i;
    const struct {
        nb_record_opts o;
        const char *word;
    } bad[] = {
        { RD_CASE(NB_KV_FP8_DS_MLA, 0, true, NB_ROPE_FP8, 500, 64, 1, 1), "multiple of 128" },
        { RD_CASE(NB_KV_FP8_DS_MLA, 0, false, NB_ROPE_FP8, 128, 128, 1, 1), "MLA" },
        { RD_CASE(NB_KV_NVFP4, 0, true, NB_ROPE_FP8, 0, 64, 1, 1), "1..65536" },
        { RD_CASE(NB_KV_NVFP4, 0, true, NB_ROPE_FP8, 512, 65537, 1, 1), "1..65536" },
        { RD_CASE(NB_KV_NVFP4, 0, false, NB_ROPE_FP8, 64, 64, 0, 1), "1..65536" },
        { RD_CASE(NB_KV_NVFP4, 0, false, NB_ROPE_FP8, 64, SIZE_MAX, 1, SIZE_MAX), "1..65536" },
        { RD_CASE(NB_KV_NVFP4, 0, false, NB_ROPE_FP8, 65536, 64, 65536, 1), "at most" },
        { RD_CASE(NB_KV_NVFP4, 0, true, NB_ROPE_FP8, 512, 64, 2, 1), "one latent" },
        { RD_CASE(NB_KV_INT4, 0, false, NB_ROPE_BF16, 64, 64, 2, 2), "rope" },
        { RD_CASE(NB_KV_NVFP4, 0, false, NB_ROPE_INT8, 64, 64, 2, 2), "int8 needs MLA" },
        { RD_CASE(NB_KV_NVFP4, 0, true, (nb_rope_fmt)3, 64, 64, 1, 1), "rope key format 3" },
        { RD_CASE(NB_KV_FP8, 0, true, NB_ROPE_INT8, 64, 8, 1, 1, RD_FIXED(1, 1)), "segment 1" },
        { RD_CASE(NB_KV_TYPE_COUNT, 0, true, NB_ROPE_FP8, 64, 64, 1, 1), "type" },
        { RD_CASE(NB_KV_NVFP4, (nb_kv_mode)3, true, NB_ROPE_FP8, 64, 64, 1, 1), "mode" },
        { RD_CASE(NB_KV_NVFP4, 0, true, NB_ROPE_FP8, 32, 4, 1, 1, RD_OUT(0, rd_ends)),
          "channel 32 of segment 0 is out of range" },
        { RD_CASE(NB_KV_FP8, 0, true, NB_ROPE_FP8, 64, 4, 1, 1, RD_OUT(1, twice)), "2 follows 2" },
        { RD_CASE(NB_KV_FP8, 0, true, NB_ROPE_FP8, 64, 8, 1, 1, RD_OUT(1, back)), "3 follows 5" },
        { RD_CASE(NB_KV_INT4, 0, false, NB_ROPE_FP8, 512, 64, 1, 1, RD_OUT(0, many)),
          "65 outlier" },
        { RD_CASE(NB_KV_NVFP4, 0, true, NB_ROPE_FP8, 64, 8, 1, 1, .seg[0].n_outlier = 1),
          "1 outlier" },
        { RD_CASE(NB_KV_MXFP4, 0, true, NB_ROPE_FP8, 64, 8, 1, 1, .seg[0].fixed_scale = 1),
          "segment 0" },
        { RD_CASE(NB_KV_NVFP4, 0, true, NB_ROPE_BF16, 64, 8, 1, 1, RD_FIXED(1, 1)), "segment 1" },
        { RD_CASE(NB_KV_NVFP4, 0, true, NB_ROPE_FP8, 64, 8, 1, 1, .seg[0].fixed_scale = -1), "-1" },
        { RD_CASE(NB_KV_NVFP4, 0, true, NB_ROPE_FP8, 64, 8, 1, 1, .seg[0].fixed_scale = NAN),
          "nan" },
        { RD_CASE(NB_KV_FP8, 0, true, NB_ROPE_FP8, 64, 8, 1, 1, RD_FIXED(1, INFINITY)), "inf" },
        { RD_CASE(NB_KV_FP8, 0, true, NB_ROPE_FP8, 64, 8, 1, 1, .seg[0].fixed_scale = 1e-40f),
          "2^-100" },
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_record r = { .page_bytes = 7 };
        nb_error err = { 0 };
        assert_int_equal(nb_record_init(&r, &bad[i].o, &err), NB_ERR_UNSUPPORTED);
        if (!strstr(err.msg, bad[i].word)) fail_msg("case %zu: %s", i, err.msg);
        assert_int_equal(r.page_bytes, 7); /* untouched */
        assert_int_equal(nb_record_init(&r, &bad[i].o, NULL), NB_ERR_UNSUPPORTED);
    }
}

/* A good page passes; one bad byte is found, in the segment that holds it. */
static void check_finds(nb_kv_type type, nb_rope_fmt rope, size_t at, uint8_t byte,
                        const char *word)
{
    static uint8_t page[1 << 18];
    nb_error err = { 0 };
    const nb_record r = init(type, true, rope, 512, 64, 1);
    rd_page p = rd_make(&r, 0, 9);
    assert_int_equal(rd_encode(&r, page, &p), NB_OK);
    rd_free(&p);
    assert_int_equal(nb_record_check_page(&r, page, &err), NB_OK);
    page[at] = byte;
    if (r.seg[strstr(word, "segment 1") != NULL].fmt == NB_SEG_BF16)
        page[at - 1] |= 0x80; /* the lowest exponent bit lies in the other byte */
    assert_int_equal(nb_record_check_page(&r, page, &err), NB_ERR_FORMAT);
    if (!strstr(err.msg, word) || !strstr(err.msg, nb_kv_type_name(type))) fail_msg("%s", err.msg);
}

static void corruption(void **state)
{
    (void)state;
    check_finds(NB_KV_NVFP4, NB_ROPE_FP8, 16384 + 32 * 3 + 4, 0x7f, "segment 0, token 3, byte 4");
    check_finds(NB_KV_NVFP4, NB_ROPE_FP8, 16384, 0x80 | 0x30, "negative");
    check_finds(NB_KV_IF4, NB_ROPE_FP8, 16384 + 2047, 0xff, "token 63, byte 31");
    check_finds(NB_KV_NVFP4, NB_ROPE_FP8, 18432 + 64 * 5 + 7, 0xff, "segment 1, token 5, byte 7");
    check_finds(NB_KV_NVFP4, NB_ROPE_FP8, 22528, 255, "UE8M0");
    check_finds(NB_KV_NVFP4, NB_ROPE_FP8, 22592 + 63, 1, "segment 1, token 63");
    check_finds(NB_KV_NVFP4, NB_ROPE_INT8, 18432 + 64 * 5 + 7, 0x80, "segment 1, token 5, byte 7");
    check_finds(NB_KV_NVFP4, NB_ROPE_INT8, 22592 + 62, 255, "segment 1, token 62");
    check_finds(NB_KV_FP8, NB_ROPE_FP8, 77, 0x7f, "E4M3");
    check_finds(NB_KV_FP8, NB_ROPE_FP8, 36864, 254, "UE8M0");
    check_finds(NB_KV_BF16, NB_ROPE_FP8, 1023, 0x7f, "segment 0, token 0, byte 1022");
    check_finds(NB_KV_MXFP4, NB_ROPE_FP8, 16384 + 16, 255, "segment 0, token 1, byte 0");
    check_finds(NB_KV_INT4, NB_ROPE_FP8, 16384 + 2048 + 1, 0x7c, "group 1, byte 0");
    check_finds(NB_KV_INT4, NB_ROPE_FP8, 16384 + 1, 0xc0, "FP16 scale");
    check_finds(NB_KV_FP8_DS_MLA, NB_ROPE_FP8, 656 + 515, 0xff, "power of two");
    check_finds(NB_KV_FP8_DS_MLA, NB_ROPE_FP8, 656 * 2 + 511, 0x7f, "token 2, byte 511");
    check_finds(NB_KV_FP8_DS_MLA, NB_ROPE_FP8, 656 * 2 + 529, 0x7f, "segment 1, token 2");
}

/* Outliers that are no numbers, and marks beside a fixed scale that are neither of the two. */
static void outlier_check(void **state)
{
    (void)state;
    static uint8_t page[1 << 16];
    const nb_record_opts o = RD_CASE(NB_KV_NVFP4, NB_KV_BASIC, true, NB_ROPE_FP8, 64, 64, 1, 1,
                                     RD_OUT(1, rd_pairs), RD_FIXED(.01f, 0));
    nb_record r;
    nb_error err = { 0 };
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    rd_page p = rd_make(&r, 0, 9);
    assert_int_equal(rd_encode(&r, page, &p), NB_OK);
    rd_free(&p);
    assert_int_equal(nb_record_check_page(&r, page, &err), NB_OK);
    const size_t at = r.seg[1].side_off + 16 * 5 + 6;
    page[at] = 0x80, page[at + 1] = 0xff;
    assert_int_equal(nb_record_check_page(&r, page, &err), NB_ERR_FORMAT);
    if (!strstr(err.msg, "segment 1, outliers of token 5, byte 6")) fail_msg("%s", err.msg);
    page[at + 1] = 0;
    assert_int_equal(nb_record_check_page(&r, page, &err), NB_OK);
    page[r.seg[0].outer_off + 7] = 126;
    assert_int_equal(nb_record_check_page(&r, page, &err), NB_ERR_FORMAT);
    if (!strstr(err.msg, "token 7")) fail_msg("%s", err.msg);
    page[r.seg[0].outer_off + 7] = 0;
    assert_int_equal(nb_record_check_page(&r, page, &err), NB_OK);
}

/* Pages of every record and every kind of data pass their own check, and the
 * encoder writes every byte of a page and none behind it. */
static void own_pages_pass(void **state)
{
    (void)state;
    for (size_t c = 0; c < RD_CASES; c++) {
        nb_record r;
        assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
        uint8_t *a = malloc(r.page_bytes + 1), *b = malloc(r.page_bytes + 1);
        assert_true(a && b);
        for (unsigned kind = 0; kind <= RD_KINDS; kind++) {
            nb_error err = { 0 };
            rd_page p = rd_make(&r, kind, c);
            memset(a, 0xaa, r.page_bytes + 1);
            memset(b, 0x55, r.page_bytes + 1);
            assert_int_equal(rd_encode(&r, a, &p), NB_OK);
            assert_int_equal(rd_encode(&r, b, &p), NB_OK);
            assert_memory_equal(a, b, r.page_bytes);
            assert_int_equal(a[r.page_bytes], 0xaa);
            if (nb_record_check_page(&r, a, &err) != NB_OK) fail_msg("%s", err.msg);
            rd_free(&p);
        }
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_sizes),
        cmocka_unit_test(plane_offsets),
        cmocka_unit_test(one_to_four_segments),
        cmocka_unit_test(indexer_and_moves),
        cmocka_unit_test(outlier_planes),
        cmocka_unit_test(outlier_check),
        cmocka_unit_test(planes_disjoint),
        cmocka_unit_test(names),
        cmocka_unit_test(refusals),
        cmocka_unit_test(corruption),
        cmocka_unit_test(own_pages_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
