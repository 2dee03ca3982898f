"""A data set for tests, where the product runs: its files, and what looks at them from outside."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.stack import Product, start, stop_process

# Its name, and that of one that is another owner's.
MINI, THEIRS = "mini", "theirs"
# A file of it, in the folder `train`.
CONTENT = b"one picture\n"


@dataclass
class Files:
    """The folder of the data set on this machine."""

    folder: Path

    def digest(self) -> str:
        """Of all names, modes and contents."""
        told = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            seen = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            told.update(f"{path} {seen.st_mode} {seen.st_uid} {seen.st_nlink} {seen.st_mtime_ns}\n".encode() + content)
        return told.hexdigest()


@contextmanager
def written() -> Iterator[Files]:
    """A data set with a file, a program that changes its user, and links that lead out of it."""
    folder = Path(tempfile.mkdtemp(prefix="ds-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        (folder / "train").mkdir()
        (folder / "train" / "one").write_bytes(CONTENT)
        (folder / "script").write_text("#!/bin/sh\necho ran\n")
        (folder / "script").chmod(0o755)
        (folder / "outward").symlink_to("/etc/hostname")
        (folder / "upward").symlink_to("../../../../../etc/hostname")
        yield Files(folder)
    finally:
        shutil.rmtree(folder)


def on_engine(files: Files) -> Iterator[Product]:
    """`rollbox up` that knows it by two names: one for everybody, and one for somebody else."""
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    given = (f"{MINI}={files.folder}", f"{THEIRS}={files.folder},owners=somebody-else")
    with asyncio.Runner() as runner:
        up = runner.run(start(folder, *(part for one in given for part in ("--dataset", one))))
        yield up
        assert runner.run(stop_process(up.process)) == 0, (folder / "up.log").read_text()[-2000:]
    shutil.rmtree(folder)
    assert not os.path.ismount(folder)
