"""Trouble of this machine in the middle of a transfer is an error of the SDK that says so, and masks the sample."""

import errno
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollbox import Files, Sandbox
from rollbox.client import Client
from rollbox.errors import InvalidArgument
from rollbox.files import pack
from rollbox.files.info import TransferReport
from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_bad_streams import shell
from tests.unit.sdk.test_cli import made

MIB = 2**20


class Breaking(io.BytesIO):
    """A file whose disk fails after the first piece."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(size)


class _Damaged(io.FileIO):
    """A local file, which cannot be read from its second MiB on where it begins with an a."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= MIB and os.pread(self.fileno(), 1, 0) == b"a":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(-1 if size is None else size) or b""


@pytest.fixture
async def sandbox(client: Client, fake: FakeGateway, tmp_path: Path) -> Sandbox:
    fake.files.root = tmp_path / "root"
    fake.files.root.mkdir()
    return await client.create("python")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        # A regular file, whose first page cannot be read.
        (lambda files: files.upload("/proc/self/mem", "/f"), "/proc/self/mem"),
        (lambda files: files.write("/f", Breaking(bytes(2 * MIB))), "the data"),
    ],
)
async def test_a_read_that_fails_in_an_upload_is_this_machines(
    sandbox: Sandbox, fake: FakeGateway, call: Callable[[Files], Any], name: str
) -> None:
    (fake.files.root / "f").write_bytes(b"old")
    with pytest.raises(InvalidArgument, match=f"^{name} cannot be read here: Input/output error") as caught:
        await call(sandbox.files)
    assert (caught.value.details, caught.value.mask_sample) == ({"reason": "local", "errno": "EIO"}, True)
    assert (fake.files.root / "f").read_bytes() == b"old"


async def test_a_read_that_fails_in_a_commands_input_is_this_machines(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match="^the data cannot be read here: Input/output error"):
        await sandbox.exec(["cat"], stdin=Breaking(bytes(2 * MIB)))


def test_a_file_that_fails_in_the_middle_takes_nothing_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 2 * MIB)
    monkeypatch.setattr("rollbox.files.pack.os.fdopen", lambda file, *_, **__: _Damaged(file))
    report = TransferReport()
    archive = b"".join(pack.packed(os.fsencode(tmp_path), report))
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        contents = {one.name: found.extractfile(one).read() for one in found}  # type: ignore[union-attr]
    assert contents == {"a": b"a" * MIB + bytes(MIB), "b": b"b" * 2 * MIB}
    assert report.skipped == {"a": f"it cannot be read here: Input/output error: its last {MIB} bytes are zeros"}


@pytest.mark.parametrize("options", ["", "-r"])
def test_a_download_that_finds_no_room_is_told(apart: FakeGateway, tmp_path: Path, options: str) -> None:
    made(apart)
    apart.files.root, here = tmp_path / "root", tmp_path / "here"
    here.mkdir()
    (apart.files.root / "t").mkdir(parents=True)
    (apart.files.root / "t" / "large").write_bytes(bytes(2 * MIB))
    source = "sb-1:/t" if options else "sb-1:/t/large"
    ran = shell(f"cp {options} {source} {here}/got", "", before="ulimit -f 1;")
    assert ran.returncode == 2
    assert "cannot be written here: File too large" in ran.stderr
    assert "code: invalid_argument (caller)" in ran.stderr
    assert not [one for one in here.rglob("*") if one.is_file()]
