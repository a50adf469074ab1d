/* config_quant_rules.h - which modules of a checkpoint are quantised, and in which form: lists of names and patterns
 * against the modules of every layer.
 *
 * A rule that keeps modules plain (ignore, exclude_modules, ...) wins over all others; then a name wins over a pattern,
 * and a pattern over the class "Linear"; of equals the first.  A module is also known by the name of the matrix into
 * which other programs fuse it (gate_up_proj, qkv_proj, fused_qkv_a_proj_with_mqa), and with "language_model." before
 * its name where the model is a part of another. */
#ifndef NB_MODEL_CONFIG_QUANT_RULES_H
#define NB_MODEL_CONFIG_QUANT_RULES_H
#include "load/pattern.h"
#include "model/config_quant.h"

#define NB_QU_BIT(u) (1u << (u))
#define NB_QU_ATTENTION (NB_QU_BIT(NB_QU_DENSE) - 1)
#define NB_QU_LINEAR (NB_QU_BIT(NB_QU_HEAD) - 1) /* of the layers */

typedef enum nb_quant_rank { NB_QR_CLASS, NB_QR_PATTERN, NB_QR_NAME, NB_QR_PLAIN } nb_quant_rank;

typedef struct nb_quant_rule {
    nb_pattern pattern;
    unsigned char form; /* 0: plain, else 1 + form */
    nb_quant_rank rank;
    long layer, expert; /* the only ones whose modules it can match; -1: any */
    bool tells;         /* it may match one expert of a layer and not another */
} nb_quant_rule;

typedef struct nb_quant_rules {
    const char *file; /* for error lines */
    nb_quant_rule *rule;
    size_t n, cap, n_regex;
    unsigned char base[NB_QU_COUNT]; /* by class, or where no rule matches */
} nb_quant_rules;

/* text is borrowed.  NB_ERR_FORMAT, NB_ERR_LIMIT, NB_ERR_NOMEM. */
nb_status nb_quant_rule_add(nb_quant_rules *x, nb_pattern_kind kind, const char *text,
                            unsigned char form, nb_quant_rank rank, nb_error *err);
/* units: masks of 1 << nb_quant_unit that have this form by class; those that have one keep it. */
void nb_quant_rule_class(nb_quant_rules *x, unsigned units, unsigned char form);
void nb_quant_rules_deinit(nb_quant_rules *x);

/* Fills layer [m->n_layer], q->of, q->partly and q->odd. */
nb_status nb_quant_rules_apply(const nb_quant_rules *x, const nb_quant_model *m, nb_quant *q,
                               nb_quant_layer *layer, nb_error *err);
/* q->of and q->partly from layer. */
void nb_quant_summarise(nb_quant *q, const bool *dense, size_t n_layer,
                        const nb_quant_layer *layer);
/* Whether a layer has modules of this kind, as far as dense or not decides. */
bool nb_quant_unit_in(nb_quant_unit u, bool dense);
/* The module's name behind "model.layers.N.", or its whole one. */
const char *nb_quant_unit_name(nb_quant_unit u);

#endif
