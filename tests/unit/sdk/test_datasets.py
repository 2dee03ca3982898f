"""What a program says about mounts, and what it is told of data sets."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from rollbox import Dataset, DatasetRecord, Scratch
from rollbox.cli.options import mounts_of
from rollbox.dataset import Mounts, dataset_body, mounts_body
from rollbox.errors import InvalidArgument
from rollbox.options import CreateSpec


def test_mounts_are_written_by_path() -> None:
    mounts: Mounts = {
        "/data": Dataset("imagenet"),
        PurePosixPath("/cache"): Scratch("g", size="16Mi"),
        Path("/b"): Scratch("g"),
    }
    body = {
        "/data": {"dataset": "imagenet"},
        "/cache": {"scratch": "g", "size_bytes": 16 << 20},
        "/b": {"scratch": "g"},
    }
    assert mounts_body(mounts) == body
    assert CreateSpec.of("i", {"mounts": {"/data": Dataset("d")}}).to_json()["mounts"] == {"/data": {"dataset": "d"}}
    assert "mounts" not in CreateSpec.of("i", {"mounts": {}}).to_json()


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        (["/data"], "not a mapping"),
        ({"data": Dataset("d")}, "'data' is not an absolute path"),
        ({"": Dataset("d")}, "not an absolute path"),
        ({1: Dataset("d")}, "a path in mounts"),
        ({"/data": "d"}, "neither a Dataset nor a Scratch"),
        ({"/data": None}, "neither a Dataset nor a Scratch"),
        ({"/data": Dataset("d"), Path("/data"): Dataset("e")}, "/data is given twice"),
    ],
)
def test_what_is_no_mount_is_refused_before_anything_is_sent(mounts: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        CreateSpec.of("i", {"mounts": mounts})


@pytest.mark.parametrize(("kind", "values"), [(Dataset, [""]), (Dataset, [1]), (Scratch, [""]), (Scratch, ["s", "x"])])
def test_a_name_is_a_text_and_a_size_a_size(kind: Any, values: list[Any]) -> None:
    with pytest.raises(InvalidArgument):
        kind(*values)


def test_mounts_are_read_as_they_are_typed() -> None:
    typed = ["/data=dataset:imagenet-mini", "/cache=scratch:group", "/big=scratch:group-2:4Gi"]
    assert mounts_of(typed) == {
        "/data": Dataset("imagenet-mini"),
        "/cache": Scratch("group"),
        "/big": Scratch("group-2", "4Gi"),
    }


@pytest.mark.parametrize(
    "typed",
    ["/data", "/data=imagenet", "/data=dataset:", "/data=dataset:a:1Gi", "/data=scratch:a:", "/data=folder:/srv"],
)
def test_what_is_typed_otherwise_is_refused_with_the_form(typed: str) -> None:
    with pytest.raises(InvalidArgument, match=r"PATH=dataset:NAME or PATH=scratch:NAME\[:SIZE\]"):
        mounts_of([typed])


def test_a_path_is_typed_once() -> None:
    with pytest.raises(InvalidArgument, match="--mount /data is given twice"):
        mounts_of(["/data=dataset:a", "/data=scratch:b"])


def test_a_declaration_has_one_source() -> None:
    assert dataset_body("c", None, None, ()) == {"claim": "c"}
    assert dataset_body(None, None, "/srv", ["alice"]) == {"folder": "/srv", "owners": ["alice"]}
    for wrong in ((None, None, None, ()), ("c", "i", None, ()), ("c", None, None, "alice")):
        with pytest.raises(InvalidArgument):
            dataset_body(*wrong)


def test_a_record_is_read_and_written() -> None:
    body = {"name": "d", "source": "claim c", "owners": ["alice"], "trouble": "", "later": 1}
    record = DatasetRecord.from_json(body)
    assert record == DatasetRecord("d", "claim c", ("alice",))
    assert record.to_json() == {name: value for name, value in body.items() if name != "later"}
