"""What SWE-ReX does with Docker: its deployment in a container, by `docker`, which is a command on PATH."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

# What it logs would come between the cases.
os.environ["SWE_REX_LOG_STREAM_LEVEL"] = "CRITICAL"

from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import (
    BashAction,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

IMAGE = os.environ["IMAGE"]
SERVED = "swe-rex-served:1"
PROGRAM = "#!/usr/bin/env python3\nfrom swerex.server import main\nmain()\n"
DOCKERFILE = f"""FROM {IMAGE}
COPY swerex-remote /usr/local/bin/
COPY site /opt/site
ENV PYTHONPATH=/opt/site
"""


def docker(*words):
    return subprocess.run(["docker", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def built():
    """An image that has the server of this version, as SWE-ReX wants it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        packages = sysconfig.get_paths()["purelib"]
        shutil.copytree(packages, root / "site", ignore=shutil.ignore_patterns("pip*", "setuptools*", "__pycache__"))
        (root / "swerex-remote").write_text(PROGRAM)
        (root / "swerex-remote").chmod(0o755)
        (root / "Dockerfile").write_text(DOCKERFILE)
        identity = docker("build", "-q", "-t", SERVED, folder).strip()
    return {
        "id": identity.startswith("sha256:"),
        "named": docker("images", "-q", "--no-trunc", SERVED).strip() == identity,
    }


async def sessions(runtime):
    await runtime.create_session(CreateBashSessionRequest(session="s"))
    await runtime.run_in_session(BashAction(session="s", command="cd /srv && export A='1 2'"))
    kept = await runtime.run_in_session(BashAction(session="s", command="echo $A; pwd"))
    failed = await runtime.run_in_session(BashAction(session="s", command="sh -c 'exit 3'", check="silent"))
    return {"kept": kept.output.split(), "failed": failed.exit_code}


async def commands(runtime):
    told = await runtime.execute(Command(command="echo out; echo err >&2; exit 4", shell=True))
    return {"out": told.stdout, "err": told.stderr, "code": told.exit_code}


async def files(runtime):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "up").mkdir()
        (Path(folder) / "up/file").write_text("up")
        await runtime.upload(UploadRequest(source_path=f"{folder}/up", target_path="/made/up"))
    await runtime.write_file(WriteFileRequest(path="/made/here/file", content="h\u00e9"))
    paths = ("/made/here/file", "/made/up/file")
    return {"content": [(await runtime.read_file(ReadFileRequest(path=path))).content for path in paths]}


async def deployed():
    deployment = DockerDeployment(image=SERVED, pull="missing", docker_args=["--network", "none"])
    await deployment.start()
    told = {case.__name__: await case(deployment.runtime) for case in (sessions, commands, files)}
    await deployment.stop()
    # The container goes once its end is known.
    return {**told, "stopped": {"gone": until(lambda: docker("ps", "-aq") == "")}}


def until(look):
    """Whether a look says true within a minute."""
    for _ in range(600):
        if look():
            return True
        time.sleep(0.1)
    return False


if __name__ == "__main__":
    saw = {"built": built(), **asyncio.run(deployed())}
    # The platform keeps it for as long as a sandbox of it is being removed.
    until(lambda: subprocess.run(["docker", "rmi", SERVED], capture_output=True, check=False).returncode == 0)
    for name, one in saw.items():
        print(json.dumps({"case": name, "saw": one}), flush=True)
