/* sched_sim.h - requests, texts and an engine for prop_sched: everything of a step but the
 * scheduler.
 *
 * The engine computes one number per token, a hash of everything that a token's cache content
 * depends on: the salt, all tokens up to it, and in which form and with which rope table each
 * was computed.  The numbers go where the real ones go: those of the open page into the slot's
 * tail, and when a page's last token is computed the page goes from the tail into its block.
 * Before it computes an item the engine reads everything that comes before it, through the
 * block table and the tail it was given: it must be what the request alone in an empty engine
 * would have written.  Where the model has states, the slot also keeps the last token's number, which comes from
 * the token before or from a snapshot.  So whatever is found, shared, evicted, handed out again or overwritten
 * too early is seen by the first request it hurts. */
#ifndef NB_TESTS_SCHED_SIM_H
#define NB_TESTS_SCHED_SIM_H
#include "prop/prop.h"

#include "kv/kv_cache.h"
#include "sched/refill.h"

enum {
    SIM_TOK = 64 * 12, /* most tokens of a request      */
    SIM_PAGES = SIM_TOK / NB_BLOCK_TOK,
    SIM_SEQS = 12,
    SIM_LIVE = 40, /* requests at a time                */
    SIM_BLOCKS = 64,
    SIM_SALTS = 3,
    SIM_TEXTS = 6 /* finished texts that are continued  */
};

typedef struct sim_req {
    bool live;
    nb_sched_request rq; /* prompt: tok                                             */
    uint32_t tok[SIM_TOK];
    uint64_t ref[SIM_TOK]; /* [n_known] what the request alone would have written   */
    nb_block_key key[SIM_PAGES];
    size_t n_key, n_known, n_end; /* ends when token n_end would be sampled         */
    uint64_t sample_seed;
    unsigned salt;

    size_t n_computed;
    bool running, unsure; /* unsure: running, or set back: the next item tells      */
    bool head;            /* waits because it was set back                          */
    bool prompt_done;     /* was computed at some time                              */
    unsigned n_admitted;
    uint64_t order;   /* of (the last) admission                                   */
    uint64_t arrival; /* of nb_sched_add                                           */
    double t_arrival, t_queue;
    size_t slot;
    uint32_t table[SIM_PAGES + 1];
    size_t n_table;
    /* of the step in hand: */
    const nb_sched_item *item;
    bool was_running, victim;
    size_t was_computed, was_pages;
    uint64_t was_order;
} sim_req;

typedef struct sim sim;
struct sim {
    prop *p;
    int (*on_add)(sim *w, const sim_req *r); /* before a request reaches the scheduler; or NULL */
    nb_sched_options o;
    nb_kv_cache_options ko;
    nb_sched *s;
    nb_kv_cache *kv;
    double now;
    enum { FORM_AUTO, FORM_ABSORBED, FORM_EXPANDED, FORM_ANY } form;
    size_t rope_switch; /* 0: no longrope                                           */
    unsigned rate;      /* chance of a new request, of 100                          */
    unsigned abort_rate;
    size_t mean_prompt, mean_answer;
    uint64_t next_id, n_order, n_arrival;
    sim_req req[SIM_LIVE];
    uint64_t block[SIM_BLOCKS][NB_BLOCK_TOK];
    uint64_t tail[SIM_SEQS][NB_BLOCK_TOK];
    uint64_t state[SIM_SEQS],
        snap[SIM_BLOCKS]; /* with snap_tok: the number of the last token computed */
    struct {
        uint32_t tok[SIM_TOK];
        size_t n, n_prompt;
        unsigned salt;
    } text[SIM_TEXTS];
    sim_req refill; /* live while one is in the scheduler: sched_refill.h */
};

static inline size_t sim_pages(size_t n_tok)
{
    return (n_tok + NB_BLOCK_TOK - 1) / NB_BLOCK_TOK;
}
nb_str sim_salt(unsigned i);
sim_req *sim_find(sim *w, uint64_t id); /* NULL: none alive */
/* A new request in r (not alive), and into the scheduler. */
int sim_add(sim *w, sim_req *r);
/* What the request samples after its known tokens. */
uint32_t sim_next_token(const sim_req *r);
/* One more known token. */
void sim_known(sim_req *r, uint32_t tok);
/* Blocks of r that the index could give it now. */
size_t sim_hits(const sim *w, sim_req *r);
const nb_block_key *sim_key(sim_req *r, size_t page);
/* The index has the page, with a snapshot. */
bool sim_has_snap(const sim *w, sim_req *r, size_t page);
/* Pages of the item that are new in r's table hold nothing yet; so does the tail of a request
 * just admitted. */
void sim_clear_new(sim *w, const sim_req *r, const nb_sched_item *it);
/* Reads what the items need, then computes them. Skips items whose request is gone. */
int sim_forward(sim *w, const nb_sched_item *item, size_t n_item);
/* A finished text, to be continued by others. */
void sim_keep_text(sim *w, const sim_req *r);

#endif
