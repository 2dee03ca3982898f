"""The source distribution of a host, where that has the host's own tests, beside what is installed of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


def unpacked(distribution: str, version: str, pinned: str, place: Path) -> Path:
    """Return the folder of a source distribution, which is downloaded where it is not there.

    Args:
        distribution: as its registry has it.
        version: of it.
        pinned: a list of packages with hashes; a version that it has is downloaded as it has it.
        place: the folder in which that of the distribution is made.

    Raises:
        RuntimeError: no registry has it, or what it has is not what is pinned.
    """
    found = place / f"{distribution.replace('-', '_')}-{version}"
    if not found.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            _download(requirement(distribution, version, pinned), Path(folder))
            (file,) = Path(folder).glob("*.tar.gz")
            with tarfile.open(file) as archive:
                archive.extractall(place, filter="data")
    return found


def requirement(distribution: str, version: str, pinned: str) -> str:
    """The lines of a list that pin a package, with its hashes; of another version than the pinned, that alone."""
    line = f"{distribution}=={version}"
    listed = re.search(rf"^{re.escape(line)} \\\n(?: +--hash=\S+(?: \\)?\n)+", pinned, re.MULTILINE)
    return listed[0].rstrip(" \\\n") + "\n" if listed else f"{line}\n"


def _download(wanted: str, folder: Path) -> None:
    listed = folder / "wanted.txt"
    listed.write_text(wanted)
    words = ("-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder))
    told = subprocess.run(
        [sys.executable, *words, "--requirement", str(listed)], stderr=subprocess.PIPE, text=True, check=False
    )
    if told.returncode:
        raise RuntimeError(f"there is no source distribution of {wanted.split(maxsplit=1)[0]}:\n{told.stderr.strip()}")
