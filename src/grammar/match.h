/* match.h - one request's states; shared by state.c (what a state is), step.c (how places move) and
 * mask.c. */
#ifndef NB_GRAMMAR_MATCH_H
#define NB_GRAMMAR_MATCH_H
#include "grammar/graph.h"
#include "grammar/vocab.h"

enum {
    NB_M_DEAD = 0,           /* the state of no continuation */
    NB_M_MAX_PLACE = 2000,   /* of a state */
    NB_M_MAX_CLOSURE = 8192, /* places looked at for one state */
    NB_M_MAX_FRAME = 4096,   /* open frames */
    NB_M_MASK_BYTES = 16 << 20,
    NB_M_FLUSH_TOKENS = 1000,
    NB_M_FLUSH_MAX = 3
};

/* A place in the graph.  a, b, c by the node's kind:
 *   K_LIT     a: bytes read
 *   K_DFA     a: state
 *   K_CHARS   a: state of g->chars; b: 1, its counter is the stack's top (0: not yet there)
 *   K_SET, K_NAME   a: first string that begins with what was read; b: bytes read
 *   K_OTHER   a: state; b: as K_SET's a, or NB_G_NONE: no declared name begins so; c: bytes read
 *   K_FREE    a: state of the trigger's automaton */
typedef struct nb_place {
    uint32_t node, a, b, c, stack;
} nb_place;

/* Interned: equal frames have equal numbers.  Frame 0 is the bottom. */
typedef struct nb_frame {
    uint32_t parent;
    nb_gid node;   /* K_CALL, K_REP, K_CHARS, K_OBJ */
    uint32_t x, y; /* K_REP, K_CHARS: still needed, still possible; K_OBJ: next member, members */
    uint32_t chain, canon; /* of the table; the frame with saturated counters, or NB_G_NONE */
    uint16_t depth, nest;
} nb_frame;

typedef struct nb_state {
    uint64_t live[4];        /* bytes that may follow */
    uint16_t before[4];      /* how many of them are in the words before */
    uint32_t place, n_place; /* m->place[place .. place + n_place] */
    uint32_t go;             /* m->go: a state per live byte, NB_G_NONE: not yet known */
    uint32_t chain, canon;   /* of the table; as a frame's */
    uint32_t mask;           /* slot, or NB_G_NONE */
    bool accepting;
} nb_state;

typedef struct nb_mask_slot {
    uint64_t *bits;
    uint32_t state;
    uint64_t used;
} nb_mask_slot;

struct nb_match {
    nb_grammar *g;
    const nb_vocab *v;
    nb_frame *frame;
    nb_state *state;
    nb_place *place;
    uint32_t *go;
    size_t n_frame, cap_frame, n_state, cap_state, n_place, cap_place, n_go, cap_go;
    uint32_t *frame_table, *state_table; /* [n_table], chains */
    size_t n_frame_table, n_state_table;
    uint32_t now; /* the current state */

    /* a state that is being made */
    nb_place *todo, *kept; /* [NB_M_MAX_CLOSURE] */
    size_t n_todo, n_kept, n_seen;
    uint32_t *seen; /* [2 * NB_M_MAX_CLOSURE] places in `todo_all` + 1, by hash */
    uint32_t *seen_stamp, stamp;
    nb_place *seen_place;
    bool accepting;
    nb_status st; /* the first failure */

    nb_mask_slot *slot;
    size_t n_slot, max_slot;
    uint64_t clock;
    uint64_t n_token, flush_token; /* accepted; when the count of flushes began */
    size_t n_flush_now;
    nb_match_stats stats;
    uint64_t *all; /* [n_word], for nb_match_mask of free text */
};

/* state.c */
nb_status nb_m_reset(nb_match *m); /* drops all states */
void nb_m_free_states(nb_match *m);
uint32_t nb_m_frame(nb_match *m, uint32_t parent, nb_gid node, uint32_t x, uint32_t y);
/* The state of the places in m->kept, or NB_M_DEAD. */
uint32_t nb_m_intern(nb_match *m);
uint32_t nb_m_canon(nb_match *m, uint32_t state);
/* Makes m's tables anew with the current state only. */
nb_status nb_m_flush(nb_match *m);
bool nb_m_full(const nb_match *m);

/* step.c */
/* Whether a K_FREE's marker may come at this place. */
bool nb_m_may_trigger(const nb_match *m, const nb_place *p);
void nb_m_begin(nb_match *m);
void nb_m_visit(nb_match *m, nb_place p);
uint32_t nb_m_close(nb_match *m); /* the state of all that was visited */
uint32_t nb_m_step(nb_match *m, uint32_t state, unsigned byte);
uint32_t nb_m_step_marker(nb_match *m, uint32_t state, uint32_t id);
/* Bytes that may follow a place. */
void nb_m_live(const nb_match *m, const nb_place *p, uint64_t live[4]);

static inline bool nb_m_is_live(const nb_state *s, unsigned byte)
{
    return s->live[byte >> 6] >> (byte & 63) & 1;
}
/* Written out: without the instruction, the compiler's own is a call. */
static inline unsigned nb_m_popcount(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (unsigned)(x * 0x0101010101010101u >> 56);
}
/* The place of a byte that is live among those that are. */
static inline unsigned nb_m_rank(const nb_state *s, unsigned byte)
{
    return s->before[byte >> 6] + nb_m_popcount(s->live[byte >> 6] & ((1ull << (byte & 63)) - 1));
}

#endif
