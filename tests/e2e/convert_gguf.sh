# convert_gguf.sh - `nibble convert` to GGUF, with llama.cpp's library from npm as the judge: it loads the files, splits
# text as nibble does, says the same tokens, has the same types in the same places and no smaller error.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
py=$src/tests/e2e/_convert.py
ids=$tmp/ids
printf '[0,5,100,200,300,400,500,600,700]' >"$ids"
make() { ok convert "$model" "$tmp/$1.gguf" --weight-format "gguf:$1" --gguf-pre deepseek-v3; }

# Without the library: names and values survive, the metadata is that of the folder.
make F32
ok run "$model" -p 'Once upon a time' -n 24 --temperature 0 --json --kv-cache-dtype f32 --activation-dtype float
cp "$tmp/out" "$tmp/a"
ok run "$tmp/F32.gguf" -p 'Once upon a time' -n 24 --temperature 0 --json --kv-cache-dtype f32 --activation-dtype float
[ "$(json "$tmp/out" "j['text']")" = "$(json "$tmp/a" "j['text']")" ] || die "F32: another text"
make Q4_K_M
# Prompts read kv_b as floats, generated tokens its packed halves: the same values, so the same perplexity.
for i in 1 2 3 4 5 6; do printf 'Once upon a time there was a fox who lived near river %s. He was sad. "Come and play," said the owl. ' $i; done >"$tmp/story"
for type in F32 Q4_K_M; do
    for form in "" --decode; do
        # shellcheck disable=SC2086
        ok eval ppl "$tmp/$type.gguf" --text "$tmp/story" --context 120 --formats f32 --activation-dtype float $form --json
        json "$tmp/out" "j['variants'][0]['perplexity']['value']" >>"$tmp/ppl"
    done
done
python3 - "$tmp/ppl" <<'PY' || die "generated tokens do not read the packed kv_b as prompts do: $(cat "$tmp/ppl")"
import sys
a, b, c, d = map(float, open(sys.argv[1]).read().split())
sys.exit(not (abs(a / b - 1) < 1e-5 and abs(c / d - 1) < 1e-5 and abs(a / c - 1) > 1e-5))
PY
ok run "$tmp/Q4_K_M.gguf" --chat -p 'Hello' -n 8
# What `plan` counts is what the file has: attn_k_b and attn_v_b have no other form beside them.
ok plan "$tmp/Q4_K_M.gguf" --json
python3 "$py" bytes "$tmp/Q4_K_M.gguf" "$tmp/out" || die "plan counts other bytes than the file has"
fails 1 "gguf-pre" convert "$model" "$tmp/x.gguf" --weight-format gguf:Q8_0
fails 1 "folder" convert "$tmp/F32.gguf" "$tmp/x.gguf" --weight-format gguf:Q8_0
fails 2 "keep" convert "$model" "$tmp/x.gguf" --weight-format gguf:Q8_0 --keep kv_b
[ -e "$tmp/x.gguf" ] || [ -e "$tmp/x.gguf.partial" ] && die "a failure leaves something"

command -v npm >/dev/null || skip "no npm"
[ "$(uname -m)" = x86_64 ] || skip "the library is for x86-64"
(cd "$tmp" && npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xzf ./*.tgz) >/dev/null 2>&1 || skip "npm has no network"
lib=$tmp/package/bins/linux-x64
need "$lib/libggml-base.so" "no library"
llama=$src/tests/e2e/_llama.py

for type in Q8_0 Q6_K Q5_K_M Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 Q3_K_M Q2_K; do
    [ $type = Q4_K_M ] || make $type
    python3 "$llama" quantise "$lib" "$tmp/F32.gguf" "$tmp/theirs.gguf" $type || die "$type: llama.cpp does not quantise"
    python3 "$py" gguf "$lib/libggml-base.so" "$tmp/F32.gguf" "$tmp/$type.gguf" "$tmp/floats.gguf" "$tmp/theirs.gguf" ||
        die "$type: not as good as llama.cpp's"
    ok logits "$tmp/$type.gguf" --tokens "$ids" --output "$tmp/q.f32" --kv-cache-dtype f32 --activation-dtype float
    ok logits "$tmp/floats.gguf" --tokens "$ids" --output "$tmp/f.f32" --kv-cache-dtype f32 --activation-dtype float
    python3 "$llama" logits "$lib" "$tmp/$type.gguf" "$ids" "$tmp/l.f32" || die "$type: llama.cpp does not load it"
    # llama.cpp rounds activations to 8 bits in its products (5 % of the largest logit with Q2_K)
    python3 - "$tmp/q.f32" "$tmp/f.f32" "$tmp/l.f32" $type <<'PY' || die "$type: other logits"
import array, sys
q, f, l = (array.array("f", open(p, "rb").read()) for p in sys.argv[1:4])
top = max(map(abs, q))
own, his = (max(abs(x - y) for x, y in zip(q, o)) / top for o in (f, l))
print("%s: %.1e from its floats, %.1e from llama.cpp" % (sys.argv[4], own, his))
sys.exit(len(q) != len(l) or own > 1e-4 or his > 0.1)
PY
    rm -f "$tmp/theirs.gguf" "$tmp/floats.gguf"
    [ $type = Q4_K_M ] || rm -f "$tmp/$type.gguf"
done

# With packed types llama.cpp's 8-bit activations choose otherwise where two tokens are nearly as likely.
python3 "$llama" greedy "$lib" "$tmp/F32.gguf" "$ids" 9 >"$tmp/theirs" || die "no tokens"
ok run "$tmp/F32.gguf" --tokens "$ids" -n 9 --temperature 0 --json --kv-cache-dtype f32 --activation-dtype float
[ "$(json "$tmp/out" "j['tokens']")" = "$(json "$tmp/theirs" j)" ] || die "other tokens than llama.cpp's"
printf 'One day in 1984, Zuri said: "Look! 3 red foxes (and a bear)."\n\n  They ran away...\n' >"$tmp/text"
python3 "$llama" tokenize "$lib" "$tmp/F32.gguf" "$tmp/text" >"$tmp/theirs" || die "llama.cpp does not tokenize"
ok tokenize "$model" --file "$tmp/text" --add-special --json
[ "$(json "$tmp/out" j)" = "$(json "$tmp/theirs" j)" ] || die "other ids than llama.cpp's"
exit 0
