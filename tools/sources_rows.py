"""sources_rows.py - the claims of the four documents, from which sources.py makes docs/sources.md.

A row: id, the claim in a few words, our figure (computed), why they differ, verdict.  Two numbers give the
verdict where there are two.  Ids have gaps: claims that repeat others, plain arithmetic and what cannot be
checked here were dropped.
"""
K4, K32, K128, M1 = 4 << 10, 32 << 10, 128 << 10, 1 << 20
GB, GIB = 1e9, float(1 << 30)
TOLERANCE = 0.03 # of a claim that is printed with two digits


class Row:
    def __init__(self, rid, claim, ours, why, verdict="", pair=None, note=""):
        """pair: the claim's number and ours; they make the verdict unless one is given, and the factor."""
        self.id, self.claim, self.ours, self.why, self.factor = rid, claim, ours, why, None
        if pair:
            ratio = pair[0] / pair[1]
            self.factor = max(ratio, 1 / ratio)
        self.verdict = (verdict or judge(*pair)) + note


class Document:
    def __init__(self, letter, title, about, rows):
        self.letter, self.title, self.about, self.rows = letter, title, about, rows


def judge(claim, ours):
    ratio = claim / ours
    word = "low" if ratio < 1 else "high"
    if abs(ratio - 1) <= TOLERANCE:
        return "right"
    if 0.5 < ratio < 2:
        return f"{abs(ratio - 1) * 100:.0f} % too {word}"
    return f"{max(ratio, 1 / ratio):.1f} times too {word}"


def gb(x):
    return f"{x / GB:,.{0 if x >= 100 * GB else 1 if x >= 20 * GB else 2}f} GB"


def both(x):
    return f"{gb(x)} ({x / GIB:,.{0 if x >= 100 * GIB else 1 if x >= 20 * GIB else 2}f} GiB)"


def percent(x, digits=1):
    return f"{100 * x:.{digits}f} %"


def spread(values, form="{:.0f}"):
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else low + " to " + high


def bounds(f, gpu, dtype, context, sequences):
    """Of TP8 and DP8: bound of the rate, name, row of decode; the higher bound first."""
    rows = []
    for name, tp in (("TP8", 8), ("DP8", 1)):
        d = f.step(f.on(gpu, 8, tp), dtype, context, sequences)
        rows.append((d["most"]["tokens_per_second"], name, d))
    return sorted(rows, key=lambda r: -r[0])


def bound(f, gpu, dtype, context, sequences):
    return bounds(f, gpu, dtype, context, sequences)[0]


def rate_row(f, rid, claim, rate, gpu, dtype, context, sequences):
    both_layouts = bounds(f, gpu, dtype, context, sequences)
    most, _, d = both_layouts[0]
    prompt = f.prompt(f.on(gpu, 8, 8), context)
    ours = "; ".join(f"{name}: at most {r:,.0f}, modelled {x['model']['tokens_per_second']:,.0f}" for r, name, x in both_layouts)
    ours += f" ({d['concurrency']} sequences)"
    why = (f"a step takes at least {d['most']['step_ms']:.1f} ms and gives one token per sequence; {rate:,} would need {rate / most:.1f}. "
           f"As a count with prompt tokens it is possible: TP8 computes {prompt['tokens_per_second_model']:,.0f} (modelled) to "
           f"{prompt['tokens_per_second_most']:,.0f} of them a second")
    return Row(rid, claim, ours, why, pair=(rate, most), note=", as generated tokens")


# A: the article.

def article(f):
    nvfp4, mha, gqa = f.each("nvfp4"), f.other("mha"), f.other("gqa8")
    b200_dp, b200_tp = f.on("b200", 8, 1), f.on("b200", 8, 8)
    dp, tp = f.step(f.on("h200", 8, 1), "nvfp4", K128, 1 << 20), f.step(f.on("h200", 8, 8), "nvfp4", K128, 1 << 20)
    one = f.on("b200", 1, 1)
    theirs = 512 * 2 * 60 * K128 / 4
    block = [100 * x for x in f.recovered("block-mean", 0.05)]
    token = [100 * x for x in f.recovered("token", 0.005)]
    thrift, plain, paper = f.thrift("nvfp4:thrift=token:fraction=0.005"), f.thrift("nvfp4"), f.thrift("nvfp4:thrift=block-mean:fraction=0.05")
    return [
        Row("A1", "98 % less, against \"standard\" GQA", f"nvfp4 is {percent(1 - nvfp4 / gqa)} less than GQA-8, {percent(1 - nvfp4 / mha)} less than MHA; "
            f"BF16 latents {percent(1 - f.each('bf16') / gqa)} and {percent(1 - f.each('bf16') / mha)}",
            "98 % is BF16 latents against an MHA that nobody serves with 128 heads, not GQA, and has nothing of 4 bits in it", "wrong base line",
            (1 / 0.02, gqa / nvfp4)),
        Row("A2", "1.9 GB a user at 128K, nvfp4",
            both(f.user(nvfp4)),
            f"theirs is 512 values in BF16, 60 layers, divided by 4: {theirs / GIB:.3f} GiB. Without RoPE key (64 of {nvfp4:.0f} B), scales ({nvfp4 - 512 / 2 - 64:.0f} B), the 61st layer; GiB called GB",
            pair=(1.9, f.user(nvfp4) / GB)),
        Row("A4", "--kv-cache-dtype nvfp4 on a B200",
            "refused for MLA by vLLM (main, Aug 2026)",
            "its check says to use fp8 or auto; nibble takes the option for MLA, on any GPU from Ampere on and on CPUs", "does not run"),
        Row("A6", "8 to 9 users on a B200 node",
            f"nvfp4 at 128k: {f.users(b200_dp, 'nvfp4')} (DP8), {f.users(b200_tp, 'nvfp4')} (TP8); one B200: {f.users(one, 'nvfp4') if one['layout']['fits'] else 'the weights do not fit'}",
            "B's number for one H200 and BF16 (B20), given to another machine and another record", pair=(8.5, f.users(b200_tp, "nvfp4")),
            note=" (TP8, as B's commands run)"),
        Row("A7", "decode becomes bound by arithmetic again",
            f"8 H200, nvfp4, 128k, as many users as fit: bound by {tp['bound']} at TP8, by {dp['bound']} at DP8",
            f"TP8 divides the heads (16 a GPU) and not the reading; DP8 has all {f.v3['model']['n_head']} heads for each byte read",
            "right if the heads are not divided"),
        Row("A8", "4 bits an element",
            f"{f.record('nvfp4')['bytes_per_token_layer'] * 8 / 576:.2f} bits a value",
            "a scale of 8 bits for 16 values, an outer one for each token, RoPE key in 8 bits", pair=(4, nvfp4 * 8 / 576)),
        Row("A9", "5 % of the blocks in FP16 recover 89.1 %",
            f"5 % by block means: {spread(block)} % of the error on generated MLA heads; 0.5 % by token probability: {spread(token)} %. "
            f"KL of nibble-tiny: {plain:.2f} to {thrift:.2f} (token, 0.5 %), {paper:.2f} (blocks, 5 %), 1e-3 nats",
            "89.1 % is of benchmark scores of GQA models with 4-bit arithmetic; here storage alone has 4 bits, all heads share a latent, and keys drawn without correlation have no block means",
            "not reproduced for MLA"),
        Row("A12", "4-bit MLA ties one to Blackwell (SM100)",
            f"nvfp4, 16 heads, 32 x 32k on an H100: {f.kernel('nibble', 'nvfp4', 16, 32, 32768)['median_us']:.0f} us, BF16 {f.kernel('nibble', 'bf16', 16, 32, 32768)['median_us']:.0f} us",
            "4 bits are a way to store; decoded to FP16 on Hopper, BF16 on Ampere, floats on a CPU", "wrong"),
    ]


# B: the guide of a provider.

def sizes(f):
    mla, mha, gqa, mqa = f.each("bf16"), f.other("mha"), f.other("gqa8"), f.other("mqa")
    fp8, nvfp4 = f.each("fp8"), f.each("nvfp4")
    half = "keys have 192 values (128 and the RoPE key's 64), values 128; theirs 128 and 128; 60 layers for 61; GiB called GB"
    latent = "RoPE key left out (x 1.125), 60 layers for 61 (x 1.017), GiB called GB (x 1.074)"
    return [
        Row("B1", "about 98 % less than standard MHA",
            percent(1 - mla / mha, 2), "the base is V3 as MHA in BF16, which nobody serves; against GQA-8 it is " + percent(1 - mla / gqa), "right against MHA"),
        Row("B3", "MHA: 480 GB at 128K", both(f.user(mha)), half, pair=(480, f.user(mha) / GB)),
        Row("B5", "GQA-8: 30 GB at 128K, 16 times less", f"{both(f.user(gqa))}, {mha / gqa:.0f} times", "as B3", pair=(30, f.user(gqa) / GB)),
        Row("B8", "MLA: 7.5 GB at 128K", both(f.user(mla)), latent, pair=(7.5, f.user(mla) / GB)),
        Row("B10", "64 times fewer bytes than MHA", f"{mha / mla:.1f}", "two omissions nearly cancel: RoPE is left out of both sides", pair=(64, mha / mla)),
        Row("B12", "MQA 6 to 12 % of MHA", percent(mqa / mha, 2), "1 / heads: 6 to 12 % is 8 to 16 heads, V3 has 128", pair=(9, 100 * mqa / mha)),
        Row("B13", "GQA 12 to 50 % of MHA",
            f"GQA-8 of 128 heads: {percent(gqa / mha, 2)}; Llama-3.1-70B, 8 of 64: {percent(f.other('gqa8', f.llama) / f.other('mha', f.llama), 2)}",
            "the range is of older models with few heads, and contradicts its own 16 times", "right for few heads"),
        Row("B18", "fp8 halves it: 3.75 GB",
            f"{f.record('fp8')['vs_bf16']:.3f} times less: {both(f.user(fp8))}", "two scales a token; the rest as B8", pair=(3.75, f.user(fp8) / GB)),
        Row("B19", "nvfp4 halves fp8 again: 1.9 GB",
            f"{fp8 / nvfp4:.2f} times less: {both(f.user(nvfp4))}", f"{nvfp4:.0f} B for {fp8:.0f}: scales of 16 values, and the RoPE key stays in 8 bits",
            pair=(2, fp8 / nvfp4), note=" (the factor)"),
    ]


def capacity(f):
    tp, dp = f.on("h200", 8, 8), f.on("h200", 8, 1)
    room = tp["layout"]["per_gpu"]["cache_bytes"]
    gqa = f.other("gqa8")
    gqa_users, mla_users = int(room // (f.user(gqa) / 8)), f.users(tp, "bf16")
    weights = f.v3["weights"]["types"][0]["bytes"]
    kimi = f.on("h200", 8, 1, "kimi-k2", ep="8")
    kimi = kimi if kimi["layout"]["fits"] else f.on("h200", 8, 4, "kimi-k2", ep="8")
    hour, best = tp["cost"]["price_per_hour"], 8 * int(dp["layout"]["per_gpu"]["cache_bytes"] // f.user(gqa))
    two = f.on("h200", 16, 8)
    two_room = two["layout"]["per_gpu"]["cache_bytes"]
    many = int(2 * (two_room // (f.user(gqa, M1) / 8)))
    return [
        Row("B20", "8 to 9 users on an H200 (141 GB less 75 GB of weights)",
            f"8 H200, BF16, 128k: {mla_users} in all (TP8), {f.users(dp, 'bf16')} (DP8: {f.users(dp, 'bf16') // 8} a GPU)",
            f"their division is right, (141 - 75) / 7.5 = {(141 - 75) / 7.5:.1f}, but V3 is not served by one H200: {gb(weights)} of weights take all eight, "
            f"{gb(tp['layout']['per_gpu']['weight_bytes'])} each at TP8, and tensor parallelism keeps the same latents on each of them",
            pair=(8.5, mla_users), note=" (TP8, as its commands run)"),
        Row("B22", "4 times more users than GQA",
            f"at TP8 {mla_users / gqa_users:.2f} times: {mla_users} and {gqa_users}; each in its better layout {f.users(dp, 'bf16') / max(gqa_users, best):.1f} ({f.users(dp, 'bf16')} and {max(gqa_users, best)}), with nvfp4 {f.users(dp, 'nvfp4') / max(gqa_users, best):.1f}",
            "at TP8, which its commands use, BF16 MLA holds fewer users than GQA-8; data parallel attention, or a split of the context, collects what MLA gains",
            pair=(4, mla_users / gqa_users), note=" at TP8"),
        Row("B25", "about $0.20 a session and hour",
            f"${hour / mla_users:.2f} (TP8), ${hour / f.users(dp, 'bf16'):.2f} (DP8), nvfp4 ${hour / f.users(dp, 'nvfp4'):.2f} (DP8)",
            f"{tp['cost']['price_per_hour'] / 8:.2f} / 9: the price of one GPU for users of eight", pair=(0.20, hour / mla_users), note=" (TP8)"),
        Row("B31", "GQA at 1M infeasible on two nodes, MLA alone fits",
            f"16 H200, two replicas of TP8: {many} users of GQA-8 with 1M tokens",
            f"{gb(16 * two_room)} are free beside the weights; {gb(f.user(gqa, M1) / 8)} a user and GPU", "wrong"),
        Row("B32", "V3 in FP8: 340 GB", gb(weights), "671 G parameters of one byte; 340 GB would be 4 bits", pair=(340, weights / GB)),
        Row("B34", "Kimi K2: 8 H200",
            f"FP8: {gb(kimi['weights']['types'][0]['bytes'])}, {gb(kimi['layout']['per_gpu']['cache_bytes'])} of cache a GPU: {f.users(kimi, 'bf16')} users of 128k in BF16, {f.users(kimi, 'nvfp4')} in nvfp4",
            "FP8 weights fit and little else; later K2 have 4-bit experts", "fits without room in FP8"),
    ]


def rates(f):
    llama = f.on("h200", 1, 1, "llama-3.1-70b", weight_dtype="fp8")
    ld = f.step(llama, "bf16", K4, 8)
    lp = f.prompt(llama, K4)
    bf16 = f.on("h200", 1, 1, "llama-3.1-70b")
    b128, b200 = f.on("h200", 8, 1), f.on("b200", 8, 1)
    full, less = f.filled(b200, "nvfp4", K128), f.filled(b128, "fp8", K128)
    by = [f.on("b200", 8, 1)["machine"][k] / f.on("h200", 8, 1)["machine"][k] for k in ("price_per_hour", "bandwidth")]
    cheaper = full["most"]["price_per_million"] < less["most"]["price_per_million"]
    return [
        Row("B39", "Llama 3.3 70B, 1 H200, 4K, 8: 18,000 tok/s",
            f"FP8 weights: at most {ld['most']['tokens_per_second']:,.0f}, modelled {ld['model']['tokens_per_second']:,.0f}; BF16 weights {'fit' if bf16['layout']['fits'] else 'do not fit'}",
            f"the weights are read once a step: {ld['most']['step_ms']:.1f} ms. As prompt tokens, at most {lp['tokens_per_second_most']:,.0f} with BF16 arithmetic, twice that with FP8",
            pair=(18000, ld["most"]["tokens_per_second"]), note=", as generated tokens"),
        rate_row(f, "B41", "V3 fp8, 8 H200, 32K, 16: 9,500 tok/s", 9500, "h200", "fp8", K32, 16),
        rate_row(f, "B43", "V3 fp8, 8 H200, 128K, 8: 4,200 tok/s", 4200, "h200", "fp8", K128, 8),
        rate_row(f, "B45", "V3 FP4, 8 B200, 128K, 16: 7,800 tok/s", 7800, "b200", "nvfp4", K128, 16),
        Row("B48", "its benchmark: 4,096 in, 512 out, \"tokens/sec\"",
            f"(4,096 + 512) / 512 = {(4096 + 512) / 512:.0f}",
            "total tokens a second are nine times the generated ones; the text does not say which, and vLLM's client prints both", "ambiguous by 9"),
        Row("B49", "a B200 token costs more (1.52, 0.94)",
            f"same users at bounds: ${f.step(b200, 'nvfp4', K128, 16)['most']['price_per_million']:.2f} and ${f.step(b128, 'fp8', K128, 16)['most']['price_per_million']:.2f}; full: "
            f"${full['most']['price_per_million']:.2f} ({full['concurrency']} users) and ${less['most']['price_per_million']:.2f} ({less['concurrency']})",
            f"prices differ by {by[0]:.1f}, bandwidth by {by[1]:.1f}; memory after the weights, and so users, by more",
            "right with few users" + (", not where both are full" if cheaper else "")),
    ]


def serving(f):
    w = f.v3["weights"]
    total, copy, gpu = w["types"][0]["bytes"], w["absorbed_copy_bytes"], w["absorbed_nibble_gpu_bytes"]
    dp = f.on("h200", 8, 1)["layout"]["per_gpu"]
    full32 = [(name, f.filled(f.on("h200", 8, tp), r, K32)) for name, tp in (("TP8", 8), ("DP8", 1)) for r in ("fp8", "nvfp4")]
    few, many = (f.kernel("nibble", r, 16, 32, 32768)["median_us"] for r in ("nvfp4", "bf16")), (f.kernel("nibble", r, 128, 32, 32768)["median_us"] for r in ("nvfp4", "bf16"))
    few4, few16 = few
    many4, many16 = many
    flash = f.kernel("flashmla", "bf16", 128, 32, 32768)["median_us"]
    return [
        Row("B52", "absorbed weights: 10 to 20 % more VRAM",
            f"{percent(copy / total, 2)}: {gb(copy)} of {gb(total)} (a BF16 copy of kv_b_proj); nibble {percent(gpu / total, 2)} on a GPU, 0 on a CPU; of a DP8 GPU's weights {percent(gpu / dp['weight_bytes'])}",
            "kv_b_proj is 1.0 G of 671 G parameters", pair=(15, 100 * copy / total)),
        Row("B55", "nvfp4 on Hopper degrades throughput",
            f"one H100, 32 x 32k, nvfp4 for BF16: {few16 / few4:.2f} times as fast with 16 heads, {many16 / many4:.2f} with 128; V2-Lite's shape {f.whole('nvfp4', 32768, 32) / f.whole('bf16', 32768, 32):.2f}",
            f"decoding costs arithmetic; few heads leave it free, 128 do not (FlashMLA in BF16: {flash:.0f} us, nibble's nvfp4 {many4:.0f})",
            "wrong with few heads, right with many"),
        Row("B57", "fp8: negligible loss",
            fp8_text(f),
            "published beside it: AIME25 of DeepSeek-R1 .507 to .493 (SGLang's documentation); one GLM checkpoint without scales 95.3 to 76.7 on AIME26 (SGLang issue 22671)",
            "right if scales are dynamic or calibrated"),
        Row("B58", "nvfp4 loses more than fp8",
            f"KL {spread([f.kl(m, 'nvfp4')[0] / f.kl(m, 'fp8')[0] for m in f.models('fp8')], '{:.1f}')} times fp8's{on(f, 'fp8')}",
            "measure on your text: `nibble eval kl`", "right"),
        Row("B60", "--kv-cache-dtype nvfp4 for DeepSeek-V3", "refused for MLA by vLLM", "see A4", "does not run"),
        Row("B64", "--tensor-parallel-size 8 for MLA",
            f"8 copies of each latent: {f.on('h200', 8, 8)['capacity'][0]['tokens']:,} tokens, DP8 {f.on('h200', 8, 1)['capacity'][0]['tokens']:,} (BF16)",
            "one latent for all heads cannot be divided by heads",
            f"costs {f.on('h200', 8, 1)['capacity'][0]['tokens'] / f.on('h200', 8, 8)['capacity'][0]['tokens']:.1f} times the room"),
        Row("B67", "from 32K on memory bandwidth limits decode",
            "; ".join(f"{name}, 32k, {d['concurrency']} users, {d['dtype']}: {d['bound']}" for name, d in full32),
            "\"weights\" and \"cache\" are bandwidth; with all heads on a GPU and the cache full of 4-bit tokens, arithmetic", "right in most layouts"),
    ]


def fp8_text(f):
    kls = [f.kl(m, "fp8") for m in f.models("fp8")]
    return f"KL to BF16 {spread([k[0] for k in kls], '{:.2f}')} 1e-3 nats, perplexity {spread([100 * (k[1] - 1) for k in kls], '{:+.2f}')} %{on(f, 'fp8')}"


def on(f, *variants):
    models = f.models(*variants)
    return f" (on {models[0]})" if len(models) == 1 else f" (on {len(models)} small models)"


# C: NVIDIA's NVFP4 article, in a summary.

def nvidia(f):
    fp8, nvfp4 = f.each("fp8"), f.each("nvfp4")
    g8, g4 = f.each("fp8", f.llama), f.each("nvfp4", f.llama)
    models = f.models("mxfp4", "nvfp4")
    run, diff = f.retrieval("nvfp4")
    trained = {r["what"]: r["perplexity_bf16_cache"] for r in f.training()["nvfp4_weights"]["rows"]}
    ppl_of = lambda what: f"{trained[what]:.2f}"
    ratio = [f.kl(m, "mxfp4")[0] / f.kl(m, "nvfp4")[0] for m in models]
    ppl = [100 * (f.kl(m, "nvfp4")[1] - 1) for m in models]
    return [
        Row("C1", "50 % less than fp8",
            f"{percent(1 - nvfp4 / fp8)} for MLA ({fp8 / nvfp4:.2f} times), {percent(1 - g4 / g8)} for keys and values of heads ({g8 / g4:.2f} times)",
            "4 bits and 0.5 of scale are 4.5: 1.78 at best; MLA's RoPE key stays in 8 bits", pair=(50, 100 * (1 - nvfp4 / fp8))),
        *replays(f),
        Row("C7", "less than 1 % accuracy loss",
            f"perplexity {spread(ppl, '{:+.2f}')} %{on(f, 'nvfp4')}; retrieval of nibble-tiny {100 * diff['value']:+.1f} points [{100 * diff['lo']:.1f}, {100 * diff['hi']:.1f}] on {run['n_prompt']} prompts",
            "SGLang's documentation has AIME25 of DeepSeek-R1 .507 (BF16) and .400 (its FP4 cache): the task decides; nothing here proves 1 % for a large model",
            "right for perplexity here; else not checkable here"),
        Row("C8", "RULER 64K: 95.6 to 94.6",
            f"{95.6 - 94.6:.1f} points, {percent(1 - 94.6 / 95.6, 2)} of the score",
            "1.0 point needs about 1,200 prompts to be seen ([accuracy](accuracy.md)); 50 of 2k tokens here, above",
            "not under 1 % by its own figures"),
        Row("C9", "5 % better than MXFP4 (MMLU)",
            f"KL of mxfp4 is {spread(ratio, '{:.1f}')} times nvfp4's{on(f, 'mxfp4')}; {percent(1 - f.each('mxfp4') / nvfp4)} fewer bytes",
            "blocks of 32 with scales that are powers of two; MMLU was not run", "right in direction"),
        Row("C10", "QAT recovers what PTQ loses",
            f"NVFP4 weights of nibble-tiny, perplexity: {ppl_of('checkpoint')}, PTQ {ppl_of('checkpoint, converted')}; fine-tuned {ppl_of('more: trained on, the control')}, PTQ of that {ppl_of('more, converted')}, QAT {ppl_of('w: trained with NVFP4 weights, converted')}",
            "a fine-tuning of 75 s costs more than rounding does; against the same fine-tuning without rounding, QAT recovers all ([accuracy](accuracy.md))",
            "right against its control"),
    ]


def at_mean(f, trace, record, gb):
    return f.played(trace, "alone", record, gb)["ttft_mean_s"]


def replays(f):
    def at(record, replay, gbs, key):
        return f.played("agentic", replay, record, gbs)[key]
    sizes_ = sorted({r["cache_gb"] for r in f.replay if r["trace"] == "agentic" and r["replay"] == "cache"})
    hits = [(at("nvfp4", "cache", s, "hit_rate") - at("fp8", "cache", s, "hit_rate"), s) for s in sizes_]
    best, where = max(hits)
    serve = sorted({r["cache_gb"] for r in f.replay if r["trace"] == "agentic" and r["replay"] == "serve"})
    ttft = [(at("fp8", "serve", s, "ttft_mean_s") / at("nvfp4", "serve", s, "ttft_mean_s"), s) for s in serve]
    gain = max(ttft)[0]
    last = hits[-1]
    moon = sorted({r["cache_gb"] for r in f.replay if r["trace"] == "conversation" and r["replay"] == "cache"})
    chat = [(f.played("conversation", "cache", "nvfp4", s)["hit_rate"] - f.played("conversation", "cache", "fp8", s)["hit_rate"], s) for s in moon]
    how = "16 agent sessions open, V3's bytes, think times as recorded"
    alone = {t: sorted((at_mean(f, t, "fp8", s) / at_mean(f, t, "nvfp4", s), s) for s in sizes)
             for t, sizes in ((t, {r["cache_gb"] for r in f.replay if (r["trace"], r["replay"]) == (t, "alone")})
                              for t in ("agentic", "conversation", "synthetic"))}
    left = f.on("h200", 8, 8)["layout"]["per_gpu"]["cache_bytes"] / GB
    best_s, best_gb = alone["agentic"][-1]
    here = min(alone["agentic"], key=lambda x: abs(x[1] - left))
    return [
        Row("C3", "20 % higher hit rate",
            f"up to {100 * best:+.0f} points ({where:g} GB: {at('fp8', 'cache', where, 'hit_rate'):.2f} to {at('nvfp4', 'cache', where, 'hit_rate'):.2f}); conversation trace up to {100 * max(chat)[0]:+.0f} points",
            f"{how}; the gain is near the knee, and neither trace nor size is named by the source", "right near the knee"),
        Row("C4", "up to 3 times shorter TTFT",
            "mean TTFT of fp8 over nvfp4: " + ", ".join(f"{s:g} GB {g:.1f}" for g, s in ttft) +
            f"; alone, without a queue, on 8 H200 (TP8) {best_s:.1f} at most ({best_gb:g} GB), {here[0]:.1f} with the {left:.0f} GB they leave; conversation and synthetic traces {alone['conversation'][-1][0]:.1f} and {alone['synthetic'][-1][0]:.1f} at most (DP8)",
            f"{how}, 20,000 prompt tokens/s, 30 steps/s: queueing multiplies what misses cost ([replays](trace-replay.md))",
            "right near the knee of a queue, and more below it" if gain >= 3 else f"{gain:.1f} at most here"),
        Row("C5", "the gain is largest with much cache",
            f"at {last[1]:g} GB {100 * last[0]:+.1f} points", "contradicts C6: where the cache is large enough for both, both find all", "wrong"),
        Row("C6", "plateau: both curves meet", "; ".join(f"{s:g} GB {100 * g:+.0f}" for g, s in hits) + " points", how, "right"),
    ]


# D: a lesson.

def lesson(f):
    bf16, int4, nvfp4, mha = f.each("bf16"), f.each("int4"), f.each("nvfp4"), f.other("mha")
    lite = f.other("mha", f.lite) / f.each("bf16", f.lite)
    h100, dp = f.on("h100", 8, 8), f.on("h200", 8, 1)
    models = f.models("int4")
    ppl = [100 * (f.kl(m, "int4")[1] - 1) for m in models]
    kl = [f.kl(m, "int4")[0] / f.kl(m, "nvfp4")[0] for m in models]
    err = f.errors("int4", "nvfp4")
    at = {r: f.kernel("nibble", r, 16, 128, 4096) for r in ("bf16", "nvfp4")}
    reach = {r: x["floor_us"] / x["median_us"] for r, x in at.items()}
    return [
        Row("D2", "FP16 to INT4: 4 times",
            f"{bf16 / int4:.2f} (MLA), {f.each('bf16', f.llama) / f.each('int4', f.llama):.2f} (heads of 128)",
            "KIVI's groups of 32 have a scale and a zero point, the RoPE key 8 bits", pair=(4, bf16 / int4)),
        Row("D6", "INT4 with KIVI: 1 to 2 % loss",
            f"perplexity {spread(ppl, '{:+.2f}')} %, KL {spread(kl, '{:.1f}')} times nvfp4's{on(f, 'int4')}",
            f"the latent is key and value at once, so per channel or per token is a choice, not a split; its error on generated heads is {spread(err, '{:.2f}')} of nvfp4's, the less the more its channels differ in size",
            "not reproduced: smaller in perplexity"),
        Row("D7", "MLA: 9 times smaller (0.11)",
            f"V3 {mha / bf16:.1f}, V2-Lite {lite:.1f}", "9 is V2-Lite with its 16 heads; V3 has 128", pair=(9, mha / bf16), note=" for V3"),
        Row("D10", "how V3 serves 128K on 8 GPUs",
            f"8 H200: {f.users(dp, 'bf16')} users in BF16 (DP8); 8 H100: {'fit' if h100['layout']['fits'] else 'the weights do not fit'}",
            "the published model serves a BF16 or FP8 cache; 4 bits are not what makes it fit", "wrong reason"),
        Row("D12", "no overhead: decoded in the fused kernel",
            f"one H100, 16 heads, 128 x 4k: {percent(reach['nvfp4'], 0)} of the floor with nvfp4, {percent(reach['bf16'], 0)} with BF16; time {at['bf16']['median_us'] / at['nvfp4']['median_us']:.2f} times shorter for {bf16 / nvfp4:.2f} times fewer bytes",
            "decoding takes instructions; with 128 heads it is slower than BF16 (B55)", "wrong"),
        Row("D13", "rotations are near-lossless at INT4", f"{hadamard(f)}", "`int4:transform=hadamard` against `int4`, nibble-tiny", "no gain for this latent"),
    ]


def hadamard(f):
    runs = f.result("accuracy")["models"]["nibble-tiny"]
    v = next(v for v in runs["kl 1"]["result"]["variants"] if v["name"].startswith("int4:transform=hadamard"))
    return f"KL {v['kl']['mean']['value'] * 1e3:.2f} for {f.kl('nibble-tiny', 'int4')[0]:.2f} 1e-3 nats"


LARGEST = [
    ("B52", "absorbed MLA takes 10 to 20 % more memory", lambda f: percent(f.v3["weights"]["absorbed_copy_bytes"] / f.v3["weights"]["types"][0]["bytes"], 2)),
    ("B39", "Llama 70B generates 18,000 tokens/s on one H200 for 8 users", lambda f: f"at most {f.step(f.on('h200', 1, 1, 'llama-3.1-70b', weight_dtype='fp8'), 'bf16', K4, 8)['most']['tokens_per_second']:,.0f}"),
    ("A6", "8 to 9 users of 128k fit a node of B200", lambda f: f"{f.users(f.on('b200', 8, 8), 'nvfp4')} with nvfp4 and TP8, {f.users(f.on('b200', 8, 1), 'nvfp4')} with DP8"),
    ("B12", "MQA has 6 to 12 % of MHA's cache", lambda f: percent(f.other("mqa") / f.other("mha"), 2)),
    ("B25", "a session of 128k costs $0.20 an hour", lambda f: f"${f.on('h200', 8, 8)['cost']['price_per_hour'] / f.users(f.on('h200', 8, 8), 'bf16'):.2f} with TP8 and BF16"),
    ("B41", "V3 generates 9,500 tokens/s for 16 users of 32K on 8 H200", lambda f: f"at most {bound(f, 'h200', 'fp8', K32, 16)[0]:,.0f}"),
    ("D7", "MLA is 9 times smaller than MHA (V3)", lambda f: f"{f.other('mha') / f.each('bf16'):.0f} times; with int4 {f.other('mha') / f.each('int4'):.0f}, not 36"),
    ("B22", "MLA holds 4 times the users of GQA-8 on that node", lambda f: f"with TP8 {f.users(f.on('h200', 8, 8), 'bf16')}, and GQA-8 more: its heads are divided, the latent is not"),
    ("A1", "98 % less than GQA", lambda f: f"{percent(1 - f.each('nvfp4') / f.other('gqa8'))}, so {percent(f.each('nvfp4') / f.other('gqa8'))} is left and not 2 %"),
    ("B32", "V3 in FP8 is 340 GB and fits 4 H200", lambda f: f"{gb(f.v3['weights']['types'][0]['bytes'])}, and does not"),
]

# The same error in other words: one row of it stands in the list.
SAME = {"B43": "B41", "B45": "B41"}


def lessons(f):
    w, mla = f.each("nvfp4"), f.each("bf16")
    return (f"The option that A and B recommend, an nvfp4 cache for DeepSeek-V3, is refused by vLLM (A4, B60).\n"
            f"The figure quoted most, 1.9 GB a user, is {f.user(w) / GB:.2f} (A2).\n\n"
            f"Most errors have one of these causes:\n\n"
            f"- The rope key ({mla - 2 * 512:.0f} of {mla:.0f} bytes) and the scales ({w - 512 / 2 - 64:.0f} of {w:.0f}) are left out.\n"
            "- 60 layers stand for 61, and GiB for GB.\n"
            "- The users of eight GPUs are divided by the weights and the price of one.\n"
            "- Tensor parallelism is thought to divide a latent.\n"
            "- \"98 %\" compares with 128 heads of MHA, which nobody serves.\n"
            "- \"tokens/s\" cannot mean generated tokens.")


def documents(f):
    return [
        Document("A", "\"How MHLA and dynamic FP4 quantization eliminate KV-cache bottlenecks\" (28 June 2026)",
                 "An opinion piece that takes its figures from B and from a paper.", article(f)),
        Document("B", "A provider's guide to MLA serving (prices of 25 June 2026)",
                 "The page has a memory table, commands and a throughput table.\nMHA and GQA-8 below are V3's layers with 128 or 8 heads of keys (192) and values (128), in BF16, with the same weights beside them.",
                 sizes(f) + capacity(f) + rates(f) + serving(f)),
        Document("C", "NVIDIA on NVFP4 for the KV cache (8 December 2025), in a summary",
                 "It is about a GQA model.\nReplays are from `bench/results/replay.json`: LRU for hit rates, the engine's policy for times.", nvidia(f)),
        Document("D", "A lesson on KV cache quantization", "It speaks of GQA models, with a paragraph on MLA.", lesson(f)),
    ]
