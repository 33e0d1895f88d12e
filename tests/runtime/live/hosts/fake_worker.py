"""A small program in the place of a worker: sends each frame back, with its pid before it.

What the file of the pipeline says decides: `wrong`: it cannot be read; `child`: a process of it
outlives it, until there is a file `go` in the working folder.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT))

from anabranch.runtime.live.hosts.hosted_worker import IS_DONE, KEEPS  # noqa: E402
from anabranch.runtime.live.link.link import framed, receive_blocking  # noqa: E402


def main() -> None:
    control_fd, lock_fd = map(int, sys.argv[-1].split(","))
    os.set_inheritable(lock_fd, False)
    control = socket.socket(fileno=control_fd)
    receive_blocking(control)
    code = Path("a.py").read_text()
    if "wrong" in code:
        print("anabranch: a.py holds no pipeline", flush=True)
        sys.exit(2)
    if "child" in code and os.fork() == 0:
        control.close()
        Path("child.new").write_text(str(os.getpid()))
        Path("child.new").rename("child")
        while not Path("go").exists():
            time.sleep(0.01)
        os._exit(0)
    control.send(b"r")
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            os._exit(75)
        for fd in fds:
            threading.Thread(target=send_back, args=(socket.socket(fileno=fd),)).start()


def send_back(stream: socket.socket) -> None:
    while (body := receive_blocking(stream)) is not None:
        if body == b"keep":
            os._exit(KEEPS)
        if body == b"done":
            os._exit(IS_DONE)
        if body == b"speak":
            print("it speaks", flush=True)
        stream.sendall(framed(f"{os.getpid()} ".encode() + body))


if __name__ == "__main__":
    main()
