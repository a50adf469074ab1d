#!/usr/bin/env bash
# eval_ruler.sh - nibble eval ruler: the same prompts for every format, scores that can be checked
# with nibble run and nibble logits, files of prompts, error lines.
. "$2/tests/e2e/_lib.sh"
need "$model/model.safetensors.index.json" "the bundled model is absent"

# One text of 512 tokens with a question of each task.
base="eval ruler $model --lengths 512 --samples 1 --seed 3"
# shellcheck disable=SC2086
ok $base --formats bf16,nvfp4 --json --detailed --write-prompts "$tmp/p.json" --plot "$tmp/p.svg"
cp "$tmp/out" "$tmp/a.json"
python3 - "$tmp" <<'PY' || die "the report does not hold together"
import json, math, sys
tmp = sys.argv[1]
j, p = json.load(open(tmp + '/a.json')), json.load(open(tmp + '/p.json'))
assert j['dialect'] == 'plain' and j['lengths'] == [512] and j['n_prompt'] == len(p) == 5, j
assert [v['name'] for v in j['variants']] == ['bf16', 'nvfp4'] and j['reference']['name'] == 'bf16'
assert j['variants'][0]['results'][0]['difference']['logprob']['value'] == 0
assert j['prompts'] == p
for x in p:
    assert len(x['ids']) + x['max_tokens'] <= 512 and len(x['ids']) > 440, x
    assert x['prompt'].endswith('\nAnswer:') and all(r in x['answer'] for r in x['refs'])
for v in [j['reference']] + j['variants']:
    for x, r in zip(p, v['prompts']):
        hit = sum(a.lower() in r['text'].lower() for a in x['refs']) / len(x['refs'])
        assert abs(hit - r['match']) < 1e-9 and r['exact'] == (r['text'].strip() == x['answer'].strip())
        assert abs(r['logprob'] * len(x['answer_ids']) - r['total_logprob']) < 1e-9
    all_ = [r for r in v['results'] if r['task'] is None and r['length'] is None][0]
    mean = sum(r['match'] for r in v['prompts']) / 5
    assert all_['n'] == 5 and abs(all_['match']['value'] - mean) < 1e-12, all_
a, b = (v['prompts'] for v in j['variants'])
assert [x['logprob'] for x in a] != [x['logprob'] for x in b]
# For the other commands: the prompt with its answer, the rows of the answer.
x = p[3]
ids = x['ids'] + x['answer_ids']
json.dump(x['ids'], open(tmp + '/ids.json', 'w'))
json.dump(ids, open(tmp + '/all.json', 'w'))
n = len(x['ids'])
open(tmp + '/rows', 'w').write(','.join(str(i) for i in range(n - 1, len(ids) - 1)))
PY
grep -q '<svg' "$tmp/p.svg" || die "no plot"

# The text and the log-probability of a prompt, from other commands.
for f in bf16 nvfp4; do
    ok run "$model" --tokens "$tmp/ids.json" -n 24 --temperature 0 --kv-cache-dtype $f --json
    mv "$tmp/out" "$tmp/run.json"
    ok logits "$model" --tokens "$tmp/all.json" --rows "$(cat "$tmp/rows")" --kv-cache-dtype $f --output "$tmp/l.bin"
    python3 - "$tmp" $f <<'PY' || die "another score of $f"
import array, json, math, sys
tmp, f = sys.argv[1:]
j, p = json.load(open(tmp + '/a.json')), json.load(open(tmp + '/p.json'))[3]
mine = [v for v in j['variants'] if v['name'] == f][0]['prompts'][3]
text = json.load(open(tmp + '/run.json'))['text'].split('\n')[0]
assert text == mine['text'], (text, mine)
x = array.array('f', open(tmp + '/l.bin', 'rb').read())
n = len(x) // len(p['answer_ids'])
total = 0
for k, i in enumerate(p['answer_ids']):
    row = x[k * n:(k + 1) * n]
    top = max(row)
    total += row[i] - top - math.log(sum(math.exp(v - top) for v in row))
assert abs(total - mine['total_logprob']) < 1e-5 * (1 + abs(total)), (total, mine)
PY
done

# The prompts from the file, in another batch: the same figures; and in words.
ok eval ruler "$model" --prompts "$tmp/p.json" --formats nvfp4 --batch 2 --json --detailed --seed 3
python3 - "$tmp" <<'PY' || die "prompts from a file score otherwise"
import json, sys
a, b = (json.load(open(sys.argv[1] + f)) for f in ('/a.json', '/out'))
assert a['variants'][1:] == b['variants'] and a['reference'] == b['reference']
PY
ok eval ruler "$model" --lengths 300 --samples 1 --tasks niah_single --depths 1
grep -q '^niah_single ' "$tmp/out" || die "no table"
grep -q '^against bf16' "$tmp/out" || die "no comparison"

fails 2 "--tasks cwe plain" eval ruler "$model" --tasks cwe
fails 2 "--lengths 5x" eval ruler "$model" --lengths 5x
fails 1 "8192 4096" eval ruler "$model" --lengths 8k
fails 1 "length too short" eval ruler "$model" --lengths 64
fails 2 "unknown format" eval ruler "$model" --lengths 300 --samples 1 --tasks vt --formats nvfp5
printf '[{"prompt": "a"}]' >"$tmp/bad.json"
fails 1 "bad.json prompt 0 answer" eval ruler "$model" --prompts "$tmp/bad.json"
fails 2 "--prompts --tasks" eval ruler "$model" --prompts "$tmp/p.json" --tasks vt
fails 1 "missing.json" eval ruler "$model" --prompts "$tmp/missing.json"
exit 0
