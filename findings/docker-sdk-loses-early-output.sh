#!/usr/bin/env bash
# docker (Python): output of an exec that arrives together with the head of the answer is lost without an error: the SDK
# reads on at the socket, below the buffer that its HTTP library has filled.
# Needs python3 (3.10 or later).
set -euo pipefail
version=7.2.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "docker==$version"
echo "docker $version"

cat >"$work/probe.py" <<'END_OF_PROBE'
import socket, struct, sys, threading, time

import docker

path, apart = sys.argv[1], sys.argv[2] == "apart"
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
HEAD = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
OUTPUT = struct.pack(">BxxxI", 1, 6) + b"output"


def serve():
    taken, _ = server.accept()
    taken.recv(65536)
    taken.sendall(HEAD if apart else HEAD + OUTPUT)
    if apart:
        time.sleep(1)
        taken.sendall(OUTPUT)
    taken.shutdown(socket.SHUT_WR)


threading.Thread(target=serve, daemon=True).start()
print(docker.APIClient(f"unix://{path}", version="1.44").exec_start("some-id") or "nothing")
END_OF_PROBE
expect() {  # WAY EXPECTED
  local seen
  seen=$("$work/venv/bin/python" "$work/probe.py" "$work/$1.sock" "$1")
  echo "head and output $1: $seen"
  [[ $seen == "$2" ]] || { echo "the finding says: $2" >&2; exit 1; }
}
expect apart "b'output'"
expect together nothing
