/* test_source_mutate.c - damaged model files: 12,000 of them, from a fixed seed.
 *
 * A valid single file, a valid directory of two shards with an index, and a valid
 * config.json are damaged in one to three places each and opened.  Nothing may crash or
 * leak (the sanitizers watch), a failure must leave exactly one clean line that names
 * the file, and a success must hand out tensors whose bytes can be read. */
#include "load_testing.h"

#include "base/rng.h"
#include "load/doc.h"
#include "load/source.h"

enum { N_SINGLE = 6000, N_SHARDED = 3000, N_CONFIG = 3000 };
static const uint64_t seed = 20240607;

typedef struct dice {
    uint64_t stream, n;
} dice;
static size_t below(dice *d, size_t n)
{
    return n ? (size_t)(nb_rng_u64(seed ^ d->stream << 32, d->n++) % n) : 0;
}

/* out = b with bytes [at, at + drop) replaced by s. */
static void splice(nb_buf *out, const nb_buf *b, size_t at, size_t drop, const char *s, size_t n)
{
    nb_buf r = { 0 };
    if (at > b->n_bytes) at = b->n_bytes;
    if (drop > b->n_bytes - at) drop = b->n_bytes - at;
    assert_int_equal(nb_buf_add(&r, b->p, at), NB_OK);
    assert_int_equal(nb_buf_add(&r, s, n), NB_OK);
    assert_int_equal(nb_buf_add(&r, b->p + at + drop, b->n_bytes - at - drop), NB_OK);
    nb_buf_deinit(out);
    *out = r;
}

static const char *const tokens[] = {
    "-1",
    "0",
    "1",
    "18446744073709551616",
    "9223372036854775807",
    "1e999",
    "4294967296",
    "NaN",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "\\n",
    "\x1b[2J",
    "\xc2\x9b",
    "\xff",
    "F32",
    "F4",
    "BF16",
    "F8_E8M0",
    "../",
    "/",
    "\"a\":",
    "data_offsets",
    "[[[[[[[[[[",
};

/* Keeps the length field right in half of the cases, so that damage gets past it. */
static void fix_length(nb_buf *b, const nb_buf *before)
{
    if (b->n_bytes < 8 || before->n_bytes < 8) return;
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)(unsigned char)before->p[i] << (8 * i);
    n += b->n_bytes - before->n_bytes; /* modulo 2^64: the header took up the difference */
    for (int i = 0; i < 8; i++) b->p[i] = (char)(n >> (8 * i) & 0xff);
}

static bool letter_or_digit(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static void damage(nb_buf *b, dice *d, bool binary)
{
    for (size_t k = 1 + below(d, 3); k > 0; k--) {
        nb_buf next = { 0 };
        /* of a binary file mostly the header is of interest */
        const size_t span =
            binary && below(d, 8) ? (b->n_bytes < 400 ? b->n_bytes : 400) : b->n_bytes;
        const size_t at = below(d, span + 1);
        char noise[4];
        for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)below(d, 256);
        const char *tok = tokens[below(d, NB_COUNT(tokens))];
        switch (below(d, 11)) {
        case 0: splice(&next, b, at, 1, noise, 1); break;
        case 1: splice(&next, b, at, 0, noise, 1 + below(d, 4)); break;
        case 2: splice(&next, b, at, 1 + below(d, 20), NULL, 0); break;
        case 3: splice(&next, b, at, below(d, 6), tok, strlen(tok)); break;
        case 4: splice(&next, b, at, 0, tok, strlen(tok)); break;
        case 5: { /* repeat a stretch */
            const size_t from = below(d, b->n_bytes), n = below(d, 80);
            splice(&next, b, at, 0, b->p + from, n < b->n_bytes - from ? n : b->n_bytes - from);
            break;
        }
        case 6: splice(&next, b, below(d, 4) ? below(d, 8) : at, 1, noise, 1); break;
        case 7: splice(&next, b, at, b->n_bytes, NULL, 0); break; /* cut the end */
        case 8: { /* another value instead of a number */
            static const char *const values[] = {
                "-1",         "0",  "5",  "null", "true",
                "\"x\"",      "[]", "{}", "0.5",  "99999999999999999999",
                "[1,2,3,4,5]"
            };
            size_t i = at, n = 0;
            while (i < b->n_bytes && !(b->p[i] >= '0' && b->p[i] <= '9')) i++;
            while (i + n < b->n_bytes && strchr("0123456789.", b->p[i + n]) && b->p[i + n]) n++;
            const char *v = values[below(d, NB_COUNT(values))];
            splice(&next, b, i, n, n ? v : "", n ? strlen(v) : 0);
            break;
        }
        default: { /* another letter or digit: the text stays well-formed */
            size_t i = at;
            while (i < b->n_bytes && !letter_or_digit(b->p[i])) i++;
            const char c = i < b->n_bytes && b->p[i] <= '9' ? (char)('0' + below(d, 10))
                                                            : (char)('a' + below(d, 26));
            splice(&next, b, i, i < b->n_bytes ? 1 : 0, &c, 1);
            break;
        }
        }
        if (binary && below(d, 2)) fix_length(&next, b);
        nb_buf_deinit(b);
        *b = next;
        if (b->n_bytes == 0) return;
    }
}

static size_t n_opened, n_refused, n_taken;
static unsigned checksum;

static void use(nb_source *s)
{
    nb_error e;
    nb_tensor t;
    n_opened++;
    for (size_t i = 0; i < 50; i++) {
        const char *name = nb_source_leftover(s, 0);
        if (!name) break;
        nb_tensor_want w = { .name = name, .dtypes = UINT32_MAX };
        bool got = false;
        for (w.n_dim = 0; w.n_dim <= NB_TENSOR_MAX_DIM && !got; w.n_dim++) {
            const nb_status st = nb_source_take(s, &w, &t, &e);
            got = st == NB_OK;
            if (!got) check_line(&e, st, "tensor '");
        }
        if (!got) break; /* a type that nobody can take */
        n_taken++;
        for (size_t k = 0; k < t.n_bytes; k++) checksum += ((const unsigned char *)t.data)[k];
    }
    nb_source_prefault(s, NULL, NULL, NULL, NULL);
    nb_source_close(s);
}

static const char header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"model.embed.weight\":{\"dtype\":\"BF16\",\"shape\":[4,3],\"data_offsets\":[0,24]},"
    "\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]},"
    "\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[36,42]},"
    "\"w_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[42,46]}}";

static void test_single(void **state)
{
    (void)state;
    nb_buf good = { 0 }, b = { 0 };
    st_build(&good, header, 46);
    n_opened = n_refused = n_taken = 0;
    for (uint64_t i = 0; i < N_SINGLE; i++) {
        dice d = { .stream = i };
        nb_error e = { 0 };
        nb_source *s = NULL;
        b.n_bytes = 0;
        assert_int_equal(nb_buf_add_str(&b, nb_buf_view(&good)), NB_OK);
        damage(&b, &d, true);
        /* an exact allocation: reading past the end is seen by ASan */
        char *exact = malloc(b.n_bytes ? b.n_bytes : 1);
        assert_non_null(exact);
        if (b.n_bytes) memcpy(exact, b.p, b.n_bytes);
        const nb_status st =
            nb_source_open_bytes((nb_str){ exact, b.n_bytes }, "dir/f.safetensors", &s, &e);
        if (st == NB_OK) {
            use(s);
        } else {
            n_refused++;
            assert_null(s);
            check_line(&e, st, "dir/f.safetensors: ");
        }
        free(exact);
    }
    print_message("single: %zu opened, %zu refused, %zu tensors taken\n", n_opened, n_refused,
                  n_taken);
    assert_true(n_refused > N_SINGLE / 2 && n_opened > 50 && n_taken > 100);
    nb_buf_deinit(&good);
    nb_buf_deinit(&b);
}

static void test_sharded(void **state)
{
    (void)state;
    static const char index[] =
        "{\"metadata\":{\"total_size\":50},\"weight_map\":{"
        "\"model.embed.weight\":\"m-1.safetensors\","
        "\"w\":\"m-1.safetensors\",\"lm_head.weight\":\"m-2.safetensors\"}}";
    tmp_dir t;
    nb_buf good[3] = { { 0 } }, b = { 0 };
    static const char *const names[3] = { "m-1.safetensors", "m-2.safetensors",
                                          "model.safetensors.index.json" };
    tmp_open(&t);
    st_build(&good[0], header, 46);
    st_build(&good[1],
             "{\"lm_head.weight\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4);
    assert_int_equal(nb_buf_add_c(&good[2], index), NB_OK);
    for (int f = 0; f < 3; f++) tmp_write(&t, names[f], nb_buf_view(&good[f]));
    const size_t n_open = n_open_files();
    n_opened = n_refused = n_taken = 0;
    for (uint64_t i = 0; i < N_SHARDED; i++) {
        dice d = { .stream = 100000 + i };
        nb_error e = { 0 };
        nb_source *s = NULL;
        const size_t f = i < N_SHARDED / 2 ? 2 : i % 2; /* first the index, then the shards */
        b.n_bytes = 0;
        assert_int_equal(nb_buf_add_str(&b, nb_buf_view(&good[f])), NB_OK);
        damage(&b, &d, f < 2);
        tmp_write(&t, names[f], nb_buf_view(&b));
        const nb_status st = nb_source_open_dir(t.path, &s, &e);
        if (st == NB_OK) {
            use(s);
        } else {
            n_refused++;
            assert_null(s);
            check_line(&e, st, t.path);
        }
        if (f < 2 || i + 1 == N_SHARDED / 2) tmp_write(&t, names[f], nb_buf_view(&good[f]));
    }
    assert_int_equal(n_open_files(), n_open);
    print_message("sharded: %zu opened, %zu refused, %zu tensors taken\n", n_opened, n_refused,
                  n_taken);
    assert_true(n_refused > N_SHARDED / 2 && n_opened > 50 && n_taken > 100);
    for (int f = 0; f < 3; f++) nb_buf_deinit(&good[f]);
    nb_buf_deinit(&b);
    tmp_close(&t);
}

static void test_config(void **state)
{
    (void)state;
    static const char config[] =
        "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\","
        "\"hidden_size\":2048,\"q_lora_rank\":null,\"rope_theta\":10000.0,\"tie\":false,\n"
        "\"eos_token_id\":[1,2],\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
        "\"mscale\":0.707},\"big\":1000000000000000019884624838656}\n";
    nb_buf b = { 0 };
    size_t n_ok = 0, n_bad = 0, n_field = 0;
    for (uint64_t i = 0; i < N_CONFIG; i++) {
        dice d = { .stream = 200000 + i };
        nb_error e = { 0 };
        nb_doc *doc = NULL;
        b.n_bytes = 0;
        assert_int_equal(nb_buf_add(&b, config, sizeof config - 1), NB_OK);
        damage(&b, &d, false);
        nb_status st = nb_doc_parse(nb_buf_view(&b), "dir/config.json", &doc, &e);
        if (st == NB_OK) {
            uint64_t u, us[4];
            double f;
            bool flag;
            const char *str, *strs[4];
            size_t n;
            (void)nb_doc_u64(doc, "hidden_size", 1, 1 << 20, &u);
            (void)nb_doc_u64(doc, "q_lora_rank", 1, 1 << 20, &u);
            (void)nb_doc_f64(doc, "rope_theta", &f);
            (void)nb_doc_bool(doc, "tie", &flag);
            (void)nb_doc_str(doc, "model_type", &str);
            (void)nb_doc_strs(doc, "architectures", strs, 4, &n);
            (void)nb_doc_u64s(doc, "eos_token_id", 10, us, 4, &n);
            (void)nb_doc_f64s(doc, "rope_scaling.mscale", &f, 1, &n);
            (void)nb_doc_keys(doc, "rope_scaling", strs, 4);
            nb_doc_at(doc, "rope_scaling");
            (void)nb_doc_f64(doc, "factor", &f);
            (void)nb_doc_str(doc, "type", &str);
            st = nb_doc_check(doc, &e);
            n_field += st != NB_OK;
            n_ok += st == NB_OK;
        } else {
            assert_null(doc);
            n_bad++;
        }
        if (st != NB_OK) check_line(&e, st, "dir/config.json: ");
        nb_doc_destroy(doc);
    }
    print_message("config: %zu fine, %zu not JSON, %zu with a wrong field\n", n_ok, n_bad, n_field);
    assert_true(n_ok > 100 && n_bad > 1000 && n_field > 20);
    nb_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single),
        cmocka_unit_test(test_sharded),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
