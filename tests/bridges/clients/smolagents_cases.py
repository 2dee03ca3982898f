"""What smolagents does with Docker: it builds an image of a kernel's gateway, and runs code in a container of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

import docker
from docker import errors
from smolagents import AgentLogger, DockerExecutor, LogLevel
from smolagents.utils import AgentError

IMAGE = os.environ["IMAGE"]
GATEWAY = "kernel-gateway:1"
OWN = "jupyter-kernel"
WITHIN_S = 60
PREPARED = f"""FROM {IMAGE}
COPY bin /usr/local/bin/
COPY site /opt/site
ENV PYTHONPATH=/opt/site PYTHONDONTWRITEBYTECODE=1
RUN python3 -m ipykernel install --prefix /usr/local
"""
# What smolagents has by itself, but for the packages, which would come from the network.
DOCKERFILE = f"""FROM {GATEWAY}

EXPOSE 8888
CMD ["jupyter", "kernelgateway", "--KernelGatewayApp.ip=0.0.0.0", "--KernelGatewayApp.port=8888"]
"""
PROGRAMS = {
    "jupyter": "from jupyter_core.command import main; main()",
    "jupyter-kernelgateway": "from kernel_gateway import launch_instance; launch_instance()",
}
client = docker.from_env()


def prepared():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (site,) = Path(os.environ["KERNELS"]).glob("lib/python3*/site-packages")
        shutil.copytree(site, root / "site", ignore=shutil.ignore_patterns("pip*", "setuptools*", "__pycache__"))
        (root / "bin").mkdir()
        for name, line in PROGRAMS.items():
            (root / "bin" / name).write_text(f"#!/usr/bin/env python3\n{line}\n")
            (root / "bin" / name).chmod(0o755)
        (root / "Dockerfile").write_text(PREPARED)
        return {"tags": client.images.build(path=folder, tag=GATEWAY)[0].tags}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def code(executor):
    executor("import math\nx = math.factorial(5)")
    told = executor("print('said'); x")
    return {"output": told.output, "logs": told.logs.strip()}


def sent(executor):
    executor.send_variables({"given": {"a": [1, 2]}})
    return {"output": executor("sum(given['a'])").output}


def failed(executor):
    try:
        executor("raise ValueError('no')")
    except AgentError as error:
        return {"says": "ValueError" in str(error), "goes_on": executor("1 + 1").output}


def cleaned(executor):
    executor.cleanup()
    return {"left": [one.id for one in client.containers.list(all=True)]}


def removed(name):
    """Remove an image; the platform keeps it for as long as a sandbox of it is being removed."""
    limit = time.monotonic() + WITHIN_S
    while time.monotonic() < limit:
        try:
            client.images.remove(name)
        except errors.APIError:
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    print(json.dumps({"case": "prepared", "saw": prepared()}), flush=True)
    logger = AgentLogger(level=LogLevel.OFF)
    shared = DockerExecutor([], logger, port=free_port(), image_name=OWN, dockerfile_content=DOCKERFILE)
    for case in (code, sent, failed, cleaned):
        print(json.dumps({"case": case.__name__, "saw": case(shared)}), flush=True)
    for image in (OWN, GATEWAY):
        removed(image)
