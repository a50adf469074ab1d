/* pace.h - what a step costs, learnt from the steps before it, and how much of prompts fits beside
 * requests that generate.
 *
 * A prompt's chunk of n tokens after `before` others has the work n + pair_tok * pairs tokens, where pairs is
 * n * before + n (n + 1) / 2.  A step without prompts takes D(n) seconds for n generated tokens; one with prompts of work w
 * takes D(n) + c + r w: c is what any prompt costs (weights are read again), r grows with its tokens.  D is a running
 * mean for each power of two of n; c and r are a least-squares line through the last steps with prompts, of which each
 * weighs less than the next.
 *
 * The limit is max_step_s.  If that is negative, it is derived, the largest of
 *   3 D(n), so that a token is at most three times as late as beside no prompts;
 *   D(n) + 2 c, so that no more than half of a prompt's time goes into c;
 *   D(n) + c + r * backlog / 4: prompts that wait are computed within a few steps.  Without this, a load that is mostly
 *   prompts would spend a third of its time on steps that generate for few requests.
 * Nothing is limited before one step of each kind was seen.
 * Plain numbers, no clock; owned by the scheduler. */
#ifndef NB_SCHED_PACE_H
#define NB_SCHED_PACE_H
#include <stddef.h>

enum { NB_PACE_CLASSES = 16 };

typedef struct nb_pace {
    double max_step_s;                /* 0: no limit; negative: derived */
    double pair_tok;                  /* >= 0 */
    double decode_s[NB_PACE_CLASSES]; /* D of 1, 2 to 3, 4 to 7, ... tokens; 0: not seen */
    double n, x, xx, y,
        xy; /* decayed sums over steps with prompts; x: work, y: seconds less D, >= 0 */
} nb_pace;

/* A step of n_decode generated tokens and prompts of this work (0: none) took so many seconds. */
void nb_pace_note(nb_pace *p, size_t n_decode, double work, double seconds);
/* The most work of prompts for a step with n_decode >= 1 generated tokens, while `backlog` of work waits:
 * >= 0, INFINITY where nothing limits. */
double nb_pace_work(const nb_pace *p, size_t n_decode, double backlog);

/* Of a chunk of n tokens after `before` others. */
double nb_pace_chunk(const nb_pace *p, size_t n, size_t before);
/* The longest chunk of at most `work`, and of at most n tokens. */
size_t nb_pace_fit(const nb_pace *p, double work, size_t n, size_t before);

#endif
