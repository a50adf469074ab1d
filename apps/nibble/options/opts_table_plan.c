/* opts_table_plan.c - the options of `nibble plan`.  Names are vLLM's where it has the option. */
#include "opts_table.h"

#define AT(field) offsetof(opts, plan.field)
#define PLAN .cmds = CMD_PLAN

// clang-format off
static const opt_row rows[] = {
    { .name = "gpu", .arg = "NAME", .type = OPT_STR, .offset = AT(gpu), PLAN, .group = GROUP_MODEL,
      .help = "device to plan for: h100, h100-pcie, h200, b200, b300, a100-40, a100-80, l40s, rtx4090, rtx5090, rtx-pro-6000, mi300x, or a row of --gpu-file" },
    { .name = "gpu-file", .arg = "FILE", .type = OPT_STR, .offset = AT(gpu_file), PLAN, .group = GROUP_MODEL,
      .help = "JSON file with more devices, or other figures for known ones; docs/capacity.md has an example" },
    { .name = "gpus", .arg = "N", .type = OPT_SIZE, .offset = AT(gpus), .lo = 1, .hi = 4096, PLAN, .group = GROUP_MODEL,
      .help = "number of devices", .unset = "tensor times data parallel size, else 1" },
    { .name = "memory", .arg = "SIZE", .type = OPT_STR, .offset = AT(memory), PLAN, .group = GROUP_MODEL,
      .help = "memory of one device, such as 80GiB or 141GB; without --gpu it is a processor's" },
    { .name = "bandwidth", .arg = "GB/S", .type = OPT_NUM, .offset = AT(bandwidth), .lo = 0.001, .hi = 1e6, PLAN,
      .group = GROUP_MODEL, .help = "memory bandwidth of a device, in 10^9 bytes per second" },
    { .name = "flops", .arg = "TFLOP/S", .type = OPT_NUM, .offset = AT(flops), .lo = 1e-6, .hi = 1e6, PLAN,
      .group = GROUP_MODEL, .help = "dense BF16 rate of a device, in 10^12 operations per second" },
    { .name = "gpu-memory-utilization", .alias = "memory-utilization", .arg = "X", .type = OPT_NUM, .offset = AT(utilization),
      .def = "0.92", .lo = 0.01, .hi = 1, PLAN, .group = GROUP_MODEL,
      .help = "share of the memory for weights, workspace and cache" },
    { .name = "reserve", .arg = "SIZE", .type = OPT_STR, .offset = AT(reserve), PLAN, .group = GROUP_MODEL,
      .help = "memory of each device for what is neither weights nor cache, out of that share", .unset = "4GiB on a GPU, else 0" },
    { .name = "efficiency", .arg = "X", .type = OPT_NUM, .offset = AT(efficiency), .lo = 0.001, .hi = 1, PLAN,
      .group = GROUP_MODEL, .help = "share of the machine's figures that modelled rates reach", .unset = "measured shares" },
    { .name = "tensor-parallel-size", .alias = "tp", .dash = "tp", .arg = "N", .type = OPT_SIZE, .offset = AT(tp), .lo = 1, .hi = 4096, PLAN,
      .group = GROUP_MODEL, .help = "GPUs that compute one token together", .unset = "the layout that holds the most tokens" },
    { .name = "data-parallel-size", .alias = "dp", .dash = "dp", .arg = "N", .type = OPT_SIZE, .offset = AT(dp), .lo = 1, .hi = 4096, PLAN,
      .group = GROUP_MODEL, .help = "replicas of the attention, each with its own users" },
    { .name = "expert-parallel-size", .alias = "ep", .arg = "N", .type = OPT_SIZE, .offset = AT(ep), .lo = 1, .hi = 4096, PLAN,
      .group = GROUP_MODEL, .help = "GPUs over which the experts are spread; 1 divides them as other matrices" },
    { .name = "enable-expert-parallel", .type = OPT_FLAG, .offset = AT(enable_ep), PLAN, .group = GROUP_MODEL,
      .help = "spread the experts over all GPUs" },
    { .name = "cpu-experts", .alias = "n-cpu-moe", .arg = "N", .type = OPT_STR, .offset = AT(cpu_experts), .def = "0", PLAN,
      .group = GROUP_MODEL, .help = "routed experts of the first N layers that have some in the memory of the host; all; auto: as few layers as leave room for a user of the longest --context" },
    { .name = "ram-bandwidth", .arg = "GB/S", .type = OPT_NUM, .offset = AT(ram_bandwidth), .lo = 0.001, .hi = 1e6, PLAN,
      .group = GROUP_MODEL, .help = "read rate of that memory, in 10^9 bytes per second; without it there are no rates" },
    { .name = "pcie-bandwidth", .arg = "GB/S", .type = OPT_NUM, .offset = AT(pcie_bandwidth), .def = "50", .lo = 0.001, .hi = 1e6, PLAN,
      .group = GROUP_MODEL, .help = "rate from it to the GPU" },
    { .name = "weight-dtype", .arg = "NAME", .type = OPT_CHOICE, .offset = AT(weight_dtype), .def = "auto",
      .choices = "auto|bf16|fp8|int8|int4", PLAN, .group = GROUP_MODEL,
      .help = "type of the weights; auto is the checkpoint's; int4 is 4 bits with a 16-bit scale per 32 values, for the routed experts where there are some" },
    { .name = "kv-cache-dtype", .arg = "NAME", .type = OPT_CHOICE, .offset = offsetof(opts, kv_cache_dtype), .def = "auto",
      .choices = "auto" NB_KV_CHOICES, PLAN, .group = GROUP_MODEL,
      .help = "cache format to mark, and to compare layouts by; auto is the model's own type" },
    { .name = "kv-rope-dtype", .arg = "NAME", .type = OPT_CHOICE, .offset = offsetof(opts, kv_rope_dtype),
      .choices = "fp8|bf16|int8", PLAN, .group = GROUP_MODEL, .help = "type of the rope key in a latent record", .unset = "int8" },

    { .name = "context", .arg = "LIST", .type = OPT_STR, .offset = AT(context), .def = "4k,32k,128k", PLAN, .group = GROUP_REQUESTS,
      .help = "tokens of a user, prompt and answer; k is 1,024" },
    { .name = "concurrency", .arg = "LIST", .type = OPT_STR, .offset = AT(concurrency), .def = "1,16", PLAN, .group = GROUP_REQUESTS,
      .help = "sequences that generate at once; as many as fit are always added" },
    { .name = "prompt", .arg = "LIST", .type = OPT_STR, .offset = AT(prompt), PLAN, .group = GROUP_REQUESTS,
      .help = "lengths of prompts without a cached prefix", .unset = "those of --context" },
    { .name = "max-num-batched-tokens", .arg = "N", .type = OPT_TOKENS, .offset = AT(chunk), .def = "8192", .lo = 1, .hi = 1 << 24, PLAN,
      .group = GROUP_REQUESTS, .help = "prompt tokens per step; k is 1,024" },
    { .name = "price", .arg = "X", .type = OPT_NUM, .offset = AT(price), .lo = 1e-6, .hi = 1e6, PLAN, .group = GROUP_REQUESTS,
      .help = "dollars per hour and device", .unset = "the device's, where it is known" },
    { .name = "tokens-per-second", .arg = "X", .type = OPT_NUM, .offset = AT(tok_s), .lo = 0.001, .hi = 1e9, PLAN,
      .group = GROUP_REQUESTS, .help = "a measured rate of the whole machine, to compute the cost of a million tokens from" },

    { .name = "json", .type = OPT_FLAG, .offset = offsetof(opts, json), PLAN, .group = GROUP_OUTPUT,
      .help = "print one line of JSON; src/capacity/README.md describes its keys" },
};
// clang-format on
const opt_table opt_table_plan = { rows, sizeof rows / sizeof *rows };
