"""What the pages show does what they say, on the engine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import re
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import rollbox
from rollbox import Client, Sandbox
from rollbox.errors import Conflict
from tests.docs.blocks import ROOT, Block, blocks, pages, rules, why_not
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until

RULES = rules()
RUN = {page: [one for one in blocks(page) if not why_not(one, RULES)] for page in pages()}
FRAGMENTS = [page for page, found in RUN.items() if any(one.kind == "fragment" for one in found)]
PROGRAMS = [one for found in RUN.values() for one in found if one.kind == "program"]
SHELLS = [page for page, found in RUN.items() if any(one.kind == "shell" for one in found)]
# A comment behind a print is what it prints.
SAID = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
GIVEN = ("image", "sandbox", "client", "here", "log")


@pytest.fixture
def at_home(stack: Product, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a reader who has started rollbox."""
    for name in ("ROLLBOX_URL", "ROLLBOX_API_KEY", "ROLLBOX_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    bin_folder = str(Path(sys.executable).parent)
    path = f"{ROOT}:{Path(rollbox.__file__).parents[1]}"
    return {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": path}


@pytest.fixture(autouse=True)
async def no_image_stays(stack: Product) -> AsyncIterator[None]:
    """What a page builds and commits is the reader's, so nothing but a reader removes it."""
    yield

    async def gone(client: Client) -> bool:
        # What is built on another one is younger.
        for one in reversed((await client.commits()).images):
            with contextlib.suppress(Conflict):  # a sandbox of it is still ending
                await client.remove_image(one.image)
        return not (await client.commits()).images

    async with Client(stack.url, stack.api_key) as client:
        await until(lambda: gone(client))


async def play(block: Block, given: dict[str, Any]) -> None:
    """Run a fragment, and compare what it prints with its comments."""
    source = f"async def fragment({', '.join(GIVEN)}):\n{textwrap.indent(block.text, '    ')}"
    names: dict[str, Any] = {name: getattr(rollbox, name) for name in rollbox.__all__}
    names |= {"asyncio": asyncio, "Path": Path}
    exec(compile(source, f"{block.page}:{block.line}", "exec"), names)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        await names["fragment"](**given)
    lines = iter(said.getvalue().splitlines())
    for wanted in SAID.findall(block.text):
        assert wanted in lines, f"{block.page}:{block.line} does not print {wanted!r}: {said.getvalue()}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", FRAGMENTS)
async def test_fragments_do_what_their_comments_say(at_home: dict[str, str], tmp_path: Path, page: str) -> None:
    async with Client() as client, await client.create(IMAGE, memory="512Mi", ttl=900) as sandbox:
        for number, block in enumerate(one for one in RUN[page] if one.kind == "fragment"):
            here = tmp_path / str(number)
            here.mkdir()
            log = logging.getLogger("docs")
            await play(block, {"image": IMAGE, "sandbox": sandbox, "client": client, "here": here, "log": log})
        assert isinstance(sandbox, Sandbox)
    await rollbox.aclose()


async def told(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """Run a program; returns what it said, and fails with that where it fails."""
    pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    child = await asyncio.create_subprocess_exec(*command, env=environment, cwd=folder, stdout=pipe, stderr=both)
    out, _ = await child.communicate()
    assert child.returncode == 0, out.decode()
    return out.decode()


def output_of(block: Block) -> list[str]:
    """The lines of the output that the page shows directly behind a block."""
    found = blocks(block.page)
    after = found[found.index(block) + 1 :]
    return after[0].text.splitlines() if after and after[0].kind == "output" else []


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: f"{block.page}:{block.line}")
async def test_programs_run(at_home: dict[str, str], tmp_path: Path, block: Block) -> None:
    said = (await told([sys.executable, "-c", block.text], at_home, tmp_path)).splitlines()
    assert [line for line in output_of(block) if line not in said] == []


# One shell for all of a page, as a reader has one.
@pytest.mark.parametrize("page", SHELLS)
async def test_command_lines_run(at_home: dict[str, str], page: str) -> None:
    shells = [one for one in RUN[page] if one.kind == "shell"]
    script = "\n".join(["set -euo pipefail", *(one.text for one in shells)])
    said = (await told(["bash", "-c", script], at_home, ROOT)).splitlines()
    wanted = [line for one in shells for line in output_of(one)]
    assert [line for line in wanted if line not in said] == []
