"""The READMEs' examples work: programs run, fragments pass the type checker, command lines parse."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import typer
import yaml
from mypy import api as mypy

import rollbox
from controlplane.lifecycle.admission.quotas import DeclaredQuota
from controlplane.model.pool import PoolSpec
from rollbox.cli import app
from tests.support.gateway_fake import FakeGateway

ROOT = Path(__file__).parents[3]
TEXTS = {name: (ROOT / name).read_text() for name in ("README.md", "sdk/README.md", "docs/cli.md")}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = "asyncio.run("
# The names that fragments use without defining them.
AROUND = """
import asyncio, json, logging
from pathlib import Path
from typing import Any
import aiohttp
from rollbox import *
from rollbox import Batch, BreakerPolicy, Client, LazySandbox, RetryPolicy, Sandbox, SandboxError, SandboxGroup

async def rollout(sandbox: Any) -> float: return 1.0
def learn(sample: int, value: float | None) -> None: ...
log = logging.getLogger()
samples: list[int] = []
image = secret = task = diff = answer = ""
async def fragment(http: aiohttp.ClientSession, GIVEN) -> None:
"""
GIVEN = {"client": "Client", "sandbox": "Sandbox"}


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language in all READMEs."""
    return [body for text in TEXTS.values() for found, body in BLOCK.findall(text) if found == language]


PROGRAMS = [block for block in blocks("python") if PROGRAM in block]
FRAGMENTS = [block for block in blocks("python") if PROGRAM not in block]


def commands() -> list[list[str]]:
    """Return every command line that begins with `rollbox`, also in `NAME=$(...)`, split into words."""
    lines = [line for block in (*blocks(""), *blocks("sh")) for line in block.splitlines()]
    inline = [found for text in TEXTS.values() for found in re.findall(r"`(rollbox [^`]*--[^`]+)`", text)]
    found = [re.sub(r"^\w+=\$\((.*)\)", r"\1", line) for line in [*lines, *inline]]
    return [
        shlex.split(line.partition(" < ")[0], comments=True)[1:] for line in found if re.match(r"rollbox [a-z]", line)
    ]


def parse(words: list[str]) -> None:
    """Parse as the CLI does, down to the command; raises for an unknown name or option."""
    command = typer.main.get_command(app)
    context = command.context_class(command)
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        if not hasattr(command, "resolve_command"):
            command.make_context(name, words, parent=context)


def checked(fragments: list[str], folder: Path) -> str:
    """Return the output of a strict type check of fragments, each in its own function; empty without errors."""
    files = []
    for number, fragment in enumerate(fragments):
        given = ", ".join(f"{name}: {kind}" for name, kind in GIVEN.items() if not re.search(rf"\b{name} = ", fragment))
        file = folder / f"fragment_{number}.py"
        file.write_text(AROUND.replace("GIVEN", given or "nothing: None").lstrip() + textwrap.indent(fragment, "    "))
        files.append(str(file))
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(folder / "cache")]
    said, trouble, _ = mypy.run([*config, "--no-error-summary", *files])
    return said + trouble


@pytest.mark.parametrize("program", PROGRAMS, ids=["README", "sdk/README"])
def test_the_programs_run(apart: FakeGateway, program: str) -> None:
    apart.real_execs = True
    environment = {**os.environ, "PYTHONPATH": str(Path(rollbox.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "42" in done.stdout
    assert {box["state"] for box in apart.sandboxes.values()} == {"ended"}


# The type checker runs without a cache.
@pytest.mark.timeout(1800)
def test_the_fragments_use_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(FRAGMENTS) >= 2
    assert checked(FRAGMENTS, tmp_path) == ""
    for wrong in ("await sandbox.exec('x', time_out=1)\n", "await sandbox.execute('x')\n"):
        assert "error:" in checked([wrong], tmp_path)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_lines_are_commands(words: list[str]) -> None:
    parse(words)


def test_a_line_that_is_none_is_noticed() -> None:
    assert len(commands()) > 20
    for wrong in (["no-such"], ["exec", "sb-1", "--no-such", "--", "x"], ["pool", "none"], ["exec"]):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parse(wrong)


def test_the_verbs_are_in_the_makefile() -> None:
    verbs = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = [line for block in blocks("") for line in block.splitlines()]
    used = {found for line in shown for found in re.findall(r"(?:^|\s)make ([a-z0-9-]+)", line.partition("#")[0])}
    assert used
    assert used <= verbs


def test_the_objects_are_what_a_cluster_takes() -> None:
    objects = [one for block in blocks("yaml") for one in yaml.safe_load_all(block)]
    specs = {one["kind"]: one["spec"] for one in objects}
    assert PoolSpec.model_validate(specs["SandboxPool"]).max_warm
    assert DeclaredQuota.model_validate(specs["SandboxQuota"]).owner == "team-a"
    assert {one["apiVersion"] for one in objects} == {"rollbox.dev/v1alpha1"}


def test_the_files_that_are_named_are_there() -> None:
    for name, text in TEXTS.items():
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (ROOT / name).parent.joinpath(link).exists(), f"{name}: {link}"
    guide = (ROOT / "docs/guide/index.md").read_text()
    named = set(re.findall(r"`(\w+\.py)`", guide))
    assert named == {one.name for one in (ROOT / "sdk" / "examples").glob("*.py")}
    for example in re.findall(r"`(\w+\.py)`", TEXTS["README.md"]):
        assert (ROOT / "sdk" / "examples" / example).exists(), example
