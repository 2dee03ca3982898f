"""What mini-swe-agent's own environment does with `rollbox-docker` as its executable."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time

from minisweagent.environments.docker import DockerEnvironment
from minisweagent.exceptions import Submitted

IMAGE, DOCKER = os.environ["IMAGE"], os.environ["ROLLBOX_DOCKER"]
WITHIN_S = 60


def listed():
    return subprocess.run([DOCKER, "ps", "-aq"], capture_output=True, text=True, check=True).stdout.split()


def commands(environment):
    both = environment.execute({"command": "echo out; echo err >&2; exit 3"})
    return {"lines": sorted(both["output"].split()), "code": both["returncode"]}


def settings(environment):
    environment.execute({"command": "cd /usr; export LOST=1"})
    told = environment.execute({"command": "echo $A $LOST; pwd"}, cwd="/usr")
    return {"lines": told["output"].splitlines()}


def late(environment):
    told = environment.execute({"command": "echo begun; sleep 1000"}, timeout=3)
    return {"code": told["returncode"], "late": "timed out" in told["exception_info"]}


def submitted(environment):
    try:
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo diff"})
    except Submitted as end:
        return {"says": end.messages[0]["content"] if hasattr(end, "messages") else str(end.args[0]["content"])}
    return {}


def cleaned(environment):
    before = len(listed())
    environment.cleanup()
    limit = time.monotonic() + WITHIN_S
    while listed() and time.monotonic() < limit:
        time.sleep(0.1)
    return {"before": before, "left": listed()}


if __name__ == "__main__":
    made = DockerEnvironment(image=IMAGE, executable=DOCKER, cwd="/work", env={"A": "a b"}, logger=logging.getLogger())
    for case in (commands, settings, late, submitted, cleaned):
        print(json.dumps({"case": case.__name__, "saw": case(made)}), flush=True)
    sys.stdout.flush()
    # Its end would clean up once more.
    os._exit(0)
