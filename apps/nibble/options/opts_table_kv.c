/* opts_table_kv.c - how the KV cache is kept: options of every command that has an engine. */
#include "opts_table.h"

#define ENGINE                                                                                     \
    (CMD_RUN | CMD_CHAT | CMD_LOGITS | CMD_SERVE | CMD_BENCH_THROUGHPUT | CMD_BENCH_LOAD |         \
     CMD_BENCH_TUNE | CMD_EVAL | CMD_CALIBRATE)
#define AT(field) offsetof(opts, field)
#define KV .cmds = ENGINE | CMD_BENCH_MATRIX, .group = GROUP_MODEL

// clang-format off
static const opt_row rows[] = {
    { .name = "kv-cache-dtype", .arg = "NAME", .type = OPT_CHOICE, .offset = AT(kv_cache_dtype),
      .def = "auto", .choices = "auto" NB_KV_CHOICES,
      .cmds = ENGINE | CMD_INFO, .group = GROUP_MODEL,
      .help = "format of the KV cache; auto is the model's own type, or the one that its checkpoint was calibrated for" },
    { .name = "kv-cache-mode", .arg = "NAME", .type = OPT_CHOICE, .offset = AT(kv_cache_mode),
      .choices = "basic|4over6|search", KV,
      .help = "encoder of 4-bit formats", .unset = "the format's own" },
    { .name = "kv-rope-dtype", .arg = "NAME", .type = OPT_CHOICE, .offset = AT(kv_rope_dtype),
      .choices = "fp8|bf16|int8", KV,
      .help = "type of the rope key in a latent record", .unset = "int8, or fp8 where the checkpoint's FP8 scale is used" },
    { .name = "kv-cache-dtype-skip-layers", .arg = "LIST", .type = OPT_STR, .words = OPT_MANY_WORDS, .offset = AT(kv_skip_layers), KV,
      .help = "keep these layers in the model's own type, such as 0,1,5-7" },
    { .name = "kv-calibration", .arg = "FILE", .type = OPT_STR, .offset = AT(kv_calibration), KV,
      .help = "file that `nibble calibrate` wrote for this model" },
    { .name = "kv-transform", .arg = "NAME", .type = OPT_STR, .offset = AT(kv_transform), KV,
      .help = "transform of latents, folded into the weights: none, or center, equalize, hadamard joined by +", .unset = "the calibration's choice, else none" },
    { .name = "kv-outliers", .arg = "N", .type = OPT_SIZE, .offset = AT(kv_outliers), .lo = 0, .hi = 64, KV,
      .help = "channels of each layer to keep in BF16; needs --kv-calibration" },
    { .name = "kv-sinks", .arg = "N", .type = OPT_SIZE, .offset = AT(kv_sinks), .lo = 0, .hi = 64, KV,
      .help = "first tokens of a sequence to keep in BF16" },
    { .name = "ctx-checkpoints", .arg = "N", .type = OPT_SIZE, .offset = AT(n_snapshot), .lo = 1, .hi = 1 << 20, KV,
      .help = "models with a state per request: states kept, all requests together, from which cached prefixes are continued",
      .unset = "one for each request that may run, at least 8" },
    { .name = "checkpoint-every-n-tokens", .arg = "N", .type = OPT_SIZE, .offset = AT(snapshot_tok), .lo = 64, .hi = 1 << 20, KV,
      .help = "tokens between these, a multiple of 64", .unset = "512" },
    { .name = "kv-scales", .arg = "NAME", .type = OPT_CHOICE, .offset = AT(kv_scales), .def = "auto",
      .choices = "auto|checkpoint|dynamic", KV,
      .help = "scales of fp8 and nvfp4: auto takes the checkpoint's where it has some, checkpoint requires them, dynamic computes them per token" },
    { .name = "kv-thrift", .arg = "NAME", .type = OPT_CHOICE, .offset = AT(kv_thrift), .def = "off",
      .choices = "off|token|block-mean|quest|block-prob", KV,
      .help = "read the cached tokens that matter at 8 bits, from residual planes in host memory; the name says how they are chosen" },
    { .name = "kv-thrift-tau", .arg = "P", .type = OPT_NUM, .offset = AT(kv_thrift_tau), .def = "0.001", .lo = 0, .hi = 1, .lo_open = true, KV,
      .help = "with token: attention probability from which a token matters" },
    { .name = "kv-thrift-fraction", .arg = "F", .type = OPT_NUM, .offset = AT(kv_thrift_fraction), .lo = 0, .hi = 1, .lo_open = true, KV,
      .help = "refine at most this part of the tokens, or of the blocks", .unset = "0.005 of the tokens, 0.05 of the blocks" },
    { .name = "kv-thrift-pool", .arg = "F", .type = OPT_NUM, .offset = AT(kv_thrift_pool), .lo = 0, .hi = 1, .lo_open = true, KV,
      .help = "on a CPU: part of the refined rows to keep near the kernels", .unset = "0.02" },
};
// clang-format on
const opt_table opt_table_kv = { rows, sizeof rows / sizeof *rows };
