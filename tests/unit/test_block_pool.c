/* test_block_pool.c - names of KV blocks: handing out, holding, giving back, limits, and
 * that the check of the invariants can find each way of breaking them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/block_pool.h"

static void test_order(void **state)
{
    (void)state;
    nb_block_pool p;
    uint32_t id;
    assert_int_equal(nb_block_pool_init(&p, 4), NB_OK);
    for (uint32_t i = 0; i < 4; i++) { /* a short run touches the lowest blocks */
        assert_int_equal(nb_block_pool_acquire(&p, &id), NB_OK);
        assert_int_equal(id, i);
        assert_true(nb_block_pool_check(&p));
    }
    id = 99;
    assert_int_equal(nb_block_pool_acquire(&p, &id), NB_ERR_CAPACITY);
    assert_int_equal(id, 99);
    nb_block_pool_release(&p, 2);
    nb_block_pool_release(&p, 0);
    assert_int_equal(p.n_free, 2);
    assert_int_equal(nb_block_pool_acquire(&p, &id), NB_OK); /* what was freed last comes first */
    assert_int_equal(id, 0);
    assert_int_equal(nb_block_pool_acquire(&p, &id), NB_OK);
    assert_int_equal(id, 2);
    nb_block_pool_deinit(&p);
    assert_int_equal(p.n_block, 0);
    nb_block_pool_deinit(&p); /* twice does no harm */
}

static void test_counts(void **state)
{
    (void)state;
    nb_block_pool p;
    uint32_t a, b;
    assert_int_equal(nb_block_pool_init(&p, 2), NB_OK);
    assert_int_equal(nb_block_pool_acquire(&p, &a), NB_OK);
    nb_block_pool_retain(&p, a);
    nb_block_pool_retain(&p, a);
    for (int i = 0; i < 2; i++) {
        nb_block_pool_release(&p, a);
        assert_int_equal(p.n_free, 1); /* still held */
        assert_true(nb_block_pool_check(&p));
    }
    nb_block_pool_release(&p, a);
    assert_int_equal(p.n_free, 2);
    assert_int_equal(nb_block_pool_acquire(&p, &b), NB_OK);
    assert_int_equal(p.n_ref[b], 1); /* the count starts anew */
    nb_block_pool_deinit(&p);
}

static void test_limits(void **state)
{
    (void)state;
    nb_block_pool p;
    uint32_t id;
    assert_int_equal(nb_block_pool_init(&p, 0), NB_OK);
    assert_int_equal(nb_block_pool_acquire(&p, &id), NB_ERR_CAPACITY);
    assert_true(nb_block_pool_check(&p));
    nb_block_pool_deinit(&p);
    assert_int_equal(nb_block_pool_init(&p, UINT32_MAX), NB_ERR_RANGE); /* ids have 32 bits */
    nb_block_pool_deinit(&p);
#if SIZE_MAX > UINT32_MAX
    assert_int_equal(nb_block_pool_init(&p, SIZE_MAX), NB_ERR_RANGE);
    nb_block_pool_deinit(&p);
#endif
}

static void test_check_finds(void **state)
{
    (void)state;
    nb_block_pool p;
    uint32_t id;
    assert_int_equal(nb_block_pool_init(&p, 5), NB_OK);
    assert_int_equal(nb_block_pool_acquire(&p, &id), NB_OK);
    const nb_block_pool good = p;
    uint32_t free_id[5], n_ref[5];
    memcpy(free_id, p.free_id, sizeof free_id);
    memcpy(n_ref, p.n_ref, sizeof n_ref);
    assert_true(nb_block_pool_check(&p));
    p.n_free = 6;
    assert_false(nb_block_pool_check(&p));
    p.n_free = 3; /* a lost block */
    assert_false(nb_block_pool_check(&p));
    p = good;
    p.free_id[0] = p.free_id[1]; /* twice in the list */
    assert_false(nb_block_pool_check(&p));
    p.free_id[0] = 5; /* out of range */
    assert_false(nb_block_pool_check(&p));
    memcpy(p.free_id, free_id, sizeof free_id);
    p.n_ref[4] = 1; /* held and free at once */
    assert_false(nb_block_pool_check(&p));
    memcpy(p.n_ref, n_ref, sizeof n_ref);
    assert_true(nb_block_pool_check(&p));
    nb_block_pool_deinit(&p);
}

/* Giving back what is not held is a mistake of ours: it stops at once, in any build. */
static void aborts(void (*what)(nb_block_pool *p))
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        nb_block_pool p;
        (void)close(2); /* the panic line is expected */
        (void)signal(SIGABRT, SIG_DFL);
        if (nb_block_pool_init(&p, 3) == NB_OK) what(&p);
        _exit(0);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
}
static void release_free(nb_block_pool *p)
{
    nb_block_pool_release(p, 1);
}
static void release_outside(nb_block_pool *p)
{
    nb_block_pool_release(p, 3);
}
static void retain_free(nb_block_pool *p)
{
    nb_block_pool_retain(p, 0);
}
static void release_twice(nb_block_pool *p)
{
    uint32_t id;
    if (nb_block_pool_acquire(p, &id) != NB_OK) return;
    nb_block_pool_release(p, id);
    nb_block_pool_release(p, id);
}
static void test_misuse(void **state)
{
    (void)state;
    aborts(release_free);
    aborts(release_outside);
    aborts(retain_free);
    aborts(release_twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),  cmocka_unit_test(test_counts),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_check_finds),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
