/* emu_block.cpp - a block of threads as fibers on one stack each (cu_emu.h).
 *
 * A fiber runs until it waits; what runs next is picked from two levels of bit masks (warps that have a
 * lane that can run, lanes of a warp), so a switch costs about ten instructions and no system call. */
#include "emu/cuda/emu.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

nb_emu_thread *nb_emu_cur;
uint3 nb_emu_block_idx;
dim3 nb_emu_block_dim, nb_emu_grid_dim;

enum {
    MAX_THREAD = 1024,
    MAX_WARP = MAX_THREAD / 32,
    STACK_BYTES = 128 << 10,
    CANARY_BYTES = 1024,
    MAX_COPY = 160 /* copies of one thread that are under way; more are done at once */
};

struct warp {
    unsigned exist, alive, ready, waiting, at_barrier; /* lanes */
};
struct wait { /* of a lane that waits for others of its warp */
    unsigned mask;
    const char *what;
    nb_emu_warp_fn *fn;
    void *arg;
};
struct copies { /* of cp.async */
    unsigned n, n_done, group, done_group;
    struct {
        void *dst;
        const void *src;
        uint32_t n_bytes, group;
    } c[MAX_COPY];
};
static struct {
    const nb_emu_call *call;
    void *main_sp;
    unsigned n_thread, n_warp, n_alive, n_at_barrier, ready_warps;
    int count, count_out; /* of __syncthreads_count */
    struct {              /* of nb_bar_sync */
        unsigned n, lanes[MAX_WARP];
    } bar[16];
    bool failed, reverse, late; /* late: cp.async copies when it is waited for */
    bool again;                 /* the kernel waits for another device */
    double waited_s;
    char why[320];
    warp w[MAX_WARP];
    wait wait_of[MAX_THREAD];
    nb_emu_thread t[MAX_THREAD];
    unsigned char *stacks;
    unsigned short stack_of[MAX_THREAD], free_stack[MAX_THREAD];
    unsigned n_free;
} b;
static copies copy_of[MAX_THREAD];
alignas(1024) static unsigned char shared[CANARY_BYTES + NB_EMU_SHARED_MAX + CANARY_BYTES];

/* ---- switching ---- */

#if defined __x86_64__
__asm__(".text\n.globl nb_emu_switch\n.hidden nb_emu_switch\n.type nb_emu_switch,@function\n"
        "nb_emu_switch:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
        ".size nb_emu_switch,.-nb_emu_switch\n");
enum { FRAME_WORDS = 8, ENTRY_WORD = 6 };
#elif defined __aarch64__
__asm__(".text\n.globl nb_emu_switch\n.hidden nb_emu_switch\n.type nb_emu_switch,%function\n"
        "nb_emu_switch:\n"
        "sub sp,sp,#160\n"
        "stp x19,x20,[sp]\n stp x21,x22,[sp,#16]\n stp x23,x24,[sp,#32]\n"
        "stp x25,x26,[sp,#48]\n stp x27,x28,[sp,#64]\n stp x29,x30,[sp,#80]\n"
        "stp d8,d9,[sp,#96]\n stp d10,d11,[sp,#112]\n stp d12,d13,[sp,#128]\n"
        "stp d14,d15,[sp,#144]\n"
        "mov x9,sp\n str x9,[x0]\n mov sp,x1\n"
        "ldp x19,x20,[sp]\n ldp x21,x22,[sp,#16]\n ldp x23,x24,[sp,#32]\n"
        "ldp x25,x26,[sp,#48]\n ldp x27,x28,[sp,#64]\n ldp x29,x30,[sp,#80]\n"
        "ldp d8,d9,[sp,#96]\n ldp d10,d11,[sp,#112]\n ldp d12,d13,[sp,#128]\n"
        "ldp d14,d15,[sp,#144]\n"
        "add sp,sp,#160\n ret\n"
        ".size nb_emu_switch,.-nb_emu_switch\n");
enum { FRAME_WORDS = 20, ENTRY_WORD = 11 };
#else
#error "the emulation of CUDA switches stacks on x86-64 and AArch64 only"
#endif

static unsigned number(const nb_emu_thread *t)
{
    return (unsigned)(t - b.t);
}
static warp *warp_of(const nb_emu_thread *t)
{
    return &b.w[number(t) / 32];
}
[[noreturn]] static void leave_block()
{
    void *unused;
    nb_emu_cur = NULL;
    nb_emu_switch(&unused, b.main_sp);
    __builtin_unreachable();
}

static void note(const char *fmt, va_list ap)
{
    const uint3 x = nb_emu_block_idx;
    char line[160];
    vsnprintf(line, sizeof line, fmt, ap);
    snprintf(b.why, sizeof b.why, "%.60s, block (%u,%u,%u): %s", b.call->name, x.x, x.y, x.z, line);
    b.failed = true;
}
void nb_emu_fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    note(fmt, ap);
    va_end(ap);
    leave_block();
}
__attribute__((format(printf, 1, 2))) static void fail_after(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    note(fmt, ap);
    va_end(ap);
}

void nb_emu_again()
{
    b.again = true;
    leave_block();
}
double nb_emu_waited_s()
{
    return b.waited_s;
}

static void copy_until(unsigned thread, unsigned group)
{
    copies *c = &copy_of[thread];
    while (c->n_done < c->n && c->c[c->n_done].group < group) {
        auto *x = &c->c[c->n_done++];
        memcpy(x->dst, x->src, x->n_bytes);
        memset((char *)x->dst + x->n_bytes, 0, 16 - x->n_bytes);
    }
    if (c->n_done == c->n) c->n = c->n_done = 0;
}

static nb_emu_thread *pick();

/* A fiber: threads that were not started yet follow on the same stack, as long as they come next. */
static void run_thread()
{
    for (;;) {
        nb_emu_thread *me = nb_emu_cur;
        b.call->run(b.call);
        if (copy_of[number(me)].n) copy_until(number(me), UINT32_MAX);
        warp *w = warp_of(me);
        w->alive &= ~(1u << me->lane);
        w->ready &= w->alive;
        if (--b.n_alive == 0) {
            b.free_stack[b.n_free++] = b.stack_of[number(me)];
            leave_block();
        }
        nb_emu_thread *t = pick();
        nb_emu_cur = t;
        if (t->sp) {
            void *unused;
            b.free_stack[b.n_free++] = b.stack_of[number(me)];
            nb_emu_switch(&unused, t->sp);
        }
        b.stack_of[number(t)] = b.stack_of[number(me)];
    }
}

static void make_frame(nb_emu_thread *t)
{
    /* Tops at different places of a page, or all stacks would share the same few sets of a cache. */
    const size_t n = b.stack_of[number(t)] = b.free_stack[--b.n_free],
                 top = (n + 1) * STACK_BYTES - n % 61 * 192 - 64;
    uintptr_t *frame = (uintptr_t *)(b.stacks + top) - FRAME_WORDS;
    memset(frame, 0, FRAME_WORDS * sizeof *frame);
    frame[ENTRY_WORD] = (uintptr_t)run_thread;
    t->sp = frame;
}

[[noreturn]] static void stuck()
{
    unsigned n_barrier = 0, first = UINT32_MAX, other = UINT32_MAX;
    for (unsigned i = 0; i < b.n_thread; i++) {
        const warp *w = &b.w[i / 32];
        if (!(w->alive >> i % 32 & 1)) continue;
        const bool at_barrier = w->at_barrier >> i % 32 & 1;
        n_barrier += at_barrier;
        if (at_barrier) continue;
        if (first == UINT32_MAX)
            first = i;
        else if (other == UINT32_MAX && (b.wait_of[i].fn != b.wait_of[first].fn ||
                                         b.wait_of[i].mask != b.wait_of[first].mask))
            other = i;
    }
    const unsigned n_ended = b.n_thread - b.n_alive;
    if (first == UINT32_MAX)
        nb_emu_fail("%u threads wait at __syncthreads, %u have ended", n_barrier, n_ended);
    const wait *x = &b.wait_of[first], *y = other < UINT32_MAX ? &b.wait_of[other] : NULL;
    if (y)
        nb_emu_fail("thread %u waits in %s with mask %08x, thread %u in %s with %08x", first,
                    x->what, x->mask, other, y->what, y->mask);
    nb_emu_fail("thread %u waits in %s with mask %08x for lanes that do not come (%u threads have "
                "ended, %u are at __syncthreads)",
                first, x->what, x->mask, n_ended, n_barrier);
}

static nb_emu_thread *pick()
{
    unsigned i = number(nb_emu_cur) / 32;
    if (!b.w[i].ready) {
        b.ready_warps &= ~(1u << i);
        if (!b.ready_warps) stuck();
        i = b.reverse ? 31 - (unsigned)__builtin_clz(b.ready_warps)
                      : (unsigned)__builtin_ctz(b.ready_warps);
    }
    const unsigned r = b.w[i].ready;
    const unsigned lane = b.reverse ? 31 - (unsigned)__builtin_clz(r) : (unsigned)__builtin_ctz(r);
    return &b.t[32 * i + lane];
}

/* Runs another thread; returns when the caller's turn comes. */
void nb_emu_yield()
{
    nb_emu_thread *me = nb_emu_cur, *t = pick();
    if (t == me) return;
    if (!t->sp) make_frame(t);
    nb_emu_cur = t;
    nb_emu_switch(&me->sp, t->sp);
}

/* ---- waiting ---- */

int __syncthreads_count(int x)
{
    warp *w = warp_of(nb_emu_cur);
    b.count += x != 0;
    if (++b.n_at_barrier == b.n_thread) {
        for (unsigned i = 0; i < b.n_warp; i++) {
            b.w[i].ready = b.w[i].alive;
            b.w[i].at_barrier = 0;
        }
        b.ready_warps = b.n_warp == 32 ? UINT32_MAX : (1u << b.n_warp) - 1;
        b.n_at_barrier = 0;
        b.count_out = b.count;
        b.count = 0;
        return b.count_out;
    }
    w->at_barrier |= 1u << nb_emu_cur->lane;
    w->ready &= ~(1u << nb_emu_cur->lane);
    nb_emu_yield();
    return b.count_out;
}
void __syncthreads()
{
    __syncthreads_count(0);
}
void nb_bar_sync(uint32_t id, uint32_t n_thread)
{
    const unsigned i = number(nb_emu_cur) / 32, bit = 1u << nb_emu_cur->lane;
    if (id < 1 || id > 15 || n_thread % 32) nb_emu_fail("nb_bar_sync(%u, %u)", id, n_thread);
    auto *x = &b.bar[id];
    if (++x->n == n_thread) {
        for (unsigned k = 0; k < b.n_warp; k++) {
            b.w[k].ready |= x->lanes[k];
            if (x->lanes[k]) b.ready_warps |= 1u << k;
            x->lanes[k] = 0;
        }
        x->n = 0;
        return;
    }
    x->lanes[i] |= bit;
    b.wait_of[number(nb_emu_cur)] = wait{ 0, "nb_bar_sync", NULL, NULL };
    b.w[i].ready &= ~bit;
    nb_emu_yield();
}
int __syncthreads_or(int x)
{
    return __syncthreads_count(x) != 0;
}
int __syncthreads_and(int x)
{
    return __syncthreads_count(x) == (int)b.n_thread;
}

void nb_emu_warp(unsigned mask, const char *what, nb_emu_warp_fn *fn, void *arg)
{
    nb_emu_thread *me = nb_emu_cur;
    warp *w = warp_of(me);
    wait *of = &b.wait_of[number(me) / 32 * 32];
    const unsigned bit = 1u << me->lane;
    if (!(mask & bit)) nb_emu_fail("lane %u calls %s with mask %08x", me->lane, what, mask);
    mask &= w->exist; /* the last warp of a block may be shorter */
    of[me->lane] = wait{ mask, what, fn, arg };
    w->waiting |= bit;
    bool all = (w->waiting & mask) == mask;
    void *args[32];
    for (unsigned m = mask; all && m; m &= m - 1) {
        const wait *x = &of[__builtin_ctz(m)];
        all = x->mask == mask && x->fn == fn;
        args[__builtin_ctz(m)] = x->arg;
    }
    if (all) {
        w->waiting &= ~mask;
        w->ready |= mask;
        fn(args, mask);
        return;
    }
    w->ready &= ~bit;
    nb_emu_yield();
}

/* ---- cp.async ---- */

void nb_cp_async16(void *dst, const void *src, uint32_t n_bytes)
{
    const unsigned thread = number(nb_emu_cur);
    copies *c = &copy_of[thread];
    if ((uintptr_t)dst % 16 || (uintptr_t)src % 16)
        nb_emu_fail("thread %u: cp.async from %p to %p: not aligned to 16", thread, src, dst);
    if (n_bytes > 16) nb_emu_fail("thread %u: cp.async of %u bytes", thread, n_bytes);
    if (c->n == MAX_COPY) copy_until(thread, UINT32_MAX);
    c->c[c->n++] = { dst, src, n_bytes, c->group };
    if (!b.late) copy_until(thread, UINT32_MAX);
}
void nb_cp_async_commit()
{
    copy_of[number(nb_emu_cur)].group++;
}
void nb_emu_cp_async_wait(int n)
{
    const unsigned thread = number(nb_emu_cur), group = copy_of[thread].group;
    copy_until(thread, group > (unsigned)n ? group - (unsigned)n : 0);
}

/* ---- shared memory ---- */

void *nb_emu_shared()
{
    return shared + CANARY_BYTES;
}
uint32_t nb_smem(const void *p)
{
    return (uint32_t)((const unsigned char *)p - shared);
}

static void check_shared(size_t n_bytes)
{
    const unsigned char *end = shared + CANARY_BYTES + n_bytes;
    static unsigned char whole[CANARY_BYTES];
    if (!whole[0]) memset(whole, NB_EMU_CANARY, CANARY_BYTES);
    if (!memcmp(shared, whole, CANARY_BYTES) && !memcmp(end, whole, CANARY_BYTES)) return;
    for (int i = 0; i < CANARY_BYTES; i++) {
        if (shared[i] != NB_EMU_CANARY)
            return fail_after("%d bytes before the shared memory were written", CANARY_BYTES - i);
        if (end[i] != NB_EMU_CANARY)
            return fail_after("byte %zu of %zu bytes of shared memory was written",
                              n_bytes + (size_t)i, n_bytes);
    }
}

/* ---- blocks ---- */

static void first_thread()
{
    nb_emu_cur = &b.t[b.reverse ? b.n_thread - 1 : 0];
    make_frame(nb_emu_cur);
    nb_emu_switch(&b.main_sp, nb_emu_cur->sp);
}

static void run_block(const nb_emu_call *c)
{
    for (unsigned i = 0; i < b.n_warp; i++) {
        const unsigned n = b.n_thread - 32 * i;
        const unsigned lanes = n >= 32 ? UINT32_MAX : (1u << n) - 1;
        b.w[i] = warp{ lanes, lanes, lanes, 0, 0 };
    }
    for (unsigned i = 0; i < b.n_thread; i++) {
        b.t[i].sp = NULL;
        if (copy_of[i].group | copy_of[i].n)
            copy_of[i].n = copy_of[i].n_done = copy_of[i].group = 0;
    }
    b.ready_warps = b.n_warp == 32 ? UINT32_MAX : (1u << b.n_warp) - 1;
    b.n_alive = b.n_thread;
    b.n_at_barrier = 0;
    b.count = 0;
    memset(b.bar, 0, sizeof b.bar);
    memset(shared + CANARY_BYTES, 0xff, c->shared_bytes);
    first_thread();
}

const char *nb_emu_run(const nb_emu_call *c, unsigned order, double waited_s, bool *again)
{
    if (!b.stacks) {
        void *p = mmap(NULL, (size_t)MAX_THREAD * STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return "no memory for the stacks of the emulation";
        b.stacks = (unsigned char *)p;
        for (size_t i = 0; i < MAX_THREAD;
             i++) /* an overflow faults instead of spoiling the next */
            if (mprotect(b.stacks + i * STACK_BYTES, 4096, PROT_NONE)) break;
    }
    if (b.n_free != MAX_THREAD) /* at first, and after a failure */
        for (b.n_free = 0; b.n_free < MAX_THREAD; b.n_free++)
            b.free_stack[b.n_free] = (unsigned short)(MAX_THREAD - 1 - b.n_free);
    b.call = c;
    b.failed = b.again = false;
    b.waited_s = waited_s;
    b.reverse = order & 1;
    b.late = !(order & 2);
    b.n_thread = c->block.x * c->block.y * c->block.z;
    b.n_warp = (b.n_thread + 31) / 32;
    nb_emu_block_dim = c->block;
    nb_emu_grid_dim = c->grid;
    for (unsigned i = 0; i < b.n_thread; i++) {
        const unsigned x = i % c->block.x, y = i / c->block.x;
        b.t[i].idx = make_uint3(x, y % c->block.y, y / c->block.y);
        b.t[i].lane = i % 32;
    }
    memset(shared, NB_EMU_CANARY, CANARY_BYTES);
    memset(shared + CANARY_BYTES + c->shared_bytes, NB_EMU_CANARY, CANARY_BYTES);
    const size_t n_block = (size_t)c->grid.x * c->grid.y * c->grid.z;
    for (size_t i = 0; i < n_block && !b.failed && !b.again; i++) {
        const size_t k = order & 4 ? n_block - 1 - i : i;
        nb_emu_block_idx.x = (unsigned)(k % c->grid.x);
        nb_emu_block_idx.y = (unsigned)(k / c->grid.x % c->grid.y);
        nb_emu_block_idx.z = (unsigned)(k / c->grid.x / c->grid.y);
        run_block(c);
        if (!b.failed) check_shared(c->shared_bytes);
    }
    *again = b.again && !b.failed;
    return b.failed ? b.why : NULL;
}
