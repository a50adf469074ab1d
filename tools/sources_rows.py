"""sources_rows.py - what the four documents claim: the list that sources.py makes docs/sources.md of.

A row: id, claim in a few words, ours (computed), why they differ, verdict.  A verdict is computed from two
numbers where there are two; else it is said.
"""
K4, K32, K128, M1 = 4 << 10, 32 << 10, 128 << 10, 1 << 20
GB, GIB = 1e9, float(1 << 30)
TOLERANCE = 0.03 # of a claim that is printed with two digits
NOT_HERE = "not checkable here"


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
    why = (f"one token of each sequence a step needs {d['most']['step_ms']:.1f} ms at least; {rate:,} would take "
           f"{rate / most:.1f} tokens a step and sequence, or be a count with prompt tokens: of those, a machine at TP8 computes "
           f"{prompt['tokens_per_second_model']:,.0f} (modelled) to {prompt['tokens_per_second_most']:,.0f} a second at this length")
    return Row(rid, claim, ours, why, pair=(rate, most), note=", as generated tokens")


def price_row(f, rid, claim, price, hour, rate, gpu, dtype, context, sequences):
    most, _, d = bound(f, gpu, dtype, context, sequences)
    assert abs(d["most"]["price_per_million"] - hour / (most * 3600) * 1e6) < 1e-6
    formula = hour / (rate * 3600) * 1e6
    return Row(rid, claim, f"its formula: ${formula:.3f}; at our bound ${d['most']['price_per_million']:.2f}, modelled "
               f"${d['model']['price_per_million']:.2f} a million generated tokens",
               "the division is right; the rate is not one of generated tokens", "right if the rate is",
               (price, d["most"]["price_per_million"]))


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
        Row("A3", "a benchmark of 25 June showed it",
            "the same number follows from document B's formula", "it is 7.5 / 4 in B's own text; B gives no measurement of it", "a calculation"),
        Row("A4", "--kv-cache-dtype nvfp4 on a B200",
            "refused for MLA by vLLM (main, Aug 2026)",
            "its check says to use fp8 or auto; nibble takes the option for MLA, on any GPU from Ampere on and on CPUs", "does not run"),
        Row("A5", "hundreds of GB for one user with MHA", f"{gb(f.user(mha))} at 128k", "V3's heads, keys of 192 and values of 128", "right"),
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
        Row("A10", "11 % unrecovered",
            f"{100 - 89.1:.1f} % of the gap", "of the gap between FP4 and FP16, not of the score: a gap of 1 point leaves 0.11",
            "right as arithmetic, read wrongly"),
        Row("A11", "ThriftAttention of June 2026", "arXiv 2605.23081", "the number is of May 2026", "a month late"),
        Row("A12", "4-bit MLA ties one to Blackwell (SM100)",
            f"nvfp4, 16 heads, 32 x 32k on an H100: {f.kernel('nibble', 'nvfp4', 16, 32, 32768)['median_us']:.0f} us, BF16 {f.kernel('nibble', 'bf16', 16, 32, 32768)['median_us']:.0f} us",
            "4 bits are a way to store; decoded to FP16 on Hopper, BF16 on Ampere, floats on a CPU", "wrong"),
        Row("A13", "V4 of April and May 2026 is MHLA with native NVFP4",
            "", "B says so itself (B65): V4 caches tokens that were compressed 4:1 and 128:1, with an indexer", "wrong about MLA"),
        Row("A14", "the \"1-million token era\"",
            f"V3's geometry, 1M tokens: {gb(f.user(nvfp4, M1))} nvfp4, {gb(f.user(f.each('bf16'), M1))} BF16, {gb(f.user(mha, M1))} MHA",
            f"V3's configuration ends at {f.v3['model']['max_position']:,} tokens", "a slogan"),
        Row("A15", "CUTLASS 4.2, day-0 support", "", "no run with CUTLASS or of these engines' kernels for Blackwell", NOT_HERE),
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
        Row("B2", "MHA: 65,536 B a token and layer", f"{mha:,.0f} B", "keys have 192 values in this model, not 128", pair=(65536, mha)),
        Row("B3", "MHA: 480 GB at 128K", both(f.user(mha)), half, pair=(480, f.user(mha) / GB)),
        Row("B4", "does not fit in 8 H200",
            f"cache beside the weights: {gb(8 * f.on('h200', 8, 8)['layout']['per_gpu']['cache_bytes'])}", "heads can be divided by 8, and still", "right"),
        Row("B5", "GQA-8: 30 GB at 128K, 16 times less", f"{both(f.user(gqa))}, {mha / gqa:.0f} times", half, pair=(30, f.user(gqa) / GB)),
        Row("B6", "GQA-8: 4,096 B", f"{gqa:,.0f} B", "as B2", pair=(4096, gqa)),
        Row("B7", "MLA: 1,024 B", f"{mla:,.0f} B: 512 + 64 values", "the RoPE key is cached beside the latent", pair=(1024, mla)),
        Row("B8", "MLA: 7.5 GB at 128K", both(f.user(mla)), latent, pair=(7.5, f.user(mla) / GB)),
        Row("B9", "at 32K: 120, 7.5, 1.9 GB",
            f"{gb(f.user(mha, K32))}, {gb(f.user(gqa, K32))}, {gb(f.user(mla, K32))}", "as B3, B5, B8", pair=(1.9, f.user(mla, K32) / GB), note=" (MLA)"),
        Row("B10", "64 times fewer bytes than MHA", f"{mha / mla:.1f}", "two omissions nearly cancel: RoPE is left out of both sides", pair=(64, mha / mla)),
        Row("B11", "4 times fewer than GQA-8",
            f"{gqa / mla:.2f} with keys of 192; {4096 / mla:.2f} beside a GQA-8 of 128", "depends on whether the GQA twin gets a RoPE part of its own",
            pair=(4, gqa / mla)),
        Row("B12", "MQA 6 to 12 % of MHA", percent(mqa / mha, 2), "1 / heads: 6 to 12 % is 8 to 16 heads, V3 has 128", pair=(9, 100 * mqa / mha)),
        Row("B13", "GQA 12 to 50 % of MHA",
            f"GQA-8 of 128 heads: {percent(gqa / mha, 2)}; Llama-3.1-70B, 8 of 64: {percent(f.other('gqa8', f.llama) / f.other('mha', f.llama), 2)}",
            "the range is of older models with few heads, and contradicts its own 16 times", "right for few heads"),
        Row("B14", "MLA 1 to 2 % of MHA",
            f"{percent(mla / mha, 2)}; V2-Lite (16 heads): {percent(f.each('bf16', f.lite) / f.other('mha', f.lite))}", "for 128 heads in BF16", "right for V3"),
        Row("B15", "MLA caches d_c x 2, and r",
            "d_c + r values, one vector: 576", "where other rows count values, x 2 is K and V, which MLA does not have; as bytes, 2 x 512 lacks r",
            "wrong by 2 as values"),
        Row("B16", "d_c is 512, about 512 for Kimi K2", f"{f.v3['model']['kv_lora_rank']}, {f.plan('kimi-k2')['model']['kv_lora_rank']}", "config.json", pair=(512, f.v3["model"]["kv_lora_rank"])),
        Row("B17", "60 layers", str(f.layers), "config.json; the layer for multi-token prediction is not counted", "one too few", (60, f.layers)),
        Row("B18", "fp8 halves it: 3.75 GB",
            f"{f.record('fp8')['vs_bf16']:.3f} times less: {both(f.user(fp8))}", "two scales a token; the rest as B8", pair=(3.75, f.user(fp8) / GB)),
        Row("B19", "nvfp4 halves fp8 again: 1.9 GB",
            f"{fp8 / nvfp4:.2f} times less: {both(f.user(nvfp4))}", f"{nvfp4:.0f} B for {fp8:.0f}: scales of 16 values, and the RoPE key stays in 8 bits",
            pair=(2, fp8 / nvfp4), note=" (the factor)"),
    ]


def capacity(f):
    tp, dp = f.on("h200", 8, 8), f.on("h200", 8, 1)
    room = tp["layout"]["per_gpu"]["cache_bytes"]
    mla, gqa, mha = f.each("bf16"), f.other("gqa8"), f.other("mha")
    gqa_users, mla_users = int(room // (f.user(gqa) / 8)), f.users(tp, "bf16")
    four, weights = f.on("h200", 4, 4), f.v3["weights"]["types"][0]["bytes"]
    kimi = f.on("h200", 8, 1, "kimi-k2", ep="8")
    kimi = kimi if kimi["layout"]["fits"] else f.on("h200", 8, 4, "kimi-k2", ep="8")
    hour, best = tp["cost"]["price_per_hour"], 8 * int(dp["layout"]["per_gpu"]["cache_bytes"] // f.user(gqa))
    two = f.on("h200", 16, 8)
    two_room = two["layout"]["per_gpu"]["cache_bytes"]
    many = int(2 * (two_room // (f.user(gqa, M1) / 8)))
    h200, b200 = tp["machine"]["memory_bytes"], f.on("b200", 8, 1)["machine"]["memory_bytes"]
    return [
        Row("B20", "8 to 9 users on an H200 (141 GB less 75 GB of weights)",
            f"8 H200, BF16, 128k: {mla_users} in all (TP8), {f.users(dp, 'bf16')} (DP8: {f.users(dp, 'bf16') // 8} a GPU)",
            f"their division is right, (141 - 75) / 7.5 = {(141 - 75) / 7.5:.1f}, but V3 is not served by one H200: {gb(weights)} of weights take all eight, "
            f"{gb(tp['layout']['per_gpu']['weight_bytes'])} each at TP8, and tensor parallelism keeps the same latents on each of them",
            pair=(8.5, mla_users), note=" (TP8, as its commands run)"),
        Row("B21", "1 to 2 users with GQA on that node",
            f"a GQA-8 twin: {gqa_users} users (TP8), {best} (DP8)", f"its heads are divided: {gqa / 8:.0f} B a token, layer and GPU, where MLA keeps {mla:.0f}",
            pair=(2, gqa_users)),
        Row("B22", "4 times more users than GQA",
            f"at TP8 {mla_users / gqa_users:.2f} times: {mla_users} and {gqa_users}; each in its better layout {f.users(dp, 'bf16') / max(gqa_users, best):.1f} ({f.users(dp, 'bf16')} and {max(gqa_users, best)}), with nvfp4 {f.users(dp, 'nvfp4') / max(gqa_users, best):.1f}",
            "at TP8, which its commands use, BF16 MLA holds fewer users than GQA-8; data parallel attention, or a split of the context, collects what MLA gains",
            pair=(4, mla_users / gqa_users), note=" at TP8"),
        Row("B23", "8 to 12 times more than MHA",
            f"no user of MHA fits: {gb(f.user(mha) / 8)} a GPU at TP8, {gb(room)} free; in bytes {mha / mla:.0f} times", "contradicts its own 64 times",
            "no number fits"),
        Row("B24", "MHA 0 users", "0", "as B23", "right"),
        Row("B25", "about $0.20 a session and hour",
            f"${hour / mla_users:.2f} (TP8), ${hour / f.users(dp, 'bf16'):.2f} (DP8), nvfp4 ${hour / f.users(dp, 'nvfp4'):.2f} (DP8)",
            f"{tp['cost']['price_per_hour'] / 8:.2f} / 9: the price of one GPU for users of eight", pair=(0.20, hour / mla_users), note=" (TP8)"),
        Row("B26", "8 to 9 times lower cost per token",
            f"{gqa / mla:.1f} times fewer bytes than GQA-8; at TP8 {mla / (gqa / 8):.1f} times more a GPU", "counts users of MHA as one, though none fits",
            "wrong"),
        Row("B27", "fp8: 16 to 18 users a node", f"{f.users(tp, 'fp8')} (TP8), {f.users(dp, 'fp8')} (DP8)", "as B20", pair=(17, f.users(tp, "fp8")), note=" (TP8)"),
        Row("B28", "22 GB saved a user at 128K", gb(f.user(gqa) - f.user(mla)), "30 - 7.5; as B5, B8", pair=(22, (f.user(gqa) - f.user(mla)) / GB)),
        Row("B29", "a few GB saved at 4K", gb(f.user(gqa, K4) - f.user(mla, K4)), "", "about one"),
        Row("B30", "1M tokens of GQA: 240 GB", both(f.user(gqa, M1)), "as B5", pair=(240, f.user(gqa, M1) / GB)),
        Row("B31", "GQA at 1M infeasible on two nodes, MLA alone fits",
            f"16 H200, two replicas of TP8: {many} users of GQA-8 with 1M tokens",
            f"{gb(16 * two_room)} are free beside the weights; {gb(f.user(gqa, M1) / 8)} a user and GPU", "wrong"),
        Row("B32", "V3 in FP8: 340 GB", gb(weights), "671 G parameters of one byte; 340 GB would be 4 bits", pair=(340, weights / GB)),
        Row("B33", "4 H200 suffice for V3",
            f"weights {gb(four['layout']['per_gpu']['weight_bytes'])} a GPU of {gb(four['layout']['per_gpu']['budget_bytes'])}; {four['layout']['needed']['gpus']} would hold them",
            "from B32", "does not fit" if not four["layout"]["fits"] else "fits"),
        Row("B34", "Kimi K2: 8 H200",
            f"FP8: {gb(kimi['weights']['types'][0]['bytes'])}, {gb(kimi['layout']['per_gpu']['cache_bytes'])} of cache a GPU: {f.users(kimi, 'bf16')} users of 128k in BF16, {f.users(kimi, 'nvfp4')} in nvfp4",
            "FP8 weights fit and little else; later K2 have 4-bit experts, which `plan` does not have", "fits without room in FP8"),
        Row("B35", "Kimi K2 256K, V3 128K",
            f"{f.plan('kimi-k2')['model']['max_position']:,} (K2), {f.plan('kimi-k2-thinking')['model']['max_position']:,} (K2 Thinking), {f.v3['model']['max_position']:,} (V3)",
            "config.json; V3 is published as a 128K model", "right for K2 Thinking and later"),
        Row("B36", "H200 141 GB, B200 192 GB", f"{both(h200)}, {both(b200)}", "what the driver shows: 141 is GiB, 192 GB", "right in mixed units"),
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
        Row("B37", "$1.77 and $5.34 an hour (25 Jun 2026)",
            f"8 x 1.77 = {8 * 1.77:.2f}, 42.72 / 8 = {42.72 / 8:.2f}", "spot prices of that day, one provider; `--price` takes any",
            "right as arithmetic; prices " + NOT_HERE),
        Row("B38", "cost = $/h / (tok/s x 3600) x 10^6", f.on("h200", 8, 8)["cost"]["per_million"], "prompt and generated tokens are not told apart", "right"),
        Row("B39", "Llama 3.3 70B, 1 H200, 4K, 8: 18,000 tok/s",
            f"FP8 weights: at most {ld['most']['tokens_per_second']:,.0f}, modelled {ld['model']['tokens_per_second']:,.0f}; BF16 weights {'fit' if bf16['layout']['fits'] else 'do not fit'}",
            f"the weights are read once a step: {ld['most']['step_ms']:.1f} ms. As prompt tokens, at most {lp['tokens_per_second_most']:,.0f} with BF16 arithmetic, twice that with FP8",
            pair=(18000, ld["most"]["tokens_per_second"]), note=", as generated tokens"),
        Row("B40", "that row: $0.027",
            f"its formula: ${1.77 / (18000 * 3600) * 1e6:.3f}; at our bound ${ld['most']['price_per_million']:.2f}, modelled ${ld['model']['price_per_million']:.2f}",
            "as B39", "right if the rate is", (0.027, ld["most"]["price_per_million"])),
        rate_row(f, "B41", "V3 fp8, 8 H200, 32K, 16: 9,500 tok/s", 9500, "h200", "fp8", K32, 16),
        price_row(f, "B42", "that row: $0.41", 0.41, 14.16, 9500, "h200", "fp8", K32, 16),
        rate_row(f, "B43", "V3 fp8, 8 H200, 128K, 8: 4,200 tok/s", 4200, "h200", "fp8", K128, 8),
        price_row(f, "B44", "that row: $0.94", 0.94, 14.16, 4200, "h200", "fp8", K128, 8),
        rate_row(f, "B45", "V3 FP4, 8 B200, 128K, 16: 7,800 tok/s", 7800, "b200", "nvfp4", K128, 16),
        price_row(f, "B46", "that row: $1.52", 1.52, 42.72, 7800, "b200", "nvfp4", K128, 16),
        Row("B47", "4,000 to 5,000 tok/s: $0.79 to 0.98", f"${14.16 / (5000 * 3600) * 1e6:.3f} to {14.16 / (4000 * 3600) * 1e6:.3f}", "as B43", "right if the rate is"),
        Row("B48", "its benchmark: 4,096 in, 512 out, \"tokens/sec\"",
            f"(4,096 + 512) / 512 = {(4096 + 512) / 512:.0f}",
            "total tokens a second are nine times the generated ones; the text does not say which, and vLLM's client prints both", "ambiguous by 9"),
        Row("B49", "a B200 token costs more (1.52, 0.94)",
            f"same users at bounds: ${f.step(b200, 'nvfp4', K128, 16)['most']['price_per_million']:.2f} and ${f.step(b128, 'fp8', K128, 16)['most']['price_per_million']:.2f}; full: "
            f"${full['most']['price_per_million']:.2f} ({full['concurrency']} users) and ${less['most']['price_per_million']:.2f} ({less['concurrency']})",
            f"prices differ by {by[0]:.1f}, bandwidth by {by[1]:.1f}; memory after the weights, and so users, by more",
            "right with few users" + (", not where both are full" if cheaper else "")),
        Row("B50", "B200 serves double the users (16, 8)",
            f"{f.users(b200, 'nvfp4') / f.users(b128, 'fp8'):.1f} times: {f.users(b200, 'nvfp4')} nvfp4 and {f.users(b128, 'fp8')} fp8 (DP8)",
            "more memory after the weights, and the smaller record", pair=(2, f.users(b200, "nvfp4") / f.users(b128, "fp8"))),
        Row("B51", "64 times less HBM traffic",
            f"{f.other('mha') / f.each('bf16'):.1f} times less of the cache; of all that a step reads (TP8, fp8, 8 x 128k) the cache is {percent(cache_share(f), 0)}",
            "weights are read as well", pair=(64, f.other("mha") / f.each("bf16"))),
    ]


def cache_share(f):
    d = f.step(f.on("h200", 8, 8), "fp8", K128, 8)
    return d["cache_bytes"] / (d["cache_bytes"] + d["weight_bytes"])


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
        Row("B53", "V3 in FP8 10 to 15 % over its parameters",
            f"{percent(total / f.v3['model']['n_param'] - 1, 2)} before, {percent((total + copy) / f.v3['model']['n_param'] - 1, 2)} after the copy",
            "scales of blocks, norms, embedding and head in BF16", pair=(12.5, 100 * ((total + copy) / f.v3["model"]["n_param"] - 1))),
        Row("B54", "unabsorbed recovers 10 to 20 % of VRAM", percent(copy / total, 2), "as B52", pair=(15, 100 * copy / total)),
        Row("B55", "nvfp4 on Hopper degrades throughput",
            f"one H100, 32 x 32k, nvfp4 for BF16: {few16 / few4:.2f} times as fast with 16 heads, {many16 / many4:.2f} with 128; V2-Lite's shape {f.whole('nvfp4', 32768, 32) / f.whole('bf16', 32768, 32):.2f}",
            f"decoding costs arithmetic; few heads leave it free, 128 do not (FlashMLA in BF16: {flash:.0f} us, nibble's nvfp4 {many4:.0f})",
            "wrong with few heads, right with many"),
        Row("B56", "FlashInfer: 20 to 35 % less attention time",
            "", "FlashInfer was not run; nibble has both forms and takes the absorbed one for generated tokens", NOT_HERE),
        Row("B57", "fp8: negligible loss",
            fp8_text(f),
            "published beside it: AIME25 of DeepSeek-R1 .507 to .493 (SGLang's documentation); one GLM checkpoint without scales 95.3 to 76.7 on AIME26 (SGLang issue 22671)",
            "right if scales are dynamic or calibrated"),
        Row("B58", "nvfp4 loses more than fp8",
            f"KL {spread([f.kl(m, 'nvfp4')[0] / f.kl(m, 'fp8')[0] for m in f.models('fp8')], '{:.1f}')} times fp8's{on(f, 'fp8')}",
            "measure on your text: `nibble eval kl`", "right"),
        Row("B59", "--dtype fp8 (vLLM, SGLang)", "not a value of either's --dtype", "FP8 weights come from the checkpoint, or --quantization", "does not run"),
        Row("B60", "--kv-cache-dtype nvfp4 for DeepSeek-V3", "refused for MLA by vLLM", "see A4", "does not run"),
        Row("B61", "--enable-flashinfer-mla", "not in SGLang (July 2026)", "--attention-backend flashinfer is the option", "does not exist"),
        Row("B62", "vllm.benchmarks.benchmark_serving --concurrency 16", "vllm bench serve --max-concurrency 16", "the module is gone", "does not run"),
        Row("B63", "0.92 of the GPU's memory", f"{f.on('h200', 8, 8)['layout']['utilization']}", "vLLM's default now; nibble's too", "right"),
        Row("B64", "--tensor-parallel-size 8 for MLA",
            f"8 copies of each latent: {f.on('h200', 8, 8)['capacity'][0]['tokens']:,} tokens, DP8 {f.on('h200', 8, 1)['capacity'][0]['tokens']:,} (BF16)",
            "one latent for all heads cannot be divided by heads",
            f"costs {f.on('h200', 8, 1)['capacity'][0]['tokens'] / f.on('h200', 8, 8)['capacity'][0]['tokens']:.1f} times the room"),
        Row("B65", "V4 does not use MLA", "", "sizes come from config.json; nibble has no such family", "right"),
        Row("B66", "versions, minutes to start, disk", "", "vLLM 0.6+, CUDA 12.4+, under 2 minutes", NOT_HERE),
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
    tp, dp = f.on("h200", 8, 8), f.on("h200", 8, 1)
    tokens = [next(r["tokens"] for r in dp["capacity"] if r["dtype"] == d) for d in ("nvfp4", "fp8")]
    models = f.models("mxfp4", "nvfp4")
    run, diff = f.retrieval("nvfp4")
    ratio = [f.kl(m, "mxfp4")[0] / f.kl(m, "nvfp4")[0] for m in models]
    ppl = [100 * (f.kl(m, "nvfp4")[1] - 1) for m in models]
    return [
        Row("C1", "50 % less than fp8",
            f"{percent(1 - nvfp4 / fp8)} for MLA ({fp8 / nvfp4:.2f} times), {percent(1 - g4 / g8)} for keys and values of heads ({g8 / g4:.2f} times)",
            "4 bits and 0.5 of scale are 4.5: 1.78 at best; MLA's RoPE key stays in 8 bits", pair=(50, 100 * (1 - nvfp4 / fp8))),
        Row("C2", "twice the context in the same memory", f"{tokens[0] / tokens[1]:.2f} times the tokens (V3, 8 H200, DP8)", "as C1", pair=(2, tokens[0] / tokens[1])),
        *replays(f),
        Row("C7", "less than 1 % accuracy loss",
            f"perplexity {spread(ppl, '{:+.2f}')} %{on(f, 'nvfp4')}; retrieval of nibble-tiny {100 * diff['value']:+.1f} points [{100 * diff['lo']:.1f}, {100 * diff['hi']:.1f}] on {run['n_prompt']} prompts",
            "SGLang's documentation has AIME25 of DeepSeek-R1 .507 (BF16) and .400 (its FP4 cache): the task decides; nothing here proves 1 % for a large model",
            "right for perplexity here; else " + NOT_HERE),
        Row("C8", "RULER 64K: 95.6 to 94.6",
            f"{95.6 - 94.6:.1f} points, {percent(1 - 94.6 / 95.6, 2)} of the score",
            "1.0 point needs about 1,200 prompts to be seen ([accuracy](accuracy.md#the-measurements)); 50 of 2k tokens here, above",
            "not under 1 % by its own figures"),
        Row("C9", "5 % better than MXFP4 (MMLU)",
            f"KL of mxfp4 is {spread(ratio, '{:.1f}')} times nvfp4's{on(f, 'mxfp4')}; {percent(1 - f.each('mxfp4') / nvfp4)} fewer bytes",
            "blocks of 32 with scales that are powers of two; MMLU was not run", "right in direction"),
        Row("C10", "E4M3 scales, finer blocks than MXFP4", "a scale of E4M3 for 16 values; MXFP4: a power of two for 32", "[number formats](number-formats.md)", "right"),
        Row("C11", "decoded to FP8 before the products",
            "BF16 or FP16 on a GPU, exact for the codes; integers or floats on a CPU",
            "code times scale has up to 6 significant bits (E2M1 2, E4M3 4), FP8 keeps 4: it would round twice", "theirs, not needed"),
        Row("C12", "helps batch size and length",
            f"users of 128k, fp8 to nvfp4: {f.users(tp, 'fp8')} to {f.users(tp, 'nvfp4')} (TP8), {f.users(dp, 'fp8')} to {f.users(dp, 'nvfp4')} (DP8)", "",
            "right"),
        Row("C13", "Qwen3-Coder-480B as the example", "", "8 KV heads of 128 in 62 layers: not MLA; no trace or concurrency is named for the rates", NOT_HERE),
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
    bf16, fp8, int4, nvfp4, mha = (f.each("bf16"), f.each("fp8"), f.each("int4"), f.each("nvfp4"), f.other("mha"))
    lite = f.other("mha", f.lite) / f.each("bf16", f.lite)
    h100, dp = f.on("h100", 8, 8), f.on("h200", 8, 1)
    models = f.models("int4")
    ppl = [100 * (f.kl(m, "int4")[1] - 1) for m in models]
    kl = [f.kl(m, "int4")[0] / f.kl(m, "nvfp4")[0] for m in models]
    err = f.errors("int4", "nvfp4")
    at = {r: f.kernel("nibble", r, 16, 128, 4096) for r in ("bf16", "nvfp4")}
    reach = {r: x["floor_us"] / x["median_us"] for r, x in at.items()}
    room = {d: next(r["tokens"] for r in dp["capacity"] if r["dtype"] == d) for d in ("bf16", "fp8", "nvfp4", "int4")}
    return [
        Row("D1", "FP16 to FP8: 2 times", f"{bf16 / fp8:.3f}", "two scales a token", pair=(2, bf16 / fp8)),
        Row("D2", "FP16 to INT4: 4 times",
            f"{bf16 / int4:.2f} (MLA), {f.each('bf16', f.llama) / f.each('int4', f.llama):.2f} (heads of 128)",
            "KIVI's groups of 32 have a scale and a zero point, the RoPE key 8 bits", pair=(4, bf16 / int4)),
        Row("D3", "448 is E4M3's largest", f"{(2 - 2 ** -2) * 2 ** 8:.0f}", "1.75 x 2^8", pair=(448, (2 - 2 ** -2) * 2 ** 8)),
        Row("D4", "FP8: about 0 %, under 0.5 %",
            fp8_text(f), "one scale for a tensor, as written there, is what fails in practice (B57); a scale a token does not", "right with a scale a token"),
        Row("D5", "INT4 has 16 levels", str(2 ** 4), "", pair=(16, 2 ** 4)),
        Row("D6", "INT4 with KIVI: 1 to 2 % loss",
            f"perplexity {spread(ppl, '{:+.2f}')} %, KL {spread(kl, '{:.1f}')} times nvfp4's{on(f, 'int4')}",
            f"the latent is key and value at once, so per channel or per token is a choice, not a split; its error on generated heads is {spread(err, '{:.2f}')} of nvfp4's, the less the more its channels differ in size",
            "not reproduced: smaller in perplexity"),
        Row("D7", "MLA: 9 times smaller (0.11)",
            f"V3 {mha / bf16:.1f}, V2-Lite {lite:.1f}", "9 is V2-Lite with its 16 heads; V3 has 128", pair=(9, mha / bf16), note=" for V3"),
        Row("D8", "with INT4 36 times (0.03), \"DeepSeek-V3 style\"",
            f"V3: int4 {mha / int4:.0f}, nvfp4 {mha / nvfp4:.0f}; V2-Lite: int4 {f.other('mha', f.lite) / f.each('int4', f.lite):.0f}, nvfp4 {f.other('mha', f.lite) / f.each('nvfp4', f.lite):.0f}",
            "from D7 and D2", pair=(36, mha / int4), note=" for V3"),
        Row("D9", "0.11 and 0.03 of the baseline", f"1/9 = {1 / 9:.2f}, 1/36 = {1 / 36:.2f}; V3: {bf16 / mha:.3f}, {int4 / mha:.4f}", "as D7, D8", "right as arithmetic"),
        Row("D10", "how V3 serves 128K on 8 GPUs",
            f"8 H200: {f.users(dp, 'bf16')} users in BF16 (DP8); 8 H100: {'fit' if h100['layout']['fits'] else 'the weights do not fit'}",
            "the published model serves a BF16 or FP8 cache; 4 bits are not what makes it fit", "wrong reason"),
        Row("D11", "2 to 4 times the capacity, for free",
            f"tokens on 8 H200 (DP8): fp8 {room['fp8'] / room['bf16']:.2f}, int4 {room['int4'] / room['bf16']:.2f}, nvfp4 {room['nvfp4'] / room['bf16']:.2f} times BF16",
            "and it costs accuracy (C7, D6) and decoding (D12)", "right in size, not free"),
        Row("D12", "no overhead: decoded in the fused kernel",
            f"one H100, 16 heads, 128 x 4k: {percent(reach['nvfp4'], 0)} of the floor with nvfp4, {percent(reach['bf16'], 0)} with BF16; time {at['bf16']['median_us'] / at['nvfp4']['median_us']:.2f} times shorter for {bf16 / nvfp4:.2f} times fewer bytes",
            "decoding takes instructions; with 128 heads it is slower than BF16 (B55)", "wrong"),
        Row("D13", "rotations are near-lossless at INT4", f"{hadamard(f)}", "`int4:transform=hadamard` against `int4`, nibble-tiny", "no gain for this latent"),
        Row("D14", "quarter the blocks at INT4", percent(int4 / bf16), "as D2", pair=(25, 100 * int4 / bf16)),
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
SAME = {"B53": "B52", "B54": "B52", "B40": "B39", "B42": "B41", "B43": "B41", "B44": "B41", "B45": "B41", "B46": "B41", "D8": "D7", "B21": "B22"}


def lessons(f):
    w, mla = f.each("nvfp4"), f.each("bf16")
    return (f"Without a factor: the flag that all of it is about, an nvfp4 cache for DeepSeek-V3, is refused by vLLM, and three more commands do not run as written (A4, B59 to B62). "
            f"The figure that is quoted most, 1.9 GB a user, is {f.user(w) / GB:.2f} (A2).\n\nWhat is behind most of them: the RoPE key ({mla - 2 * 512:.0f} of {mla:.0f} B) and the scales ({w - 512 / 2 - 64:.0f} of {w:.0f} B) are left out; 60 layers stand for 61 and GiB for GB; users of eight GPUs are divided by one "
            "GPU's weights and price; a latent is thought to be divided by tensor parallelism; \"98 %\" has MHA with 128 heads as base; and \"tokens/s\" cannot be generated tokens.")


def documents(f):
    return [
        Document("A", "\"How MHLA and dynamic FP4 quantization eliminate KV-cache bottlenecks\" (28 June 2026)",
                 "An opinion piece; its figures are those of B and of a paper.", article(f)),
        Document("B", "A provider's guide to MLA serving (prices of 25 June 2026)",
                 "The memory table, the commands and the throughput table. MHA and GQA-8 below are V3's layers with 128 or 8 heads of keys (192) and values (128), in BF16, with the same weights beside them.",
                 sizes(f) + capacity(f) + rates(f) + serving(f)),
        Document("C", "NVIDIA on NVFP4 for the KV cache (8 December 2025), in a summary",
                 "Of a GQA model. Replays: `bench/results/replay.json`, block LRU for hit rates, the engine's policy for TTFT.", nvidia(f)),
        Document("D", "A lesson on KV cache quantization", "Of GQA models, with a paragraph on MLA.", lesson(f)),
    ]
