"""`rollbox cp` and `ls`: paths on either side, what is said, and what is only said to a terminal."""

import json
from pathlib import Path

import pytest

from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_cli import made, rollbox


@pytest.fixture
def root(apart: FakeGateway, tmp_path: Path) -> Path:
    made(apart)
    apart.files.root = tmp_path / "root"
    (apart.files.root / "d").mkdir(parents=True)
    (apart.files.root / "d" / "f").write_bytes(b"data")
    return apart.files.root


def test_a_file_goes_both_ways(root: Path, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"up")
    up = rollbox("cp", str(tmp_path / "local"), "sb-1:/new")
    assert (up.exit_code, up.stdout, up.stderr) == (0, "", "")
    assert (root / "new").read_bytes() == b"up"
    assert rollbox("cp", str(tmp_path / "local"), "sb-1:/d").exit_code == 0
    assert (root / "d" / "local").read_bytes() == b"up"
    assert rollbox("cp", "sb-1:/d/f", str(tmp_path)).exit_code == 0
    assert (tmp_path / "f").read_bytes() == b"data"


def test_a_directory_goes_both_ways(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tree" / "empty").mkdir(parents=True)
    (tmp_path / "tree" / "f").write_bytes(b"up")
    assert rollbox("cp", "-r", str(tmp_path / "tree"), "sb-1:/made").exit_code == 0
    assert (root / "made" / "empty").is_dir()
    told = rollbox("cp", "-r", "sb-1:/made", str(tmp_path / "down"), "--json")
    report = json.loads(told.stdout)
    assert (report["size_bytes"], report["skipped"]) == (2, {})
    assert (tmp_path / "down" / "f").read_bytes() == b"up"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "b"], "ID:/path"),
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
