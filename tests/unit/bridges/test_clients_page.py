"""The page's table of clients says what the tests run: versions and numbers of cases."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bridges import test_e2b_clients as e2b
from tests.bridges import test_e2b_programs as e2b_programs
from tests.bridges import test_fusion_clients as fusion
from tests.bridges import test_interpreter_clients as interpreter
from tests.bridges import test_prime_clients as prime
from tests.bridges import test_prime_live as live
from tests.bridges import test_prime_programs as programs
from tests.bridges.running import HERE

GUIDE = Path(__file__).parents[3] / "docs/guide"
LINES = [line for name in ("bridges.md", "bridges-prime.md") for line in (GUIDE / name).read_text().splitlines()]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES if line.startswith("|")]


def row(client: str) -> list[str]:
    """The first row of a client: its name, versions, what ran."""
    return next(cells for cells in ROWS if cells[0] == client)


def test_the_python_clients_are_those_of_the_tests() -> None:
    _, versions, ran = row("`e2b`, Python, async and sync")[:3]
    assert [f"e2b-{one}" for one in versions.split(", ")] == [*e2b.CLIENTS]
    assert ran.startswith(f"{len(e2b.WANTED)} cases each")


def test_the_client_in_javascript_is_that_of_the_tests() -> None:
    _, version, ran = row("`e2b`, JavaScript")[:3]
    assert json.loads((HERE / "requirements/npm/package.json").read_text())["dependencies"]["e2b"] == version
    assert ran.startswith(f"{len(e2b.WANTED_IN_JAVASCRIPT)} cases")


def test_programs_that_know_e2b_alone_are_those_of_the_tests() -> None:
    _, version, ran = row("openai-agents' `E2BSandboxClient`")[:3]
    assert f"openai-agents-{version}" == e2b_programs.OPENAI_AGENTS
    assert ran.startswith(f"{len(e2b_programs.WANTED_BY_OPENAI_AGENTS)} cases")
    _, versions, ran = row("slime's `E2BSandbox` and `exec_and_wait`")[:3]
    assert versions.split("`")[1] == e2b_programs.SLIME_COMMIT[:8]
    assert all(one.removeprefix("e2b-") in versions for one in e2b_programs.SLIMES_CLIENTS)
    assert ran.startswith(f"{len(e2b_programs.WANTED_BY_SLIME)} cases")
    _, version, ran = row("Vercel's `ai`, whose tool calls `e2b` in JavaScript")[:3]
    assert json.loads((HERE / "requirements/npm/package.json").read_text())["dependencies"]["ai"] == version
    assert ran.startswith(f"{len(e2b_programs.WANTED_BY_AI)} cases")
    _, version, ran = row("`e2b-code-interpreter`, over [HTTPS](#https)")[:3]
    pinned = (HERE / f"requirements/{e2b_programs.OPENAI_AGENTS}.txt").read_text()
    assert f"e2b-code-interpreter=={version} \\" in pinned
    assert ran.startswith(f"{len(interpreter.WANTED)} cases each")


def test_the_interpreters_clients_are_those_of_the_tests() -> None:
    _, versions, ran = row("`e2b-code-interpreter`, Python, async and sync")[:3]
    assert [f"e2b-code-interpreter-{one}" for one in versions.split(", ")] == [*interpreter.CLIENTS]
    assert ran.startswith(f"{len(interpreter.WANTED)} cases each")


def test_primes_clients_are_those_of_the_tests() -> None:
    _, versions, ran = row("`prime-sandboxes`, async and sync")[:3]
    assert [f"prime-sandboxes-{one}" for one in versions.split(", ")] == [*prime.CLIENTS]
    assert ran.startswith(f"{len(prime.WANTED)} cases each")


def test_what_is_built_on_primes_client_is_that_of_the_tests() -> None:
    _, version, ran = row("verifiers' `PrimeRuntime`")[:3]
    assert f"verifiers-{version}" == programs.RUNTIME
    assert ran.startswith(f"{len(programs.WANTED)} cases")
    assert f"prime-{row('`prime sandbox`, the command line')[1]}" == programs.COMMAND_LINE
    _, versions, ran = row("verifiers' `SandboxEnv`, `PythonEnv`; `PrimeRuntime` from 0.2 on")[:3]
    assert versions.split(", ") == [*programs.OLDER_VERIFIERS]
    assert ran.startswith(f"{len(programs.WANTED_OF_OLDER)} cases each")
    _, version, ran = row("Harbor's environment `prime`")[:3]
    assert (f"harbor-{version}", ran.split(" cases")[0]) == (programs.HARBOR, str(len(programs.WANTED_OF_HARBOR)))


def test_the_live_tests_of_primes_client_are_those_of_the_tests() -> None:
    _, versions, _, passed = row(f"the {sum(live.FILES.values())} live tests of `prime-sandboxes` itself")[:4]
    assert live.COMMIT[:8] in versions
    # One asks for a limit of the disk, which an engine has not.
    assert passed.startswith(f"engine: {sum(live.FILES.values()) - 1}")


def test_each_environment_is_pinned_with_digests() -> None:
    verifiers = (f"verifiers-{version}" for version in programs.OLDER_VERIFIERS)
    built_on_prime = (programs.COMMAND_LINE, programs.RUNTIME, programs.HARBOR, *verifiers)
    for name in (*e2b.CLIENTS, *interpreter.CLIENTS, *prime.CLIENTS, *built_on_prime):
        pinned = (HERE / f"requirements/{name}.txt").read_text()
        assert f"{name[::-1].replace('-', '==', 1)[::-1]} \\" in pinned
        assert "--hash=sha256:" in pinned


FUSION_PAGE = (Path(__file__).parents[3] / "docs/guide/bridges-fusion.md").read_text()


def test_the_clients_of_sandbox_fusion_are_those_of_the_tests() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in FUSION_PAGE.splitlines()]
    for name, version, wanted in (
        ("`sandbox-fusion`, sync and async", "0.3.7", fusion.FUSION),
        ("`verl.utils.reward_score.sandbox_fusion`, the module alone", "0.9.1", fusion.VERL),
        ("`tinker_cookbook.sandbox.SandboxFusionClient`", "0.6.1", fusion.TINKER),
    ):
        found = next(cells for cells in rows if cells[0] == name)
        assert (found[1], found[2].split(" cases")[0]) == (version, str(len(wanted)))


def test_each_environment_of_sandbox_fusion_is_pinned_with_digests() -> None:
    for client, version in (("sandbox-fusion", "0.3.7"), ("verl", "0.9.1"), ("tinker-cookbook", "0.6.1")):
        pinned = (HERE / f"requirements/{client}-{version}.txt").read_text()
        assert f"{client}=={version} \\" in pinned
        assert "--hash=sha256:" in pinned
