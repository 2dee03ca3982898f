"""Large images for the benchmarks, made and pushed here: a Python, a repository with its tests, and data."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.progress import doing
from tests.cluster import images
from tests.cluster.layout import REGISTRY, SLOW_REGISTRY
from tests.cluster.toolchain import program
from tests.support.images import ON_CLUSTER

# A change of what is in the images takes another one.
VERSION = "1"
MIB = 1 << 20
MODULES, TESTS = 1500, 75
SUITE = ["sh", "-c", "cd /srv/repo && PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -q -s tests -t ."]
# All files of the image but those of the system: each once, as a test suite or a build would.
READ_ALL = [
    "python3",
    "-c",
    """
import os
for top in ("/srv", "/usr/lib"):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    while file.read(1 << 20): pass
""",
]


class LargeImage:
    """One image in both forms, as nodes name them.

    Attributes:
        plain, lazy: names with digests, at the slow registry.
        mebibytes: of its layers, compressed.
    """

    def __init__(self, plain: str, lazy: str, mebibytes: float) -> None:
        self.plain, self.lazy, self.mebibytes = plain, lazy, mebibytes


class _Layer(NamedTuple):
    diff_id: str
    compressed: bytes


def large_image(name: str, base: str, data_mib: Sequence[int], own_mib: int, folder: Path) -> LargeImage:
    """Make an image, unless the registry has it.

    Args:
        name: its own; a layer of `own_mib` MiB and the repository are of no other image.
        base: images of the same one have the layers of Python and of data in common.
        data_mib: of each of these layers, in MiB that no compression makes less.
        own_mib: see there.
        folder: keeps converted layers for images that have them too.
    """
    tag = hashlib.sha256(f"{VERSION} {ON_CLUSTER} {name} {base} {data_mib} {own_mib}".encode()).hexdigest()[:12]
    if (plain := _digest("plain", tag)) is None:
        doing(f"making the image {name}")
        _push(tag, [_python(base), *(_common(f"{base}-{n}", size) for n, size in enumerate(data_mib)),
                    _data(name, own_mib), _repository(name)])  # fmt: skip
        plain = _digest("plain", tag)
    if (lazy := _digest("estargz", tag)) is None:
        doing(f"converting the image {name}")
        _convert(tag, folder)
        lazy = _digest("estargz", tag)
    size = sum(layer["size"] for layer in _manifest("plain/bench", tag)["layers"]) / MIB
    return LargeImage(f"{SLOW_REGISTRY}/plain/bench@{plain}", f"{SLOW_REGISTRY}/estargz/bench@{lazy}", size)


def ordered_image(image: LargeImage, files: Sequence[str], folder: Path) -> str:
    """Convert an image once more, with these files first in their layers, unless the registry has that.

    Args:
        image: which one.
        files: in this order.
        folder: to work in.

    Returns:
        its name with digest, at the slow registry.
    """
    plain = image.plain.rpartition("@")[2]
    tag = hashlib.sha256("\n".join((plain, *files)).encode()).hexdigest()[:12]
    if (digest := _digest("estargz", tag)) is None:
        first = folder / "first.txt"
        first.write_text("".join(f"{one}\n" for one in files))
        _converted(f"{REGISTRY}/plain/bench@{plain}", tag, folder, "-first", str(first))
        digest = _digest("estargz", tag)
    return f"{SLOW_REGISTRY}/estargz/bench@{digest}"


def _convert(tag: str, folder: Path) -> None:
    _converted(f"{REGISTRY}/plain/bench:{tag}", tag, folder)


def _converted(source: str, tag: str, folder: Path, *options: str) -> None:
    convert = program("snapshotter", "rollbox-convert")
    words = (convert, "-insecure", "-folder", str(folder), *options, source, f"{REGISTRY}/estargz/bench:{tag}")
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _layer(content: bytes) -> _Layer:
    return _Layer(images.digest(content), gzip.compress(content, compresslevel=1, mtime=0))


@lru_cache(maxsize=1)
def _python(base: str) -> _Layer:
    """The runtime image's only layer, with a file that makes it another one."""
    repository, _, tag = ON_CLUSTER.removeprefix(f"{REGISTRY}/").rpartition(":")
    (layer,) = _manifest(repository, tag)["layers"]
    with urllib.request.urlopen(f"{images.BASE}/{repository}/blobs/{layer['digest']}", timeout=60) as answer:
        buffer = io.BytesIO(gzip.decompress(answer.read()))
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        _add(tar, "etc/bench", base.encode())
    return _layer(buffer.getvalue())


@lru_cache(maxsize=4)
def _common(name: str, mebibytes: int) -> _Layer:
    return _data(name, mebibytes)


def _data(name: str, mebibytes: int) -> _Layer:
    content = random.Random(name)
    return _layer(_tar({f"srv/data/{name}/{n}.bin": content.randbytes(MIB) for n in range(mebibytes)}))


def _repository(name: str) -> _Layer:
    """A package of many modules, and tests that import all of them."""
    rest = "\n".join(f"def helper_{n}(value):\n    '''{name}'''\n    return value * {n}" for n in range(40))
    files = {f"srv/repo/package/m{n}.py": f"VALUE = {n}\n{rest}\n" for n in range(MODULES)}
    files |= {"srv/repo/package/__init__.py": "", "srv/repo/tests/__init__.py": ""}
    each = MODULES // TESTS
    for test in range(TESTS):
        lines = [f"import package.m{n}" for n in range(test * each, (test + 1) * each)]
        lines += ["import unittest", "class Case(unittest.TestCase):", "    def test(self):"]
        lines += [f"        self.assertEqual(package.m{test * each}.VALUE, {test * each})", ""]
        files[f"srv/repo/tests/test_{test}.py"] = "\n".join(lines)
    return _layer(_tar({path: text.encode() for path, text in files.items()}))


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    folders = {str(parent) for path in files for parent in Path(path).parents} - {"."}
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, content in files.items():
            _add(tar, path, content)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))


def _push(tag: str, layers: Sequence[_Layer]) -> None:
    config: dict[str, Any] = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
    }
    images.push_image("plain/bench", tag, json.dumps(config).encode(), [layer.compressed for layer in layers])


def _manifest(repository: str, tag: str) -> Any:
    request = urllib.request.Request(f"{images.BASE}/{repository}/manifests/{tag}", headers={"Accept": images.MANIFEST})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def _digest(form: str, tag: str) -> str | None:
    url = f"{images.BASE}/{form}/bench/manifests/{tag}"
    try:
        request = urllib.request.Request(url, method="HEAD", headers={"Accept": images.MANIFEST})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.headers["Docker-Content-Digest"])
    except urllib.error.HTTPError:
        return None
