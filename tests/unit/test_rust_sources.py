"""Rust is built in one place for all checkouts: it holds what the checkout holds, and only what differs is written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

SETUP = Path(__file__).parent.parent.parent / "setup" / "sources.sh"
LIBRARY = "gateway-rs/crates/wire/src/lib.rs"
PROGRAM = "sidecar/src/target/main.rs"
FILES = {"gateway-rs/Cargo.toml": "workspace", LIBRARY: "library", PROGRAM: "program", "contract/errors.toml": "table"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where all checkouts are built."""
    return tmp_path / "cache"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return _checkout(tmp_path / "one")


def _checkout(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _command(place: Path, after: str) -> tuple[list[str], dict[str, str]]:
    script = f"set -euo pipefail; source '{SETUP}'; {after}"
    return ["bash", "-c", script], {**os.environ, "CARGO_TARGET_DIR": str(place)}


def _bring(checkout: Path, place: Path) -> dict[str, str]:
    """The files of the place after the checkout was brought there."""
    command, environ = _command(place, "true")
    subprocess.run(command, cwd=checkout, env=environ, check=True, timeout=60)
    sources = place / "sources"
    return {str(path.relative_to(sources)): path.read_text() for path in sources.rglob("*") if path.is_file()}


def _written(place: Path) -> dict[str, int]:
    return {name: (place / "sources" / name).stat().st_mtime_ns for name in FILES}


def test_another_checkout_of_the_same_sources_writes_nothing(checkout: Path, place: Path, tmp_path: Path) -> None:
    assert _bring(checkout, place) == FILES
    before = _written(place)
    assert _bring(_checkout(tmp_path / "two"), place) == FILES
    assert _written(place) == before


def test_only_what_differs_is_written_and_then_with_the_time_of_now(checkout: Path, place: Path) -> None:
    _bring(checkout, place)
    before, began = _written(place), time.time_ns()
    (checkout / LIBRARY).write_text("other")
    os.utime(checkout / LIBRARY, (0, 0))
    assert _bring(checkout, place) == {**FILES, LIBRARY: "other"}
    after = _written(place)
    assert [name for name in FILES if after[name] != before[name]] == [LIBRARY]
    # The clock of a file system is that of the kernel's last tick.
    assert after[LIBRARY] > began - 50_000_000


def test_what_was_removed_or_became_a_folder_is_gone_from_the_place(checkout: Path, place: Path) -> None:
    _bring(checkout, place)
    (checkout / PROGRAM).unlink()
    (checkout / PROGRAM).parent.rmdir()
    (checkout / PROGRAM).parent.write_text("a file where a folder was")
    (checkout / LIBRARY).unlink()
    (checkout / LIBRARY).mkdir()
    (checkout / LIBRARY / "part.rs").write_text("a folder where a file was")
    assert _bring(checkout, place) == {
        "gateway-rs/Cargo.toml": "workspace",
        "contract/errors.toml": "table",
        "sidecar/src/target": "a file where a folder was",
        f"{LIBRARY}/part.rs": "a folder where a file was",
    }


def test_a_place_that_was_left_half_written_is_completed(checkout: Path, place: Path) -> None:
    _bring(checkout, place)
    (place / "sources" / LIBRARY).chmod(0o600)
    (place / "sources" / LIBRARY).write_text("lib")
    (place / "sources" / PROGRAM).unlink()
    (place / "sources" / "sidecar/half.rs").write_text("")
    assert _bring(checkout, place) == FILES


def test_results_of_builds_are_left_behind(checkout: Path, place: Path) -> None:
    for name in ("gateway-rs/target/debug/program", "gateway-rs/fuzz/target/release/program"):
        (checkout / name).parent.mkdir(parents=True)
        (checkout / name).write_text("")
    assert _bring(checkout, place) == FILES


def test_who_has_other_sources_waits_and_who_has_the_same_does_not(checkout: Path, place: Path, tmp_path: Path) -> None:
    same, other = _checkout(tmp_path / "two"), _checkout(tmp_path / "three")
    (other / LIBRARY).write_text("other")
    command, environ = _command(place, "echo held; read")
    with subprocess.Popen(
        command, cwd=checkout, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        assert _bring(same, place) == FILES
        command, environ = _command(place, "true")
        with subprocess.Popen(command, cwd=other, env=environ, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            assert "waiting" in waiting.stderr.readline()
            assert (place / "sources" / LIBRARY).read_text() == "library"
            holder.communicate("\n")
            assert waiting.wait(60) == 0
    assert (place / "sources" / LIBRARY).read_text() == "other"


def test_two_builds_of_one_checkout_that_waited_together_run_together(checkout: Path, place: Path) -> None:
    place.mkdir()
    command, environ = _command(place, "echo held; read")
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        with (place / "lock").open("w") as another:
            fcntl.flock(another, fcntl.LOCK_SH)
            given: dict[str, Any] = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True}
            begun = (subprocess.Popen(command, cwd=checkout, env=environ, **given) for _ in range(2))
            builds = [stack.enter_context(build) for build in begun]
            for build in builds:
                assert build.stderr is not None
                assert "waiting" in build.stderr.readline()
        for build in builds:
            assert build.stdout is not None
            assert build.stdout.readline() == "held\n"
        for build in builds:
            build.communicate("\n", timeout=60)
