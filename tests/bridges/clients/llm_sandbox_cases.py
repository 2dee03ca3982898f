"""What a user does with llm-sandbox over Docker: code, files and commands in a session."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from llm_sandbox import SandboxBackend, SandboxSession

IMAGE = os.environ["IMAGE"]


def files(session):
    with tempfile.TemporaryDirectory() as folder:
        up, down = Path(folder) / "up.txt", Path(folder) / "down.txt"
        up.write_text("text")
        session.copy_to_runtime(str(up), "/sandbox/kept/up.txt")
        session.copy_from_runtime("/sandbox/kept/up.txt", str(down))
        return {"same": down.read_text() == "text"}


def commands(session):
    told = session.execute_command("sh -c 'echo out; echo err >&2; exit 3'")
    return {"code": told.exit_code, "out": told.stdout, "err": told.stderr}


def code(session):
    # The image has no `python`, which llm-sandbox runs.
    session.execute_command("sh -c 'command -v python || ln -s $(command -v python3) /usr/local/bin/python'")
    good, bad = session.run("print(6 * 7)"), session.run("raise ValueError('no')")
    return {"out": good.stdout, "code": good.exit_code, "failed": bad.exit_code, "says": "ValueError: no" in bad.stderr}


if __name__ == "__main__":
    options = {"lang": "python", "image": IMAGE, "keep_template": True, "skip_environment_setup": True}
    # That of images which have one by themselves; the cluster's image has none.
    options["runtime_configs"] = {"command": "python3"}
    with SandboxSession(backend=SandboxBackend.DOCKER, **options) as opened:
        for case in (files, commands, code):
            print(json.dumps({"case": case.__name__, "saw": case(opened)}), flush=True)
