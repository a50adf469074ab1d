/* test_kv_cache.c - names of KV blocks: keys against an independent SHA-256, states, index,
 * eviction in its order, limits, misuse, and that the check finds each broken structure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/kv_internal.h"

#define NONE NB_BLOCK_NONE

/* --- SHA-256 from FIPS 180-4, by its definition: constants are computed from primes --------- */

static uint32_t ror(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

/* The first 32 bits of the fractional part of the root (2 or 3) of p. */
static uint32_t root_bits(unsigned p, int degree)
{
    const long double r = degree == 2 ? sqrtl((long double)p) : cbrtl((long double)p);
    return (uint32_t)((r - floorl(r)) * 4294967296.0L);
}

static void constants(uint32_t k[64], uint32_t h[8])
{
    size_t n = 0;
    for (unsigned p = 2; n < 64; p++) {
        bool prime = true;
        for (unsigned d = 2; d * d <= p; d++) prime = prime && p % d != 0;
        if (!prime) continue;
        if (n < 8) h[n] = root_bits(p, 2);
        k[n++] = root_bits(p, 3);
    }
}

static void sha256(const unsigned char *s, size_t n, unsigned char out[32])
{
    uint32_t k[64], h[8], w[64];
    unsigned char buf[1024] = { 0 };
    const size_t n_pad = (n + 9 + 63) / 64 * 64;
    assert_true(n_pad <= sizeof buf);
    constants(k, h);
    if (n) memcpy(buf, s, n);
    buf[n] = 0x80;
    for (size_t i = 0; i < 8; i++) buf[n_pad - 1 - i] = (unsigned char)((uint64_t)n * 8 >> 8 * i);
    for (size_t at = 0; at < n_pad; at += 64) {
        uint32_t v[8];
        memcpy(v, h, sizeof v);
        for (size_t i = 0; i < 64; i++) {
            if (i < 16) {
                const unsigned char *p = buf + at + 4 * i;
                w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
            } else {
                const uint32_t a = w[i - 15], b = w[i - 2];
                w[i] = w[i - 16] + w[i - 7] + (ror(a, 7) ^ ror(a, 18) ^ a >> 3) +
                       (ror(b, 17) ^ ror(b, 19) ^ b >> 10);
            }
            const uint32_t t1 = v[7] + (ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25)) +
                                ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
            const uint32_t t2 = (ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22)) +
                                ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            memmove(v + 1, v, 7 * sizeof *v);
            v[4] += t1;
            v[0] = t1 + t2;
        }
        for (size_t i = 0; i < 8; i++) h[i] += v[i];
    }
    for (size_t i = 0; i < 32; i++) out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static void test_sha_itself(void **state)
{
    (void)state;
    static const unsigned char abc[32] = { /* FIPS 180-2, B.1 */
                                           0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
                                           0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
                                           0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
                                           0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad
    };
    unsigned char got[32];
    sha256((const unsigned char *)"abc", 3, got);
    assert_memory_equal(got, abc, 32);
}

static void test_keys(void **state)
{
    (void)state;
    static const char *const salts[] = { "", "tenant one" };
    for (size_t s = 0; s < 2; s++) {
        unsigned char text[512], want[32];
        const size_t n = strlen(salts[s]);
        memcpy(text, "nibble kv 1", 12);
        memcpy(text + 12, salts[s], n);
        sha256(text, 12 + n, want);
        nb_block_key key, next;
        assert_int_equal(nb_block_key_root(nb_str_c(salts[s]), &key), NB_OK);
        assert_memory_equal(key.b, want, 32);
        for (unsigned b = 0; b < 3; b++) { /* a chain of three */
            uint32_t tok[64];
            memcpy(text, want, 32);
            text[32] = (unsigned char)(64 - b);
            text[33] = (unsigned char)(b * 32);
            for (uint32_t i = 0; i < 64; i++) {
                tok[i] = (b + 1) * 0x01020304u * (i + 1);
                for (unsigned j = 0; j < 4; j++)
                    text[34 + 4 * i + j] = (unsigned char)(tok[i] >> 8 * j);
            }
            sha256(text, 290, want);
            assert_int_equal(nb_block_key_next(&key, tok, 64 - b, b * 32, &next), NB_OK);
            assert_memory_equal(next.b, want, 32);
            assert_int_equal(nb_block_key_next(&key, tok, 64 - b, b * 32, &key), NB_OK);
            assert_memory_equal(key.b, want, 32); /* in place */
        }
    }
}

/* --- the cache ------------------------------------------------------------------------------- */

static nb_kv_cache *make(size_t n_block, double share)
{
    const nb_kv_cache_options o = { .n_block = n_block, .index = true, .protected_share = share };
    nb_kv_cache *c = NULL;
    assert_int_equal(nb_kv_cache_create(&o, &c, NULL), NB_OK);
    return c;
}

static void ok(const nb_kv_cache *c)
{
    const char *what = nb_kv_cache_check(c);
    if (what) print_error("%s\n", what);
    assert_null(what);
}

static uint32_t take(nb_kv_cache *c)
{
    uint32_t id = NONE;
    assert_int_equal(nb_kv_cache_acquire(c, &id), NB_OK);
    return id;
}

static nb_block_key key_of(uint32_t text, uint32_t pos)
{
    nb_block_key k = { { 0 } }; /* the same leading bytes: whole keys must be compared */
    memcpy(k.b + 24, &text, 4);
    memcpy(k.b + 28, &pos, 4);
    return k;
}

/* A request that computes blocks 0..n of text t and holds them. */
static void compute(nb_kv_cache *c, uint32_t t, uint32_t n, uint32_t *id)
{
    for (uint32_t i = 0; i < n; i++) {
        const nb_block_key k = key_of(t, i);
        id[i] = nb_kv_cache_publish(c, take(c), &k, i ? id[i - 1] : NONE);
        ok(c);
    }
}

/* A request that finds them; returns how many there are. */
static uint32_t find(nb_kv_cache *c, uint32_t t, uint32_t n, uint32_t *id, bool hold)
{
    uint32_t i = 0;
    for (; i < n; i++) {
        const nb_block_key k = key_of(t, i);
        id[i] = nb_kv_cache_find(c, &k);
        if (id[i] == NONE) break;
        if (hold) nb_kv_cache_hold(c, id[i], true);
    }
    return i;
}

static nb_kv_cache_stats stats(const nb_kv_cache *c)
{
    nb_kv_cache_stats s;
    nb_kv_cache_get_stats(c, &s);
    return s;
}

static void test_create(void **state)
{
    (void)state;
    static const nb_kv_cache_options bad[] = {
        { .n_block = 0, .protected_share = 0.5 },
        { .n_block = UINT32_MAX, .protected_share = 0.5 },
        { .n_block = SIZE_MAX, .protected_share = 0.5 },
        { .n_block = 1, .protected_share = -0.1 },
        { .n_block = 1, .protected_share = 1.01 },
        { .n_block = 1, .protected_share = (double)NAN },
        { .n_block = 1, .protected_share = 0.5, .evict = NB_KV_N_EVICT },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nb_kv_cache *c = NULL;
        nb_error err = { 0 };
        assert_int_equal(nb_kv_cache_create(&bad[i], &c, &err), NB_ERR_ARG);
        assert_null(c);
        assert_true(strlen(err.msg) > 0);
    }
    nb_kv_cache_destroy(NULL);
}

static void test_states(void **state)
{
    (void)state;
    nb_kv_cache *c = make(4, 0.75);
    uint32_t id[4], none = 77;
    for (uint32_t i = 0; i < 4; i++) { /* a short run touches the lowest blocks */
        id[i] = take(c);
        assert_int_equal(id[i], i);
        assert_int_equal(nb_kv_cache_available(c), 3 - i);
    }
    assert_int_equal(nb_kv_cache_acquire(c, &none), NB_ERR_CAPACITY);
    assert_int_equal(none, 77);
    nb_kv_cache_hold(c, id[2], true); /* held, not indexed: only a count */
    nb_kv_cache_release(c, id, 4);
    assert_int_equal(stats(c).n_free, 3);
    assert_int_equal(stats(c).n_held, 1);
    nb_kv_cache_release(c, id + 2, 1);
    assert_int_equal(nb_kv_cache_available(c), 4);
    ok(c);
    compute(c, 1, 2, id);
    nb_kv_block_info info;
    nb_kv_cache_block(c, id[1], &info);
    const nb_block_key want = key_of(1, 1);
    assert_true(info.indexed && !info.many && info.n_ref == 1 && info.parent == id[0]);
    assert_memory_equal(info.key.b, want.b, 32);
    nb_kv_cache_release(c, id, 2);
    assert_int_equal(stats(c).n_once, 2);
    assert_int_equal(find(c, 1, 4, id, true), 2);
    nb_kv_cache_block(c, id[1], &info);
    assert_true(info.indexed && info.many && info.n_hit == 1 && info.n_ref == 1);
    nb_kv_cache_release(c, id, 2);
    assert_int_equal(stats(c).n_many, 2);
    assert_int_equal(stats(c).n_indexed, 2);
    ok(c);
    nb_kv_cache_destroy(c);
}

static void test_duplicate(void **state)
{
    (void)state;
    nb_kv_cache *c = make(4, 0.75);
    uint32_t a[2], b[2];
    compute(c, 1, 2, a);
    compute(c, 1, 2, b); /* the same text at the same time */
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(stats(c).n_free, 2);
    assert_int_equal(stats(c).n_duplicate, 2);
    assert_int_equal(stats(c).n_published, 2);
    nb_kv_cache_release(c, a, 2);
    assert_int_equal(stats(c).n_held, 2);
    nb_kv_cache_release(c, b, 2);
    assert_int_equal(stats(c).n_once, 2); /* computed twice, never found */
    nb_kv_cache_destroy(c);

    const nb_kv_cache_options o = { .n_block = 4, .index = false, .protected_share = 0.5 };
    assert_int_equal(nb_kv_cache_create(&o, &c, NULL), NB_OK);
    compute(c, 1, 2, a);
    compute(c, 1, 2, b);
    assert_true(a[0] != b[0] && a[1] != b[1]);
    assert_int_equal(find(c, 1, 2, b, false), 0);
    assert_int_equal(stats(c).n_indexed + stats(c).n_published, 0);
    nb_kv_cache_destroy(c);
}

static void test_tail_first(void **state)
{
    (void)state;
    nb_kv_cache *c = make(6, 0.75);
    uint32_t a[6], b[6], x[6];
    compute(c, 1, 4, a);
    nb_kv_cache_release(c, a, 4);
    compute(c, 2, 2, b);
    nb_kv_cache_release(c, b, 2);
    for (uint32_t left = 4; left-- > 0;) { /* the older chain goes first, from its tail */
        (void)take(c);
        assert_int_equal(find(c, 1, 4, x, false), left);
        assert_int_equal(find(c, 2, 2, x, false), 2);
        assert_int_equal(stats(c).n_evicted, 4 - left);
        ok(c);
    }
    (void)take(c);
    assert_int_equal(find(c, 2, 2, x, false), 1);
    nb_kv_cache_destroy(c);
}

static void test_scan_resistant(void **state)
{
    (void)state;
    nb_kv_cache *c = make(16, 0.5);
    uint32_t a[8], x[8];
    compute(c, 1, 4, a);
    nb_kv_cache_release(c, a, 4);
    assert_int_equal(find(c, 1, 4, a, true), 4);
    nb_kv_cache_release(c, a, 4);
    for (uint32_t t = 100; t < 200; t++) { /* one-off texts flow past what was found */
        compute(c, t, 8, x);
        nb_kv_cache_release(c, x, 8);
        ok(c);
    }
    assert_int_equal(find(c, 1, 4, x, false), 4);
    assert_int_equal(stats(c).n_many, 4);
    for (uint32_t t = 0; t < 3; t++) { /* the share is 8 blocks: the oldest moves to `once` */
        compute(c, 200 + t, 4, x);
        nb_kv_cache_release(c, x, 4);
        (void)find(c, 200 + t, 4, x, true);
        nb_kv_cache_release(c, x, 4);
        ok(c);
        assert_true(stats(c).n_many <= 8);
    }
    nb_kv_block_info info;
    assert_int_equal(find(c, 1, 4, x, false), 4); /* still there, as `once` */
    nb_kv_cache_block(c, x[0], &info);
    assert_false(info.many);
    assert_int_equal(info.n_hit, 1);
    nb_kv_cache_destroy(c);

    c = make(4, 1); /* only `many` blocks are left: they are evicted, too */
    compute(c, 1, 4, a);
    nb_kv_cache_release(c, a, 4);
    (void)find(c, 1, 4, a, true);
    nb_kv_cache_release(c, a, 4);
    assert_int_equal(stats(c).n_many, 4);
    (void)take(c);
    assert_int_equal(find(c, 1, 4, x, false), 3);
    ok(c);
    nb_kv_cache_destroy(c);
}

static void test_reset(void **state)
{
    (void)state;
    nb_kv_cache *c = make(4, 0.75);
    uint32_t a[4], b[4], x[4];
    compute(c, 1, 2, a);
    compute(c, 2, 1, b);
    nb_kv_cache_release(c, b, 1);
    assert_int_equal(nb_kv_cache_reset(c), 3);
    ok(c);
    assert_int_equal(stats(c).n_free, 2);
    assert_int_equal(find(c, 1, 2, x, false), 0);
    const nb_block_key k = key_of(1, 2); /* the request goes on: its chain has lost its beginning */
    a[2] = nb_kv_cache_publish(c, take(c), &k, a[1]);
    ok(c);
    nb_kv_block_info info;
    nb_kv_cache_block(c, a[2], &info);
    assert_true(info.indexed && info.parent == NONE);
    nb_kv_cache_release(c, a, 3);
    assert_int_equal(stats(c).n_once, 1);
    assert_int_equal(nb_kv_cache_available(c), 4);
    ok(c);
    nb_kv_cache_destroy(c);
}

/* A cached block that a held one continues: its room can be had all the same. */
static void test_held_leaf(void **state)
{
    (void)state;
    nb_kv_cache *c = make(3, 0.75);
    uint32_t a[3], x;
    compute(c, 1, 3, a);
    nb_kv_cache_release(c, a, 2); /* against the order; a reset leads there in another way */
    assert_int_equal(nb_kv_cache_available(c), 2);
    for (size_t left = 2; left-- > 0;) {
        (void)take(c);
        ok(c);
        assert_int_equal(nb_kv_cache_available(c), left);
    }
    assert_int_equal(nb_kv_cache_acquire(c, &x), NB_ERR_CAPACITY);
    nb_kv_block_info info;
    nb_kv_cache_block(c, a[2], &info);
    assert_true(info.n_ref == 1 && !info.indexed);
    nb_kv_cache_destroy(c);
}

/* --- snapshots ------------------------------------------------------------------------------- */

static nb_kv_cache *with_snaps(size_t n_block, size_t n_snap)
{
    const nb_kv_cache_options o = {
        .n_block = n_block, .index = true, .protected_share = 0.5, .n_snap = n_snap
    };
    nb_kv_cache *c = NULL;
    assert_int_equal(nb_kv_cache_create(&o, &c, NULL), NB_OK);
    return c;
}

static nb_kv_cache_stats stats_of(const nb_kv_cache *c)
{
    nb_kv_cache_stats s;
    ok(c);
    nb_kv_cache_get_stats(c, &s);
    return s;
}

/* The one that was used least recently makes room; a pinned one does not; a block takes its own with it. */
static void test_snapshots(void **state)
{
    (void)state;
    nb_kv_cache *c = with_snaps(6, 3);
    uint32_t a[4], s[4];
    compute(c, 1, 4, a);
    for (size_t i = 0; i < 3; i++) {
        s[i] = nb_kv_snap_acquire(c);
        assert_int_not_equal(s[i], NB_SNAP_NONE);
        if (i < 2) nb_kv_snap_give(c, s[i], a[i]);
    }
    assert_int_equal(stats_of(c).n_snap_pin, 1);
    nb_kv_snap_pin(c, s[0]); /* it is read: a[1]'s is the oldest now */
    nb_kv_snap_unpin(c, s[0]);
    s[3] = nb_kv_snap_acquire(c);
    assert_int_equal(s[3], s[1]);
    assert_int_equal(nb_kv_snap_of(c, a[1]), NB_SNAP_NONE);
    assert_int_equal(stats_of(c).n_snap_taken, 1);
    nb_kv_snap_pin(c, s[0]);
    assert_int_equal(nb_kv_snap_acquire(c), NB_SNAP_NONE); /* all are pinned */
    nb_kv_snap_give(c, s[2], a[0]);                        /* it has one */
    nb_kv_snap_give(c, s[3], a[3]);
    assert_int_equal(nb_kv_snap_of(c, a[0]), s[0]);
    assert_int_equal(stats_of(c).n_snap_used, 2);
    nb_kv_cache_release(c, a, 4);
    assert_int_equal(nb_kv_cache_reset(c), 4); /* a reader goes on with what it has pinned */
    assert_int_equal(stats_of(c).n_snap_used, 0);
    assert_int_not_equal(nb_kv_snap_acquire(c), s[0]);
    nb_kv_snap_unpin(c, s[0]);
    assert_int_equal(nb_kv_snap_acquire(c), s[0]);
    ok(c);
    nb_kv_cache_destroy(c);
}

/* A block that is evicted gives its snapshot up. */
static void test_snapshot_goes_with_block(void **state)
{
    (void)state;
    nb_kv_cache *c = with_snaps(2, 2);
    uint32_t a[2], x;
    compute(c, 1, 2, a);
    nb_kv_snap_give(c, nb_kv_snap_acquire(c), a[1]);
    nb_kv_cache_release(c, a, 2);
    assert_int_equal(stats_of(c).n_snap_used, 1);
    assert_int_equal(nb_kv_cache_acquire(c, &x), NB_OK);
    assert_int_equal(x, a[1]);
    assert_int_equal(stats_of(c).n_snap_used, 0);
    nb_kv_snap_give(c, nb_kv_snap_acquire(c), x); /* not indexed: the place is free again */
    assert_int_equal(stats_of(c).n_snap_used + stats_of(c).n_snap_pin, 0);
    nb_kv_cache_destroy(c);
}

/* --- what must be noticed -------------------------------------------------------------------- */

static void aborts(void (*what)(nb_kv_cache *c))
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const nb_kv_cache_options o = { .n_block = 3, .index = true, .protected_share = 0.5 };
        nb_kv_cache *c;
        (void)close(2); /* the panic line is expected */
        (void)signal(SIGABRT, SIG_DFL);
        if (nb_kv_cache_create(&o, &c, NULL) == NB_OK) what(c);
        _exit(0);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
}
static void release_free(nb_kv_cache *c)
{
    const uint32_t id = 1;
    nb_kv_cache_release(c, &id, 1);
}
static void release_outside(nb_kv_cache *c)
{
    const uint32_t id = 3;
    nb_kv_cache_release(c, &id, 1);
}
static void release_twice(nb_kv_cache *c)
{
    uint32_t id;
    if (nb_kv_cache_acquire(c, &id) != NB_OK) return;
    nb_kv_cache_release(c, &id, 1);
    nb_kv_cache_release(c, &id, 1);
}
static void hold_free(nb_kv_cache *c)
{
    nb_kv_cache_hold(c, 0, false);
}
static void publish_free(nb_kv_cache *c)
{
    const nb_block_key k = { { 1 } };
    (void)nb_kv_cache_publish(c, 0, &k, NONE);
}
static void publish_twice(nb_kv_cache *c)
{
    nb_block_key k = { { 1 } };
    uint32_t id;
    if (nb_kv_cache_acquire(c, &id) != NB_OK) return;
    id = nb_kv_cache_publish(c, id, &k, NONE);
    k.b[0] = 2;
    (void)nb_kv_cache_publish(c, id, &k, NONE);
}
static void unpin_free(nb_kv_cache *c)
{
    nb_kv_snap_unpin(c, 0);
}
static void give_twice(nb_kv_cache *c)
{
    nb_kv_cache *d = with_snaps(2, 1);
    const uint32_t s = nb_kv_snap_acquire(d);
    (void)c;
    nb_kv_snap_give(d, s, 0);
    nb_kv_snap_give(d, s, 0);
}
static void test_misuse(void **state)
{
    (void)state;
    aborts(unpin_free);
    aborts(give_twice);
    aborts(release_free);
    aborts(release_outside);
    aborts(release_twice);
    aborts(hold_free);
    aborts(publish_free);
    aborts(publish_twice);
}

/* Breaks one field at a time, checks, and mends it. */
#define BREAKS(c, field, value)                                                                    \
    do {                                                                                           \
        const char copy_text[] = #field;                                                           \
        unsigned char copy[sizeof(field)];                                                         \
        memcpy(copy, &(field), sizeof copy);                                                       \
        (field) = (value);                                                                         \
        if (!nb_kv_cache_check(c)) fail_msg("not found: %s = %s", copy_text, #value);              \
        memcpy(&(field), copy, sizeof copy);                                                       \
        ok(c);                                                                                     \
    } while (0)

static void test_check_finds(void **state)
{
    (void)state;
    nb_kv_cache *c = make(12, 0.5);
    uint32_t a[3], b[3], h[3];
    compute(c, 1, 3, a); /* cached, many */
    nb_kv_cache_release(c, a, 3);
    (void)find(c, 1, 3, a, true);
    nb_kv_cache_release(c, a, 3);
    compute(c, 2, 3, b); /* cached, once */
    nb_kv_cache_release(c, b, 3);
    compute(c, 3, 2, h); /* held */
    h[2] = take(c);
    ok(c);
    const uint32_t f = c->part[0].free_head;
    nb_kv_block *k = c->block;
    BREAKS(c, c->part[0].n_free, 4);
    BREAKS(c, c->part[0].n_free, 2);
    BREAKS(c, c->part[0].free_head, NONE);
    BREAKS(c, c->part[0].free_head, 12);
    BREAKS(c, c->part[0].free_head, b[0]);
    BREAKS(c, c->part[0].free_head, h[2]);
    BREAKS(c, k[f].next, f);
    BREAKS(c, k[f].n_ref, 1);
    BREAKS(c, k[f].indexed, true);
    BREAKS(c, k[f].many, true);
    BREAKS(c, k[f].parent, b[0]);
    BREAKS(c, k[h[2]].n_ref, 0); /* nobody's block */
    BREAKS(c, k[h[1]].n_ref, 0);
    BREAKS(c, k[a[1]].n_ref, 1);
    BREAKS(c, k[a[1]].many, false);
    BREAKS(c, k[b[1]].many, true);
    BREAKS(c, k[b[1]].indexed, false);
    BREAKS(c, k[b[1]].next, NONE);
    BREAKS(c, k[b[1]].next, 12);
    BREAKS(c, k[b[1]].next, b[1]);
    BREAKS(c, k[b[1]].prev, NONE);
    BREAKS(c, c->part[0].once.n, 2);
    BREAKS(c, c->part[0].once.old, NONE);
    BREAKS(c, c->part[0].many.young, a[1]);
    BREAKS(c, c->many_cap, 2);
    BREAKS(c, k[b[1]].key.b[31], 99); /* no longer in its bucket */
    BREAKS(c, k[b[1]].key, k[b[0]].key);
    BREAKS(c, c->n_indexed, 7);
    BREAKS(c, c->bucket[nb_kv_bucket(c, &k[b[1]].key)], NONE);
    BREAKS(c, c->bucket[nb_kv_bucket(c, &k[b[1]].key)], 13);
    BREAKS(c, c->bucket[nb_kv_bucket(c, &k[b[1]].key)], h[2]);
    BREAKS(c, k[b[1]].parent, a[0]);
    BREAKS(c, k[b[1]].parent, NONE);
    BREAKS(c, k[b[1]].parent, h[2]);
    BREAKS(c, k[b[1]].child, NONE);
    BREAKS(c, k[b[1]].child, b[1]);
    BREAKS(c, k[b[1]].child, 12);
    BREAKS(c, k[b[1]].sib_next, b[1]);
    BREAKS(c, k[b[1]].sib_prev, b[2]);
    BREAKS(c, c->index, false);
    nb_kv_cache_destroy(c);

    c = with_snaps(4, 3);
    compute(c, 1, 2, a);
    nb_kv_snap_give(c, nb_kv_snap_acquire(c), a[0]);
    nb_kv_snap_give(c, nb_kv_snap_acquire(c), a[1]);
    BREAKS(c, c->snap_free, NONE);
    BREAKS(c, c->snap_old, c->snap_young);
    BREAKS(c, c->snap_young, NONE);
    BREAKS(c, c->n_snap_used, 1);
    BREAKS(c, c->snap[0].block, a[1]);
    BREAKS(c, c->snap[1].prev, NONE);
    BREAKS(c, c->block[a[0]].snap, NONE);
    BREAKS(c, c->block[a[0]].snap, 2);
    BREAKS(c, c->snap[2].n_pin, 1);
    nb_kv_cache_destroy(c);
}

/* ---- parts ---- */

static size_t part_of(const nb_kv_cache *c, uint32_t id)
{
    nb_kv_block_info info;
    nb_kv_cache_block(c, id, &info);
    return info.part;
}

/* The next n blocks of a text that has n_have, published where text is not 0. */
static void extend(nb_kv_cache *c, uint32_t text, uint32_t *id, size_t n_have, size_t n)
{
    for (size_t i = n_have; i < n_have + n; i++) {
        assert_int_equal(nb_kv_cache_acquire_after(c, i ? id[i - 1] : NONE, &id[i]), NB_OK);
        const nb_block_key key = key_of(text, (uint32_t)i);
        if (text) id[i] = nb_kv_cache_publish(c, id[i], &key, i ? id[i - 1] : NONE);
        ok(c);
    }
}

/* A unit is in one part; units go where there is most room; a full part does not stop the others. */
static void test_parts(void **state)
{
    (void)state;
    const nb_kv_cache_options o = { .n_block = 64, .index = true, .protected_share = 0.25, .n_part = 2 };
    nb_kv_cache *c = NULL;
    uint32_t a[32], b[32], d[48];
    assert_int_equal(nb_kv_cache_create(&o, &c, NULL), NB_OK);
    extend(c, 1, a, 0, 20);
    for (size_t i = 0; i < 20; i++) assert_int_equal(part_of(c, a[i]), i / 8 % 2);
    /* 12 of part 0 are held, 8 of part 1: the next text begins in part 1, and one that goes on, in the part of its unit */
    extend(c, 2, b, 0, 9);
    assert_int_equal(part_of(c, b[0]), 1);
    assert_int_equal(part_of(c, b[8]), 0);
    extend(c, 1, a, 20, 4);
    assert_int_equal(part_of(c, a[23]), 0);
    nb_kv_cache_release(c, b, 9);
    ok(c);
    /* room is counted by parts: 15 in part 0 and 24 in part 1, of which b's hold 1 and 8 */
    assert_int_equal(nb_kv_cache_lacks(c, NULL, 0, 39), 0);
    assert_true(nb_kv_cache_lacks(c, NULL, 0, 41) > 0);
    assert_int_equal(nb_kv_cache_lacks(c, b, 8, 16), 0);
    assert_int_equal(nb_kv_cache_lacks(c, a, 20, 16), 0);
    extend(c, 3, d, 0, 39); /* b's blocks are evicted */
    nb_kv_cache_release(c, d, 39);
    nb_kv_cache_release(c, a, 24);
    ok(c);
    assert_int_equal(nb_kv_cache_available(c), 64);
    nb_kv_cache_destroy(c);
    const nb_kv_cache_options wrong[] = { { .n_block = 24, .n_part = 2 },
                                          { .n_block = 64, .n_part = 9 },
                                          { .n_block = 64, .n_part = 2, .n_snap = 1 },
                                          { .n_block = 64, .n_part = 2, .evict = NB_KV_EVICT_LRU } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(nb_kv_cache_create(&wrong[i], &c, NULL), NB_ERR_ARG);
}

/* A part that is full stops texts inside a unit of it, whatever the others have. */
static void test_parts_full(void **state)
{
    (void)state;
    const nb_kv_cache_options o = { .n_block = 32, .index = true, .protected_share = 0.25, .n_part = 2 };
    nb_kv_cache *c = NULL;
    uint32_t a[28];
    assert_int_equal(nb_kv_cache_create(&o, &c, NULL), NB_OK);
    extend(c, 1, a, 0, 28); /* units in parts 0, 1, 0 and, half of one, 1 */
    for (size_t i = 0; i < 28; i++) assert_int_equal(part_of(c, a[i]), i / 8 % 2);
    assert_int_equal(nb_kv_cache_available(c), 4);
    assert_int_equal(nb_kv_cache_lacks(c, a, 16, 4), 0);
    assert_true(nb_kv_cache_lacks(c, a, 20, 1) > 0);
    assert_true(nb_kv_cache_any_follows(c, a[19], a, 28));
    assert_false(nb_kv_cache_any_follows(c, a[19], a + 8, 8));
    assert_true(nb_kv_cache_any_follows(c, a[23], a + 8, 8));
    assert_true(nb_kv_cache_any_follows(c, NB_BLOCK_NONE, a + 8, 8));
    nb_kv_cache_release(c, a, 28);
    ok(c);
    nb_kv_cache_destroy(c);
}

/* A unit that is found is whole: who computes it again elsewhere keeps its blocks to itself. */
static void test_parts_duplicate(void **state)
{
    (void)state;
    const nb_kv_cache_options o = { .n_block = 64, .index = true, .protected_share = 0.25, .n_part = 2 };
    nb_kv_cache *c = NULL;
    uint32_t a[16], b[16], own;
    assert_int_equal(nb_kv_cache_create(&o, &c, NULL), NB_OK);
    extend(c, 1, a, 0, 3);
    assert_int_equal(nb_kv_cache_acquire_after(c, NONE, &b[0]), NB_OK);
    own = b[0];
    nb_block_key key = key_of(1, 0);
    assert_int_equal(part_of(c, own), 1);
    assert_int_equal(nb_kv_cache_publish(c, own, &key, NONE), own);
    for (uint32_t i = 1; i < 9; i++) { /* the same two, then another text */
        assert_int_equal(nb_kv_cache_acquire_after(c, b[i - 1], &b[i]), NB_OK);
        key = key_of(i < 3 ? 1 : 2, i);
        own = b[i];
        assert_int_equal(nb_kv_cache_publish(c, own, &key, b[i - 1]), own);
        assert_int_equal(nb_kv_cache_find(c, &key), i < 3 ? a[i] : i < 8 ? NONE : own);
        ok(c);
    }
    assert_null(nb_kv_cache_check(c));
    BREAKS(c, c->block[a[1]].at, 5);
    nb_kv_cache_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha_itself),     cmocka_unit_test(test_keys),
        cmocka_unit_test(test_create),         cmocka_unit_test(test_states),
        cmocka_unit_test(test_duplicate),      cmocka_unit_test(test_tail_first),
        cmocka_unit_test(test_snapshots),      cmocka_unit_test(test_snapshot_goes_with_block),
        cmocka_unit_test(test_scan_resistant), cmocka_unit_test(test_reset),
        cmocka_unit_test(test_held_leaf),      cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_check_finds),    cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_full),
        cmocka_unit_test(test_parts_duplicate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
