#!/usr/bin/env python3
"""plan_docs.py - the figures of README.md, docs/models.md and docs/capacity.md, from `nibble plan --json` and bench/results.

    tools/plan_docs.py NIBBLE             writes what stands between <!-- NAME --> and <!-- end --> on these pages
    tools/plan_docs.py NIBBLE --check     exit code 1 if a page is out of date; --root DIR: of another tree

docs/capacity.md has no figures outside such blocks and outside commands: a figure elsewhere is an error.
"""
import re
import sys

import doc_plan
from doc_plan import GIB, only, result, table, users

K = 1024
K8, K32, K128 = 8 * K, 32 * K, 128 * K
RECORDS = ("bf16", "fp8", "nvfp4")

# ---- words for numbers ---------------------------------------------------------------------------


def gib(n_bytes):
    return f"{n_bytes / GIB:,.1f}"


def gb(n_bytes):
    return f"{n_bytes / 1e9:,.0f}" if n_bytes >= 1e10 else f"{n_bytes / 1e9:.1f}"


def count(x):
    return f"{x:,.0f}" if x >= 10 else f"{x:.1f}"


def ms(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def length(n_tok):
    return f"{n_tok // K}k" if n_tok % K == 0 else f"{n_tok:,}"


def decode(plan, dtype, context, sequences):
    return only(plan["decode"], dtype=dtype, context=context, concurrency=sequences)


def full(plan, dtype, context):
    return only(plan["decode"], dtype=dtype, context=context, all_that_fit=True)


def weights(plan, dtype="checkpoint"):
    return only(plan["weights"]["types"], dtype=dtype)


def user_bytes(plan, dtype, context):
    record = only(plan["cache"]["records"], dtype=dtype, default_rope=True)
    return only(record["contexts"], context=context)["bytes"]


# ---- README.md -----------------------------------------------------------------------------------

FORMATS = (("`f32`", "f32"), ("`bf16` (`auto` for most models)", "bf16"), ("`fp8_ds_mla`", "fp8_ds_mla"), ("`fp8`", "fp8"), ("`int4`", "int4"),
           ("`nvfp4`, `if4`", "nvfp4"), ("`mxfp4`", "mxfp4"))


def formats(plan, root):
    records = plan("deepseek-v3")["cache"]["records"]
    rows = []
    for name, dtype in FORMATS:
        r = next(r for r in records if r["dtype"] == dtype)
        rows.append([name, f"{r['bytes_per_token_layer']:,.0f}", f"{r['bytes_per_token']:,.0f}", f"{GIB / r['bytes_per_token']:,.0f}"])
    return table(["`--kv-cache-dtype`", "bytes per token and layer", "DeepSeek-V3, bytes per token", "tokens per GiB"], "lrrr", rows)


def headline(plan, root):
    runs = result(root, "gpu_h100_runs")["runs"]

    def at(dtype, n):
        return only(runs["million_" + dtype]["cells"], record=dtype, concurrency=n)

    if at("bf16", 4)["state"] != "does not fit":
        sys.exit("plan_docs: four users of a million tokens fit in BF16: README's headline says that they do not")
    return (f"On one H100, a model of DeepSeek-V2-Lite's shape (random weights) with {at('nvfp4', 1)['depth']:,} cached tokens generates "
            f"{at('nvfp4', 1)['tokens_per_second']:.0f} tokens/s from a 4-bit cache and {at('bf16', 1)['tokens_per_second']:.0f} from a BF16 cache.\n"
            f"With 4 bits, four users of a million tokens each fit at once and get {at('nvfp4', 4)['tokens_per_second']:.0f} tokens/s together; in BF16 only one fits.")


def speed(plan, root):
    steps = result(root, "gpu_h100")["steps"]["rows"]

    def rate(kind, depth, n):
        return only(steps, record="nvfp4", kind=kind, depth=depth, sequences_or_tokens=n)["tokens_per_s"]

    us = {}
    for r in result(root, "flashmla_h100")["rows"]:
        us[r["who"], r["row"].endswith("+plan"), r["record"], r["heads"], r["batch"], r["context"]] = r["median_us"]

    def share(heads):
        """nibble's time with nvfp4 over FlashMLA's with BF16, least and most."""
        all_of = [t / us["flashmla", False, "bf16", *case] for (who, _, record, *case), t in us.items()
                  if (who, record, case[0]) == ("nibble", "nvfp4", heads)]
        return min(all_of), max(all_of)

    few, many = share(16), share(128)
    if not many[0] > 1:
        sys.exit("plan_docs: FlashMLA is no longer faster with 128 heads: README's sentence needs another wording")
    cpu = [r for r in result(root, "peer_cpu")["ratios"] if r["level"] == "best" and r["peer"] == "ik" and r["threads"] == 2 and r["cache"] == "nvfp4"]
    attn = only(cpu, of="attention", depth=16384, heads=16)["ratio"]
    step = {(w, of): only(cpu, of=of, ours=w, depth=512)["ratio"] for w in ("int8", "q4_k_m") for of in ("decode", "prompt")}
    return (f"- On one H100, V2-Lite's shape with nvfp4 generates {rate('decode', 4096, 1):,.0f} tokens/s for one user with 4,096 cached tokens, "
            f"and {rate('decode', K32, 64):,.0f} for 64 users with 32,768 each.\n"
            f"  It reads prompts at {rate('prefill', 512, 8192):,.0f} tokens/s.\n"
            f"- With 16 heads, attention over nvfp4 pages takes {few[0]:.2f} to {few[1]:.2f} of FlashMLA's time over BF16; with 128 heads FlashMLA is faster.\n"
            f"- On two cores with AVX-512, attention over 16,384 tokens runs at {attn:.1f} times the speed of ik_llama.cpp's best cache type.\n"
            f"  With 8-bit weights nibble generates at {step['int8', 'decode']:.1f} times and reads prompts at {step['int8', 'prompt']:.1f} times its speed, "
            f"with Q4_K_M at {step['q4_k_m', 'decode']:.1f} and {step['q4_k_m', 'prompt']:.1f} times.")


def accuracy(plan, root):
    variants = result(root, "accuracy")["models"]["nibble-tiny"]["kl 0"]["result"]["variants"]
    top = {d: 100 * only(variants, name=d)["top1"]["value"] for d in ("fp8", "nvfp4", "if4")}
    return (f"- The bundled model picks the same best token as with a BF16 cache in {top['fp8']:.1f} % of positions with `fp8`, "
            f"{top['nvfp4']:.1f} % with `nvfp4` and {top['if4']:.1f} % with `if4`.")


# ---- docs/models.md ------------------------------------------------------------------------------

# As the page calls it; the configuration of `nibble plan`; the checkpoint to download.
MODELS = (
    ("Youtu-2B", "youtu-llm-2b", "tencent/Youtu-LLM-2B"),
    ("MiniCPM3-4B", "minicpm3-4b", "openbmb/MiniCPM3-4B"),
    ("DeepSeek-V2-Lite", "deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite-Chat"),
    ("Moonlight-16B", "moonlight-16b", "moonshotai/Moonlight-16B-A3B-Instruct"),
    ("GLM-4.7-Flash", "glm-4.7-flash", "zai-org/GLM-4.7-Flash"),
    ("Sarvam-105B", "sarvam-105b", "sarvamai/sarvam-105b"),
    ("DeepSeek-V3, R1, V3.1", "deepseek-v3", "deepseek-ai/DeepSeek-V3-0324"),
    ("Kimi K2", "kimi-k2", "moonshotai/Kimi-K2-Instruct"),
)
LENGTHS = (K8, K32, K128)
CONTEXTS = ("--context", ",".join(map(length, LENGTHS)), "--concurrency", "1", "--kv-cache-dtype", "nvfp4")
MEMORIES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1152, 1536, 2048)  # GiB
DESKTOP, SERVER = ("80", "1"), ("400", "5")  # GB/s, TFLOP/s


def downloads(plan, root):
    rows = []
    for name, config, hub in MODELS:
        p = plan(config, *CONTEXTS)
        m, w = p["model"], p["weights"]["checkpoint_dtype"]
        rows.append([name, f"`nibble pull {hub}`", f"{gb(m['n_param'])} ({gb(m['n_param_active'])})", "BF16" if w == "bfloat16" else w.upper(),
                     gb(weights(p)["bytes"]), f"{m['max_position']:,}"])
    return table(["model", "download", "parameters, 10^9 (per token)", "weights", "disk, GB", "longest context"], "llrlrr", rows)


def on_gpu(gpu):
    def block(plan, root):
        rows = []
        for name, config, _ in MODELS:
            p = plan(config, "--gpu", gpu, "--gpus", "1", *CONTEXTS)
            if not p["layout"]["fits"]:
                rows.append([name, gib(weights(p)["bytes"]), "does not fit", "", "", "", ""])
                continue
            each = p["layout"]["per_gpu"]
            cells = []
            for n in LENGTHS:
                cells.append(f"{users(p, 'bf16', n):,} / {users(p, 'nvfp4', n):,}" if n <= p["model"]["max_position"] else "too long")
            rows.append([name, gib(each["weight_bytes"]), gib(each["cache_bytes"]), *cells,
                         count(decode(p, "nvfp4", K8, 1)["model"]["tokens_per_second"])])
        return table(["model", "weights, GiB", "left for the cache, GiB", *(f"users of {length(n)}" for n in LENGTHS), "tokens/s, one user of 8k"],
                     "lrrrrrr", rows)
    return block


def smallest(plan, config, dtype):
    """The smallest usual memory in which one user of 8k fits beside the weights."""
    for n in MEMORIES:
        p = plan(config, "--memory", f"{n}GiB", "--bandwidth", "80", "--flops", "1", "--weight-dtype", dtype, *CONTEXTS)
        if p["layout"]["fits"] and users(p, "nvfp4", K8) >= 1:
            return n
    sys.exit(f"plan_docs: {config} in {dtype} fits no memory of {MEMORIES}")


def on_cpu(plan, root):
    rows = []
    for name, config, _ in MODELS:
        p = plan(config, *CONTEXTS)
        dtype = "auto" if p["weights"]["checkpoint_dtype"] == "fp8" else "int8"
        need = smallest(plan, config, dtype)
        rates = []
        for bandwidth, flops in (DESKTOP, SERVER):
            q = plan(config, "--memory", f"{need}GiB", "--bandwidth", bandwidth, "--flops", flops, "--weight-dtype", dtype, *CONTEXTS)
            rates.append(count(decode(q, "nvfp4", K8, 1)["model"]["tokens_per_second"]))
        if need > 256:
            rates[0] = ""
        rows.append([name, gib(weights(p)["bytes"]), gib(weights(p, "int8")["bytes"]) if dtype == "int8" else "", f"{need:,}",
                     count(user_bytes(p, "nvfp4", K8) / (1 << 20)), *rates])
    return table(["model", "weights as published, GiB", "in INT8, GiB", "memory to have, GiB", "cache of a user of 8k in nvfp4, MiB",
                  "tokens/s, desktop", "tokens/s, server"], "lrrrrrr", rows)


# ---- docs/capacity.md ----------------------------------------------------------------------------

LITE = ("deepseek-v2-lite", "--gpu", "h100", "--price", "2.50", "--context", "32k,128k", "--concurrency", "1,32,64", "--kv-cache-dtype", "nvfp4")
V3 = ("deepseek-v3", "--gpu", "h200", "--context", "128k", "--concurrency", "16", "--kv-cache-dtype", "nvfp4")
PROCESSOR = ("deepseek-v2-lite", "--memory", "32GiB", "--bandwidth", "25", "--flops", "0.2", "--weight-dtype", "int8",
             "--context", "8k,32k", "--concurrency", "1,4", "--kv-cache-dtype", "nvfp4")


def command(args):
    return "    nibble plan " + " ".join(args) + "\n\n"


def budget(plan):
    each = plan["layout"]["per_gpu"]
    reserve = f" and the reserve {gib(each['reserve_bytes'])} GiB" if each["reserve_bytes"] else ""
    return (f"Of the {gib(each['budget_bytes'])} GiB that may be used, weights take {gib(each['weight_bytes'])} GiB{reserve}.\n"
            f"The cache gets the remaining {gib(each['cache_bytes'])} GiB.")


def fits(plan, root):
    p = plan(*LITE)
    rows = []
    for dtype in RECORDS:
        c = only(p["capacity"], dtype=dtype)
        at = {x["context"]: x for x in c["contexts"]}
        rows.append([dtype, f"{c['tokens']:,}", at[K32]["users"], at[K128]["users"],
                     f"${at[K32]['price_per_session_hour']:.3f}", f"${at[K128]['price_per_session_hour']:.3f}"])
    return command(LITE) + budget(p) + "\n\n" + table(["cache", "tokens", "users of 32k", "users of 128k", "a session-hour of 32k", "of 128k"], "lrrrrr", rows)


BOUND = {"weights": "bandwidth: weights", "cache": "bandwidth: cache", "attention": "arithmetic: attention", "products": "arithmetic: products"}


def rate_row(dtype, d):
    n = d["concurrency"]
    return [dtype, length(d["context"]), f"{n} (all that fit)" if d["all_that_fit"] else n, ms(d["most"]["step_ms"]), ms(d["model"]["step_ms"]),
            count(d["model"]["tokens_per_second"]), count(d["model"]["tokens_per_second_user"]), BOUND[d["bound"]]]


RATE_HEAD = ["cache", "context", "users", "step at most fast, ms", "step modelled, ms", "tokens/s", "of each user", "bound by"]


def rates(plan, root):
    p = plan(*LITE)
    rows = [rate_row("nvfp4", decode(p, "nvfp4", K32, n)) for n in (1, 32, 64)]
    rows += [rate_row(d, full(p, d, n)) for n in (K32, K128) for d in RECORDS]
    return table(RATE_HEAD, "lrrrrrrl", rows)


def choose_users(plan, root):
    p = plan(*LITE)
    one, some, many = (decode(p, "nvfp4", K32, n) for n in (1, 32, 64))
    each = [d["model"]["tokens_per_second_user"] for d in (one, some, many)]
    wanted = 30
    if not each[2] >= wanted:
        sys.exit(f"plan_docs: 64 users get {each[2]:.1f} tokens/s each: choose_users says that they get {wanted}")
    return (f"Above, with nvfp4 and 32k: one user gets {each[0]:.0f} tokens/s, each of 32 gets {each[1]:.0f}, each of 64 gets {each[2]:.0f}.\n"
            f"If every user needs {wanted} tokens/s, set `--max-num-seqs 64`, although {users(p, 'nvfp4', K32)} users would fit.")


def no_room(plan, root):
    p = plan("deepseek-v3", "--gpu", "h100", "--gpus", "8")["layout"]
    each, need = p["per_gpu"], p["needed"]
    q = plan("kimi-k2-thinking", "--gpu", "h200", "--gpus", "8")
    w = q["layout"]["per_gpu"]
    return (f"DeepSeek-V3 on eight H100: weights take {gib(each['weight_bytes'])} GiB of the {gib(each['budget_bytes'])} GiB on each GPU, "
            f"and the reserve {gib(each['reserve_bytes'])} GiB.\n"
            f"`plan` says that {need['gpus']} of them would do, with tensor parallel {need['tensor_parallel']} and data parallel {need['data_parallel']}.\n"
            f"Kimi K2 Thinking has experts of 4 bits: {gb(weights(q)['bytes'])} GB in all, {gib(w['weight_bytes'])} GiB on each of eight H200.\n"
            f"In BF16 it would be {gb(weights(q, 'bf16')['bytes'])} GB.")


def gain(plan, root):
    p = plan(*LITE)
    each = {d: only(p["cache"]["records"], dtype=d, default_rope=True)["bytes_per_token_layer"] for d in RECORDS}
    return (f"The bytes of a token decide how many tokens fit: fp8 holds {each['bf16'] / each['fp8']:.1f} times as many as bf16, "
            f"nvfp4 {each['bf16'] / each['nvfp4']:.1f} times.\n"
            f"Nvfp4 holds {each['fp8'] / each['nvfp4']:.1f} times as many as fp8, not twice: block scales and the rope key count too "
            f"({each['nvfp4']:.0f} bytes per token and layer against {each['fp8']:.0f}).")


def when(plan, root):
    p = plan(*LITE)
    rows = [r for r in result(root, "flashmla_h100")["rows"]
            if (r["who"], r["heads"], r["batch"], r["context"]) == ("nibble", 128, 32, K32) and r["record"] in ("bf16", "nvfp4")]
    us = {r["record"]: r["median_us"] for r in rows}
    return (f"- Users or context are limited by memory: bf16 ends at {users(p, 'bf16', K32)} users of 32k above, nvfp4 at {users(p, 'nvfp4', K32)}.\n"
            "- Prompts come back (agents, conversations) and the cache is nearly large enough to keep them ([below](#how-large-must-the-prefix-cache-be)).\n"
            "- The cache is most of what a step reads: long contexts, many users, few heads on each GPU.\n\n"
            "They do not pay where everything fits anyway, nor for one short conversation, whose steps read mostly weights.\n"
            f"With 128 heads on one H100 they save room but not time: attention takes {us['nvfp4'] / us['bf16']:.1f} times as long as with bf16 "
            "([measured](gpu.md)).")


def layouts(plan, root):
    rows = []
    for name, p in (("`--tp 8`", plan(*V3, "--tp", "8")), ("`--gpus 8` (suggested: DP8, EP8)", plan(*V3, "--gpus", "8"))):
        c, each = only(p["capacity"], dtype="nvfp4"), p["layout"]["per_gpu"]
        d = full(p, "nvfp4", K128)
        rows.append([name, gib(each["weight_bytes"]), gib(each["cache_bytes"]), f"{c['tokens']:,}", users(p, "nvfp4", K128),
                     count(d["model"]["tokens_per_second"]), count(decode(p, "nvfp4", K128, 16)["model"]["tokens_per_second_user"])])
    return table(["layout", "weights on each, GiB", "cache on each, GiB", "tokens in all", "users of 128k", "tokens/s of all that fit", "of each, 16 users"],
                 "lrrrrrr", rows)


def agents(plan, root):
    p = plan(*V3, "--tp", "8")
    each = only(p["cache"]["records"], dtype="nvfp4", default_rope=True)["bytes_per_token"]
    return (f"For example, 16 agents with a median of 110k tokens need {gb(16 * 110_000 * each)} GB in nvfp4 with DeepSeek-V3 "
            f"({each:,.0f} bytes per token).")


def cost(plan, root):
    p = plan("deepseek-v3", "--gpu", "h200", "--gpus", "8", "--tokens-per-second", "1500")["cost"]
    return (f"At 1,500 generated tokens/s on eight H200 (${p['price_per_hour']:.2f} an hour), a million tokens cost "
            f"${p['measured_price_per_million']:.2f}: {p['price_per_hour']:.2f} / (1,500 x 3,600) x 10^6.")


def processor(plan, root):
    p = plan(*PROCESSOR)
    room = table(["cache", "tokens", "users of 8k", "users of 32k"], "lrrr",
                 [[d, f"{only(p['capacity'], dtype=d)['tokens']:,}", users(p, d, K8), users(p, d, K32)] for d in RECORDS])
    return command(PROCESSOR) + budget(p) + "\n\n" + room + "\n\n" + table(RATE_HEAD, "lrrrrrrl", [rate_row("nvfp4", decode(p, "nvfp4", n, s)) for n in (K8, K32) for s in (1, 4)])


PAGES = {
    "README.md": {"headline": headline, "formats": formats, "speed": speed, "accuracy": accuracy},
    "docs/models.md": {"downloads": downloads, "h100": on_gpu("h100"), "h200": on_gpu("h200"), "cpu": on_cpu},
    "docs/capacity.md": {"fits": fits, "rates": rates, "choose_users": choose_users, "no_room": no_room, "gain": gain, "when": when,
                         "layouts": layouts, "agents": agents, "cost": cost, "processor": processor},
}
BLOCK = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.S)
FIGURE = re.compile(r"(?<!\w)\$?\d+([.,]\d| %|\d\d\b)|\$\d")


def stray(text):
    """The first line of prose with a figure that no block makes, or None."""
    prose = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", BLOCK.sub("", text))
    for line in prose.split("\n"):
        if FIGURE.search(line) and not line.startswith(("    ", "|")):
            return line
    return None


def page(path, blocks, plan, root, old):
    text, seen = old(path), []

    def fill(match):
        seen.append(match.group(1))
        if match.group(1) not in blocks:
            sys.exit(f"{path}: <!-- {match.group(1)} --> is no block of tools/plan_docs.py")
        return f"<!-- {match.group(1)} -->\n{blocks[match.group(1)](plan, root)}\n<!-- end -->"

    text = BLOCK.sub(fill, text)
    if sorted(seen) != sorted(blocks):
        sys.exit(f"{path}: blocks {' '.join(sorted(set(blocks) ^ set(seen)))}: each is wanted once")
    if path == "docs/capacity.md" and stray(text):
        sys.exit(f"{path}: a figure outside the blocks of tools/plan_docs.py: {stray(text)}")
    return text


def pages(root, nibble, old):
    plan = doc_plan.Plan(nibble)
    return {path: page(path, blocks, plan, root, old) for path, blocks in PAGES.items()}


if __name__ == "__main__":
    doc_plan.main(__doc__, pages)
