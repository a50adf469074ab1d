/* eval_attn.h - `nibble eval attn` inside: what is measured (cmd_eval_attn.c), its report
 * (eval_attn_report.c) and its raw tensors (eval_attn_dump.c).
 *
 * JSON, beside "what": "attn" and the head of every report (cmd_eval.h):
 *   source            "text" or "stress"; stress: "parameters" and, per layer, "layers_drawn"
 *   n_window, n_query, n_head, layers: [numbers]
 *   variants [...]    name, format (the word with all that differs from the defaults),
 *                     bytes_per_token (all layers; null where --layers leaves some out),
 *                     bytes_per_token_layer (mean), bits_per_value, and of all queries, heads
 *                     and layers
 *     rel_l2, one_minus_cos, kl, max_dp    {mean, median, p95, p99, max}; with thrift=... of the
 *                     refined attention, but for max_dp
 *     layers [...]    the same by layer; with --detailed also by head ("heads"), and "errors":
 *                     {rel_l2: [query][head], kl: [query][head]}, windows one behind the other
 *   floor, base       names of the variants that recovery compares: bf16, and what is refined
 *   methods [...]     name, refine ("residual", "fp8", "bf16"), and by fraction
 *     fraction, refined (share of attended tokens), base_bytes and refine_bytes (read by a query
 *     in a layer, mean), rel_l2 and kl (means), low, high (means of base and floor: {rel_l2, kl}),
 *     recovered, recovered_kl: {value, lo, hi}, or null where the gap is under 2 of its standard
 *     errors
 *   paper             null, or {fraction, refined, n, modes: [{name, rel_l2, kl, refined_rel_l2,
 *                     refined_kl, recovered}]}: means; recovered against exact attention */
#ifndef NB_APPS_EVAL_ATTN_H
#define NB_APPS_EVAL_ATTN_H
#include "cmd_eval.h"
#include "quality/attn_run.h"
#include "quality/stress.h"

enum { EVAL_ATTN_FORMS = 33 };

typedef struct eval_attn {
    const opts *o;
    nb_arena arena;                    /* results */
    nb_variant *v;                     /* [n_form] */
    const char *word[EVAL_ATTN_FORMS]; /* [n_form], of the options: nb_variant_word */
    nb_kv_calib calib[EVAL_ATTN_FORMS];
    bool has_calib[EVAL_ATTN_FORMS];
    size_t n_form, floor, base; /* base: n_form where nothing can be refined */
    nb_thrift_method method[NB_THRIFT_MAX_METHODS];
    nb_attn_refine refine[NB_THRIFT_MAX_METHODS];
    size_t n_method;
    bool paper;
    double fraction[NB_THRIFT_MAX_FRACTIONS];
    size_t n_fraction;
    nb_stress_opts stress;
    char hash[NB_MODEL_HASH_CHARS + 1];
    size_t n_window, n_layer; /* n_layer: of the model, or of what is generated */
    nb_buf drawn;             /* stress: a terminated line per layer */
    nb_attn_layer_result *r;  /* [n_r], window by window, layer by layer */
    size_t n_r, cap_r;
} eval_attn;

/* The text, the JSON and the plots of what was measured. */
int eval_attn_report(const eval_attn *a, eval_report *out);
/* kv, q, w_uv of a layer as raw little-endian float32 in the folder, and what they are, as
 * <name>.json beside them; name: "window0_layer3". */
int eval_attn_dump(const char *dir, const char *name, const nb_capture_layer *l);

#endif
