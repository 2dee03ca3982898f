"""The layer of an image as ``contract/vectors/layer.json`` has it, which node-go is held to as well."""

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from controlplane.cluster.engine.commit import layer

VECTORS: Final = Path(__file__).parents[4] / "contract" / "vectors" / "layer.json"
CASES: Final[list[dict[str, Any]]] = json.loads(VECTORS.read_text())["cases"]
KINDS: Final = {
    tarfile.REGTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
    tarfile.FIFOTYPE: "pipe",
}
XATTR: Final = "SCHILY.xattr."


def make(upper: Path, one: dict[str, Any]) -> None:
    """Makes one file of the sandbox."""
    path, kind = upper / one["path"][1:], one["kind"]
    makers = {
        "file": lambda: path.write_text(one.get("content", "")),
        "folder": path.mkdir,
        "symlink": lambda: path.symlink_to(one["target"]),
        "hardlink": lambda: os.link(upper / one["target"][1:], path),
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: os.mknod(path, 0o020000, os.makedev(1, 3)),
        "whiteout": lambda: os.mknod(path, 0o020000, os.makedev(0, 0)),
    }
    makers[kind]()
    if "size" in one:
        os.truncate(path, one["size"])
    if "mode" in one:
        os.chown(path, one.get("uid", 0), one.get("gid", 0))
        path.chmod(int(one["mode"], 8))
    for name, value in one.get("attributes", {}).items():
        os.setxattr(path, name, value.encode())
    if one.get("opaque"):
        os.setxattr(path, "trusted.overlay.opaque", b"y")


def told(entry: tarfile.TarInfo, archive: tarfile.TarFile) -> dict[str, Any]:
    """An entry of the layer, as the table has it."""
    seen: dict[str, Any] = {"name": entry.name, "kind": KINDS[entry.type]}
    if entry.issym() or entry.islnk():
        return {**seen, "target": entry.linkname}
    seen["mode"] = f"{entry.mode:o}"
    if (content := archive.extractfile(entry)) is not None:
        seen["content"] = content.read().decode()
    owner = {name: number for name, number in (("uid", entry.uid), ("gid", entry.gid)) if number}
    attributes = {
        name.removeprefix(XATTR): value for name, value in entry.pax_headers.items() if name.startswith(XATTR)
    }
    return {**seen, **owner, **({"attributes": attributes} if attributes else {})}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make these files")
@pytest.mark.parametrize("case", CASES, ids=[one["name"] for one in CASES])
def test_the_table(case: dict[str, Any], tmp_path: Path) -> None:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    for folder in (upper, lower):
        folder.mkdir()
    for name in case.get("below", ()):
        (lower / name[1:]).mkdir()
    try:
        for one in case["files"]:
            make(upper, one)
    except OSError:
        pytest.skip("the file system of the tests has no such attributes or files")
    with (tmp_path / "layer.tar").open("w+b") as file:
        request = {
            "uppers": [str(upper)],
            "lowers": [str(lower)],
            "mounts": case.get("mounts", ()),
            "file": file.fileno(),
        }
        answer = layer.written({**request, "max_bytes": case.get("max_bytes", 1 << 20)})
        file.seek(0)
        if "refused" in case:
            assert answer["reason"] == "too_large"
            assert case["refused"] in answer["detail"]
            return
        with tarfile.open(fileobj=io.BytesIO(file.read())) as archive:
            found = sorted((told(one, archive) for one in archive), key=lambda one: one["name"])
    assert found == sorted(case["layer"], key=lambda one: one["name"])
    assert sorted(answer["skipped"]) == case["skipped"]
