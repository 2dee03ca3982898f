"""A scenario that breaks costs its own figures only."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.bench import record
from tests.bench.record import Record
from tests.bench.scenarios import measured, unknown


async def breaks() -> list[Record]:
    raise ValueError("the cluster is gone")


async def memory() -> list[Record]:
    return [Record("sidecar memory (VmRSS) idle", 3.0, "MiB", "")]


async def too_much() -> list[Record]:
    return [Record("sidecar memory (VmRSS) idle", 30.0, "MiB", "")]


def test_the_others_are_measured_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "BUILD", tmp_path)
    assert asyncio.run(measured("", {"names": breaks, "memory": memory}, (), {})) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["memory.json"]
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == "1 figures, targets not met: none; broken: names"
    assert "the cluster is gone" in told.err
    assert asyncio.run(measured("", {"names": breaks, "memory": memory}, ["memory"], {})) == 0
    assert asyncio.run(measured("", {"memory": too_much}, (), {})) == 1


def test_a_name_that_there_is_not_is_told_before_anything_runs() -> None:
    assert (
        unknown({"memory": 1, "names": 2}, ["names", "nmaes"]) == "there is no scenario nmaes; there are memory, names"
    )
    assert unknown({"memory": 1}, ["memory"]) == ""
