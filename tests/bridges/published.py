"""The published clients that run over the bridges, and what the tables of the docs say that ran of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
# Where the table of each bridge is, by the name of its marks.
PAGES: Final = {
    "e2b": ROOT / "docs/guide/bridges.md",
    "fusion": ROOT / "docs/guide/bridges-fusion.md",
    "prime": ROOT / "docs/guide/bridges-prime.md",
    "docker": ROOT / "docs/guide/bridges-docker.md",
}


@dataclass(frozen=True)
class Client:
    """A client in one version.

    Attributes:
        bridge: whose table has it.
        title: as the table has it.
        version: as the table has it.
        what: ran.
    """

    bridge: str
    title: str
    version: str
    what: str


E2B: Final = (
    "async and sync: sandboxes, lists, time, snapshots of files, builds of templates, commands, terminals, files, "
    "watches, signed addresses, ports"
)
CELLS: Final = "async and sync: cells, results, contexts, variables, interrupts, crashes"
PRIME: Final = (
    "async and sync: creates, lists, deletes, commands, users, files, background jobs, live processes, logs, ends"
)
DOCKER: Final = (
    "containers, commands, streams, terminals, archives, logs, lists, images, commits, builds, ports, what is refused"
)
VERIFIERS: Final = "its environments: a shell, a Python that lives on, timeouts, bulk deletes"
RUNTIMES: Final = f"{VERIFIERS}; `PrimeRuntime` of both generations: commands, files, a server's port"
# By the names of their environments, or of what shares one with others.
CLIENTS: Final[Mapping[str, Client]] = {
    "e2b-2.31.0": Client("e2b", "`e2b`, Python", "2.31.0", E2B),
    "e2b-2.63.0": Client("e2b", "`e2b`, Python", "2.63.0", E2B),
    "npm": Client(
        "e2b", "`e2b`, JavaScript", "2.51.0", "sandboxes, lists, commands, input, terminals, files, watches, a template"
    ),
    "e2b-code-interpreter-2.11.5": Client(
        "e2b",
        "`e2b-code-interpreter`, Python",
        "2.11.5",
        CELLS,
    ),
    "e2b-code-interpreter-2.8.1": Client("e2b", "`e2b-code-interpreter`, over [HTTPS](#https)", "2.8.1", CELLS),
    "openai-agents-0.24.0": Client(
        "e2b",
        "openai-agents' `E2BSandboxClient`",
        "0.24.0",
        "an agent with a scripted model, commands, files, a terminal, a port, a workspace that is kept",
    ),
    "slime": Client(
        "e2b",
        "slime's `E2BSandbox` and `exec_and_wait`",
        "624b824a",
        "over `e2b` 2.31.0 and 2.63.0: an image by a key of metadata, commands, files, long commands, its user of "
        "agents, ends that its retry loop does not try again",
    ),
    "ai": Client(
        "e2b",
        "Vercel's `ai`, whose tool calls `e2b` in JavaScript",
        "6.0.326",
        "an agent with a scripted model solves a task; its sandbox ends under it",
    ),
    "sandbox-fusion-0.3.7": Client(
        "fusion",
        "`sandbox-fusion`",
        "0.3.7",
        "async and sync: programs, input, files both ways, time, signals, fork bombs, notebooks, 12 at once",
    ),
    "verl-0.9.1": Client(
        "fusion",
        "`verl.utils.reward_score.sandbox_fusion`, the module alone",
        "0.9.1",
        "scores, functions, asserts, its codes for what was wrong, memory, 40 tests at once",
    ),
    "tinker-cookbook-0.6.1": Client(
        "fusion", "`tinker_cookbook.sandbox.SandboxFusionClient`", "0.6.1", "programs with files, a refusal"
    ),
    "prime-sandboxes-0.2.42": Client("prime", "`prime-sandboxes`", "0.2.42", f"{PRIME}, ports"),
    "prime-sandboxes-0.5.1": Client("prime", "`prime-sandboxes`", "0.5.1", f"{PRIME}, checkpoints"),
    "prime-sandboxes-tests": Client(
        "prime",
        "its own 33 live tests",
        "0.2.42, at 66fb4b7",
        "commands, files, background jobs, lists, deletes, a command of 100 s",
    ),
    "prime-0.18.0": Client(
        "prime",
        "`prime sandbox`, the command line",
        "0.18.0",
        "create, get, list, run, upload, download, network, logs, delete",
    ),
    "verifiers-0.1.14": Client("prime", "verifiers", "0.1.14", VERIFIERS),
    "verifiers-0.2.1": Client("prime", "verifiers", "0.2.1", RUNTIMES),
    "verifiers-0.3.1": Client("prime", "verifiers", "0.3.1", f"{RUNTIMES}, networks, live processes"),
    "verifiers-0.4.0": Client(
        "prime",
        "verifiers",
        "0.4.0",
        "`PrimeRuntime`: start, commands, files, live processes, programs behind, users, networks, ends",
    ),
    "harbor-0.26.0": Client(
        "prime",
        "Harbor's environment `prime`",
        "0.26.0",
        "commands, users, timeouts, files and folders, no network, failed starts",
    ),
    "docker-7.1.0": Client("docker", "`docker`, Python", "7.1.0", DOCKER),
    "docker-7.2.0": Client("docker", "`docker`, Python", "7.2.0", DOCKER),
    "swebench-5.0.2": Client(
        "docker",
        "SWE-bench's harness",
        "5.0.2",
        "an instance's image built by its own builder; on a prepared image: copy, write, run with a time limit, "
        "clean up; with `--leave-out CapAdd`",
    ),
    "swe-rex-1.4.0": Client(
        "docker",
        "SWE-ReX's `DockerDeployment`",
        "1.4.0",
        "an image with its server built by `docker build`, sessions, commands, files, its end",
    ),
    "smolagents-1.26.0": Client(
        "docker",
        "smolagents' `DockerExecutor`",
        "1.26.0",
        "its image built on one with the packages, cells, variables, errors, its end",
    ),
    "terminal-bench-0.2.18": Client(
        "docker",
        "terminal-bench's `DockerComposeManager`, the module alone",
        "0.2.18",
        "by `docker compose` (2.40.3), a task without mounts in the bridge's network: its image built, commands, "
        "files, its end",
    ),
    "mini-swe-agent": Client(
        "docker",
        "mini-swe-agent's `DockerEnvironment`",
        "2.4.6",
        "commands, settings, a timeout, a submission, its clean-up",
    ),
    "llm-sandbox-0.3.46": Client(
        "docker", "`llm-sandbox`", "0.3.46", "files, commands, code, on an image with its packages"
    ),
}


def of_client(name: str) -> pytest.MarkDecorator:
    """Mark tests as those of a client, by its name in `CLIENTS`."""
    return pytest.mark.client(name)


def each(client: str, *more: Any) -> Any:
    """A parameter of a fixture, or of a test, that is a client: the tests that have it are that client's.

    Args:
        client: its name in `CLIENTS`.
        more: what else the parameter has.
    """
    value = (client, *more) if more else client
    return pytest.param(value, marks=of_client(client), id="-".join((client, *map(str, more))))
