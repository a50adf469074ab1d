# gguf_tokenizers.sh - the tokenizer of a GGUF gives the ids of the tokenizer.json that it was made of.
. "$2/tests/e2e/_lib.sh"
data=$src/../shared/data/tokenizers
need "$data/deepseek_v3/tokenizer.json.xz" "no tokenizers"

{
    printf 'Hello world! It\047s 12345678 o\047clock, we\047ll see; I\047M sure they\047ve gone.\n'
    printf '  def f(x):   return x**2 + 3.14e-10\t# tabs\tand   runs of blanks\040\040\040\n'
    printf '\n'
    printf '\303\234n\303\257c\303\266d\303\251 caff\303\250 na\303\257ve: \346\227\245\346\234\254\350\252\236\343\201\256\343\203\206\343\202\255\343\202\271\343\203\210\343\200\201\344\270\255\346\226\207\345\255\227\347\254\246\343\200\202\355\225\234\352\265\255\354\226\264 \355\205\215\354\212\244\355\212\270! \320\237\321\200\320\270\320\262\320\265\321\202, \320\274\320\270\321\200. \360\237\230\200\360\237\221\251\342\200\215\360\237\221\251\342\200\215\360\237\221\247 e\\u0301 \303\251 \357\254\201 \302\275 \331\243\n'
    printf '<|im_start|>user<|endoftext|> <\357\275\234User\357\275\234> [BOS] ...!!!???--->>> http://example.org/a_b?c=d&e=f\n'
} >"$tmp/text"
for row in deepseek_v3:deepseek-v3 qwen3:qwen2 gpt2:gpt-2; do
    name=${row%:*} pre=${row#*:}
    rm -rf "$tmp/hf" && mkdir "$tmp/hf"
    python3 "$src/tests/e2e/_gguf_tokenizer.py" "$data/$name" "$pre" "$tmp/hf" "$tmp/t.gguf" || die "no conversion of $name"
    for flag in --parse-special --no-parse-special; do
        ok tokenize "$tmp/hf" --file "$tmp/text" --json $flag
        cp "$tmp/out" "$tmp/expected"
        ok tokenize "$tmp/t.gguf" --file "$tmp/text" --json $flag
        cmp -s "$tmp/out" "$tmp/expected" || die "$name $flag: other ids"
        [ "$(json "$tmp/out" 'len(j) > 100')" = True ] || die "$name: few ids"
    done
    ok tokenize "$tmp/t.gguf" --decode "$tmp/expected"
    cp "$tmp/out" "$tmp/decoded"
    ok tokenize "$tmp/hf" --decode "$tmp/expected"
    cmp -s "$tmp/out" "$tmp/decoded" || die "$name: other text"
done
# DeepSeek-V2's splits, against llama.cpp's own vectors.
python3 "$src/tests/e2e/_gguf_tokenizer.py" "$data/deepseek_v2" deepseek-llm "$tmp/hf" "$tmp/t.gguf" || die "no V2"
python3 - "$nibble" "$tmp/t.gguf" "$data/vectors/ggml-vocab-deepseek-llm.gguf" <<'PY' || die "ids of DeepSeek-V2"
import json, subprocess, sys
nibble, model, base = sys.argv[1:]
with open(base + ".inp", encoding="utf-8", newline="") as f:
    texts = f.read().split("\n__ggml_vocab_test__\n")
with open(base + ".out", encoding="utf-8") as f:
    rows = [[int(x) for x in line.split()] for line in f.read().split("\n")]
bad = 0
for text, want in zip(texts, rows):
    out = subprocess.run([nibble, "tokenize", model, "--file", "-", "--json"], input=text.encode(), capture_output=True)
    if json.loads(out.stdout or "null") != want:
        print(repr(text), out.stdout, out.stderr, want)
        bad += 1
sys.exit(bad > 0 or len(texts) < 46)
PY
python3 "$src/tests/e2e/_gguf_tokenizer.py" "$data/gpt2" no-such-pre "$tmp/hf" "$tmp/t.gguf" || die "no conversion"
fails 1 'tokenizer.ggml.pre "no-such-pre" not supported deepseek-v3' tokenize "$tmp/t.gguf" -p x
exit 0
