/* forced.c - nibble with the model's output forced: what a client does with an answer can be tested without a
 * model that gives that answer.
 *
 * NB_FORCED names a JSON file, read for every request: a list of rules { "if": [...], "not": [...],
 * "say": "..." }.  The first rule
 * all of whose `if` and none of whose `not` stand in the text of a request's prompt gives what the model
 * says, control tokens spelled out; an end-of-text token follows.  Without a rule the model speaks.
 *
 * Everything but the logits is the program's own: two functions between the folders of src are wrapped by the
 * linker, and a token is forced by making it by far the likeliest, before masks and penalties. */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"

typedef struct forced {
    const nb_sampler *sampler; /* of the request */
    uint32_t *id;              /* [n_id]: what it says, then the end */
    size_t n_id, n_vocab;
    struct forced *next;
} forced;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static forced *all;

/* The names are the linker's; the types are those of the functions, so that a change of one is noticed. */
__typeof__(nb_run_create) __real_nb_run_create, __wrap_nb_run_create;
__typeof__(nb_run_destroy) __real_nb_run_destroy, __wrap_nb_run_destroy;
__typeof__(nb_sampler_next) __real_nb_sampler_next, __wrap_nb_sampler_next;

static void stop_with(const char *what)
{
    fprintf(stderr, "nibble-forced: %s\n", what);
    exit(70);
}

/* The rules, until the next call. */
static json_t *read_rules(void)
{
    static json_t *list;
    const char *path = getenv("NB_FORCED");
    json_error_t err;
    if (!path) return NULL;
    json_decref(list);
    list = json_load_file(path, 0, &err);
    if (!json_is_array(list)) stop_with("NB_FORCED names no JSON file with a list of rules");
    return list;
}

static size_t n_in(const json_t *words, const char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(words); i++)
        n += strstr(text, json_string_value(json_array_get(words, i))) != NULL;
    return n;
}

static const char *what_to_say(const char *prompt)
{
    const json_t *rules = read_rules();
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_t *rule = json_array_get(rules, i), *need = json_object_get(rule, "if");
        const char *say = json_string_value(json_object_get(rule, "say"));
        if (!say) stop_with("a rule that says nothing");
        if (n_in(need, prompt) == json_array_size(need) &&
            n_in(json_object_get(rule, "not"), prompt) == 0)
            return say;
    }
    return NULL;
}

static forced *prepare(const nb_engine *e, const nb_request *rq, const nb_sampler *sampler)
{
    char *prompt = NULL;
    size_t n_bytes, n = 0;
    uint32_t *id = NULL;
    nb_error err = { 0 };
    const nb_text *t = nb_engine_text(e);
    if (!t || rq->sampling.max_tokens == 0) return NULL;
    if (nb_text_detokenize(t, rq->prompt, rq->n_prompt, false, &prompt, &n_bytes, &err) != NB_OK)
        stop_with(err.msg);
    const char *say = what_to_say(prompt);
    free(prompt);
    if (!say) return NULL;
    if (nb_text_tokenize(t, say, strlen(say), NB_TEXT_PARSE_SPECIAL, &id, &n, &err) != NB_OK)
        stop_with(err.msg);
    forced *f = calloc(1, sizeof *f);
    uint32_t *with_end = realloc(id, (n + 1) * sizeof *id);
    if (!f || !with_end || e->model.c.n_eos == 0) stop_with("no memory, or a model without an end");
    with_end[n++] = e->model.c.eos[0];
    *f = (forced){ .sampler = sampler, .id = with_end, .n_id = n, .n_vocab = e->model.c.n_vocab };
    return f;
}

nb_status __wrap_nb_run_create(const nb_engine *e, const nb_request *rq, nb_run **out,
                               nb_error *err)
{
    nb_run *r = NULL;
    NB_TRY(__real_nb_run_create(e, rq, &r, err));
    (void)pthread_mutex_lock(&lock);
    forced *f = prepare(e, rq, r->sampler);
    if (f) {
        f->next = all;
        all = f;
    }
    (void)pthread_mutex_unlock(&lock);
    *out = r;
    return NB_OK;
}

void __wrap_nb_run_destroy(nb_run *r)
{
    (void)pthread_mutex_lock(&lock);
    for (forced **at = &all; r && *at; at = &(*at)->next) {
        forced *f = *at;
        if (f->sampler != r->sampler) continue;
        *at = f->next;
        free(f->id);
        free(f);
        break;
    }
    (void)pthread_mutex_unlock(&lock);
    __real_nb_run_destroy(r);
}

nb_status __wrap_nb_sampler_next(nb_sampler *s, nb_sample_scratch *x, const float *logits,
                                 const nb_sample_mask *mask, nb_sample_out *out)
{
    (void)pthread_mutex_lock(&lock);
    const forced *f = all;
    while (f && f->sampler != s) f = f->next;
    (void)pthread_mutex_unlock(&lock); /* it lives as long as its request */
    if (!f) return __real_nb_sampler_next(s, x, logits, mask, out);
    const size_t n = nb_sampler_n_generated(s);
    float *mine = malloc(f->n_vocab * sizeof *mine);
    if (!mine) return NB_ERR_NOMEM;
    memcpy(mine, logits, f->n_vocab * sizeof *mine);
    mine[f->id[n < f->n_id ? n : f->n_id - 1]] = 1e6F;
    const nb_status st = __real_nb_sampler_next(s, x, mine, mask, out);
    free(mine);
    return st;
}
