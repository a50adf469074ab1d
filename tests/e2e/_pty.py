"""_pty.py - a program on a pseudo-terminal: type, and wait for what it prints."""
import os
import pty
import select
import sys
import time

DEADLINE_S = 120 # a hang is a failure, slowness is not


class Terminal:
    def __init__(self, argv):
        self.out, self.at = b"", 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(argv[0], argv)

    def read(self, seconds):
        """Appends what the program prints; False at its end."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.out += data
        return bool(data)

    def wait_for(self, text):
        """Waits until text is printed after what was waited for before."""
        end = time.monotonic() + DEADLINE_S
        text = text.encode()
        while text not in self.out[self.at:]:
            alive = self.read(1)
            if text in self.out[self.at:]:
                break
            if not alive or time.monotonic() > end:
                self.fail(f"{text!r} was not printed")
        self.at = self.out.index(text, self.at) + len(text)

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        """Exit code, after the program has ended by itself."""
        end = time.monotonic() + DEADLINE_S
        while self.read(1):
            if time.monotonic() > end:
                self.fail("it did not end")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def fail(self, why):
        sys.stdout.write(f"{why}; the terminal shows:\n{self.out.decode(errors='replace')}\n")
        try:
            os.kill(self.pid, 9)
        except ProcessLookupError:
            pass
        sys.exit(1)
