# stacked_fp8.sh - all experts of a layer in one FP8 tensor with a scale for each: the logits of the same numbers as floats.
. "$2/tests/e2e/_lib.sh"
m=$src/tests/parity/mistral4
need "$m/expected.safetensors" "no parity vectors"
python3 - "$m" "$tmp" <<'EOF' || die "cannot make the checkpoints"
import json, os, random, struct, sys
src, tmp = sys.argv[1:]
config = json.load(open(f"{src}/config.json"))
raw = open(f"{src}/model.safetensors", "rb").read()
n, = struct.unpack("<Q", raw[:8])
head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
head.pop("__metadata__", None)
value = [(-1 if b & 128 else 1) * ((b & 7) / 8 * 2**-6 if b & 120 == 0 else (1 + (b & 7) / 8) * 2.0**((b >> 3 & 15) - 7)) for b in range(256)]
codes = [b for b in range(256) if 0.2 <= abs(value[b]) <= 4]
rng, kinds = random.Random(7), {"fp8": {}, "float": {}, "bad": {}}
for name, t in head.items():
    a, b = t["data_offsets"]
    if ".mlp.experts." not in name:
        for k in kinds.values():
            k[name] = (t["dtype"], t["shape"], data[a:b])
        continue
    count, per = t["shape"][0], t["shape"][1] * t["shape"][2]
    code = bytes(rng.choices(codes, k=count * per))
    scale = [0.02 * (1 + e % 3) for e in range(count)]
    scale = list(struct.unpack(f"<{count}f", struct.pack(f"<{count}f", *scale)))
    kinds["float"][name] = ("F32", t["shape"], struct.pack(f"<{count * per}f", *(value[c] * scale[i // per] for i, c in enumerate(code))))
    for kind in ("fp8", "bad"):
        kinds[kind][name] = ("F8_E4M3", t["shape"], code)
        s = scale[:-1] + [float("nan")] if kind == "bad" else scale
        kinds[kind][name + "_scale_inv"] = ("F32", [count, 1, 1], struct.pack(f"<{count}f", *s))
        kinds[kind][name + "_activation_scale"] = ("F32", [count], bytes(4 * count))
for kind, tensors in kinds.items():
    os.makedirs(f"{tmp}/{kind}")
    c = dict(config)
    if kind != "float":
        c["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}
    json.dump(c, open(f"{tmp}/{kind}/config.json", "w"))
    h, body = {}, b""
    for name, (dtype, shape, b) in sorted(tensors.items(), key=lambda x: x[1][0] == "F8_E4M3"):
        h[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(b)]}
        body += b
    h = json.dumps(h).encode()
    h += b" " * (-len(h) % 8)
    open(f"{tmp}/{kind}/model.safetensors", "wb").write(struct.pack("<Q", len(h)) + h + body)
EOF
python3 "$src/tests/e2e/_expected.py" "$m/expected.safetensors" list tokens >"$tmp/t.json" || die "no tokens"
for x in fp8 float; do
    ok logits "$tmp/$x" --tokens "$tmp/t.json" --rows all --kv-cache-dtype f32 --activation-dtype float --output "$tmp/$x.f32"
done
grep -i "not used\|unused\|ignored" "$tmp/err" && die "a tensor is left over"
python3 - "$tmp/fp8.f32" "$tmp/float.f32" <<'EOF' || die "the logits differ"
import array, sys
a, b = (array.array("f", open(f, "rb").read()) for f in sys.argv[1:])
worst = max(abs(x - y) for x, y in zip(a, b))
print(len(a), worst, max(map(abs, b)))
sys.exit(not (len(a) == len(b) > 0 and worst < 1e-3 and max(map(abs, b)) > 0.1))
EOF
fails 1 "element 11 is nan" logits "$tmp/bad" --tokens "$tmp/t.json" --output "$tmp/bad.f32"
