/* opts_table_trace.c - the options of `nibble plan --trace`. */
#include "opts_table.h"

#define AT(field) offsetof(opts, trace.field)
#define PLAN .cmds = CMD_PLAN, .group = GROUP_REQUESTS

// clang-format off
static const opt_row rows[] = {
    { .name = "trace", .arg = "FILE", .type = OPT_STR, .offset = AT(file), PLAN,
      .help = "replay a trace of requests through cache and scheduler: Mooncake JSONL, Azure CSV, a session's .json or a folder of them (docs/trace-replay.md)" },
    { .name = "replay", .arg = "MODE", .type = OPT_CHOICE, .offset = AT(replay), .def = "cache", .choices = "cache|serve", PLAN,
      .help = "cache plays the requests one after the other; serve gives them a scheduler and a clock" },
    { .name = "cache", .arg = "LIST", .type = OPT_STR, .offset = AT(cache), PLAN,
      .help = "with --trace: sizes of the cache, in GB (10^9 bytes) or with a unit, such as 20,40,80 or 64GiB", .unset = "what --gpu or --memory leaves for it, and a half, a quarter and an eighth of that" },
    { .name = "kv-cache-memory-bytes", .arg = "LIST", .type = OPT_STR, .offset = AT(cache_bytes), PLAN,
      .help = "with --trace: sizes of the cache in bytes" },
    { .name = "records", .arg = "LIST", .type = OPT_STR, .offset = AT(records), .def = "bf16,fp8,nvfp4", PLAN,
      .help = "with --trace: cache formats to compare, named as in --kv-cache-dtype" },
    { .name = "bytes-per-token", .arg = "LIST", .type = OPT_STR, .offset = AT(bytes_per_token), PLAN,
      .help = "with --trace: bytes of a token in all layers instead of formats, such as 35136 or 576x61" },
    { .name = "policies", .arg = "LIST", .type = OPT_STR, .offset = AT(policies), .def = "classes", PLAN,
      .help = "with --trace: eviction policies: classes (the engine's), lru, fifo, lfu, aged, longest, random, or all" },
    { .name = "protected-share", .arg = "X", .type = OPT_NUM, .offset = AT(protected_share), .def = "0.25", .lo = 0, .hi = 1, PLAN,
      .help = "with --trace: largest share of the cache that the policy classes keeps for blocks that were hit again" },
    { .name = "sessions", .arg = "N", .type = OPT_SIZE, .offset = AT(sessions), .def = "16", .lo = 1, .hi = 4096, PLAN,
      .help = "with a trace of sessions: how many are open at once" },
    { .name = "max-gap", .arg = "S", .type = OPT_NUM, .offset = AT(max_gap_s), .def = "600", .lo = 0, .hi = 1e9, PLAN,
      .help = "with a trace of sessions: longest time between two requests of one, in seconds" },
    { .name = "seeds", .arg = "N", .type = OPT_SIZE, .offset = AT(seeds), .def = "1", .lo = 1, .hi = 1000, PLAN,
      .help = "with a trace of sessions: runs with other orders of sessions; the mean is shown" },
    { .name = "requests", .arg = "N", .type = OPT_SIZE, .offset = AT(requests), .lo = 1, .hi = 1e9, PLAN,
      .help = "with --trace: requests to play", .unset = "all; of sessions, until none is left to open" },
    { .name = "max-prompt", .arg = "N", .type = OPT_TOKENS, .offset = AT(max_prompt), .def = "0", .lo = 0, .hi = 1 << 24, PLAN,
      .help = "with --trace: leave out prompts of more tokens; 0 leaves out none; k is 1,024" },
    { .name = "speed", .arg = "X", .type = OPT_NUM, .offset = AT(speed), .def = "1", .lo = 1e-6, .hi = 1e6, PLAN,
      .help = "with --trace: divide the times between requests by this, 0.000001 to 1,000,000" },
    { .name = "prefill-rate", .arg = "TOK/S", .type = OPT_NUM, .offset = AT(prefill_rate), .lo = 1, .hi = 1e9, PLAN,
      .help = "with --trace: prompt tokens per second, 1 to 1,000,000,000", .unset = "as modelled for the machine; without one 20,000 with --replay serve" },
    { .name = "decode-rate", .arg = "TOK/S", .type = OPT_NUM, .offset = AT(decode_rate), .lo = 0.01, .hi = 1e5, PLAN,
      .help = "with --replay serve: steps per second, each with one token for every running request, 0.01 to 100,000", .unset = "as modelled for the machine; without one 30" },
    { .name = "max-num-seqs", .arg = "N", .type = OPT_SIZE, .offset = AT(max_num_seqs), .def = "64", .lo = 1, .hi = 8192, PLAN,
      .help = "with --replay serve: requests that run at once on each replica of the machine" },
    { .name = "html", .arg = "FILE", .type = OPT_STR, .offset = AT(html), .cmds = CMD_PLAN, .group = GROUP_OUTPUT,
      .help = "write the report as a page with plots" },
};
// clang-format on
const opt_table opt_table_trace = { rows, sizeof rows / sizeof *rows };
