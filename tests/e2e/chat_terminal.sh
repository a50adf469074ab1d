# chat_terminal.sh - `nibble chat` on a pseudo-terminal: Ctrl-C, Ctrl-D, history.
. "$2/tests/e2e/_lib.sh"
need "$src/tests/parity/v3/config.json" "no parity checkpoints"
python3 -c 'import pty' 2>/dev/null || skip "python3 has no pty module"
python3 "$src/tests/e2e/_tiny_model.py" "$src/tests/parity/v3" "$tmp/tiny" || die "no tiny model"

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$src/tests/e2e" XDG_STATE_HOME="$tmp/state" \
    python3 - "$nibble" "$tmp/tiny" "$tmp/state/nibble/history" <<'END' || die "see above"
import os
import signal
import sys
from _pty import Terminal

nibble, model, history = sys.argv[1:]
argv = [nibble, "chat", model, "--ignore-eos", "-n", "30000", "--max-model-len", "32768",
        "--logit-bias", "70=100", "--temperature", "0"] # an answer that is long and known
letter = chr(70 - 5) # bytes come after 5 special tokens; printable ones first

t = Terminal(argv)
t.wait_for("/help")
t.wait_for("> ")
t.type("half a line")
t.wait_for("half a line")
t.type("\x03") # the line is dropped
t.wait_for("^C")
t.wait_for("> ")
t.type("hi\r")
t.wait_for("hi")
t.wait_for("\n")
while len(t.out) - t.at < 20: # the answer streams
    if not t.read(1):
        t.fail("it ended")
t.type("\x03") # the answer stops, the program does not
t.wait_for("> ")
t.type("/stats\r")
t.wait_for("(cancelled)")
t.wait_for("> ")
t.type("second\r")
t.wait_for("second")
t.wait_for("\n")
while len(t.out) - t.at < 20:
    if not t.read(1):
        t.fail("it ended")
os.kill(t.pid, signal.SIGINT) # from outside, the same
t.wait_for("> ")
t.type("\x03") # on an empty line: a warning first
t.wait_for("again")
t.wait_for("> ")
t.type("\x03")
if t.end() != 0:
    t.fail("exit code after Ctrl-C twice is not 0")
if os.path.exists(history):
    t.fail("a history file without --history")

t = Terminal(argv + ["--history"])
t.wait_for("> ")
t.type("/seed 4\r")
t.wait_for("> ")
t.type("\x03") # one Ctrl-C, then a line: it counts anew
t.wait_for("again")
t.wait_for("> ")
t.type("/seed 5\r")
t.wait_for("> ")
t.type("\x03")
t.wait_for("again")
t.wait_for("> ")
t.type("\x04")
if t.end() != 0:
    t.fail("exit code after Ctrl-D is not 0")
editing = os.path.exists(history) # built with libedit
if editing:
    t = Terminal(argv + ["--history"])
    t.wait_for("> ")
    t.type("\x1b[A") # the last line of the conversation before
    t.wait_for("/seed 5")
    t.type("\x15/exit\r")
    if t.end() != 0:
        t.fail("exit code after /exit is not 0")
END
exit 0
