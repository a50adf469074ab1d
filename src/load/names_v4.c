/* names_v4.c - DeepSeek V4's published tensors under the names that transformers gives them.
 *
 * The published files spell "layers.3.attn.wq_a.weight" and "layers.3.attn.wq_a.scale" what is asked for as
 * "model.layers.3.self_attn.q_a_proj.weight" and "...weight_scale_inv".  A name is cut into the layer, the module and
 * the rest; modules are replaced by the table, which is searched for the longest match. */
#include <stdio.h>
#include <string.h>

#include "load/source.h"

typedef struct row {
    const char *ours, *theirs;
} row;

/* Whole names outside layers. */
static const row whole[] = {
    { "model.embed_tokens.weight", "embed.weight" }, { "lm_head.weight", "head.weight" },
    { "model.norm.weight", "norm.weight" },          { "model.hc_head.hc_fn", "hc_head_fn" },
    { "model.hc_head.hc_base", "hc_head_base" },     { "model.hc_head.hc_scale", "hc_head_scale" },
};

#define SELF "self_attn."
#define COMP SELF "compressor."
#define IDX COMP "indexer."
/* Beginnings of what follows "model.layers.N.". */
static const row modules[] = {
    { "input_layernorm.", "attn_norm." },
    { "post_attention_layernorm.", "ffn_norm." },
    { "attn_hc.", "hc_attn_" },
    { "ffn_hc.", "hc_ffn_" },
    { SELF "q_a_proj.", "attn.wq_a." },
    { SELF "q_a_norm.", "attn.q_norm." },
    { SELF "q_b_proj.", "attn.wq_b." },
    { SELF "kv_proj.", "attn.wkv." },
    { SELF "kv_norm.", "attn.kv_norm." },
    { SELF "o_a_proj.", "attn.wo_a." },
    { SELF "o_b_proj.", "attn.wo_b." },
    { SELF "sinks", "attn.attn_sink" },
    { COMP "kv_proj.", "attn.compressor.wkv." },
    { COMP "gate_proj.", "attn.compressor.wgate." },
    { COMP "position_bias", "attn.compressor.ape" },
    { COMP "kv_norm.", "attn.compressor.norm." },
    { IDX "q_b_proj.", "attn.indexer.wq_b." },
    { IDX "scorer.weights_proj.", "attn.indexer.weights_proj." },
    { IDX "kv_proj.", "attn.indexer.compressor.wkv." },
    { IDX "gate_proj.", "attn.indexer.compressor.wgate." },
    { IDX "position_bias", "attn.indexer.compressor.ape" },
    { IDX "kv_norm.", "attn.indexer.compressor.norm." },
    { "mlp.gate.e_score_correction_bias", "ffn.gate.bias" },
    { "mlp.gate.", "ffn.gate." },
    { "mlp.shared_experts.", "ffn.shared_experts." },
    { "mlp.experts.", "ffn.experts." },
};
/* Parts of an expert. */
static const row parts[] = { { "gate_proj.", "w1." },
                             { "down_proj.", "w2." },
                             { "up_proj.", "w3." } };

static const row *longest(const row *rows, size_t n, const char *name)
{
    const row *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const size_t k = strlen(rows[i].ours);
        if (strncmp(name, rows[i].ours, k) == 0 && (!best || k > strlen(best->ours)))
            best = &rows[i];
    }
    return best;
}

bool nb_names_v4(const char *name, char *out, size_t n_bytes)
{
    static const char layers[] = "model.layers.", scale[] = "weight_scale_inv";
    const char *module, *rest, *expert = "";
    char number[24];
    size_t n_expert = 0;
    int n;
    for (size_t i = 0; i < NB_COUNT(whole); i++)
        if (strcmp(name, whole[i].ours) == 0) {
            n = snprintf(out, n_bytes, "%s", whole[i].theirs);
            return n > 0 && (size_t)n < n_bytes;
        }
    if (strncmp(name, layers, sizeof layers - 1) != 0) return false;
    name += sizeof layers - 1;
    const size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits >= sizeof number || name[digits] != '.') return false;
    memcpy(number, name, digits);
    number[digits] = 0;
    const row *m = longest(modules, NB_COUNT(modules), name + digits + 1);
    if (!m) return false;
    module = m->theirs;
    rest = name + digits + 1 + strlen(m->ours);
    if (strstr(module, "experts.")) { /* "7.gate_proj.weight" or "gate_proj.weight" */
        expert = rest;
        n_expert = strspn(rest, "0123456789.");
        rest += n_expert;
        const row *p = longest(parts, NB_COUNT(parts), rest);
        if (!p) return false;
        rest += strlen(p->ours);
        n = snprintf(out, n_bytes, "layers.%s.%s%.*s%s%s", number, module, (int)n_expert, expert,
                     p->theirs, strcmp(rest, scale) == 0 ? "scale" : rest);
    } else {
        n = snprintf(out, n_bytes, "layers.%s.%s%s", number, module,
                     strcmp(rest, scale) == 0 ? "scale" : rest);
    }
    return n > 0 && (size_t)n < n_bytes;
}

static const row *longest_of_theirs(const row *rows, size_t n, const char *name)
{
    const row *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const size_t k = strlen(rows[i].theirs);
        if (strncmp(name, rows[i].theirs, k) == 0 && (!best || k > strlen(best->theirs))) best = &rows[i];
    }
    return best;
}

bool nb_names_v4_back(const char *theirs, char *out, size_t n_bytes)
{
    static const char layers[] = "layers.";
    int n;
    for (size_t i = 0; i < NB_COUNT(whole); i++)
        if (strcmp(theirs, whole[i].theirs) == 0) {
            n = snprintf(out, n_bytes, "%s", whole[i].ours);
            return n > 0 && (size_t)n < n_bytes;
        }
    if (strncmp(theirs, layers, sizeof layers - 1) != 0) return false;
    const char *number = theirs + sizeof layers - 1;
    const size_t digits = strspn(number, "0123456789");
    if (digits == 0 || number[digits] != '.') return false;
    const char *name = number + digits + 1;
    const row *m = longest_of_theirs(modules, NB_COUNT(modules), name);
    if (!m) return false;
    const char *rest = name + strlen(m->theirs), *expert = rest, *part = "";
    size_t n_expert = 0;
    bool has_scale = m->theirs[strlen(m->theirs) - 1] == '.';
    if (strstr(m->theirs, "experts.")) {
        n_expert = strspn(rest, "0123456789.");
        rest += n_expert;
        const row *p = longest_of_theirs(parts, NB_COUNT(parts), rest);
        if (!p) return false;
        part = p->ours;
        rest += strlen(p->theirs);
    }
    has_scale &= strcmp(rest, "scale") == 0;
    n = snprintf(out, n_bytes, "model.layers.%.*s.%s%.*s%s%s", (int)digits, number, m->ours, (int)n_expert, expert,
                 part, has_scale ? "weight_scale_inv" : rest);
    return n > 0 && (size_t)n < n_bytes;
}
