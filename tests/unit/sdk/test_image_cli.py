"""`rollbox image convert`, and the same without `await`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rollbox import sync
from rollbox.cli import app
from rollbox.errors import InvalidArgument, Unsupported
from tests.support.gateway_fake import FakeGateway


def rollbox(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_conversion_tells_its_progress_and_what_runs(apart: FakeGateway) -> None:
    told = rollbox("image", "convert", "a:1")
    assert (told.exit_code, told.stdout) == (0, "a:1  sha256:a  runs as sha256:b\n")
    assert "converting: 1 of 2 layers" in told.stderr
    lines = [json.loads(one) for one in rollbox("image", "convert", "a:1", "--json").stdout.splitlines()]
    assert [one["state"] for one in lines] == ["copying", "converting", "offered"]
    assert lines[-1]["ran"] == "sha256:b"
    assert apart.images.converted == ["a:1", "a:1"]


def test_the_files_of_a_list_come_first(apart: FakeGateway, tmp_path: Path) -> None:
    listed = tmp_path / "files"
    listed.write_text("/usr/bin/python3\n\n/etc/a file\n")
    assert rollbox("image", "convert", "a:1", "--first", str(listed)).exit_code == 0
    assert apart.images.first == [["/usr/bin/python3", "/etc/a file"]]
    listed.write_bytes(b"/\xff")
    for wrong in (listed, tmp_path / "none", tmp_path):
        told = rollbox("image", "convert", "a:1", "--first", str(wrong))
        assert told.exit_code == 2
        assert "--first" in told.stderr
    listed.write_text("\n")
    assert "names no file" in rollbox("image", "convert", "a:1", "--first", str(listed)).stderr
    assert len(apart.images.first) == 1


def test_an_image_that_is_not_converted_is_a_failure_with_its_reason(apart: FakeGateway) -> None:
    apart.images.missing.add("large:1")
    told = rollbox("image", "convert", "large:1")
    assert told.exit_code != 0
    assert "128 layers" in told.stderr
    assert told.stdout == ""


def test_without_await(apart: FakeGateway) -> None:
    apart.images.missing.add("large:1")
    with sync.Client() as client:
        assert client.convert("a:1").ran == "sha256:b"
        with pytest.raises(Unsupported, match="128 layers"):
            client.convert("large:1")
        client.convert("a:1", first=["/a"])
        assert apart.images.first == [None, None, ["/a"]]
        with pytest.raises(InvalidArgument, match="not a string"):
            client.convert("a:1", first="/a")


def test_a_command_is_recorded_and_how_it_ended_is_told(apart: FakeGateway) -> None:
    told = rollbox("image", "convert", "a:1", "--record", "pytest -q", "--record-timeout", "30")
    assert (told.exit_code, told.stdout) == (0, "a:1  sha256:a  runs as sha256:b\n")
    assert apart.images.recorded == [("pytest -q", 30_000)]
    assert "recording: the command runs" in told.stderr
    assert "the command failed: it exited with 1; what it opened comes first all the same" in told.stderr
    assert "7 files that the command opened come first, and more, which do not" in told.stderr
    lines = rollbox("image", "convert", "a:1", "--record", "true", "--json").stdout.splitlines()
    last = json.loads(lines[-1])
    assert (last["files"], last["more"], last["run_failed"]) == (7, True, "it exited with 1")
    assert apart.images.recorded[-1] == ("true", 600_000)


def test_a_list_and_a_command_exclude_each_other(apart: FakeGateway, tmp_path: Path) -> None:
    listed = tmp_path / "files"
    listed.write_text("/a\n")
    told = rollbox("image", "convert", "a:1", "--record", "true", "--first", str(listed))
    assert told.exit_code == 2
    assert "--record" in told.stderr
    with sync.Client() as client:
        with pytest.raises(InvalidArgument, match="exclude each other"):
            client.convert("a:1", first=["/a"], record="true")
        with pytest.raises(InvalidArgument, match="record_timeout"):
            client.convert("a:1", record="true", record_timeout=0)
    assert apart.images.converted == []
