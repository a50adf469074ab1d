# gguf_hostile.sh - damaged GGUF files: one line that names what is wrong, exit code 1, and no more memory than a small
# model needs.
. "$2/tests/e2e/_lib.sh"
base=$src/tests/parity/llama3
need "$base/config.json" "no parity vectors"
writer=$src/tests/e2e/_gguf_hostile.py
printf '[3,141,59,265]' >"$tmp/t.json"
python3 "$src/tests/e2e/_gguf_family.py" "$base" "$tmp/base.gguf" F32 || die "no GGUF"
small_memory
ok logits "$tmp/base.gguf" --tokens "$tmp/t.json" --device cpu --output "$tmp/x.f32" --strict
while read -r name words; do
    rm -rf "$tmp/m" && mkdir "$tmp/m"
    python3 "$writer" make "$name" "$tmp/base.gguf" "$tmp/m" || die "$name: cannot be written"
    fails 1 "$words" logits "$tmp/m" --tokens "$tmp/t.json" --device cpu --output "$tmp/x.f32"
done <<END
$(python3 "$writer" list)
END
