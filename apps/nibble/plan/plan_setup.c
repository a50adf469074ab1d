/* plan_setup.c - from the options of `nibble plan` to a model, a machine and a layout. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "capacity/configs.h"
#include "plan.h"

#define MAX_BYTES 1e15 /* times tokens and GPUs it still is an integer of 64 bits */
enum { MAX_TOKENS = 1 << 30, MAX_CONCURRENCY = 1 << 24 };

/* ---- words --------------------------------------------------------------- */

/* A number and B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB; any case. */
static bool parse_bytes(const char *s, double *out)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { "", 1 },
                  { "b", 1 },
                  { "kb", 1e3 },
                  { "mb", 1e6 },
                  { "gb", 1e9 },
                  { "tb", 1e12 },
                  { "kib", 1024 },
                  { "mib", 1048576 },
                  { "gib", 1073741824 },
                  { "tib", 1099511627776.0 } };
    const size_t n = strspn(s, "0123456789.");
    char number[32], unit[8];
    char *end;
    if (n == 0 || n >= sizeof number || strlen(s + n) >= sizeof unit) return false;
    memcpy(number, s, n);
    number[n] = 0;
    size_t k = 0;
    for (; s[n + k]; k++)
        unit[k] = (char)(s[n + k] >= 'A' && s[n + k] <= 'Z' ? s[n + k] - 'A' + 'a' : s[n + k]);
    unit[k] = 0;
    const double x = strtod(number, &end);
    if (*end) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, unit) == 0) {
            *out = floor(x * units[i].bytes);
            return *out <= MAX_BYTES;
        }
    return false;
}

static int size_option(const char *name, const char *value, double lo, double *out)
{
    if (parse_bytes(value, out) && *out >= lo) return CLI_OK;
    return cli_usage(
        "%s %.60s%s: expected a size%s such as 80GiB, 141GB or 512MiB, at most 10^15 bytes", name,
        value, strlen(value) > 60 ? "..." : "", lo > 0 ? " of 1 MiB or more" : "");
}

static int list_option(const char *name, const char *value, size_t hi, bench_counts *out)
{
    if (bench_counts_parse(value, 1, hi, out)) return CLI_OK;
    return cli_usage("%s %.60s%s: expected up to %d numbers in [1, %zu] such as 4k,32k,128k", name,
                     value, strlen(value) > 60 ? "..." : "", BENCH_MAX_LIST, hi);
}

static int read_lists(plan *p)
{
    const plan_opts *o = &p->o->plan;
    int code = list_option("--context", o->context, MAX_TOKENS, &p->context);
    if (code == CLI_OK)
        code = list_option("--concurrency", o->concurrency, MAX_CONCURRENCY, &p->concurrency);
    if (code == CLI_OK && o->prompt)
        code = list_option("--prompt", o->prompt, MAX_TOKENS, &p->prompt);
    else
        p->prompt = p->context;
    return code;
}

/* ---- the model ----------------------------------------------------------- */

static int read_model(plan *p)
{
    nb_error err = { 0 };
    p->config = calloc(1, sizeof *p->config);
    if (!p->config) return cli_failed("out of memory");
    nb_status st = nb_capacity_read_config(p->o->model, p->config, &p->model_note, &err);
    if (st == NB_OK) st = nb_sizes_of(p->config, &p->sizes, &err);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

static nb_sizes_wtype weight_type(const char *s)
{
    if (strcmp(s, "bf16") == 0) return NB_SIZES_BF16;
    if (strcmp(s, "fp8") == 0) return NB_SIZES_FP8;
    if (strcmp(s, "int8") == 0) return NB_SIZES_INT8;
    if (strcmp(s, "int4") == 0) return NB_SIZES_INT4;
    return NB_SIZES_CHECKPOINT;
}

static int mark_record(plan *p)
{
    const char *name = p->o->kv_cache_dtype, *rope = p->o->kv_rope_dtype;
    nb_kv_type type = p->sizes.own;
    nb_rope_fmt fmt = nb_rope_fmt_default(p->sizes.is_mla);
    if (strcmp(name, "auto") != 0 && nb_kv_type_parse(name, &type) != NB_OK)
        return cli_usage("--kv-cache-dtype %s: unknown", name);
    if (rope && !p->sizes.is_mla)
        return cli_usage("--kv-rope-dtype %s: this model's cache has no rope key of its own", rope);
    if (rope) (void)nb_rope_fmt_parse(rope, &fmt);
    p->marked = nb_sizes_find_rope(&p->sizes, nb_kv_type_name(type), fmt);
    if (!p->marked) p->marked = nb_sizes_find(&p->sizes, nb_kv_type_name(type));
    if (!p->marked)
        return cli_usage("--kv-cache-dtype %s: this model's cache cannot be kept so", name);
    p->demand = (nb_demand){ .config = p->config,
                             .sizes = &p->sizes,
                             .wtype = weight_type(p->o->plan.weight_dtype),
                             .machine = &p->machine,
                             .kv = p->marked->type,
                             .rope = p->marked->rope };
    return CLI_OK;
}

const nb_record_size *plan_next_record(const plan *p, size_t *i)
{
    while (*i < p->sizes.n_record) {
        const nb_record_size *r = &p->sizes.record[(*i)++];
        if (r == p->marked) return r;
        if (r->type == p->marked->type) continue; /* one rope key of each type */
        if (r == nb_sizes_find(&p->sizes, r->name)) return r;
    }
    return NULL;
}

/* ---- the machine ---------------------------------------------------------- */

static int unknown_gpu(const plan *p, const char *name)
{
    char all[512];
    size_t at = 0;
    all[0] = 0;
    for (size_t i = 0; i < p->machines.n && at + NB_MACHINE_NAME + 2 < sizeof all; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "",
                               p->machines.m[i].name);
    const nb_machine *near = nb_machines_nearest(&p->machines, name);
    return cli_usage("--gpu %.60s: unknown; did you mean %s? There are %s; --gpu-file adds others",
                     name, near ? near->name : "another", all);
}

/* --gpu, or --memory alone. */
static int find_machine(plan *p)
{
    const plan_opts *o = &p->o->plan;
    nb_error err = { 0 };
    nb_status st = nb_machines_builtin(&p->machines, &err);
    if (st == NB_OK && o->gpu_file) st = nb_machines_read(&p->machines, o->gpu_file, &err);
    if (st != NB_OK) return cli_status(st, &err);
    if (o->gpu) {
        const nb_machine *m = nb_machines_find(&p->machines, o->gpu);
        if (!m) return unknown_gpu(p, o->gpu);
        p->machine = *m;
        p->has_machine = true;
    } else if (o->memory) {
        const bool several = o->gpus > 1 || o->tp > 1 || o->dp > 1;
        p->machine = (nb_machine){ .name = "custom",
                                   .title = "a machine as the options say",
                                   .source = "the options",
                                   .cpu = !several };
        p->has_machine = true;
    } else if (o->gpus || o->tp || o->dp || o->ep || o->enable_ep || o->bandwidth > 0 ||
               o->flops > 0 || o->price > 0 || o->tok_s > 0 || o->reserve) {
        return cli_usage("of which machine? --gpu NAME or --memory SIZE says it");
    }
    return CLI_OK;
}

static int read_machine(plan *p)
{
    const plan_opts *o = &p->o->plan;
    nb_machine *m = &p->machine;
    int code = find_machine(p);
    if (code != CLI_OK || !p->has_machine) return code;
    if (o->memory) code = size_option("--memory", o->memory, 1 << 20, &m->memory_bytes);
    if (code != CLI_OK) return code;
    if (o->bandwidth > 0) m->bandwidth = o->bandwidth * 1e9;
    if (o->flops > 0) m->bf16 = o->flops * 1e12;
    if (o->price > 0) {
        m->price = o->price;
        (void)snprintf(m->price_source, sizeof m->price_source, "--price");
    }
    p->has_rates = m->bandwidth > 0 && m->bf16 > 0;
    p->layout.utilization = o->utilization;
    p->layout.reserve_bytes = m->cpu ? 0 : 4.0 * 1073741824;
    if (o->reserve) code = size_option("--reserve", o->reserve, 0, &p->layout.reserve_bytes);
    p->efficiency = o->efficiency > 0 ? nb_efficiency_flat(o->efficiency)
                    : m->cpu          ? nb_efficiency_cpu
                                      : nb_efficiency_gpu;
    return code;
}

/* ---- the layout ----------------------------------------------------------- */

/* --cpu-experts, as the engine reads it. */
static int place_experts(plan *p)
{
    const char *s = p->o->plan.cpu_experts;
    const size_t n_moe = p->sizes.n_moe_layer;
    nb_layout *l = &p->layout;
    char *end = NULL;
    if (!s || !strcmp(s, "0")) return CLI_OK;
    const bool all = !strcmp(s, "all"), fit = !strcmp(s, "auto");
    const long n = !all && !fit && s[0] >= '0' && s[0] <= '9' ? strtol(s, &end, 10) : 0;
    if (!all && !fit && (!end || *end || n > 100000))
        return cli_usage("--cpu-experts %.40s: expected a number of layers, all or auto", s);
    if (n_moe == 0) return cli_usage("--cpu-experts %s: the model has no routed experts", s);
    if ((size_t)n > n_moe)
        return cli_usage("--cpu-experts %s: the model has %zu layers with routed experts", s, n_moe);
    if (p->machine.cpu || l->n_gpu > 1)
        return cli_usage("--cpu-experts %s: expected one GPU", s);
    l->host_bandwidth = p->o->plan.ram_bandwidth > 0 ? p->o->plan.ram_bandwidth * 1e9 : 0;
    l->host_link = p->o->plan.pcie_bandwidth * 1e9;
    l->host_layers = all ? n_moe : (size_t)n;
    if (fit) {
        double most = 0;
        for (size_t i = 0; i < p->context.n; i++)
            if ((double)p->context.count[i] > most) most = (double)p->context.count[i];
        l->host_layers = nb_layout_fit_host(&p->demand, l,
                                            ceil(most / NB_PAGE_TOK) * (double)p->marked->block_bytes +
                                                (double)p->sizes.tail_bytes_seq);
    }
    if (l->host_layers && !(l->host_bandwidth > 0)) p->has_rates = false;
    return CLI_OK;
}

static int choose_layout(plan *p)
{
    const plan_opts *o = &p->o->plan;
    nb_layout *l = &p->layout;
    nb_error err = { 0 };
    const size_t product = (o->tp ? o->tp : 1) * (o->dp ? o->dp : 1); /* at most 4096 * 4096 */
    l->n_gpu = o->gpus ? o->gpus : product > 1 ? product : o->ep > 1 ? o->ep : 1;
    if (l->n_gpu > NB_MAX_GPU)
        return cli_usage("--tensor-parallel-size %zu and --data-parallel-size %zu: at most %d GPUs",
                         o->tp, o->dp, NB_MAX_GPU);
    if (o->tp && !o->dp && l->n_gpu % o->tp)
        return cli_usage("--tensor-parallel-size %zu does not divide the number of GPUs, %zu",
                         o->tp, l->n_gpu);
    if (o->dp && !o->tp && l->n_gpu % o->dp)
        return cli_usage("--data-parallel-size %zu does not divide the number of GPUs, %zu", o->dp,
                         l->n_gpu);
    p->suggested = !o->tp && !o->dp;
    if (p->suggested) {
        l->tp = l->dp = l->ep = 1;
        (void)nb_layout_suggest(&p->demand, l);
    } else {
        l->tp = o->tp ? o->tp : l->n_gpu / o->dp;
        l->dp = o->dp ? o->dp : l->n_gpu / o->tp;
        l->ep = 1;
    }
    if (o->enable_ep && o->ep && o->ep != l->n_gpu)
        return cli_usage("--enable-expert-parallel deals the experts over all %zu GPUs, "
                         "--expert-parallel-size says %zu",
                         l->n_gpu, o->ep);
    if (o->enable_ep && p->sizes.n_expert == 0)
        return cli_usage("--enable-expert-parallel: this model has no routed experts");
    if (o->ep) l->ep = o->ep;
    if (o->enable_ep) l->ep = l->n_gpu;
    l->dcp = o->dcp;
    if (l->dcp > 1) p->has_rates = false; /* its exchanges have not been measured */
    if (nb_layout_check(&p->demand, l, &err) != NB_OK) return cli_usage("%s", err.msg);
    const int code = place_experts(p);
    if (code != CLI_OK) return code;
    nb_layout_place(&p->demand, l, &p->place);
    p->fits = nb_place_blocks(&p->place, p->marked) >= 1;
    p->price_hour = p->machine.price * (double)l->n_gpu;
    if (nb_layout_runs(&p->demand, l, &p->why_not) == NB_OK) p->why_not.msg[0] = 0;
    if (!p->fits && !p->machine.cpu && !l->host_layers) {
        p->needed_layout = *l;
        p->needed = nb_layout_needed(&p->demand, &p->needed_layout);
        if (!p->needed || nb_layout_runs(&p->demand, &p->needed_layout, &p->needed_why_not) == NB_OK)
            p->needed_why_not.msg[0] = 0;
    }
    return CLI_OK;
}

int plan_setup(const opts *o, plan *p)
{
    *p = (plan){ .o = o };
    int code = read_lists(p);
    if (code == CLI_OK) code = read_model(p);
    if (code == CLI_OK) code = mark_record(p);
    if (code == CLI_OK) code = read_machine(p);
    if (code == CLI_OK && p->has_machine && p->sizes.checkpoint_unknown &&
        p->demand.wtype == NB_SIZES_CHECKPOINT)
        return cli_usage(
            "%s: quantization_config.quant_method \"%s\" does not say the bytes of the "
            "weights: --weight-dtype bf16, fp8, int8 or int4 says what to plan with",
            o->model, p->config->quant.method);
    if (code == CLI_OK && p->has_machine) code = choose_layout(p);
    return code;
}

void plan_deinit(plan *p)
{
    free(p->config);
    nb_machines_deinit(&p->machines);
    p->config = NULL;
}
