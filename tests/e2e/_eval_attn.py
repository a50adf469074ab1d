# _eval_attn.py DUMP_DIR NAME JSON - attention errors of the bf16 and fp8 records (of MLA: fp8:rope=fp8),
# computed again from dumped tensors with the standard library only, must equal those of `nibble eval attn --json`.
import array
import json
import math
import struct
import sys

folder, name, report = sys.argv[1:4]
d = json.load(open(f"{folder}/{name}.json", encoding="utf-8"))
j = json.load(open(report, encoding="utf-8"))


def tensor(part):
    a = array.array("f")
    n = math.prod(d[part]["shape"])
    with open(f"{folder}/{d[part]['file']}", "rb") as f:
        a.fromfile(f, n)
        assert f.read() == b"", f"{part}: longer than its shape"
    if sys.byteorder == "big":
        a.byteswap()
    return a


def bf16(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", (u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000))[0]


def e4m3(x):  # nearest, ties to even, saturating
    a = min(abs(x), 448.0)
    if a == 0:
        return 0.0
    step = 2.0 ** (max(math.floor(math.log2(a)), -6) - 3)
    return math.copysign(min(round(a / step) * step, 448.0), x)  # round: halves to even


def fp8_vector(v):  # one power of two per vector: the least with max / scale <= 448
    v = [bf16(x) for x in v]
    top = max(abs(x) for x in v)
    if top == 0:
        return v
    e = math.ceil(math.log2(top / 448))
    while 448 * 2.0 ** (e - 1) >= top:
        e -= 1
    while 448 * 2.0**e < top:
        e += 1
    return [e4m3(x / 2.0**e) * 2.0**e for x in v]


n_tok, n_values = d["kv"]["shape"]
n_q, n_head, d_q = d["q"]["shape"]
kv, q, pos, page = tensor("kv"), tensor("q"), d["positions"], d["page_tokens"]
w_uv = tensor("w_uv") if d["w_uv"] else None
raw = [list(kv[t * n_values : (t + 1) * n_values]) for t in range(n_tok)]
rounded = [[bf16(x) for x in r] for r in raw]
eight = []
for r in raw:
    out, at = [], 0
    for dim, n_vec in zip(d["dim"], d["n_vec"]):
        for _ in range(n_vec):
            out += fp8_vector(r[at : at + dim])
            at += dim
    eight.append(out)


def places(h):  # of the key and the value of a head in a row
    if d["is_mla"]:
        return 0, d_q, 0, d["dim"][0]
    g = h // (n_head // d["n_kv_head"])
    return g * d["dim"][0], d["dim"][0], d["n_vec"][0] * d["dim"][0] + g * d["dim"][1], d["dim"][1]


def attend(query, rows, h):
    k, n_k, v, n_v = places(h)
    s = [d["scale"] * math.fsum(map(lambda a, b: a * b, query, r[k : k + n_k])) for r in rows]
    top = max(s)
    e = [math.exp(x - top) for x in s]
    total = math.fsum(e)
    p = [x / total for x in e]
    o = [math.fsum(p[t] * rows[t][v + i] for t in range(len(rows))) for i in range(n_v)]
    if w_uv:
        base = h * d["d_v"] * n_v
        o = [math.fsum(w_uv[base + r * n_v + i] * o[i] for i in range(n_v)) for r in range(d["d_v"])]
    return p, o


got = {v["name"]: [x for x in v["layers"] if x["layer"] == d["layer"]][0]["errors"] for v in j["variants"]}
name_of = {"bf16": "bf16", "fp8": "fp8:rope=fp8" if d["is_mla"] else "fp8"}
worst = 0.0
for i in range(n_q):
    n = pos[i] + 1
    own = pos[i] // page * page  # the query's own page is in BF16
    for h in range(n_head):
        query = q[(i * n_head + h) * d_q : (i * n_head + h + 1) * d_q]
        p, o = attend(query, raw[:n], h)
        for form, rows in (("bf16", rounded), ("fp8", eight)):
            pq, oq = attend(query, rows[:own] + rounded[own:n], h)
            l2 = math.sqrt(sum((a - b) ** 2 for a, b in zip(o, oq)) / sum(a * a for a in o))
            kl = sum(a * math.log(a / b) for a, b in zip(p, pq) if a > 0)
            for mine, key in ((l2, "rel_l2"), (kl, "kl")):
                theirs = got[name_of[form]][key][i][h]
                off = abs(theirs - mine) / (abs(mine) + 1e-9)
                worst = max(worst, off)
                if off > 1e-5:
                    sys.exit(f"{form}, query {i}, head {h}: {key} is {theirs}, computed again {mine}")
print(f"{name}: {n_q * n_head} outputs of bf16 and fp8 agree to {worst:.1e}")
