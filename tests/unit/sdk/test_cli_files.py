"""Files on the command line: paths on both sides, messages, and output for terminals only."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

import rollbox as sdk
from tests.support.gateway_fake import API_KEY, FakeGateway
from tests.unit.sdk.test_cli import made, rollbox


@pytest.fixture
def root(apart: FakeGateway, tmp_path: Path) -> Path:
    made(apart)
    apart.files.root = tmp_path / "root"
    (apart.files.root / "d").mkdir(parents=True)
    (apart.files.root / "d" / "f").write_bytes(b"data")
    return apart.files.root


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "b"], "ID:/path"),
        (["sb-1:/a", "-"], "rollbox exec ID -- cat PATH"),
        (["-", "sb-1:/a"], "`./-` is one"),
        (["sb-1:/a", "sb-1:/b"], "by way of this machine"),
        (["sb-1:/d", "x"], "Add -r"),
        (["sb-1:", "x"], "no path"),
        (["/none/at/all", "sb-1:/x"], "cannot be read"),
        (["sb-1:/d/f", "/none/at/all"], "Make it first"),
        (["sb-1:/none", "x"], "does not exist"),
    ],
)
def test_what_cannot_be_copied_says_what_to_do(root: Path, arguments: list[str], said: str) -> None:
    result = rollbox("cp", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_ls_is_sorted_like_a_tree(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "a.txt", "a/z", "a/b", "B"):
        (root / "d" / name).parent.mkdir(exist_ok=True)
        (root / "d" / name).touch()
    # A kernel lists in any order.
    monkeypatch.setattr("tests.support.fake_files.sorted", lambda found: list(reversed(found)), raising=False)
    told = rollbox("ls", "sb-1:/d", "-R").stdout.split()
    assert told == ["/d/B", "/d/a", "/d/a/b", "/d/a/z", "/d/a.txt", "/d/b", "/d/f"]


def test_ls_lists(root: Path) -> None:
    assert rollbox("ls", "sb-1:/d").stdout == "/d/f\n"
    assert rollbox("ls", "sb-1:/d/f", "-l").stdout.startswith("-rw-")
    (root / "d" / "g\x1b[2J").touch()
    listed = rollbox("ls", "sb-1:/", "-R", "--limit", "1")
    assert listed.stdout == "/d\n"
    assert "more than 1" in listed.stderr
    assert "\x1b" not in rollbox("ls", "sb-1:/d").stdout
    assert len(json.loads(rollbox("ls", "sb-1:/d", "--json").stdout)["entries"]) == 2
    assert rollbox("ls", "/d").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stat", "/d"], "ID:PATH"),
        (["rm", "sb-1:"], "no path"),
        (["mkdir", "sb-1:/x", "-m", "rwx"], "octal"),
        (["mv", "sb-1:/d", "sb-2:/d"], "same sandbox"),
        (["mv", "sb-1:/d", "/e"], "ID:PATH"),
        (["watch", "/d"], "ID:PATH"),
        (["stat", "sb-1:/none"], "does not exist"),
    ],
)
def test_what_cannot_be_done_says_why(root: Path, arguments: list[str], said: str) -> None:
    result = rollbox(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def environment(apart: FakeGateway) -> dict[str, str]:
    source = str(Path(sdk.__file__).parents[1])
    told = {"ROLLBOX_URL": apart.url, "ROLLBOX_API_KEY": API_KEY, "TERM": "xterm", "PYTHONPATH": source}
    return {**os.environ, **told}


@pytest.mark.parametrize("form", ["text", "json"])
async def test_changes_are_printed_as_they_come(apart: FakeGateway, root: Path, form: str) -> None:
    command = [sys.executable, "-m", "rollbox", "watch", "-R", "sb-1:/d", *(["--json"] if form == "json" else [])]
    for change in ({"change": "created", "path": "/d/a"}, {"change": "moved", "path": "/d/b", "from": "/d/a"}):
        apart.files.changes.put_nowait(change)
    lines: list[str] = []
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment(apart))
    assert process.stdout is not None
    while len(lines) < (3 if form == "json" else 2):
        lines.append((await process.stdout.readline()).decode().rstrip())
    process.terminate()
    await process.communicate()
    assert process.returncode == 143
    if form == "json":
        assert [json.loads(line)["change"] for line in lines] == ["watching", "created", "moved"]
    else:
        assert lines == ["created /d/a", "moved /d/a -> /d/b"]
