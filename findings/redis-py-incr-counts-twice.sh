#!/usr/bin/env bash
# redis-py: one incr() is counted twice when its answer takes more than 5 s: by default a call has 5 s, and any command is
# sent again after that, also one that is not safe to repeat.
# Needs python3. The server is a few lines that count what they receive, and answer the first INCR late.
set -euo pipefail
version=8.1.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "redis==$version"
echo "redis-py $version"

cat >"$work/probe.py" <<'END'
import socketserver
import threading
import time

import redis

LATE_S = 7
counted = []
answered = threading.Event()


class Server(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2].upper())
            self.wfile.write(self.answer(words))

    def answer(self, words):
        if words[0] == b"HELLO":
            return b"%1\r\n+proto\r\n:3\r\n"
        if words[0] != b"INCRBY":
            return b"+OK\r\n"
        counted.append(words)
        if len(counted) == 1:
            answered.wait(LATE_S)
        return b":%d\r\n" % len(counted)


server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Server)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
value = redis.Redis(port=server.server_address[1]).incr("key")
answered.set()
print(f"one incr() returned {value}; the server counted {len(counted)}")
END
seen=$("$work/venv/bin/python" "$work/probe.py")
echo "$seen"
expected="one incr() returned 2; the server counted 2"
[[ $seen == "$expected" ]] || { echo "the finding says: $expected" >&2; exit 1; }
