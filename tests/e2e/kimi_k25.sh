# kimi_k25.sh - the text part of a model with vision: config under text_config, "language_model." before every name,
# tensors of the vision tower beside them.  It must be the text model alone, bit for bit.
. "$2/tests/e2e/_lib.sh"
m=$src/tests/parity/kimi_k2
need "$m/expected.safetensors" "no parity vectors"
python3 - "$m" "$tmp/k25" <<'EOF' || die "cannot make the checkpoint"
import json, os, struct, sys
src, out = sys.argv[1:]
os.makedirs(out)
text = json.load(open(f"{src}/config.json"))
json.dump({"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"], "text_config": text,
           "vision_config": {"model_type": "moonvit"}, "media_placeholder_token_id": 5}, open(f"{out}/config.json", "w"))
raw = open(f"{src}/model.safetensors", "rb").read()
n, = struct.unpack("<Q", raw[:8])
head = {("language_model." + k if k != "__metadata__" else k): v for k, v in json.loads(raw[8:8 + n]).items()}
data = raw[8 + n:]
for name in ("vision_tower.patch_embed.proj.weight", "mm_projector.proj.0.weight"):
    head[name] = {"dtype": "BF16", "shape": [4, 4], "data_offsets": [len(data), len(data) + 32]}
    data += bytes(32)
head = json.dumps(head).encode()
head += b" " * (-len(head) % 8)
open(f"{out}/model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + data)
EOF
python3 "$src/tests/e2e/_expected.py" "$m/expected.safetensors" list tokens >"$tmp/t.json" || die "no tokens"
for x in "$m" "$tmp/k25"; do
    ok logits "$x" --tokens "$tmp/t.json" --rows all --output "$tmp/$(basename "$x").f32"
    grep -i "not used\|unused\|ignored" "$tmp/err" && die "$x: a tensor is left over"
done
cmp "$tmp/kimi_k2.f32" "$tmp/k25.f32" || die "the part of another model has other logits"
ok info "$tmp/k25"
grep -q "family *deepseek_v3" "$tmp/out" || die "info: no family"
ok logits "$src/tests/parity/mistral4" --tokens "$tmp/t.json" --output "$tmp/m4.f32"
grep -i "not used\|unused\|ignored" "$tmp/err" && die "mistral4: a tensor is left over"
exit 0
