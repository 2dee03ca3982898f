"""What is built on Prime's client, unmodified, over the bridge.

Its command line, verifiers' runtimes and environments of all versions, and Harbor's environment.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from rollbox import Client
from rollbox.errors import Conflict
from tests.bridges.published import each, of_client
from tests.bridges.running import bridge, cases, environment_of
from tests.bridges.test_prime_clients import environment
from tests.support.images import AGAINST_CLUSTER, IMAGE
from tests.support.stack import Product
from tests.support.waiting import until

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
# Environments of the older half of verifiers, and runtimes of the newer one, by version.
OLDER_VERIFIERS: Final = ("verifiers-0.1.14", "verifiers-0.2.1", "verifiers-0.3.1")
WANTED_OF_OLDER: Final[dict[str, Any]] = {
    "runtime_of_either_generation": {
        "seen": [3, "with words\n/app\n", "e\n", [*b"\x00data"], "SandboxError", "SandboxError"],
        "same": True,
    },
    "runtime_with_a_server": {"text": "within"},
    "runtime_without_network": {"locked": "nothing", "policy": [], "applied": True},
    "runtime_with_live_processes": {"out": "got words\n", "codes": [4, 143]},
    "shell_environment": {
        "said": ["with words\nstderr:\ne", "kept", "Error: Command timed out after 2s", "(no output)"],
        "ended": "SandboxError",
        "many": 2,
        "left": 0,
        "gone": ["SandboxNotReadyError", "SandboxNotReadyError"],
    },
    "python_environment": {"said": ["(no output)", "out\nOut[2]: 21", "ZeroDivisionError: division by zero"]},
}
# What a version has not, and what the table says of it.
HAS_NOT: Final[Mapping[str, Mapping[str, str]]] = {
    "verifiers-0.1.14": {case: "runtimes (it has none)" for case in WANTED_OF_OLDER if case.startswith("runtime")},
    "verifiers-0.2.1": {
        "runtime_without_network": "lists of hosts (it has none)",
        "runtime_with_live_processes": "live processes (it has none)",
    },
    "verifiers-0.3.1": {"python_environment": "`PythonEnv` (the clients that it asks for refuse what it sends)"},
}
HARBOR: Final = "harbor-0.26.0"
WANTED_OF_HARBOR: Final[dict[str, Any]] = {
    "commands": {
        "ran": [3, "of the task-more\n/tmp\n", "e\n"],
        "folder": [0, "/usr\n", ""],
        "user": [0, "nobody\n/tmp\n", ""],
        "number": [0, "12345\n", ""],
    },
    "timed_out": {"error": "CommandTimeoutError"},
    "files": {"runs": [0, "runs\nruns\n", ""], "same": True},
    "offline": {"policy": [], "applied": True},
    "no_image": {"error": "APIError", "says": True, "left": None},
    "stopped": {"left": None},
}
Prime: TypeAlias = Callable[..., tuple[int, str]]


@asynccontextmanager
async def image_with_python(stack: Product) -> AsyncIterator[str]:
    """The tests' image with a `python` beside its `python3`."""
    async with Client(stack.url, stack.api_key) as client:
        sandbox = await client.create(IMAGE, memory="256Mi", ttl=600)
        await sandbox.exec("ln -s /usr/bin/python3 /usr/local/bin/python", check=True)
        image = await sandbox.commit("python-by-its-name")
        await client.delete(sandbox.id, wait=True)
        yield str(image)
        await until(partial(_removed, client, str(image)))


async def _removed(client: Client, image: str) -> bool:
    """Whether it could be removed: what ran from it ends after its delete was answered."""
    try:
        return await client.remove_image(image)
    except Conflict:
        return False


def seen(stack: Product, name: str, script: str, home: Path, *options: str) -> Mapping[str, Any]:
    """What a program saw in all its cases, over a bridge of its own."""

    async def all_cases() -> Mapping[str, Any]:
        async with bridge(stack, *options, protocol="prime") as url:
            return await cases(name, script, "", environment(url, stack.api_key, home))

    return asyncio.run(all_cases())


@pytest.fixture(scope="module")
def saw(stack: Product, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What verifiers' runtime saw in all its cases."""
    return seen(stack, RUNTIME, "verifiers_cases.py", tmp_path_factory.mktemp("home"))


@of_client(RUNTIME)
@pytest.mark.parametrize("case", WANTED)
def test_verifiers_runtime_sees_what_it_would_see_at_prime(saw: Mapping[str, Any], case: str) -> None:
    assert saw[case] == WANTED[case]


@pytest.fixture(scope="module", params=map(each, OLDER_VERIFIERS))
def saw_of_older(
    stack: Product, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """What one of the older versions of verifiers saw in all its cases."""
    home = tmp_path_factory.mktemp("home")
    with asyncio.Runner() as runner:
        making = image_with_python(stack)
        # What PythonEnv names.
        named = f"python:3.11-slim={runner.run(making.__aenter__())}"
        told = seen(stack, request.param, "older_verifiers_cases.py", home, "--image", named)
        runner.run(making.__aexit__(None, None, None))
    return {"client": request.param, **told}


@pytest.mark.parametrize("case", WANTED_OF_OLDER)
def test_older_verifiers_see_what_they_would_see_at_prime(
    saw_of_older: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if (missing := HAS_NOT[saw_of_older["client"]].get(case)) is not None:
        not_supported(missing)
        assert case not in saw_of_older
    else:
        assert saw_of_older[case] == WANTED_OF_OLDER[case]


@pytest.fixture(scope="module")
def saw_of_harbor(stack: Product, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What Harbor's environment of Prime saw in all its cases."""
    return seen(stack, HARBOR, "harbor_cases.py", tmp_path_factory.mktemp("home"))


@of_client(HARBOR)
@pytest.mark.parametrize("case", WANTED_OF_HARBOR)
def test_harbors_environment_sees_what_it_would_see_at_prime(saw_of_harbor: Mapping[str, Any], case: str) -> None:
    assert saw_of_harbor[case] == WANTED_OF_HARBOR[case]


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


@of_client(COMMAND_LINE)
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


@of_client(COMMAND_LINE)
def test_the_command_line_lists_and_deletes_by_label(prime: Prime) -> None:
    names = {made(prime, "--label", "both"), made(prime, "--label", "both")}
    listed = json.loads(prime("list", "--label", "both", "--output", "json")[1])
    assert {one["id"] for one in listed["sandboxes"]} == names
    assert prime("delete", *names, "--yes")[0] == 0
    assert json.loads(prime("list", "--label", "both", "--output", "json")[1])["sandboxes"] == []


@of_client(COMMAND_LINE)
def test_the_command_line_shows_a_log(prime: Prime) -> None:
    code, said = prime("create", "--yes", IMAGE, "--", "sh", "-c", "echo begun; exec tail -f /dev/null")
    assert code == 0, said
    found = re.search(r"created sandbox (sb-[a-z0-9]+)", said)
    assert found is not None
    while "begun" not in (shown := prime("logs", found[1]))[1]:
        assert shown[0] == 0
    assert prime("delete", found[1], "--yes")[0] == 0


@of_client(COMMAND_LINE)
@pytest.mark.parametrize("words", [("volumes", "list"), ("ssh", "")], ids=" ".join)
def test_the_command_line_says_what_there_is_not(
    prime: Prime, words: tuple[str, str], not_supported: Callable[[str], None]
) -> None:
    not_supported(f"`{words[0]}`")
    name = made(prime)
    code, said = prime(words[0], words[1] or name)
    assert (code, "is not supported by rollbox's bridge" in said) == (1, True)
    assert prime("delete", name, "--yes")[0] == 0
