"""What SWE-bench's harness does with Docker: its own functions, on a prepared image. `docker` is a command on PATH."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
from pathlib import Path, PurePosixPath

import docker
from swebench.harness import docker_utils, run_evaluation
from swebench.image_builder import docker_build
from swebench.image_builder.docker_utils import list_images, make_heredoc_run_command, remove_image
from swebench.image_builder.image_spec import ImageSpec
from swebench.types import TestSpec

IMAGE = os.environ["IMAGE"]
client = docker.from_env()
logger = logging.getLogger("swebench")
logger.log_file = "none"


def created():
    spec = TestSpec("toy__toy-1", IMAGE, ["echo ran"], "toy/toy", "1", [], [])
    container = run_evaluation.create_container(spec, client, f"run-{os.getpid()}", logger)
    container.start()
    return container


def built(_):
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        steps = make_heredoc_run_command(["mkdir /testbed", "cd /testbed", "echo built > state"])
        spec = ImageSpec("toy__toy-1", f"FROM {IMAGE}\n{steps}WORKDIR /testbed\n", None)
        docker_build.build_image(spec)
        # The second time it is there.
        docker_build.build_instance_image(spec, client, logger, False)
        out = client.containers.run(spec.name, "cat state", remove=True).decode()
        try:
            docker_build.build_image(ImageSpec("toy__toy-2", f"FROM {IMAGE}\nRUN false\n", None))
            failed = ""
        except docker_build.BuildImageError as error:
            failed = Path(error.log_path).read_text()
    for _ in range(600):
        remove_image(client, spec.name, "quiet")
        if spec.name not in list_images(client):
            break
        time.sleep(0.1)
    return {"name": spec.name, "out": out, "failed": "fault: caller" in failed}


def copied(container):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "eval.sh"
        source.write_text("#!/bin/sh\necho copied\n")
        docker_utils.copy_to_container(container, source, PurePosixPath("/made/here/eval.sh"))
    docker_utils.write_to_container(container, "written", Path("/made/here/written"))
    return {"out": container.exec_run("sh /made/here/eval.sh").output.decode()}


def tested(container):
    output, timed_out, _ = docker_utils.exec_run_with_timeout(container, "sh -c 'echo passed; echo failed >&2'", 60)
    return {"lines": sorted(output.splitlines()), "timed_out": timed_out}


def timed_out(container):
    output, late, _ = docker_utils.exec_run_with_timeout(container, "sh -c 'echo begun; exec sleep 1000'", 3)
    left = "sleep 1000" in container.exec_run("sh -c 'cat /proc/[0-9]*/cmdline'").output.decode().replace("\0", " ")
    return {"output": output, "timed_out": late, "left": left}


def cleaned(container):
    docker_utils.cleanup_container(client, container, "quiet")
    return {"left": [one.id for one in client.containers.list(all=True)]}


if __name__ == "__main__":
    shared = created()
    for case in (built, copied, tested, timed_out, cleaned):
        print(json.dumps({"case": case.__name__, "saw": case(shared)}), flush=True)
