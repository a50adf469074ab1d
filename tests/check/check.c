/* check.c - driver of the kernel checker: options, the ladder of levels, signals,
 * the self-test.
 *
 *   nibble-check [--test OP] [--function NAME] [--caps LEVEL | --all-caps [--from LEVEL]] [--bench]
 *                [--seed N] [--repeat N] [--json FILE] [--self-test] [--list] [--list-caps] [--list-tests]
 *                [--cuda LIBRARY [--guard]] [--every N [--first K]]
 *
 * --every N runs one case of N, beginning with case K: different K share nothing, and together are all cases.
 * The product's variant tables are the only list of kernels.  For every level of
 * the ladder the first row of each kind that the level can run is what the product
 * would pick; that row is tested.  A row that no level ever picks is an error.
 * With --cuda the operations are those of the library instead (check_cuda.h), all rows that the device
 * can run. */
#define _GNU_SOURCE /* sigaltstack, SA_ONSTACK */
#include "check/check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "check/check_cuda.h"
#include "os/cpu.h"

static const chk_op *const host_ops[] = { &chk_embed,      &chk_rmsnorm,     &chk_linear,
                                          &chk_linear_t,   &chk_rope,        &chk_attn,
                                          &chk_attn_score, &chk_swiglu,      &chk_route,
                                          &chk_kv_codec,   &chk_kv_residual, &chk_attn_prefill,
                                          &chk_attn_pages,   &chk_index_score,  &chk_index_topk,
                                          &chk_kda };
static const chk_op *const *ops = host_ops;
static size_t n_op = NB_COUNT(host_ops);
enum { MAX_ROW = 512, MAX_CRASH_RUNS = 8 };

typedef struct options {
    const char *test, *function, *caps, *from, *json, *cuda;
    bool guard, all_caps, bench, self_test, list, list_caps, list_tests;
    uint64_t seed, repeat, every, first;
} options;

typedef struct totals {
    size_t n_variant, n_case, n_fail, n_skip;
} totals;

static nb_cpu_level ladder[16];

/* Signals: one sigsetjmp in run_variant; a crash marks the case and the variant's
 * test starts again without it. */
volatile int chk_armed;
static sigjmp_buf back;
static volatile sig_atomic_t caught;

static void on_signal(int s)
{
    if (chk_armed) {
        chk_armed = 0;
        caught = s;
        siglongjmp(back, 1);
    }
    signal(s, SIG_DFL);
    raise(s);
}

static void catch_signals(void)
{
    static const int list[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
    static unsigned char stack[1 << 16];
    const stack_t alt = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
    sigemptyset(&sa.sa_mask);
    sigaltstack(&alt, NULL);
    for (size_t i = 0; i < NB_COUNT(list); i++) sigaction(list[i], &sa, NULL);
}

static void build_ladder(void)
{
    size_t n = 0;
    for (const nb_cpu_level *v = nb_cpu_level_table; v->name; v++) ladder[n++] = *v;
    ladder[n++] = (nb_cpu_level){ "sm80", NB_CAP_SM80, NB_CAP_SM80 };
    ladder[n++] = (nb_cpu_level){ "sm90", NB_CAP_SM90, NB_CAP_SM80 | NB_CAP_SM90 };
}

static void function_name(char *out, size_t n_bytes, const chk_op *op, const chk_row *r)
{
    snprintf(out, n_bytes, "%s%s%s_%s", op->name, *r->sub ? "_" : "", r->sub, r->variant);
}

/* Is row i the first of its kind that a machine with `caps` can run? */
static bool picked(const chk_row *rows, size_t n, size_t i, nb_caps caps)
{
    (void)n;
    if (rows[i].need & ~caps) return false;
    for (size_t j = 0; j < i; j++)
        if (strcmp(rows[j].sub, rows[i].sub) == 0 && rows[j].space == rows[i].space &&
            (rows[j].need & ~caps) == 0)
            return false;
    return true;
}

/* The level of that name; the first without one, the end of the ladder if there is none. */
static const nb_cpu_level *find_level(const char *name)
{
    const nb_cpu_level *v = ladder;
    while (name && v->name && strcmp(v->name, name) != 0) v++;
    return v;
}

/* The lowest level that picks row i; NULL: none does. */
static const nb_cpu_level *level_of(const chk_row *rows, size_t n, size_t i)
{
    for (const nb_cpu_level *v = ladder; v->name; v++)
        if (picked(rows, n, i, v->mask)) return v;
    return NULL;
}

/* Rows of a device do not stand in for each other: each is tested where its chip is. */
static const nb_cpu_level *cuda_level(const chk_row *r)
{
    const nb_cpu_level *v = ladder;
    while (v->name && (v->mask & NB_CAP_SM80) == 0) v++;
    return r->need & NB_CAP_SM90 ? v + 1 : v;
}

static void reset(chk *t, const chk_op *op, const chk_row *row)
{
    t->op = op;
    t->row = row;
    t->n_fail = t->n_crashed = 0;
    t->worst = 0;
    t->worst_at[0] = t->first_fail[0] = 0;
    function_name(t->function, sizeof t->function, op, row);
}

/* Tests one row over all its cases.  volatile: used across siglongjmp. */
static void run_variant(chk *t)
{
    volatile int runs = 0;
    if (sigsetjmp(back, 1)) {
        chk_fail(t, "signal %d (%s) in the kernel", (int)caught, strsignal((int)caught));
        if (t->n_crashed < CHK_MAX_CRASH) t->crashed[t->n_crashed++] = t->n_case - 1;
        if (t->quiet || ++runs >= MAX_CRASH_RUNS) {
            chk_free_all(t);
            return;
        }
    }
    t->n_case = t->n_skip_case = 0;
    t->op->test(t, t->row);
    chk_free_all(t);
}

static void test_row(chk *t, const chk_op *op, const chk_row *row, FILE *json, totals *sum)
{
    reset(t, op, row);
    run_variant(t);
    sum->n_variant++;
    sum->n_case += t->n_case - t->n_skip_case;
    sum->n_fail += t->n_fail != 0;
    if (t->n_fail)
        printf("FAIL %-24s %5zu cases, %zu failed\n", t->function, t->n_case, t->n_fail);
    else
        printf("ok   %-24s %5zu cases, worst error %.2f of the bound%s%s\n", t->function, t->n_case,
               t->worst, t->worst > 0 ? " at " : "", t->worst_at);
    if (json)
        fprintf(json, "%s{\"function\":\"%s\",\"cases\":%zu,\"failed\":%zu,\"worst\":%.4f}",
                sum->n_variant > 1 ? ",\n" : "", t->function, t->n_case, t->n_fail, t->worst);
}

static nb_caps wanted_mask(const options *o, nb_caps have)
{
    for (const nb_cpu_level *v = ladder; o->caps && v->name; v++)
        if (strcmp(v->name, o->caps) == 0) return v->mask;
    return have;
}

static void run_op(chk *t, const options *o, const chk_op *op, FILE *json, totals *sum)
{
    chk_row rows[MAX_ROW];
    const size_t n = op->rows(rows, MAX_ROW);
    if (n == MAX_ROW) { /* the rest would never be checked */
        printf("FAIL %-24s has %zu rows or more\n", op->name, n);
        sum->n_fail++;
    }
    for (size_t k = 0; k < n; k++) {
        const size_t i = o->bench ? n - 1 - k : k; /* bench: portable rows first, for the ratio */
        const nb_cpu_level *level = o->cuda ? cuda_level(&rows[i]) : level_of(rows, n, i);
        char name[CHK_NAME];
        function_name(name, sizeof name, op, &rows[i]);
        if (o->function && strcmp(o->function, name) != 0) continue;
        if (level && level < find_level(o->from)) continue;
        if (!level) {
            printf("FAIL %-24s dead: no level ever picks this row\n", name);
            sum->n_fail++;
            continue;
        }
        if (o->list) {
            printf("%-24s %-8s %s\n", name, level->name, level->mask & ~t->have ? "not here" : "");
            continue;
        }
        const bool bench_all = o->bench && !o->caps;
        if (!o->all_caps && !bench_all && !picked(rows, n, i, wanted_mask(o, t->have))) continue;
        if (rows[i].need & ~t->have) {
            printf("skip %-24s needs %s\n", name, level->name);
            sum->n_skip++;
            continue;
        }
        if (!o->bench) {
            test_row(t, op, &rows[i], json, sum);
        } else if (op->bench) {
            reset(t, op, &rows[i]);
            t->n_case = 0;
            op->bench(t, &rows[i]);
            chk_free_all(t);
        }
    }
}

static int self_test(chk *t)
{
    size_t n = 0, missed = 0;
    t->quiet = true;
    for (size_t i = 0; i < n_op; i++) {
        for (const chk_broken *b = ops[i]->broken; b && b->what; b++) {
            if (b->row.need & ~t->have) continue;
            if (!t->state_ok && strstr(b->expect, "extended state")) continue;
            reset(t, ops[i], &b->row);
            run_variant(t);
            const bool right = t->n_fail && strstr(t->first_fail, b->expect);
            printf("%s %-10s %-44s %s\n", right ? "caught" : "MISSED", ops[i]->name, b->what,
                   t->n_fail ? t->first_fail : "");
            n++;
            missed += !right;
        }
    }
    printf("%zu planted bugs, %zu not caught as expected\n", n, missed);
    return missed != 0 || n == 0;
}

static void list_caps(nb_caps have)
{
    for (const nb_cpu_level *v = ladder; v->name; v++)
        printf("%-8s %s\n", v->name, v->mask & ~have ? "no" : "yes");
}

static int usage(const char *what, const char *arg)
{
    fprintf(stderr, "nibble-check: %s%s\n", what, arg);
    fprintf(
        stderr,
        "usage: nibble-check [--test OP] [--function NAME] [--caps LEVEL | --all-caps [--from LEVEL]]\n"
        "                    [--bench] [--seed N] [--repeat N] [--json FILE] [--self-test]\n"
        "                    [--list] [--list-caps] [--list-tests] [--cuda LIBRARY [--guard]]\n"
        "                    [--every N [--first K]]\n");
    return 2;
}

/* Position of the first argument that is wrong, 0 when all are understood. */
static int parse(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *s = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        bool *flag = strcmp(s, "--all-caps") == 0     ? &o->all_caps
                     : strcmp(s, "--guard") == 0      ? &o->guard
                     : strcmp(s, "--bench") == 0      ? &o->bench
                     : strcmp(s, "--self-test") == 0  ? &o->self_test
                     : strcmp(s, "--list") == 0       ? &o->list
                     : strcmp(s, "--list-caps") == 0  ? &o->list_caps
                     : strcmp(s, "--list-tests") == 0 ? &o->list_tests
                                                      : NULL;
        const char **text = strcmp(s, "--test") == 0       ? &o->test
                            : strcmp(s, "--function") == 0 ? &o->function
                            : strcmp(s, "--caps") == 0     ? &o->caps
                            : strcmp(s, "--from") == 0     ? &o->from
                            : strcmp(s, "--json") == 0     ? &o->json
                            : strcmp(s, "--cuda") == 0     ? &o->cuda
                                                           : NULL;
        uint64_t *number = strcmp(s, "--seed") == 0     ? &o->seed
                           : strcmp(s, "--repeat") == 0 ? &o->repeat
                           : strcmp(s, "--every") == 0  ? &o->every
                           : strcmp(s, "--first") == 0  ? &o->first
                                                        : NULL;
        if (flag) {
            *flag = true;
            continue;
        }
        if ((!text && !number) || !v) return i;
        if (text) *text = v;
        if (number) {
            char *end;
            *number = strtoull(v, &end, 0);
            if (end == v || *end) return i;
        }
        i++;
    }
    return 0;
}

static bool known_test(const char *name)
{
    for (size_t i = 0; i < n_op; i++)
        if (strcmp(ops[i]->name, name) == 0) return true;
    return false;
}

static int run_tests(chk *t, const options *o, const char *machine)
{
    totals sum = { 0 };
    FILE *json = NULL;
    if (o->json && !o->bench) {
        json = fopen(o->json, "w");
        if (!json) return usage("cannot write ", o->json);
        fprintf(json, "{\"machine\":\"%s\",\"seed\":%llu,\"results\":[\n", machine,
                (unsigned long long)o->seed);
    }
    for (uint64_t k = 0; k < o->repeat; k++) {
        t->seed = o->seed + k;
        for (size_t i = 0; i < n_op; i++)
            if (!o->test || strcmp(o->test, ops[i]->name) == 0) run_op(t, o, ops[i], json, &sum);
    }
    int bad = 0;
    if (json) {
        fprintf(json, "\n]}\n");
        bad = fclose(json) != 0;
    }
    if (!o->bench && !o->list)
        printf("%zu variants, %zu cases, %zu failed, %zu skipped\n", sum.n_variant, sum.n_case,
               sum.n_fail, sum.n_skip);
    if (o->function && !o->list && !o->bench && sum.n_variant + sum.n_skip + sum.n_fail == 0)
        return usage("no such function among those selected: ", o->function);
    return sum.n_fail != 0 || bad;
}

int main(int argc, char **argv)
{
    static chk t;
    static options o = { .seed = 1, .repeat = 1 };
    const int wrong = parse(argc, argv, &o);
    if (wrong) return usage("unknown or incomplete option ", argv[wrong]);
    if (o.cuda) {
        ops = chk_cuda_ops;
        n_op = chk_cuda_n_op;
        o.all_caps = true;
    }
    if (o.test && !known_test(o.test)) return usage("unknown test ", o.test);
    build_ladder();
    if (!find_level(o.caps)->name) return usage("unknown level ", o.caps);
    if (!find_level(o.from)->name) return usage("unknown level ", o.from);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (o.list_tests) {
        for (size_t i = 0; i < n_op; i++) printf("%s\n", ops[i]->name);
        return 0;
    }
    t.have = nb_cpu_caps();
    t.seed = o.seed;
    if (o.first && o.first >= o.every) return usage("--first must be below --every", "");
    t.every = (size_t)o.every;
    t.first = (size_t)o.first;
    if (o.list_caps) {
        list_caps(t.have);
        return 0;
    }
    char machine[256];
    chk_machine_line(machine, sizeof machine, t.have);
    if (!o.list) printf("%s\n", machine);
    t.state_ok = chk_state_usable(t.have);
    if (o.cuda) {
        if (!chk_gpu_open(o.cuda, o.guard)) return 2;
        t.have |= chk_gpu_caps();
    }
    catch_signals();
    if (!t.state_ok && !o.list)
        printf("note: XGETBV(1) does not tell a dirty vector state here; that check is off\n");
    if (o.self_test) return self_test(&t);
    if (o.bench && !o.cuda) t.bench = chk_bench_open(o.json);
    int rc = run_tests(&t, &o, machine);
    if (o.bench && !o.cuda) rc |= chk_bench_close(t.bench);
    if (o.cuda) chk_gpu_close();
    return rc;
}
