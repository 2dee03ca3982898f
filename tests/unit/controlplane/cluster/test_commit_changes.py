"""Which mounts of a container hide what its sandbox has changed."""

import os
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.engine.commit.changes import changes_of

HELD = "a" * 64
DETACHED = "b" * 64


def seen(folder: Path, pid: int) -> dict[str, Any]:
    """A container as an engine tells it, with two volumes of its image."""
    mounts = [
        {"Type": "bind", "Destination": "/dev/rollbox/target", "Source": "/x"},
        {"Type": "volume", "Name": HELD, "Destination": "/dev/shm"},
        {"Type": "volume", "Name": DETACHED, "Destination": "/data"},
    ]
    data = {"UpperDir": str(folder), "LowerDir": "/l1:/l2"}
    return {"GraphDriver": {"Name": "overlay", "Data": data}, "Mounts": mounts, "State": {"Pid": pid}}


def test_a_volume_that_the_sidecar_has_detached_is_a_folder_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"36 35 0:36 / / rw - overlay none rw\n37 36 8:1 /volumes/{HELD}/_data /dev/shm rw - ext4 /dev/x rw\n"
    monkeypatch.setattr(Path, "read_text", lambda path, **_: table if path == Path("/proc/77/mountinfo") else "")
    changes = changes_of("sb-1", seen(tmp_path, 77))
    assert changes.mounts == ["/dev/rollbox/target", "/dev/shm"]
    assert changes.volumes == ["/dev/shm"]


def test_where_the_mounts_cannot_be_read_none_is_taken_for_detached(tmp_path: Path) -> None:
    gone = os.fork() or os._exit(0)
    os.waitpid(gone, 0)
    assert changes_of("sb-1", seen(tmp_path, gone)).volumes == ["/dev/shm", "/data"]
