"""What terminal-bench's manager of containers sees over Docker's bridge; prints a line of JSON for each case.

The module runs as it is published, and calls `docker compose`. The packages above it have names alone: what is imported
there is the whole harness.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

PACKAGE = Path(importlib.util.find_spec("terminal_bench").submodule_search_locations[0])
for name in ("terminal_bench", "terminal_bench.terminal"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(PACKAGE.parent.joinpath(*name.split(".")))]

from terminal_bench.terminal.docker_compose_manager import DockerComposeManager  # noqa: E402

DOCKERFILE = f"FROM {os.environ['IMAGE']}\nRUN echo built > /built\nWORKDIR /app\n"
# A task as the harness makes new ones has a network of its own, and folders of the host for its logs.
TEMPLATE = (PACKAGE / "cli/template-task/docker-compose.yaml").read_text()
CHANGED = TEMPLATE.partition("    volumes:")[0] + "    network_mode: bridge\n"
MOUNTED = TEMPLATE.rstrip() + "\n    network_mode: bridge\n"


def manager(folder, compose):
    Path(folder, "Dockerfile").write_text(DOCKERFILE)
    Path(folder, "docker-compose.yaml").write_text(compose)
    logs = [Path(folder, name) for name in ("logs", "agent-logs")]
    for one in logs:
        one.mkdir()
    name = f"tb-{os.getpid()}"
    return DockerComposeManager(
        client_container_name=name,
        client_image_name=f"{name}:1",
        docker_compose_path=Path(folder, "docker-compose.yaml"),
        cleanup=True,
        sessions_logs_path=logs[0],
        agent_logs_path=logs[1],
    )


def task():
    with tempfile.TemporaryDirectory() as folder:
        made = manager(folder, CHANGED)
        container = made.start()
        ran = container.exec_run(["sh", "-c", "cat /built; pwd; echo $TEST_DIR"])
        Path(folder, "run-tests.sh").write_text("echo tested; exit 3\n")
        made.copy_to_client_container([Path(folder, "run-tests.sh")], container_dir="/tests")
        tested = container.exec_run(["sh", "/tests/run-tests.sh"])
        made.stop()
        left = [one.name for one in made._client.containers.list(all=True)]
    said = [ran.exit_code, ran.output.decode().split()]
    return {"ran": said, "tested": [tested.exit_code, tested.output.decode()], "left": left}


def refused(compose):
    with tempfile.TemporaryDirectory() as folder:
        made = manager(folder, compose)
        try:
            made.start()
        except subprocess.CalledProcessError as error:
            return error.stderr if "is not supported by rollbox's bridge" in error.stderr else ""
        finally:
            made.stop()


def mounts():
    return "HostConfig.Binds" in refused(MOUNTED)


def networks():
    return "changing networks" in refused(TEMPLATE)


for case in (task, mounts, networks):
    try:
        told = {"case": case.__name__, "saw": case()}
    except Exception as error:  # told to the test
        told = {"case": case.__name__, "error": [type(error).__name__, str(error), getattr(error, "stderr", "")]}
    print(json.dumps(told), flush=True)
