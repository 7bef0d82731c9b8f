"""Runs a command on a terminal of its own and copies what it draws to standard output.

Answers the two questions a terminal is asked at start: where the cursor is, and what kind of terminal this is.
Ends when the command ends; on SIGTERM it ends the command first.
"""

import fcntl
import os
import pty
import signal
import struct
import sys
import termios

ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62c"}

pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
while True:
    try:
        drawn = os.read(terminal, 65536)
    except OSError:
        break
    if not drawn:
        break
    for question, answer in ANSWERS.items():
        if question in drawn:
            os.write(terminal, answer)
    sys.stdout.buffer.write(drawn)
    sys.stdout.buffer.flush()
os.waitpid(pid, 0)
