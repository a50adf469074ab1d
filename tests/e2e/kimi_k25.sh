# kimi_k25.sh - the text part of a model with vision: config under text_config, "language_model." before every name,
# tensors of the vision tower beside them.  It must be the text model alone, bit for bit.
. "$2/tests/e2e/_lib.sh"
m=$src/tests/parity/kimi_k2
need "$m/expected.safetensors" "no parity vectors"
python3 "$src/tests/e2e/_kimi_k25.py" "$m" "$tmp/k25" || die "cannot make the checkpoint"
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
