/* test_rendezvous_threads.c - processes that become ranks, here threads: they find each other over loopback, whoever comes
 * first; a wrong secret, another version, a rank too many or garbage on the port is turned away, and keeps nobody waiting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include "comm/comm_tcp.h"
#include "comm/door.h"
#include "comm/rendezvous.h"
#include "os/clock.h"
#include "os/net.h"
#include "os/thread.h"

enum { MAX_RANK = 5 };
#define SECRET "a secret of the tests"

typedef struct process {
    nb_rendezvous r;
    nb_status st;
    nb_error err;
    uint64_t sum;
    double s;
    char note[512];
} process;

static void on_note(void *ctx, const char *line)
{
    char *note = ctx;
    (void)snprintf(note + strlen(note), sizeof((process){ 0 }).note - strlen(note), "%s\n", line);
}

/* Meets the others and adds one number of each. */
static void run_process(void *arg)
{
    process *p = arg;
    int link[NB_COMM_MAX_RANK];
    nb_comm *c = NULL;
    uint64_t own = 100 + p->r.rank, all[MAX_RANK] = { 0 };
    const nb_comm_block send = { &own, 1, sizeof own, sizeof own };
    nb_comm_block recv[MAX_RANK];
    const double t = nb_clock_s();
    for (size_t k = 0; k < MAX_RANK; k++) recv[k] = (nb_comm_block){ &all[k], 1, sizeof own, sizeof own };
    p->st = nb_rendezvous_meet(&p->r, link, &p->err);
    p->s = nb_clock_s() - t;
    if (p->st == NB_OK) p->st = nb_comm_create_tcp(p->r.n_rank, p->r.rank, link, 20, &c, &p->err);
    if (p->st == NB_OK) p->st = nb_comm_gather(c, &send, recv, &p->err);
    for (size_t k = 0; k < MAX_RANK; k++) p->sum = p->sum * 1000 + all[k];
    nb_comm_destroy(c);
}

/* A port that was free a moment ago. */
static unsigned free_port(void)
{
    int s = -1;
    assert_int_equal(nb_net_listen("127.0.0.1", 0, &s, NULL), NB_OK);
    const unsigned port = nb_net_port(s);
    nb_net_close(s);
    return port;
}

static void fill(process *p, size_t n, double limit_s)
{
    const unsigned port = free_port();
    for (size_t k = 0; k < n; k++)
        p[k] = (process){ .r = { .n_rank = n,
                                 .rank = k,
                                 .host = "127.0.0.1",
                                 .port = port,
                                 .secret = SECRET,
                                 .version = "1.2.3",
                                 .limit_s = limit_s,
                                 .note = on_note } };
    for (size_t k = 0; k < n; k++) p[k].r.note_ctx = p[k].note;
}

/* Those in the order given; the next only after `between_ms`. */
static void run(process *p, size_t n, const size_t *order, unsigned between_ms)
{
    nb_thread *t[MAX_RANK + 1];
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(nb_thread_create(run_process, &p[order[i]], &t[i], NULL), NB_OK);
        if (between_ms) nb_net_wait(NULL, 0, between_ms);
    }
    for (size_t i = 0; i < n; i++) nb_thread_join(t[i]);
}

static void check_all_met(const process *p, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        if (p[k].st != NB_OK) fail_msg("rank %zu of %zu: %s", k, n, p[k].err.msg);
        assert_int_equal(p[k].sum, p[0].sum);
    }
}

static void test_meet(void **state)
{
    (void)state;
    static const size_t up[] = { 0, 1, 2, 3, 4 }, down[] = { 4, 3, 2, 1, 0 };
    process p[MAX_RANK];
    for (size_t n = 2; n <= MAX_RANK; n += 3) {
        fill(p, n, 30);
        run(p, n, up, 0);
        check_all_met(p, n);
        fill(p, n, 30);
        run(p, n, down + MAX_RANK - n, 20); /* who comes before rank 0 tries again */
        check_all_met(p, n);
    }
}

/* Rank 1 has gone before rank 2 could reach it, and rank 0 with it: rank 2 does not wait for the limit. */
static void test_first_gone(void **state)
{
    (void)state;
    process p[3];
    nb_thread *t;
    unsigned char in[512], answer[NB_HELLO_BYTES], own[NB_NONCE_BYTES] = { 3 };
    const struct {
        uint32_t ok;
        char why[252];
    } verdict = { 1, "" };
    struct {
        char host[NB_NET_HOST_BYTES];
        uint32_t port;
    } place[3] = { { "", 0 }, { "127.0.0.1", 0 }, { "", 0 } };
    int listening = -1, s = -1;
    nb_door d;
    fill(p, 3, 60);
    place[1].port = free_port(); /* nobody listens there */
    assert_int_equal(nb_net_listen("127.0.0.1", p[2].r.port, &listening, NULL), NB_OK);
    assert_int_equal(nb_thread_create(run_process, &p[2], &t, NULL), NB_OK);
    while ((s = nb_net_accept(listening)) < 0) nb_net_wait(NULL, 0, 5);
    nb_door_open(&d, own);
    while (nb_door_wants(&d)) { /* as rank 0 would */
        const long n = nb_net_recv(s, in, nb_door_wants(&d));
        assert_true(n >= 0);
        const size_t n_answer = nb_door_take(&d, SECRET, in, (size_t)n, answer);
        if (n_answer) assert_int_equal(nb_net_send(s, answer, n_answer), n_answer);
        if (n == 0) nb_net_wait(NULL, 0, 1);
    }
    assert_int_equal(d.at, NB_DOOR_IN);
    assert_int_equal(nb_net_send(s, &verdict, sizeof verdict), sizeof verdict);
    assert_int_equal(nb_net_send(s, place, sizeof place), sizeof place);
    nb_net_close(s);
    nb_thread_join(t);
    nb_net_close(listening);
    assert_int_equal(p[2].st, NB_ERR_FAILED);
    assert_non_null(strstr(p[2].err.msg, "rank 0 of 3: its connection was closed while ranks met"));
    assert_true(p[2].s < 20);
}

/* ---- who is turned away ---- */

static const size_t two[] = { 0, 1 };

static void test_wrong_secret(void **state)
{
    (void)state;
    process p[2];
    fill(p, 2, 1.5);
    p[1].r.secret = "another secret of the tests";
    run(p, 2, two, 0);
    assert_int_equal(p[1].st, NB_ERR_FAILED);
    assert_non_null(strstr(p[1].err.msg, "the rank there has another rendezvous secret"));
    assert_int_equal(p[0].st, NB_ERR_NOT_FOUND); /* it waits for the right one */
    assert_non_null(strstr(p[0].err.msg, "rank 1 of 2 has not come to rank 0"));
    assert_non_null(strstr(p[0].note, "turned away: it has another rendezvous secret"));
}

/* The same line on both sides. */
static void test_does_not_fit(void **state)
{
    (void)state;
    process p[2];
    fill(p, 2, 10);
    p[1].r.version = "1.2.4";
    run(p, 2, two, 0);
    assert_string_equal(p[0].err.msg, "rank 1 has version 1.2.4 of nibble, rank 0 has 1.2.3");
    assert_string_equal(p[1].err.msg, p[0].err.msg);
    fill(p, 2, 10);
    p[1].r.n_rank = 3;
    run(p, 2, two, 0);
    assert_string_equal(p[0].err.msg, "rank 1 is one of 3, rank 0 one of 2: --nnodes differs");
    assert_string_equal(p[1].err.msg, p[0].err.msg);
}

static void test_twice(void **state)
{
    (void)state;
    static const size_t order[] = { 1, 2, 0 };
    process p[3];
    fill(p, 3, 4);
    p[2].r.rank = 1; /* so there is no rank 2 */
    run(p, 3, order, 100);
    const process *later = p[1].st == NB_ERR_FAILED && strstr(p[1].err.msg, "twice") ? &p[1] : &p[2];
    assert_non_null(strstr(later->err.msg, "rank 1 has come twice"));
    assert_non_null(strstr(p[0].err.msg, "rank 2 of 3 has not come"));
    assert_non_null(strstr(p[0].note, "rank 1 has come twice"));
}

static void test_options(void **state)
{
    (void)state;
    process p[2];
    int link[NB_COMM_MAX_RANK];
    fill(p, 2, 1);
    p[0].r.secret = "too short";
    assert_int_equal(nb_rendezvous_meet(&p[0].r, link, &p[0].err), NB_ERR_ARG);
    p[0].r.secret = NULL;
    assert_int_equal(nb_rendezvous_meet(&p[0].r, link, &p[0].err), NB_ERR_ARG);
    fill(p, 2, 1);
    p[0].r.rank = 2;
    assert_int_equal(nb_rendezvous_meet(&p[0].r, link, &p[0].err), NB_ERR_RANGE);
}

/* ---- strangers ---- */

typedef struct stranger {
    unsigned port;
    int s[40];
    double until;
} stranger;

/* Many that say nothing, some that say something else, one that sends one byte after the other. */
static void disturb(void *arg)
{
    stranger *x = arg;
    static const char other[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    unsigned char noise[256];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)(i * 37);
    for (size_t i = 0; i < 40; i++) x->s[i] = -1;
    while (nb_clock_s() < x->until)
        for (size_t i = 0; i < 40 && nb_clock_s() < x->until; i++) {
            if (x->s[i] < 0 && nb_net_connect("127.0.0.1", x->port, 100, &x->s[i], NULL) != NB_OK) {
                nb_net_wait(NULL, 0, 5);
                continue;
            }
            long n = 1;
            if (i % 4 == 1) n = nb_net_send(x->s[i], other, sizeof other - 1);
            if (i % 4 == 2) n = nb_net_send(x->s[i], noise, sizeof noise);
            if (i == 3) n = nb_net_send(x->s[i], nb_door_magic, 1);
            if (n >= 0 && i % 4) continue;
            if (n < 0) {
                nb_net_close(x->s[i]);
                x->s[i] = -1;
            }
        }
    for (size_t i = 0; i < 40; i++) nb_net_close(x->s[i]);
}

static void test_strangers(void **state)
{
    (void)state;
    static const size_t order[] = { 0, 1 };
    process p[2];
    nb_thread *t;
    fill(p, 2, 30);
    stranger x = { .port = p[0].r.port, .until = nb_clock_s() + 1 };
    assert_int_equal(nb_thread_create(disturb, &x, &t, NULL), NB_OK);
    run(p, 2, order, 300);
    nb_thread_join(t);
    check_all_met(p, 2);
    assert_true(p[1].s < 10);
}

/* A port where something else listens. */
static void test_no_rank(void **state)
{
    (void)state;
    process p[2];
    int s = -1, link[NB_COMM_MAX_RANK];
    fill(p, 2, 1);
    assert_int_equal(nb_net_listen("127.0.0.1", p[1].r.port, &s, NULL), NB_OK);
    assert_int_equal(nb_rendezvous_meet(&p[1].r, link, &p[1].err), NB_ERR_NOT_FOUND);
    assert_non_null(strstr(p[1].err.msg, "rank 0 was not found within 1 seconds"));
    nb_net_close(s);
}

/* ---- the door, byte by byte ---- */

static void test_door(void **state)
{
    (void)state;
    unsigned char own[NB_NONCE_BYTES] = { 1 }, theirs[NB_NONCE_BYTES] = { 2 }, hello[NB_HELLO_BYTES], answer[NB_HELLO_BYTES];
    unsigned char proof[NB_PROOF_BYTES], want[NB_PROOF_BYTES];
    const nb_intro in = { 1, 2, 0, "1.2.3" };
    for (int good = 0; good < 2; good++) {
        nb_door d;
        nb_door_open(&d, own);
        memcpy(hello, nb_door_magic, NB_MAGIC_BYTES);
        memcpy(hello + NB_MAGIC_BYTES, theirs, sizeof theirs);
        size_t n = 0;
        for (size_t i = 0; i < sizeof hello; i++) n = nb_door_take(&d, SECRET, hello + i, 1, answer);
        assert_int_equal(n, NB_HELLO_BYTES);
        assert_memory_equal(answer + NB_MAGIC_BYTES, own, sizeof own);
        nb_door_prove(SECRET, false, theirs, own, proof);
        nb_door_prove(SECRET, true, theirs, own, want);
        assert_memory_not_equal(proof, want, sizeof proof); /* a proof cannot be sent back */
        if (!good) memcpy(proof, want, sizeof proof);
        assert_int_equal(nb_door_take(&d, SECRET, proof, sizeof proof, answer), NB_PROOF_BYTES);
        assert_int_equal(d.at, good ? NB_DOOR_INTRO : NB_DOOR_WRONG);
        if (!good) continue;
        assert_memory_equal(answer, want, sizeof want);
        assert_int_equal(nb_door_take(&d, SECRET, &in, sizeof in, answer), 0);
        assert_int_equal(d.at, NB_DOOR_IN);
        assert_int_equal(d.intro.rank, 1);
        assert_int_equal(nb_door_wants(&d), 0);
    }
    nb_door d;
    nb_door_open(&d, own);
    memset(hello, 'x', sizeof hello);
    assert_int_equal(nb_door_take(&d, SECRET, hello, sizeof hello, answer), 0);
    assert_int_equal(d.at, NB_DOOR_SHUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_door),      cmocka_unit_test(test_meet),
                                        cmocka_unit_test(test_strangers), cmocka_unit_test(test_wrong_secret),
                                        cmocka_unit_test(test_does_not_fit), cmocka_unit_test(test_twice),
                                        cmocka_unit_test(test_options),   cmocka_unit_test(test_no_rank),
                                        cmocka_unit_test(test_first_gone) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
