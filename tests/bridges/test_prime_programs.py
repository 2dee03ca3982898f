"""What is built on Prime's client, unmodified, over the bridge: its command line, and verifiers' runtime."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from tests.bridges.running import bridge, cases, environment_of
from tests.bridges.test_prime_clients import environment
from tests.support.images import AGAINST_CLUSTER, IMAGE
from tests.support.stack import Product

COMMAND_LINE: Final = "prime-0.18.0"
RUNTIME: Final = "verifiers-0.4.0"
WANTED: Final[dict[str, Any]] = {
    "start": {"cached": True},
    "run": {"code": 3, "out": "with words\n/app\n", "err": "e\n"},
    "files": {
        "bytes": [*b"\x00data"],
        "below": "more",
        "bounded": "more",
        "refused": ["SandboxError", "SandboxError"],
    },
    "live": {"out": "got words\n", "codes": [4, 143]},
    "background": {"log": "behind\n"},
    "user": {"runs": "nobody\n", "owner": "nobody\n"},
    "offline": {"locked": "nothing", "policy": [], "applied": True},
    "no_image": {"error": "SandboxError"},
    "stop": "SandboxError",
}
Prime: TypeAlias = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def saw(stack: Product, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What verifiers' runtime saw in all its cases."""
    home = tmp_path_factory.mktemp("home")

    async def all_cases() -> Mapping[str, Any]:
        async with bridge(stack, protocol="prime") as url:
            return await cases(RUNTIME, "verifiers_cases.py", "", environment(url, stack.api_key, home))

    return asyncio.run(all_cases())


@pytest.mark.parametrize("case", WANTED)
def test_verifiers_runtime_sees_what_it_would_see_at_prime(saw: Mapping[str, Any], case: str) -> None:
    assert saw[case] == WANTED[case]


@pytest.fixture(scope="module")
def prime(stack: Product, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prime]:
    """Runs `prime sandbox`; its exit code and what it prints."""
    folder = environment_of(COMMAND_LINE) / "bin"
    # By its Python: the folder was moved since the script was made.
    program = (folder / "python", folder / "prime", "sandbox")
    with asyncio.Runner() as runner:
        opened = AsyncExitStack()
        url = runner.run(opened.enter_async_context(bridge(stack, protocol="prime")))
        environ = environment(url, stack.api_key, tmp_path_factory.mktemp("home"))

        def run(*words: str) -> tuple[int, str]:
            told = subprocess.run([*program, *words], env=environ, capture_output=True, check=False)
            # It breaks its lines at the width of a terminal.
            return told.returncode, " ".join((told.stdout + told.stderr).decode().split())

        yield run
        runner.run(opened.aclose())


def made(prime: Prime, *words: str) -> str:
    code, said = prime("create", IMAGE, "--yes", *words)
    found = re.search(r"created sandbox (sb-[a-z0-9]+)", said)
    assert (code, found is not None) == (0, True), said
    assert found is not None
    return found[1]


def test_the_command_line_runs_commands_and_moves_files(prime: Prime, tmp_path: Path) -> None:
    name = made(prime, "--env", "A=1", "--label", "moves")
    code, said = prime("run", name, "-w", "/usr", "-e", "B=2", "--", "sh", "-c", "echo $A-$B; pwd; exit 3")
    assert (code, "1-2 /usr" in said, "Exit code: 3" in said) == (3, True, True)
    (tmp_path / "up").write_bytes(b"moved")
    assert prime("upload", name, str(tmp_path / "up"), "/tmp/deep/file")[0] == 0
    assert prime("download", name, "/tmp/deep/file", str(tmp_path / "down"))[0] == 0
    assert (tmp_path / "down").read_bytes() == b"moved"
    told = json.loads(prime("get", name, "--output", "json")[1])
    assert (told["status"], told["labels"]) == ("RUNNING", ["moves"])
    assert AGAINST_CLUSTER or "blocked" in prime("network", name)[1]
    assert prime("delete", name, "--yes")[0] == 0
    code, said = prime("run", name, "--", "true")
    # What is in brackets it takes for a style, and leaves it out.
    assert (code, "Not Running" in said, "it was deleted by its owner" in said) == (1, True, True)


def test_the_command_line_lists_and_deletes_by_label(prime: Prime) -> None:
    names = {made(prime, "--label", "both"), made(prime, "--label", "both")}
    listed = json.loads(prime("list", "--label", "both", "--output", "json")[1])
    assert {one["id"] for one in listed["sandboxes"]} == names
    assert prime("delete", *names, "--yes")[0] == 0
    assert json.loads(prime("list", "--label", "both", "--output", "json")[1])["sandboxes"] == []


def test_the_command_line_shows_a_log_and_says_what_there_is_not(prime: Prime) -> None:
    code, said = prime("create", "--yes", IMAGE, "--", "sh", "-c", "echo begun; exec tail -f /dev/null")
    assert code == 0, said
    found = re.search(r"created sandbox (sb-[a-z0-9]+)", said)
    assert found is not None
    while "begun" not in (shown := prime("logs", found[1]))[1]:
        assert shown[0] == 0
    for words in (("volumes", "list"), ("ssh", found[1])):
        code, said = prime(*words)
        assert (code, "is not supported by rollbox's bridge" in said) == (1, True)
    assert prime("delete", found[1], "--yes")[0] == 0
