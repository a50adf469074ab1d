# text_commands.sh - tokenize, render and run with text, on a random checkpoint with a byte-level
# tokenizer, and on the bundled model where it is there.
. "$2/tests/e2e/_lib.sh"
need "$src/tests/parity/v3/config.json" "no parity checkpoints"
tiny=$tmp/tiny
python3 "$src/tests/e2e/_tiny_model.py" "$src/tests/parity/v3" "$tiny" || die "no tiny model"

# ---- tokenize
printf 'the caf\303\251\n<eos> \360\237\230\200' >"$tmp/text"
ok tokenize "$tiny" --file "$tmp/text" --json
cp "$tmp/out" "$tmp/ids.json"
[ "$(wc -l <"$tmp/out")" = 1 ] || die "tokenize --json is not one line"
[ "$(json "$tmp/out" '1 in j')" = False ] || die "<eos> in a text became a control token"
ok tokenize "$tiny" --decode "$tmp/ids.json"
cmp -s "$tmp/out" "$tmp/text" || die "tokenize and --decode do not give the text back"
ok tokenize "$tiny" --decode "$tmp/ids.json" --json
[ "$(json "$tmp/out" 'j["text"] == open("'"$tmp"'/text", encoding="utf-8").read()')" = True ] || die "--decode --json"
ok tokenize "$tiny" --file "$tmp/text" --json --parse-special --no-parse-special
cmp -s "$tmp/out" "$tmp/ids.json" || die "--no-parse-special is not the default"
ok tokenize "$tiny" --file "$tmp/text" --json --parse_special
[ "$(json "$tmp/out" 'j.count(1)')" = 1 ] || die "--parse-special: no control token"
cp "$tmp/out" "$tmp/special.json"
ok tokenize "$tiny" --decode "$tmp/special.json" --skip-special-tokens
grep -q '<eos>' "$tmp/out" && die "--skip-special-tokens shows one"
ok tokenize "$tiny" -p the --json --add-special
[ "$(json "$tmp/out" 'j[0]')" = 0 ] || die "--add-special: no beginning-of-text token"
ok tokenize "$tiny" -p $'x"\n'
[ "$(tr '\t\n' ' ;' <"$tmp/out")" = '125 "x";39 "\"";15 "\n";' ] || die "pieces: $(cat "$tmp/out")"
"$nibble" tokenize "$tiny" --file - --json <"$tmp/text" >"$tmp/out" || die "--file -"
cmp -s "$tmp/out" "$tmp/ids.json" || die "--file - differs from --file"

# ---- render
printf '[{"role":"system","content":"S"},{"role":"user","content":"q\303\251 <eos>"}]' >"$tmp/m.json"
ok render "$tiny" --messages "$tmp/m.json"
[ "$(cat "$tmp/out")" = $'<bos><system>S<user>q\303\251 <eos><assistant>' ] || die "render: $(cat "$tmp/out")"
ok render "$tiny" --messages "$tmp/m.json" --no-generation-prompt
[ "$(cat "$tmp/out")" = $'<bos><system>S<user>q\303\251 <eos>' ] || die "--no-generation-prompt"
ok render "$tiny" --messages "$tmp/m.json" --json
[ "$(json "$tmp/out" '[j["text"][:5], j["tokens"][0], j["tokens"][-1]]')" = "['<bos>', 0, 3]" ] || die "render --json: $(cat "$tmp/out")"
cp "$tmp/out" "$tmp/array.out"
printf '{"model":"m","messages":%s}' "$(cat "$tmp/m.json")" >"$tmp/body.json"
ok render "$tiny" --messages "$tmp/body.json" --json
cmp -s "$tmp/out" "$tmp/array.out" || die "a body and a bare array differ"
printf '{"messages":%s,"add_generation_prompt":false}' "$(cat "$tmp/m.json")" >"$tmp/body.json"
ok render "$tiny" --messages "$tmp/body.json"
[ "$(cat "$tmp/out")" = $'<bos><system>S<user>q\303\251 <eos>' ] || die "add_generation_prompt of the body is ignored"
printf '{%% for m in messages %%}[{{ m.content }}]{%% endfor %%}' >"$tmp/other.jinja"
ok render "$tiny" --messages "$tmp/m.json" --chat-template "$tmp/other.jinja"
[ "$(cat "$tmp/out")" = $'[S][q\303\251 <eos>]' ] || die "--chat-template"
printf '[{' >"$tmp/bad.json"
fails 1 "bad.json line" render "$tiny" --messages "$tmp/bad.json"

# ---- run
ok run "$tiny" -p the -n 12 --temperature 0 --ignore-eos --json --kv-cache-dtype bf16
cp "$tmp/out" "$tmp/run.out"
[ "$(json "$tmp/out" 'list(j)')" = "['prompt_tokens', 'tokens', 'text', 'finish_reason']" ] || die "keys of the JSON"
[ "$(json "$tmp/out" '[j["prompt_tokens"][0], len(j["tokens"]), j["finish_reason"]]')" = "[0, 12, 'length']" ] || die "run -p: $(cat "$tmp/out")"
printf the | "$nibble" run "$tiny" -p - -n 12 --temperature 0 --ignore-eos --json --kv-cache-dtype bf16 >"$tmp/out" 2>"$tmp/err" || die "run -p -"
cmp -s "$tmp/out" "$tmp/run.out" || die "run -p - differs from run -p"
ok run "$tiny" -p the -n 2 --json --no-bos
[ "$(json "$tmp/out" 'j["prompt_tokens"][0] == 0')" = False ] || die "--no-bos"
ok run "$tiny" -p the --chat --system S -n 2 --json
ids=$(json "$tmp/out" 'j["prompt_tokens"]')
printf '[{"role":"system","content":"S"},{"role":"user","content":"the"}]' >"$tmp/m.json"
ok render "$tiny" --messages "$tmp/m.json" --json
[ "$(json "$tmp/out" 'j["tokens"]')" = "$ids" ] || die "run --chat does not do what render does"
# The streamed text is the text of the JSON.
ok run "$tiny" -p the -n 12 --temperature 0 --ignore-eos --kv-cache-dtype bf16
python3 - "$tmp/out" "$tmp/run.out" <<'END' || die "the streamed text is not that of --json"
import json, sys
streamed = open(sys.argv[1], encoding="utf-8", newline="").read()
sys.exit(streamed != json.load(open(sys.argv[2], encoding="utf-8"))["text"] + "\n")
END
grep -q 'tokens/s' "$tmp/err" && grep -q 'bytes per token' "$tmp/err" || die "no statistics on standard error"
ok run "$tiny" -p the -n 3 --no-stats
[ -s "$tmp/err" ] && die "--no-stats prints: $(cat "$tmp/err")"
ok run "$tiny" -p the -n 3 --json
[ -s "$tmp/err" ] && die "--json prints on standard error: $(cat "$tmp/err")"
# Sampling: the same seed the same text, another seed another; a bias decides; a stop id stops.
ok run "$tiny" -p the -n 30 --temperature 1.2 --ignore-eos --seed 5 --json
cp "$tmp/out" "$tmp/seed5"
ok run "$tiny" -p the -n 30 --temperature 1.2 --ignore-eos --seed 5 --json --threads 1
cmp -s "$tmp/out" "$tmp/seed5" || die "the same seed, another text"
ok run "$tiny" -p the -n 30 --temperature 1.2 --ignore-eos --seed 6 --json
cmp -s "$tmp/out" "$tmp/seed5" && die "another seed, the same text"
ok run "$tiny" -p the -n 3 --logit-bias 70=100 --json --temperature 0 --logprobs 2
[ "$(json "$tmp/out" 'j["tokens"]')" = "[70, 70, 70]" ] || die "--logit-bias: $(cat "$tmp/out")"
[ "$(json "$tmp/out" '[len(j["logprobs"]), j["logprobs"][0]["id"], len(j["logprobs"][0]["top"]), j["logprobs"][0]["logprob"] <= j["logprobs"][0]["top"][1]["logprob"] <= j["logprobs"][0]["top"][0]["logprob"] <= 0]')" = "[3, 70, 2, True]" ] || die "--logprobs: $(cat "$tmp/out")"
ok run "$tiny" -p the -n 9 --logit-bias 70=100 --json --temperature 0 --stop-token-ids 5,70
[ "$(json "$tmp/out" '[len(j["tokens"]), j["finish_reason"]]')" = "[1, 'stop']" ] || die "--stop-token-ids: $(cat "$tmp/out")"
ok run "$tiny" -p the -n 9 --logit-bias 70=100 --json --temperature 0 --stop-token-ids 70 --min-tokens 3
[ "$(json "$tmp/out" 'len(j["tokens"]) >= 4 and 70 not in j["tokens"][:3]')" = True ] || die "--min-tokens: $(cat "$tmp/out")"
piece=$("$nibble" tokenize "$tiny" --decode <(printf '[70]'))
ok run "$tiny" -p the -n 9 --logit-bias 70=100 --json --temperature 0 --stop "$piece$piece$piece" --stop zzz
[ "$(json "$tmp/out" '[len(j["tokens"]), j["text"], j["finish_reason"]]')" = "[3, '', 'stop']" ] || die "--stop: $(cat "$tmp/out")"
fails 1 "320 logit_bias" run "$tiny" -p the --logit-bias 320=1
ok run "$tiny" --tokens "$tmp/ids.json" -n 2 --json --skip-tokenizer-init
[ "$(json "$tmp/out" '[j["text"], len(j["tokens"])]')" = "['', 2]" ] || die "--skip-tokenizer-init: $(cat "$tmp/out")"
fails 1 "tokenizer" run "$src/tests/parity/v3" -p the

# ---- info
ok info "$tiny"
grep -q '^family  *deepseek_v3' "$tmp/out" && grep -q nvfp4 "$tmp/out" || die "info: $(cat "$tmp/out")"
ok info "$tiny" --json
[ "$(json "$tmp/out" '[j["n_layer"] > 0, any(r["dtype"] == "nvfp4" for r in j["records"])]')" = "[True, True]" ] || die "info --json"

# ---- the bundled model
if [ -e "$model/config.json" ]; then
    ok run "$model" -p "Once upon a time" -n 20 --json --kv-cache-dtype nvfp4
    [ "$(json "$tmp/out" 'len(j["text"]) > 20')" = True ] || die "the bundled model says: $(cat "$tmp/out")"
    ok tokenize "$model" --file "$src/CONTRIBUTING.md" --json
    cp "$tmp/out" "$tmp/ids.json"
    ok tokenize "$model" --decode "$tmp/ids.json"
    cmp -s "$tmp/out" "$src/CONTRIBUTING.md" || die "the bundled tokenizer does not give a text back"
fi
exit 0
