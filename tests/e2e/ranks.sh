# ranks.sh - --tensor-parallel-size of the commands: packed weights have the same logits on any number of ranks, all
# commands that compute a model take it, and what cannot be is refused by name.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
python3 -c 'import json; print(json.dumps([(i * 37 + 11) % 4096 for i in range(100)]))' >"$tmp/ids.json"

# same MODEL OPTIONS...: the same logits on 1, 2, 3, 4 and 8 ranks.
same() {
    local of=$1 n
    shift
    ok logits "$of" --tokens "$tmp/ids.json" --rows all --output "$tmp/1.f32" --device cpu "$@"
    [ -s "$tmp/1.f32" ] || die "no logits of $of"
    for n in 2 3 4 8; do
        ok logits "$of" --tokens "$tmp/ids.json" --rows all --output "$tmp/n.f32" -tp "$n" "$@"
        cmp -s "$tmp/1.f32" "$tmp/n.f32" || die "other logits on $n ranks: $of $*"
    done
}
for format in int4-g32 nvfp4 mxfp4 fp8 gguf:Q8_0 gguf:Q4_K_M gguf:Q2_K; do
    name=$tmp/$(printf '%s' "$format" | tr ':' '-')
    case $format in
    gguf:*) ok convert "$model" "$name.gguf" --weight-format "$format" --gguf-pre none && name=$name.gguf ;;
    *) ok convert "$model" "$name" --weight-format "$format" ;;
    esac
    same "$name" --kv-cache-dtype nvfp4 --skip-tokenizer-init
    rm -rf "$name"
done
same "$model" --weight-dtype int8 --activation-dtype int8 --kv-cache-dtype fp8
same "$model" --activation-dtype bf16 --kv-cache-dtype bf16 --mla absorbed

ok run "$model" -p "Once upon a time" -n 8 --temperature 0 --device cpu
cp "$tmp/out" "$tmp/one"
ok run "$model" -p "Once upon a time" -n 8 --temperature 0 --tensor-parallel-size 4 --enable-expert-parallel
cmp -s "$tmp/one" "$tmp/out" || die "run: other text on 4 ranks"
printf 'Once upon a time there was a little girl who lived in a house near the woods.\n' >"$tmp/text"
ok eval ppl "$model" --text "$tmp/text" --json --device cpu
cp "$tmp/out" "$tmp/one"
ok eval ppl "$model" --text "$tmp/text" --json -tp 2
cmp -s "$tmp/one" "$tmp/out" || die "eval ppl: another result on 2 ranks"
ok bench throughput "$model" --num-prompts 2 --input-len 8 --output-len 4 -tp 2

# Data-parallel ranks.
ok logits "$model" --tokens "$tmp/ids.json" --rows all --output "$tmp/1.f32" --device cpu
ok logits "$model" --tokens "$tmp/ids.json" --rows all --output "$tmp/n.f32" -dp 4 -ep
cmp -s "$tmp/1.f32" "$tmp/n.f32" || die "other logits on 4 data-parallel ranks"
ok eval ppl "$model" --text "$tmp/text" --json -dp 2 --enable-expert-parallel
cmp -s "$tmp/one" "$tmp/out" || die "eval ppl: another result on 2 data-parallel ranks"
ok bench throughput "$model" --num-prompts 4 --input-len 8 --output-len 4 --data-parallel-size 2 --enable-expert-parallel

fails 1 "--data-parallel-size 2 --enable-expert-parallel" run "$model" -p x -dp 2
ok logits "$model" --tokens "$tmp/ids.json" --rows all --output "$tmp/n.f32" -dp 2 -tp 2 -ep
cmp -s "$tmp/1.f32" "$tmp/n.f32" || die "other logits on 2 groups of 2 ranks"
fails 1 "--data-parallel-size 3 --tensor-parallel-size 3" run "$model" -p x -dp 3 -ep -tp 3
fails 2 "--data-parallel-size 9" run "$model" -p x --data-parallel-size 9
fails 2 "--tensor-parallel-size 9" run "$model" -p x --tensor-parallel-size 9
fails 1 "--tensor-parallel-size 2 --kv-thrift" run "$model" -p x -tp 2 --kv-thrift token --kv-cache-dtype nvfp4
exit 0
