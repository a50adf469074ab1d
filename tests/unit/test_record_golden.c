/* test_record_golden.c - the bytes of pages never change, on any machine.
 *
 * tests/data/record_golden.txt holds a hash of the page and of the decoded values
 * for each record and two seeded inputs.  A difference means that pages written by
 * other versions or machines would be read differently or shared wrongly: a
 * new record type is then needed, not a new golden file.  `--print` writes the
 * file's contents. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "unit/record_data.h"

enum { LINE_BYTES = 200, N_LINES = 2 * RD_CASES };

/* Names of rope formats after the default. */
static const char *const rope_name[] = { "", "+bf16", "+int8" };

static void make_line(size_t n, char line[LINE_BYTES])
{
    const nb_record_opts *o = &rd_cases[n / 2];
    const unsigned kind = n % 2 ? RD_KINDS : 0;
    nb_record r;
    if (nb_record_init(&r, o, NULL) != NB_OK) abort();
    rd_page p = rd_make(&r, kind, 2026);
    uint8_t *page = malloc(r.page_bytes), *vals = malloc(4 * 64 * r.n_values);
    float *out = malloc(64 * r.n_values * sizeof *out);
    if (!page || !vals || !out || rd_encode(&r, page, &p) != NB_OK) abort();
    size_t at = 0;
    for (size_t s = 0; s < 2; s++) {
        const size_t row = r.seg[s].n_vec * r.seg[s].dim;
        nb_record_decode(&r, page, s, 0, 64, out + at, row);
        at += 64 * row;
    }
    for (size_t i = 0; i < at; i++) nb_le32_put(vals + 4 * i, nb_f32_bits(out[i]));
    char extra[64] = "";
    if (r.seg[0].n_outlier || r.seg[1].n_outlier || o->seg[0].fixed_scale != 0)
        snprintf(extra, sizeof extra, " outliers%zu+%zu fixed%g,%g", r.seg[0].n_outlier,
                 r.seg[1].n_outlier, (double)o->seg[0].fixed_scale, (double)o->seg[1].fixed_scale);
    snprintf(
        line, LINE_BYTES, "%s mode%d %s%s %zux%zu %zux%zu%s data%u %zu %016" PRIx64 " %016" PRIx64,
        nb_kv_type_name(o->type), (int)o->mode, o->seg[0].role == NB_ROLE_LATENT ? "mla" : "gqa",
        rope_name[o->rope], o->seg[0].n_vec, o->seg[0].dim, o->seg[1].n_vec, o->seg[1].dim, extra,
        kind, r.page_bytes, rd_hash(page, r.page_bytes), rd_hash(vals, 4 * at));
    rd_free(&p);
    free(page);
    free(vals);
    free(out);
}

static void golden(void **state)
{
    (void)state;
    char path[1024], want[LINE_BYTES], got[LINE_BYTES];
    const char *root = getenv("NB_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/data/record_golden.txt", root ? root : ".");
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s cannot be opened", path);
    size_t n = 0, bad = 0;
    while (fgets(want, sizeof want, f)) {
        if (want[0] == '#') continue;
        want[strcspn(want, "\r\n")] = 0;
        assert_true(n < N_LINES);
        make_line(n++, got);
        if (strcmp(got, want) != 0) {
            print_error("now      %s\nexpected %s\n", got, want);
            bad++;
        }
    }
    fclose(f);
    assert_int_equal(n, N_LINES);
    assert_int_equal(bad, 0);
}

int main(int argc, char **argv)
{
    char line[LINE_BYTES];
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        puts("# record, segments (vectors x values), input, page bytes, hash of page, of values;\n"
             "# see tests/unit/test_record_golden.c");
        for (size_t n = 0; n < N_LINES; n++) {
            make_line(n, line);
            puts(line);
        }
        return 0;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(golden) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
