/* http_post.c - tasks for the loop from any thread: a queue in which no pair of function and
 * argument stands twice.
 *
 * Nodes lie in one array and are linked twice: in order of arrival, and in the bucket of their
 * hash.  A task leaves both before it begins, so what is posted while it runs is a new one. */
#include <stdlib.h>

#include "base/hash.h"
#include "serve/http_internal.h"

enum { NONE = UINT32_MAX };

typedef struct node {
    nb_http_task_fn *fn;
    void *ctx;
    uint32_t next, next_in_bucket;
} node;

struct nb_http_tasks {
    pthread_mutex_t lock;
    node *nodes;
    uint32_t *bucket;
    size_t cap_nodes, n_bucket; /* n_bucket: a power of two, fixed */
    uint32_t first, last, free, n;
};

static void add_free_nodes(nb_http_tasks *t, size_t from, size_t to)
{
    for (size_t i = to; i-- > from;) {
        t->nodes[i].next = t->free;
        t->free = (uint32_t)i;
    }
    t->cap_nodes = to;
}

nb_http_tasks *nb_http_tasks_create(size_t room)
{
    nb_http_tasks *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    if (room > UINT32_MAX / 4) room = UINT32_MAX / 4;
    t->n_bucket = 16;
    while (t->n_bucket < room) t->n_bucket *= 2;
    t->nodes = calloc(room, sizeof *t->nodes);
    t->bucket = malloc(t->n_bucket * sizeof *t->bucket);
    if (!t->nodes || !t->bucket || pthread_mutex_init(&t->lock, NULL) != 0) {
        free(t->nodes);
        free(t->bucket);
        free(t);
        return NULL;
    }
    for (size_t i = 0; i < t->n_bucket; i++) t->bucket[i] = NONE;
    t->first = t->last = t->free = NONE;
    add_free_nodes(t, 0, room);
    return t;
}

void nb_http_tasks_destroy(nb_http_tasks *t)
{
    if (!t) return;
    (void)pthread_mutex_destroy(&t->lock);
    free(t->nodes);
    free(t->bucket);
    free(t);
}

static uint32_t *bucket_of(nb_http_tasks *t, nb_http_task_fn *fn, void *ctx)
{
    const uint64_t hash = nb_mix64((uint64_t)(uintptr_t)ctx ^ nb_mix64((uint64_t)(uintptr_t)fn));
    return &t->bucket[hash & (t->n_bucket - 1)];
}

/* Index of an unused node, or NONE. */
static uint32_t take_free(nb_http_tasks *t)
{
    if (t->free == NONE && t->cap_nodes < UINT32_MAX / 4) {
        const size_t cap = t->cap_nodes * 2;
        node *more = realloc(t->nodes, cap * sizeof *more);
        if (!more) return NONE;
        t->nodes = more;
        add_free_nodes(t, t->cap_nodes, cap);
    }
    const uint32_t i = t->free;
    if (i != NONE) t->free = t->nodes[i].next;
    return i;
}

static bool add_locked(nb_http_tasks *t, nb_http_task_fn *fn, void *ctx)
{
    uint32_t *head = bucket_of(t, fn, ctx);
    for (uint32_t i = *head; i != NONE; i = t->nodes[i].next_in_bucket)
        if (t->nodes[i].fn == fn && t->nodes[i].ctx == ctx) return false;
    const uint32_t i = take_free(t);
    if (i == NONE) return false;
    t->nodes[i] = (node){ fn, ctx, NONE, *head };
    *head = i;
    if (t->last == NONE)
        t->first = i;
    else
        t->nodes[t->last].next = i;
    t->last = i;
    return t->n++ == 0;
}

bool nb_http_tasks_add(nb_http_tasks *t, nb_http_task_fn *fn, void *ctx)
{
    (void)pthread_mutex_lock(&t->lock);
    const bool was_empty = add_locked(t, fn, ctx);
    (void)pthread_mutex_unlock(&t->lock);
    return was_empty;
}

/* The oldest; false when there is none. *left: how many stay. */
static bool take(nb_http_tasks *t, node *out, uint32_t *left)
{
    (void)pthread_mutex_lock(&t->lock);
    const uint32_t i = t->first;
    const bool any = i != NONE;
    if (any) {
        *out = t->nodes[i];
        uint32_t *at = bucket_of(t, out->fn, out->ctx);
        while (*at != i) at = &t->nodes[*at].next_in_bucket;
        *at = out->next_in_bucket;
        t->first = out->next;
        if (t->first == NONE) t->last = NONE;
        t->nodes[i].next = t->free;
        t->free = i;
        t->n--;
    }
    *left = t->n;
    (void)pthread_mutex_unlock(&t->lock);
    return any;
}

bool nb_http_tasks_run(nb_http_tasks *t)
{
    node task;
    uint32_t left = 0, n = 0, n_now = 1;
    for (; n < n_now && take(t, &task, &left); n++) {
        if (n == 0) n_now = left + 1; /* what they post themselves is for the next round */
        task.fn(task.ctx);
    }
    (void)pthread_mutex_lock(&t->lock);
    left = t->n;
    (void)pthread_mutex_unlock(&t->lock);
    return left > 0;
}
