"""What an engine is told to mount, and which folders of the machine it may be."""

from pathlib import Path

import pytest

from controlplane.cluster import DatasetAt, ScratchAt
from controlplane.cluster.engine.mount_bodies import bodies, volume
from controlplane.cluster.engine.mounts import folder_trouble, in_the_way
from controlplane.errors import Problem
from controlplane.model.dataset import DatasetSpec

DATA = DatasetAt("/data", "mini", DatasetSpec(folder="/srv/mini"))
CACHE = ScratchAt("/cache", "0" * 32, 10_000)


def test_a_folder_is_bound_read_only_without_what_is_mounted_in_it() -> None:
    assert bodies([DATA, CACHE], "here") == [
        {
            "Type": "bind",
            "Source": "/srv/mini",
            "Target": "/data",
            "ReadOnly": True,
            "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
        },
        {
            "Type": "volume",
            "Source": f"rollbox-here-{'0' * 32}",
            "Target": "/cache",
            "VolumeOptions": {"NoCopy": True},
        },
    ]


def test_a_scratch_is_as_large_as_it_was_asked_for_in_whole_blocks() -> None:
    body = volume("here", CACHE, {"label": "x"})
    assert body["DriverOpts"] == {
        "type": "tmpfs",
        "device": "tmpfs",
        "o": "nr_blocks=3,nr_inodes=3,mode=1777,nosuid,nodev",
    }
    assert body["Labels"] == {"label": "x"}


def test_a_folder_is_one_and_has_no_mount_of_its_own(tmp_path: Path) -> None:
    table, folder = tmp_path / "mountinfo", tmp_path / "two words"
    (folder / "disk").mkdir(parents=True)
    (folder / "file").touch()
    line = "36 35 0:36 / {} rw - ext4 /dev/vda rw\n"
    table.write_text(line.format("/") + line.format(folder.parent) + line.format(str(folder).replace(" ", "\\040")))
    assert folder_trouble(folder, table) == ""
    table.write_text(line.format(str(folder / "disk").replace(" ", "\\040")))
    assert folder_trouble(folder, table).startswith(f"{folder / 'disk'} in it is a mount of its own")
    for other in ("nothing", "file"):
        assert folder_trouble(folder / other, table) == f"there is no folder {folder / other}"


@pytest.mark.parametrize(
    "said",
    ["mkdir /data/work: read-only file system", "mount /srv to rootfs: not a directory", "/etc/passwd: is a directory"],
)
def test_an_image_that_is_in_the_way_is_the_callers_matter(said: str) -> None:
    failure = Problem("internal", f"the engine refused it: {said}")
    typed = in_the_way(failure, [DATA])
    assert (typed.code, typed.details["option"]) == ("unsupported", "mounts")
    assert "/data" in typed.detail
    assert in_the_way(failure, []) is failure
    other = Problem("internal", "the engine refused it: no space left")
    assert in_the_way(other, [DATA]) is other
