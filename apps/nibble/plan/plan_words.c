/* plan_words.c - what stands beside the figures of `nibble plan`: assumptions and notes. */
#include <stdarg.h>
#include <string.h>

#include "../cli.h"
#include "plan.h"

json_t *plan_string(const char *s)
{
    char plain[1024];
    size_t n = 0;
    json_t *j = json_string(s);
    if (j) return j;
    for (; s[n] && n + 1 < sizeof plain; n++)
        plain[n] = (char)((unsigned char)s[n] < 0x80 ? s[n] : '?');
    plain[n] = 0;
    return json_string(plain);
}

const char *plan_wtype_name(nb_sizes_wtype w)
{
    static const char *const name[NB_SIZES_N_WTYPE] = { "checkpoint", "bf16", "fp8", "int8",
                                                        "int4" };
    return name[w];
}

const char *plan_arithmetic(const plan *p, nb_kv_type type)
{
    switch (nb_sizes_code_bits(type)) {
    case 32: return "products in FP32 or two BF16 parts; the rate counted is BF16's";
    case 16: return "products in BF16";
    case 8: return "codes are decoded to 16 bits; FP8 units, where there are some, are not used";
    default: break;
    }
    return p->machine.fp4 > 0
               ? "codes are decoded to 16 bits; the FP4 units of this device are not used"
               : "codes are decoded to 16 bits; this device has no FP4 units";
}

CLI_PRINTF(2, 3) static void say(json_t *a, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)json_array_append_new(a, plan_string(text));
}

/* ---- assumptions ------------------------------------------------------------ */

static void about_memory(const plan *p, json_t *a)
{
    char reserve[32];
    cli_bytes_text(p->layout.reserve_bytes, reserve, sizeof reserve);
    say(a, "Memory: %s. %g of it for weights, cache and %s beside them%s.", p->machine.source,
        p->layout.utilization, reserve,
        p->o->plan.reserve || p->machine.cpu
            ? ""
            : " (DeepSeek-V2-Lite takes 3.9 GiB on an H100 with 8,192 tokens a step; a wider model "
              "takes more)");
    say(a,
        "A user holds whole blocks of %d tokens for prompt and answer, and the open page of a "
        "running request in float.",
        NB_PAGE_TOK);
    if (p->layout.n_gpu > 1)
        say(a, "On each GPU: %s; dense matrices / %zu%s.",
            "norms, router and the matrices down to the latents whole", p->layout.tp,
            p->sizes.n_expert ? "; experts / all GPUs" : "");
}

static void about_rates(const plan *p, json_t *a)
{
    const nb_efficiency *e = &p->efficiency;
    say(a,
        "\"at most\": bytes / bandwidth and operations / BF16 rate of the data sheet, the larger of both for "
        "products and for attention, summed; nothing else takes time.");
    say(a,
        "\"modelled\": of the bandwidth %.2f for weights (%.2f up to 8 sequences; FP8 and narrower: %.2f, %.2f), %.2f for 4-bit pages, %.2f for FP8 ones, %.2f for "
        "16-bit ones; of the BF16 rate %.2f in attention of decode and %.2f in prompts; %.0f us a layer and step: %s.",
        e->weights, e->weights_few, e->narrow, e->narrow_few, e->cache, e->cache_fp8, e->cache_wide,
        e->attention, e->prefill, e->layer_s * 1e6, e->source);
    if (e->reduce_s > 0 && p->layout.n_gpu > 1)
        say(a,
            "Exchanges between GPUs, only in \"modelled\": %.0f us each (published for eight H100, SGLang PR "
            "2904), and %s.",
            e->reduce_s * 1e6,
            p->machine.link > 0 ? "rows over the link"
                                : "rows not counted, as the link is unknown");
    if (p->sizes.n_expert)
        say(a,
            "Of %zu experts a token draws %zu, all as likely and tokens independent; those that are hit lie "
            "evenly on the GPUs.",
            p->sizes.n_expert, p->sizes.top_k);
    if (p->layout.host_layers)
        say(a,
            "Experts in host memory: a generated token's are read there, %.2f of its rate \"modelled\", while the GPU "
            "waits; a prompt's are sent once in each chunk.",
            nb_efficiency_cpu.weights);
    say(a, "Arithmetic: weights are widened to BF16 as in nibble. %s: %s.", p->marked->name,
        plan_arithmetic(p, p->marked->type));
    if (p->machine.fp8 > 0)
        say(a,
            "An engine that multiplies in FP8 where weights are FP8 can be up to %.2g times as fast "
            "where the products' arithmetic binds.",
            p->machine.fp8 / p->machine.bf16);
    say(a,
        "A step makes one token of each sequence: no speculation. Work on prompts between the steps "
        "is not counted.");
    say(a, "Prompts: nothing of them is cached, %zu tokens a step%s.", p->o->plan.chunk,
        strcmp(p->sizes.attention, "mla") ? "" : ", attention in the expanded form");
}

json_t *plan_assumptions(const plan *p)
{
    json_t *a = json_array();
    if (!a || !p->has_machine) return a;
    about_memory(p, a);
    if (p->has_rates) about_rates(p, a);
    if (p->price_hour > 0)
        say(a,
            "Cost: %.4g an hour and device (%s); a million tokens = price an hour / (tokens per second * "
            "3600) * 10^6; a session = price an hour / users.",
            p->machine.price, p->machine.price_source);
    return a;
}

/* ---- notes ------------------------------------------------------------------- */

/* What tensor parallelism over all GPUs would hold. */
static void about_copies(const plan *p, json_t *a)
{
    nb_layout l = p->layout;
    nb_place place;
    l.tp = l.n_gpu;
    l.dp = l.ep = 1;
    if (p->layout.tp == l.n_gpu || nb_layout_check(&p->demand, &l, NULL) != NB_OK) return;
    nb_layout_place(&p->demand, &l, &place);
    say(a,
        "Tensor parallelism does not divide the cache: %zu GPUs as one replica would keep %zu copies and hold "
        "%.0f tokens of %s.",
        l.tp, l.tp, nb_place_blocks(&place, p->marked) * NB_PAGE_TOK, p->marked->name);
}

static void about_layout(const plan *p, json_t *a)
{
    const nb_layout *l = &p->layout;
    if (p->place.n_part > 1)
        say(a, "The %zu GPUs of a replica divide its cache by position: each has 1 / %zu of the tokens.", l->tp, l->tp);
    if (p->sizes.is_mla && l->tp > 1 && p->place.n_part <= 1)
        say(a,
            "Tensor parallelism does not divide the latent, which is one for all heads: the %zu GPUs of a replica "
            "keep %zu copies. Tokens and users are counted once.",
            l->tp, l->tp);
    if (!p->sizes.is_mla && l->tp > 1 && p->place.n_part <= 1)
        say(a,
            "nibble's tensor parallelism does not divide keys and values: the %zu GPUs of a replica keep %zu copies, and "
            "attention on each reads %.4g of a token. Tokens and users are counted once.",
            l->tp, l->tp, p->place.read_share);
    if (p->suggested && l->n_gpu > 1)
        say(a,
            "The layout is the one that holds the most tokens of %s: tensor parallel %zu, data parallel %zu%s.",
            p->marked->name, l->tp, l->dp, l->ep > 1 ? ", experts dealt over all GPUs" : "");
    if (l->n_gpu > 1) about_copies(p, a);
}

static void about_fit(const plan *p, json_t *a)
{
    char weights[32], budget[32];
    if (p->fits) return;
    cli_bytes_text(p->place.weights, weights, sizeof weights);
    cli_bytes_text(p->place.budget, budget, sizeof budget);
    if (p->needed)
        say(a,
            "Does not fit: %s of weights on each device, which has %s for weights, reserve and cache. %zu of this "
            "kind would do (tensor parallel %zu, data parallel %zu)%s%s.",
            weights, budget, p->needed, p->needed_layout.tp, p->needed_layout.dp,
            *p->needed_why_not.msg ? ", but nibble does not run that layout: " : "", p->needed_why_not.msg);
    else
        say(a,
            "Does not fit: %s of weights on each device, which has %s for weights, reserve and cache.",
            weights, budget);
}

/* What has form k (from 1): "attention, routed experts". */
static void units_text(const plan *p, const nb_quant *q, size_t k, char *out, size_t n)
{
    static const char *const name[NB_QU_COUNT] = {
        [NB_QU_Q] = "q_proj",
        [NB_QU_Q_A] = "q_a_proj",
        [NB_QU_Q_B] = "q_b_proj",
        [NB_QU_KV_A] = "kv_a_proj",
        [NB_QU_KV_B] = "kv_b_proj",
        [NB_QU_K] = "k_proj",
        [NB_QU_V] = "v_proj",
        [NB_QU_O] = "o_proj",
        [NB_QU_O_A] = "o_a_proj",
        [NB_QU_INDEX_Q] = "the indexer's queries",
        [NB_QU_DENSE] = "dense layers",
        [NB_QU_DENSE_UP] = "dense layers' up_proj",
        [NB_QU_DENSE_DOWN] = "dense layers' down_proj",
        [NB_QU_SHARED] = "shared experts",
        [NB_QU_SHARED_UP] = "shared experts' up_proj",
        [NB_QU_SHARED_DOWN] = "shared experts' down_proj",
        [NB_QU_EXPERT] = "routed experts",
        [NB_QU_EXPERT_UP] = "routed experts' up_proj",
        [NB_QU_EXPERT_DOWN] = "routed experts' down_proj",
        [NB_QU_HEAD] = "head",
        [NB_QU_ROUTER] = "router",
        [NB_QU_EMBED] = "embedding",
        [NB_QU_K_B] = "k_b_proj",
        [NB_QU_V_B] = "v_b_proj",
    };
    const nb_model_config *c = p->config;
    const bool v4 = c->n_stream > 0, mla = p->sizes.is_mla || v4;
    const bool moe = p->sizes.n_moe_layer > 0, dense = p->sizes.n_moe_layer < p->sizes.n_layer;
    const bool lora = mla && c->attn[0].q_lora, shared = moe && c->n_shared;
    const unsigned char *of = q->of;
    bool has[NB_QU_COUNT] = {
        [NB_QU_Q] = !lora,
        [NB_QU_Q_A] = lora,
        [NB_QU_Q_B] = lora,
        [NB_QU_KV_A] = mla,
        [NB_QU_KV_B] = mla && !v4 && !of[NB_QU_K_B],
        [NB_QU_K] = !mla,
        [NB_QU_V] = !mla,
        [NB_QU_O] = true,
        [NB_QU_O_A] = v4,
        [NB_QU_INDEX_Q] = v4,
        [NB_QU_DENSE] = dense,
        [NB_QU_DENSE_UP] = dense && of[NB_QU_DENSE] != of[NB_QU_DENSE_UP],
        [NB_QU_DENSE_DOWN] = dense && of[NB_QU_DENSE] != of[NB_QU_DENSE_DOWN],
        [NB_QU_SHARED] = shared,
        [NB_QU_SHARED_UP] = shared && of[NB_QU_SHARED] != of[NB_QU_SHARED_UP],
        [NB_QU_SHARED_DOWN] = shared && of[NB_QU_SHARED] != of[NB_QU_SHARED_DOWN],
        [NB_QU_EXPERT] = moe,
        [NB_QU_EXPERT_UP] = moe && of[NB_QU_EXPERT] != of[NB_QU_EXPERT_UP],
        [NB_QU_EXPERT_DOWN] = moe && of[NB_QU_EXPERT] != of[NB_QU_EXPERT_DOWN],
        [NB_QU_HEAD] = true,
        [NB_QU_ROUTER] = moe,
        [NB_QU_EMBED] = true,
        [NB_QU_K_B] = of[NB_QU_K_B],
        [NB_QU_V_B] = of[NB_QU_V_B],
    };
    bool attention = true;
    size_t at = 0;
    out[0] = 0;
    for (int u = 0; u < NB_QU_DENSE; u++) attention &= !has[u] || of[u] == k;
    if (attention) at += (size_t)snprintf(out, n, "attention");
    for (int u = attention ? NB_QU_DENSE : 0; u < NB_QU_COUNT && at + 32 < n; u++)
        if (has[u] && of[u] == k)
            at += (size_t)snprintf(out + at, n - at, "%s%s", at ? ", " : "", name[u]);
}

/* "4 bits and a 16-bit scale for 32 values". */
static void bits_text(const nb_quant_form *q, char *out, size_t n)
{
    char group[80] = "a matrix", zero[48] = "";
    if (q->block) {
        (void)snprintf(out, n, "%s", q->name);
        return;
    }
    if (q->rows == 1 && q->cols)
        (void)snprintf(group, sizeof group, "%zu values", q->cols);
    else if (q->rows == 1)
        (void)snprintf(group, sizeof group, "a row");
    else if (q->cols)
        (void)snprintf(group, sizeof group, "%zu rows by %zu columns", q->rows, q->cols);
    if (q->zero_bits)
        (void)snprintf(zero, sizeof zero, " and %s %zu-bit zero", q->zero_bits == 8 ? "an" : "a",
                       q->zero_bits);
    (void)snprintf(out, n, "%zu bits with %s %zu-bit scale%s for %s", q->bits,
                   q->scale_bits == 8 ? "an" : "a", q->scale_bits, zero, group);
}

/* Forms and what has them: "4 bits with a 16-bit scale for 32 values in attention; ...". */
static void forms_text(const plan *p, const nb_quant *q, char *out, size_t n)
{
    char units[256], bits[160];
    size_t at = 0;
    out[0] = 0;
    for (size_t k = 1; k <= q->n_form && at < n; k++) {
        units_text(p, q, k, units, sizeof units);
        bits_text(&q->form[k - 1], bits, sizeof bits);
        if (*units) at += (size_t)snprintf(out + at, n - at, "%s%s in %s", at ? "; " : "", bits, units);
    }
    if (!at) (void)snprintf(out, n, "nothing");
}

/* Quantised weights, and how they were counted. */
static void about_quant(const plan *p, json_t *a)
{
    const char *runs = p->config->quant.runs ? "nibble runs these weights."
                                             : "nibble does not run these weights.";
    const nb_quant int4 = nb_quant_int4(p->sizes.n_moe_layer > 0);
    const nb_quant *q = &p->config->quant;
    char forms[1000];
    if (q->n_form) {
        const bool gguf = nb_quant_main(q)->block > 0;
        forms_text(p, q, forms, sizeof forms);
        say(a, "The checkpoint's weights are %s: %s%s%s%s%s. %s", q->method, forms,
            gguf ? "" : "; the rest in ", gguf ? "" : p->config->dtype,
            gguf ? ", counted tensor by tensor" : ", as quantization_config says",
            q->n_odd     ? "; experts and layers differ, and this is what the first experts of most have"
            : q->partly ? "; layers differ, and this is what most have"
                        : "", runs);
    } else if (q->method[0]) {
        say(a,
            "The checkpoint's weights are %s, of which config.json does not say the bytes: "
            "--weight-dtype says what to plan with. %s",
            q->method, runs);
    }
    if (p->demand.wtype != NB_SIZES_INT4) return;
    forms_text(p, &int4, forms, sizeof forms);
    say(a, "int4 is counted as %s, the rest in BF16%s.", forms,
        p->sizes.n_moe_layer ? " (as Kimi K2 Thinking has it)" : "");
}

static void about_weights(const plan *p, json_t *a)
{
    const nb_sizes *s = &p->sizes;
    char copy[32], gpu[32];
    about_quant(p, a);
    if (s->is_mla) {
        cli_bytes_text((double)s->absorbed_copy_bytes, copy, sizeof copy);
        cli_bytes_text((double)s->gpu_absorbed_bytes, gpu, sizeof gpu);
        say(a,
            "Absorbed form: engines that keep W_UK and W_UV beside kv_b_proj in BF16 add %s. nibble adds nothing on "
            "a CPU, and %s on a GPU.",
            copy, gpu);
    }
    if (s->is_mla && p->config->attn[0].index_topk)
        say(a,
            "Sparse attention: a token attends to at most %zu others, on a CPU and on a GPU; caches in int4 are for a "
            "CPU only.",
            p->config->attn[0].index_topk);
}

/* Contexts of which not one fits; prices. */
static void about_use(const plan *p, json_t *a)
{
    const nb_record_size *r = p->marked;
    if (!p->fits) return;
    for (size_t i = 0; i < p->context.n; i++)
        if (nb_place_users(&p->place, r, (double)p->sizes.tail_bytes_seq, p->context.count[i]) < 1)
            say(a, "No user of %zu tokens fits in %s: a replica holds %.0f tokens.",
                p->context.count[i], r->name, nb_place_blocks(&p->place, r) * NB_PAGE_TOK);
    if (!(p->price_hour > 0)) say(a, "No price of this device is known: --price X an hour.");
}

/* What config.json has too much or too little. */
static void about_config(const plan *p, json_t *a)
{
    const nb_model_config *c = p->config;
    if (c->inner)
        say(a, "Only the model of text_config (%s) is counted, nothing else of the checkpoint.",
            c->family);
    if (c->assumed[0])
        say(a, "config.json does not have these, so they are as the model's class has them: %s.",
            c->assumed);
    if (p->sizes.is_mla && c->n_expert && !p->sizes.n_moe_layer)
        say(a, "All %zu layers are dense (first_k_dense_replace): none of the %zu experts exists.",
            c->n_layer, c->n_expert);
    if (c->notes[0])
        say(a, "Fields of config.json that are not known and were ignored: %s.", c->notes);
}

json_t *plan_notes(const plan *p)
{
    json_t *a = json_array();
    if (!a) return a;
    if (p->has_machine) {
        if (*p->why_not.msg)
            say(a, "nibble does not run it so: %s. The figures say what the bytes and the arithmetic allow.",
                p->why_not.msg);
        about_fit(p, a);
        about_use(p, a);
        about_layout(p, a);
    } else {
        say(a, "--gpu NAME or --memory SIZE says what fits.");
    }
    if (p->has_machine && !p->has_rates && p->layout.dcp <= 1) say(a, "Rates need --bandwidth and --flops.");
    about_weights(p, a);
    for (size_t i = 0; i < p->context.n; i++)
        if (p->config->max_pos && p->context.count[i] > p->config->max_pos)
            say(a, "A context of %zu tokens is longer than the model's %zu: computed all the same.",
                p->context.count[i], p->config->max_pos);
    if (p->model_note) say(a, "%s: %s.", p->o->model, p->model_note);
    about_config(p, a);
    return a;
}
