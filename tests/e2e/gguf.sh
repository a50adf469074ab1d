# gguf.sh - GGUF files as models: the same tokens as the Hugging Face folder they were made of.
. "$2/tests/e2e/_lib.sh"
gguf=$src/tests/e2e/_gguf.py
need "$model/config.json" "no bundled model"

# ---- DeepSeek-V3's shape: split attn_k_b and attn_v_b, and the older attn_kv_b, give the folder's logits bit for bit
echo '[0,5,100,200,300,400,500,600,700]' >"$tmp/ids"
# Tiles round the activations of BF16 matrices, and routers are F32 in a GGUF: one level below, where there are tiles.
level=
"$nibble" logits "$model" --tokens "$tmp/ids" --output "$tmp/expected" --cpu-caps avx512 >/dev/null 2>&1 && level="--cpu-caps avx512"
# shellcheck disable=SC2086
logits() { ok logits "$@" $level; }
logits "$model" --tokens "$tmp/ids" --output "$tmp/expected"
for kind in "" F32 legacy; do
    # shellcheck disable=SC2086
    python3 "$gguf" folder "$model" "$tmp/tiny.gguf" $kind || die "no GGUF"
    logits "$tmp/tiny.gguf" --tokens "$tmp/ids" --output "$tmp/rows" --strict
    cmp -s "$tmp/rows" "$tmp/expected" || die "logits of the GGUF ($kind) differ"
    grep -q warning "$tmp/err" && die "a warning"
    logits "$tmp/tiny.gguf" --tokens "$tmp/ids" --output "$tmp/rows" --load-format copy
    cmp -s "$tmp/rows" "$tmp/expected" || die "logits of the copied GGUF ($kind) differ"
done
fails 1 "tiny.gguf no tokenizer --tokens" run "$tmp/tiny.gguf" -p hi
ok info "$tmp/tiny.gguf" --json
[ "$(json "$tmp/out" 'j["family"]')" = deepseek_v3 ] || die "info"
ok plan "$tmp/tiny.gguf"
echo '[0,5,100,200,300,17]' >"$tmp/ids"
for c in v2_lite v3_moonlight v3_geom; do
    [ -e "$src/tests/parity/$c/config.json" ] || continue
    python3 "$gguf" folder "$src/tests/parity/$c" "$tmp/c.gguf" || die "no GGUF of $c"
    logits "$src/tests/parity/$c" --tokens "$tmp/ids" --output "$tmp/expected"
    logits "$tmp/c.gguf" --tokens "$tmp/ids" --output "$tmp/rows" --strict
    python3 - "$tmp/expected" "$tmp/rows" <<'PY' || die "logits of $c differ"
import struct, sys
a, b = (open(p, "rb").read() for p in sys.argv[1:])
a, b = (struct.unpack(f"<{len(x) // 4}f", x) for x in (a, b))
sys.exit(max(abs(x - y) for x, y in zip(a, b)) > 1e-4 * max(map(abs, a)))  # yarn's factor is an F32 in a GGUF
PY
done

# ---- the other architectures: the folder's logits, bit for bit where no factor of the rotation is rounded
for c in llama3 llama_bias qwen2 qwen3 minicpm3_short; do
    [ -e "$src/tests/parity/$c/config.json" ] || continue
    rm -rf "$tmp/c" && cp -R "$src/tests/parity/$c" "$tmp/c"
    # a constant of llama.cpp's code, which a GGUF does not have
    sed -i 's/"dim_model_base": *[0-9]*/"dim_model_base": 256/' "$tmp/c/config.json"
    # a rounded factor moves keys to another BF16 value
    logits "$tmp/c" --tokens "$tmp/ids" --output "$tmp/expected" --rows 0,2,5 --kv-cache-dtype f32
    for kind in "" F32; do
        # shellcheck disable=SC2086
        python3 "$src/tests/e2e/_gguf_family.py" "$tmp/c" "$tmp/c.gguf" $kind || die "no GGUF of $c"
        logits "$tmp/c.gguf" --tokens "$tmp/ids" --output "$tmp/rows" --strict --rows 0,2,5 --kv-cache-dtype f32
        python3 - "$tmp/expected" "$tmp/rows" <<'PY' || die "logits of $c ($kind) differ"
import struct, sys
a, b = (open(p, "rb").read() for p in sys.argv[1:])
a, b = (struct.unpack(f"<{len(x) // 4}f", x) for x in (a, b))
sys.exit(len(a) != len(b) or max(abs(x - y) for x, y in zip(a, b)) > 1e-5 * max(map(abs, a)))
PY
        ok plan "$tmp/c.gguf"
    done
done

# ---- a small published model: Llama with SentencePiece's vocabulary, whole and in shards
checkpoint=$src/../shared/data/checkpoints/stories260K.bin
need "$checkpoint" "no published checkpoint"
python3 "$gguf" stories "$checkpoint" "$(dirname "$checkpoint")/tok512.bin" "$tmp/st" || die "no conversion"
echo '[1]' >"$tmp/bos"
greedy() {
    ok run "$@" --temperature 0 -n 200 --ignore-eos --kv-cache-dtype bf16 --json
}
greedy "$tmp/st/hf" --tokens "$tmp/bos"
tokens=$(json "$tmp/out" 'j["tokens"]')
for file in model.gguf split-00001-of-00003.gguf; do
    greedy "$tmp/st/$file" -p ""
    [ "$(json "$tmp/out" 'j["tokens"]')" = "$tokens" ] || die "$file: other tokens than the folder's"
done
json "$tmp/out" 'j["text"]' >"$tmp/text"
ok tokenize "$tmp/st/model.gguf" -p "Once upon a time" --json
[ "$(cat "$tmp/out")" = "[403,407,261,378]" ] || die "tokens of a text: $(cat "$tmp/out")"
fails 1 "shard 2 of 3 first" info "$tmp/st/split-00002-of-00003.gguf"
mkdir "$tmp/folder" && cp "$tmp"/st/split-* "$tmp/folder"
greedy "$tmp/folder" -p ""
[ "$(json "$tmp/out" 'j["tokens"]')" = "$tokens" ] || die "a folder with shards"
mkdir "$tmp/repository" && mv "$tmp/folder" "$tmp/repository/Q4_K_M"
greedy "$tmp/repository" -p ""
[ "$(json "$tmp/out" 'j["tokens"]')" = "$tokens" ] || die "a folder in a folder"
mkdir "$tmp/repository/Q8_0" && cp "$tmp/st/model.gguf" "$tmp/repository/Q8_0"
fails 1 "2 folders --gguf-file" info "$tmp/repository"
greedy "$tmp/repository" -p "" --gguf-file Q8_0/model.gguf
[ "$(json "$tmp/out" 'j["tokens"]')" = "$tokens" ] || die "--gguf-file with a folder"
mv "$tmp/repository/Q4_K_M" "$tmp/folder"
rm "$tmp/folder/split-00002-of-00003.gguf"
fails 1 "GGUF" info "$tmp/folder"
cp "$tmp/st/split-00001-of-00003.gguf" "$tmp/folder/split-00002-of-00003.gguf"
fails 1 "split.no 0 expected 1" info "$tmp/folder"

sum=$(sha256sum "$checkpoint" | cut -c1-16)
[ "$sum" = b0a507e7ad0f6266 ] || skip "$checkpoint is not the published file (sha256 $sum...): its text was not compared"
# karpathy/llama2.c, test_all.py: the text that a temperature of 0 gives in 200 steps.
cat >"$tmp/published" <<'END'
Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. She wanted to play with it, but it was too high.
Lily's mom said, "Lily, let's go to the park." Lily was sad and didn't know what to do. She said, "I want to play with your ball, but I can't find it."
Lily was sad and didn't know what to do. She said, "I'm sorry, Lily. I didn't know what to do."
Lily didn't want to help her mom, so she
END
[ "$(wc -c <"$tmp/text")" = 465 ] || die "$(wc -c <"$tmp/text") bytes with the last line's end, expected 465"
cmp "$tmp/text" "$tmp/published" || die "the text is not the published one"
exit 0
