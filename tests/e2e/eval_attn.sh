# eval_attn.sh - `nibble eval attn`: its figures computed again from dumped tensors; equal on every
# run; the model's tensors; what is refused.
. "$2/tests/e2e/_lib.sh"
again=$src/tests/e2e/_eval_attn.py
small=preset=plain,preset=peaky,n_layer=1,n_tok=200,n_head=2,n_query=2,latent=32,rope=16

# Generated tensors: MLA with w_uv and an offset, and K and V of two heads.
for extra in d_v=8,sigma_ch=1,outliers=2,rope_pairs=2,rope_offset=10 kv_heads=2,d_head=32; do
    case $extra in kv_heads*) fp8=fp8 ;; *) fp8=fp8:rope=fp8 ;; esac
    ok eval attn --stress --stress-set "$small,$extra" --formats bf16,$fp8,nvfp4 --methods token,quest:head,paper-fp4 \
        --fractions 0.02,0.5 --json --detailed --dump "$tmp/dump" --bootstrap 100
    cp "$tmp/out" "$tmp/a.json"
    python3 "$again" "$tmp/dump" window0_layer0 "$tmp/a.json" || die "figures differ ($extra)"
    ok eval attn --stress --stress-set "$small,$extra" --formats bf16,$fp8,nvfp4 --methods token,quest:head,paper-fp4 \
        --fractions 0.02,0.5 --json --detailed --bootstrap 100
    cmp -s "$tmp/out" "$tmp/a.json" || die "a second run differs ($extra)"
done
[ "$(json "$tmp/a.json" 'j["floor"], j["base"], [m["name"] for m in j["methods"]], len(j["paper"]["modes"])')" = \
    "('bf16', 'nvfp4', ['token', 'quest:head'], 5)" ] || die "names in the JSON"
ok eval attn --stress --stress-set "$small,seed=2" --formats bf16,nvfp4 --fractions 0.02,0.5 --plot "$tmp/p.svg"
grep -q 'nvfp4' "$tmp/out" || die "no table"
grep -q 'seed=2' "$tmp/out" || die "the parameters are not shown"
grep -q '</svg>' "$tmp/p.svg" || die "no plot"

# A variant with a selection of its own is what --methods says of that selection.
ok eval attn --stress --stress-set "$small,n_tok=1000" --formats nvfp4,nvfp4:thrift=token:fraction=0.02 --methods token --fractions 0.02 --json
cp "$tmp/out" "$tmp/t.json"
json "$tmp/t.json" 'abs(j["variants"][2]["rel_l2"]["mean"] - j["methods"][0]["fractions"][0]["rel_l2"]) < 1e-12 and j["base"] == "nvfp4"' |
    grep -q True || die "thrift= of a variant is another selection than --methods"

# Wrong usage.
fails 2 "MODEL missing" eval attn
fails 2 "--text --stress" eval attn "$model"
fails 2 "stress rho 0..0.99" eval attn --stress --stress-set rho=2
fails 2 "n_heads" eval attn --stress --stress-set n_heads=2
fails 2 "--methods tokens" eval attn --stress --stress-set "$small" --methods tokens
fails 2 "fractions" eval attn --stress --stress-set "$small" --fractions 0.5,0.1
fails 2 "refine" eval attn --stress --stress-set "$small" --formats fp8 --methods token
fails 2 "fp9" eval attn --stress --stress-set "$small" --formats fp9
fails 2 "--stress" eval attn "$model" --stress-set rho=0 --text /dev/null
fails 1 "no such layer" eval attn --stress --stress-set "$small" --layers 7

# The bundled model's own.
[ -e "$model/config.json" ] || { echo "no bundled model: its part is left out"; exit 0; }
python3 -c 'print(list(range(300, 500)))' >"$tmp/t.json"
ok eval attn "$model" --tokens "$tmp/t.json" --formats bf16,fp8:rope=fp8,nvfp4:transform=center+equalize,nvfp4 --layers 0,6 \
    --queries 2 --methods token --fractions 0.05 --bootstrap 100 --json --detailed --dump "$tmp/model"
cp "$tmp/out" "$tmp/m.json"
[ "$(json "$tmp/m.json" 'j["layers"], j["source"], len(j["model_sha256"])')" = "([0, 6], 'text', 64)" ] || die "layers of the model"
python3 "$again" "$tmp/model" window0_layer6 "$tmp/m.json" || die "figures of the model differ"
[ "$(json "$tmp/m.json" 'j["what"], j["variants"][1]["format"], j["variants"][1]["bytes_per_token"]')" = "('attn', 'fp8:rope=fp8', None)" ] ||
    die "the head and the variants of the JSON"
ok eval attn "$model" --tokens "$tmp/t.json" --kv-cache-dtype nvfp4 --kv-sinks 3 --queries 1 --methods none --bootstrap 100 --json
cp "$tmp/out" "$tmp/m1.json"
ok eval kl "$model" --tokens "$tmp/t.json" --n-tokens 80 --kv-cache-dtype nvfp4 --kv-sinks 3 --bootstrap 100 --json
[ "$(json "$tmp/out" '(j["variants"][0]["name"], j["variants"][0]["format"], j["variants"][0]["bytes_per_token"])')" = \
    "$(json "$tmp/m1.json" '(lambda v: (v["name"], v["format"], v["bytes_per_token"]))(j["variants"][1])')" ] ||
    die "a variant of kl is another than of attn"
[ "$(json "$tmp/out" 'j["variants"][0]["name"]')" = nvfp4:sinks=3 ] || die "the name of the options"
# All in the open page: nothing is lost, nothing can be drawn.
echo '[1, 1]' >"$tmp/two.json"
ok eval attn "$model" --tokens "$tmp/two.json" --bootstrap 100
grep -q nvfp4 "$tmp/out" || die "two tokens: no table"
json "$tmp/m.json" 'all(v["rel_l2"]["median"] > j["variants"][0]["rel_l2"]["median"] for v in j["variants"][1:])' |
    grep -q True || die "bf16 is not the smallest error"
exit 0
