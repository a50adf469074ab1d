# gguf_oracle.sh - llama.cpp's library, from npm, quantises the bundled model to every type: nibble's logits of the
# packed file and of the same weights as floats agree, and the committed floats of blocks are the library's.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
command -v npm >/dev/null || skip "no npm"
[ "$(uname -m)" = x86_64 ] || skip "the library is for x86-64"
(cd "$tmp" && npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xzf *.tgz) >/dev/null 2>&1 || skip "npm has no network"
lib=$tmp/package/bins/linux-x64/libggml-base.so
need "$lib" "no library"
oracle=$src/tests/e2e/_gguf_oracle.py

python3 "$oracle" vectors "$lib" "$tmp/blocks" || die "no vectors"
cmp "$tmp/blocks" "$src/tests/data/ggml_blocks.bin" || die "tests/data/ggml_blocks.bin is not what the library gives"

echo '[0,5,100,200,300,400,500,600,700]' >"$tmp/ids"

cuda=${NB_TEST_CUDA:-$(dirname "$nibble")/libnibble-cuda-emu.so}

# compare NAME: $tmp/q.gguf and $tmp/floats.gguf give the same logits, to 1e-3, on every level of this processor, and on a
# GPU, which may be emulated.
compare() {
    ok logits "$tmp/floats.gguf" --tokens "$tmp/ids" --output "$tmp/expected" --strict --kv-cache-dtype f32 \
        --activation-dtype float
    for caps in avx512 avx2 c cuda; do
        how="--cpu-caps $caps --activation-dtype float"
        [ $caps != cuda ] || how="--device cuda --cuda-library $cuda --mla absorbed"
        [ $caps != cuda ] || [ -e "$cuda" ] || continue
        # an unknown level of this processor is an error: then the next one
        # shellcheck disable=SC2086
        "$nibble" logits "$tmp/q.gguf" --tokens "$tmp/ids" --output "$tmp/rows" --strict --kv-cache-dtype f32 $how \
            >"$tmp/out" 2>"$tmp/err" || { [ $caps != cuda ] && continue; die "$1: $(cat "$tmp/err")"; }
        python3 - "$tmp/expected" "$tmp/rows" "$1-$caps" <<'PY' || die "logits of $1 ($caps) differ"
import struct, sys
a, b = (open(p, "rb").read() for p in sys.argv[1:3])
a, b = (struct.unpack(f"<{len(x) // 4}f", x) for x in (a, b))
worst = max(abs(x - y) for x, y in zip(a, b))
print(f"{sys.argv[3]}: {worst:.2e} of {max(map(abs, a)):.2f}")
sys.exit(worst > 1e-3 or len(a) != len(b) or not a)
PY
    done
}

python3 "$src/tests/e2e/_gguf.py" folder "$model" "$tmp/f32.gguf" F32 || die "no GGUF"
for kind in Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4 \
    IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ1_S IQ1_M; do
    python3 "$oracle" quantise "$lib" "$tmp/f32.gguf" $kind "$tmp/q.gguf" "$tmp/floats.gguf" || die "no $kind"
    compare "$kind"
done

# The other architectures, in shapes with whole blocks.
echo '[0,5,100,200,300,17,3,141,59]' >"$tmp/ids"
for family in llama3 qwen2 qwen3 minicpm3_short; do
    python3 "$src/tests/e2e/_weight_mix.py" make $family "$src/tests/parity" "$tmp/m" || die "no $family"
    python3 "$src/tests/e2e/_gguf_family.py" "$tmp/m/f" "$tmp/f32.gguf" F32 || die "no GGUF of $family"
    for kind in Q8_0 Q4_K Q6_K IQ3_S; do
        python3 "$oracle" quantise "$lib" "$tmp/f32.gguf" $kind "$tmp/q.gguf" "$tmp/floats.gguf" || die "no $kind"
        compare "$family-$kind"
    done
done
exit 0
