#!/usr/bin/env bash
# httpx: iter_lines ends a line where str.splitlines does, so at U+2028, U+2029 and U+0085 too, which JSON may have as they
# are within a string: an answer of JSON lines falls apart for clients that read it so (e2b-code-interpreter does). A server
# is safe if it escapes all that is not ASCII.
# Needs python3.
set -euo pipefail
version=0.28.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "httpx==$version"
echo "httpx $version"

cat >"$work/probe.py" <<'END'
import http.server
import json
import threading

import httpx

TEXTS = ("\u2028", "\u2029", "\u0085", "\n")


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = "".join(json.dumps({"text": f"a{text}b"}, ensure_ascii=self.path == "/ascii") + "\n" for text in TEXTS)
        self.send_response(200)
        self.send_header("content-type", "application/jsonl; charset=utf-8")
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
for path in ("/as-it-is", "/ascii"):
    with httpx.stream("GET", f"http://127.0.0.1:{server.server_port}{path}", trust_env=False) as answer:
        print(f"{path[1:]}: {len(TEXTS)} lines of JSON are read as {len(list(answer.iter_lines()))}", end="; ")
END
seen=$("$work/venv/bin/python" "$work/probe.py")
echo "$seen"
expected="as-it-is: 4 lines of JSON are read as 7; ascii: 4 lines of JSON are read as 4; "
[[ $seen == "$expected" ]] || { echo "the finding says: $expected" >&2; exit 1; }
