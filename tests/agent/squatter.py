"""Execs the rest of its arguments, but a stranger takes the port before: `squatter FOLDER TIMES PORT PROGRAM …`.

Only for the first TIMES calls with this FOLDER. The stranger carries no mark, and goes when FOLDER/let-go appears.
"""

import os
import subprocess
import sys
from pathlib import Path

STRANGER = """
import pathlib, socket, sys, time
folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
taken = socket.socket()
taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # earlier connections may linger, as servers allow for
taken.bind(("127.0.0.1", port))
taken.listen()
print("taken", flush=True)
while folder.exists() and not (folder / "let-go").exists():
    time.sleep(0.05)
"""

if __name__ == "__main__":
    folder, times, port = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    calls = folder / "calls"
    made = calls.read_text().split() if calls.exists() else []
    calls.write_text(" ".join([*made, port]))
    if len(made) < times:
        stranger = subprocess.Popen(
            [sys.executable, "-c", STRANGER, str(folder), port], stdout=subprocess.PIPE, env={}, start_new_session=True
        )
        assert stranger.stdout is not None
        assert stranger.stdout.readline(), "the stranger did not get the port"
    os.execv(sys.argv[4], sys.argv[4:])  # noqa: S606 - that is what it is for
