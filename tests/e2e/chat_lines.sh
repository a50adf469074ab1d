# chat_lines.sh - `nibble chat` without a terminal: lines in, answers out.
. "$2/tests/e2e/_lib.sh"
need "$src/tests/parity/v3/config.json" "no parity checkpoints"
tiny=$tmp/tiny plain=$tmp/plain
python3 "$src/tests/e2e/_tiny_model.py" "$src/tests/parity/v3" "$tiny" || die "no tiny model"
python3 "$src/tests/e2e/_tiny_model.py" "$src/tests/parity/v3" "$plain" --no-template || die "no tiny model"

chat() { # LINES MODEL OPTIONS...
    local lines=$1
    shift
    printf "$lines" | "$nibble" chat "$@" >"$tmp/out" 2>"$tmp/err" || die "exit code $? of: nibble chat $*"
}
saved() { json "$tmp/saved.json" "$1"; }

# A conversation has the messages that were typed, and the answers.
rm -f "$tmp/saved.json"
chat "one\\n/system be\\\\\\nbrief\\ntwo\\\\\\nlines\\n/save $tmp/saved.json\\n/exit\\nnever read\\n" "$tiny" -n 8
[ "$(saved '[m["role"] for m in j]')" = "['system', 'user', 'assistant', 'user', 'assistant']" ] || die "roles: $(cat "$tmp/saved.json")"
[ "$(saved '[j[0]["content"], j[1]["content"], j[3]["content"]]')" = "['be\\nbrief', 'one', 'two\\nlines']" ] || die "texts: $(cat "$tmp/saved.json")"
python3 - "$tmp/out" "$tmp/saved.json" <<'END' || die "standard output is not the answers"
import json, sys
out = open(sys.argv[1], encoding="utf-8", newline="").read()
answers = [m["content"] for m in json.load(open(sys.argv[2], encoding="utf-8")) if m["role"] == "assistant"]
sys.exit(out != "".join(a + "\n" for a in answers))
END
# An answer is that of `run` on the same messages.
printf '[{"role":"user","content":"one"}]' >"$tmp/m.json"
ok run "$tiny" -p one --chat -n 8 --json
want=$(json "$tmp/out" 'repr(j["text"])')
[ "$(saved 'repr(j[2]["content"])')" = "$want" ] || die "the first answer is not that of run --chat"

# /reset forgets, but not the system message; a last line without its end counts.
chat "one\\n/reset\\none\\n/save $tmp/saved.json" "$tiny" -n 8 --system S
[ "$(saved '[m["role"] for m in j]')" = "['system', 'user', 'assistant']" ] || die "/reset: $(cat "$tmp/saved.json")"
chat 'one\n/reset\none' "$tiny" -n 8
python3 - "$tmp/out" <<'END' || die "after /reset the same line has another answer"
import sys
out = open(sys.argv[1], encoding="utf-8", newline="").read()
sys.exit(out[:len(out) // 2] != out[len(out) // 2:])
END
chat 'one\n/reset\n/seed 9\n/temperature 1.5\none' "$tiny" -n 30
python3 - "$tmp/out" <<'END' || die "/seed and /temperature change nothing"
import sys
out = open(sys.argv[1], encoding="utf-8", newline="").read()
sys.exit(out[:len(out) // 2] == out[len(out) // 2:])
END

# Statistics, help, mistakes: on standard error, and the conversation goes on.
chat '/stats\none\n/stats\n/help\n/foo\n/seed x\n/temperature -1\n/save\ntwo' "$tiny" -n 4
for word in 'no answer yet' 'tokens/s' '/temperature' '/foo: unknown' '/seed x' '/temperature -1' 'a file'; do
    grep -qF -- "$word" "$tmp/err" || die "standard error does not have: $word"
done
chat 'one\ntwo' "$tiny" -n 4 --stats
[ "$(grep -c 'bytes per token' "$tmp/err")" = 2 ] || die "--stats: not after each answer"

# A conversation that outgrows the context is told so, and can begin anew.
chat 'a fairly long first line\nand a second one that is too long for it\n/reset\nhi' "$tiny" -n 30 --max-model-len 64
grep -q '/reset' "$tmp/err" || die "nothing about a full context: $(cat "$tmp/err")"

# Without a template the text is continued.
chat 'the\nend' "$plain" -n 4
grep -q 'no chat template' "$tmp/err" || die "nothing about the missing template"
[ -s "$tmp/out" ] || die "no answer without a template"
fails 1 "tokenizer" chat "$src/tests/parity/v3"
exit 0
