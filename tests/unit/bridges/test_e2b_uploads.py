"""Archives that E2B's clients upload for templates: what is taken, and what is refused before it costs much."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pytest

from rollbox_bridges.e2b import uploads


def archive(name: str = "a/file", content: bytes = b"x", form: int = tarfile.PAX_FORMAT, **more: object) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as into:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        for key, value in more.items():
            setattr(entry, key, value)
        into.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def unpacked(data: bytes, folder: Path) -> Path:
    (folder / "archive").write_bytes(data)
    uploads._unpacked(folder / "archive", folder / "into")
    return folder / "into"


@pytest.mark.parametrize("packed", [gzip.compress, bytes])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_what_clients_upload_is_unpacked(tmp_path: Path, packed: type[bytes], form: int) -> None:
    assert (unpacked(packed(archive(form=form)), tmp_path) / "a/file").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (gzip.compress(archive("x/" * 40_000)), "has a head of"),
        (gzip.compress(archive(pax_headers={"comment": "y" * 100_000})), "has a head of"),
        (lzma.compress(archive()), "tar archive"),
        (gzip.compress(b"x" * 2000), "is no tar archive"),
        (gzip.compress(archive()[:700]), "whole|end of data"),
        (archive("../out"), "outside"),
    ],
)
def test_what_would_cost_memory_or_reach_out_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(tarfile.TarError, match=why):
        unpacked(data, tmp_path)


def test_what_is_too_much_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_MOST_ARCHIVE_BYTES", 100_000)
    with pytest.raises(tarfile.TarError, match="has over 100000 bytes"):
        unpacked(gzip.compress(archive(content=bytes(1_000_000))), tmp_path)
    assert not list((tmp_path / "into").iterdir())
