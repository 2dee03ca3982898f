"""One tiny package for each index: the files of a host, by path. A path of a folder is that of its `index.html`."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping

from tests.support.tools.hosts import CRATES, CRATES_INDEX, FORGE, GO, MAVEN, NPM, PYPI, PYPI_FILES

Files = Mapping[str, bytes]
HELLO = "hello from outside\n"
_MODULE = "example.test/tiny"


def files() -> dict[str, Files]:
    """Of each host but Debian's, whose package its own program makes."""
    plain = {"hello": HELLO.encode()}
    return {**_python(), NPM: _npm(), **_rust(), GO: _go(), MAVEN: _maven(), FORGE: plain}


def debian(package: bytes, about: str) -> Files:
    """Of Debian's host.

    Args:
        package: as `dpkg-deb` makes it.
        about: its control file.
    """
    listed = f"{about}Filename: ./tiny.deb\nSize: {len(package)}\nSHA256: {_sha256(package)}\n".encode()
    sums = f" {_sha256(listed)} {len(listed)} Packages\n"
    release = f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n{sums}".encode()
    return {"debian/tiny.deb": package, "debian/Packages": listed, "debian/Release": release}


def _python() -> dict[str, Files]:
    about = "tiny-1.0.dist-info"
    kind = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    inside = {"tiny.py": "SIZE = 'small'\n", f"{about}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"}
    inside |= {f"{about}/WHEEL": kind, f"{about}/RECORD": f"tiny.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n"}
    wheel, name = _zip(inside), "tiny-1.0-py3-none-any.whl"
    page = f'<a href="https://{PYPI_FILES}/{name}#sha256={_sha256(wheel)}">{name}</a>'
    return {PYPI: {"simple/tiny/index.html": page.encode()}, PYPI_FILES: {name: wheel, "hello": HELLO.encode()}}


def _npm() -> Files:
    about = {"name": "tiny", "version": "1.0.0"}
    packed = tarball({"package/package.json": json.dumps(about), "package/index.js": "module.exports = 'small'\n"})
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(packed).digest()).decode()}"
    version = {**about, "dist": {"tarball": f"https://{NPM}/tiny/-/tiny-1.0.0.tgz", "integrity": integrity}}
    document = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    return {"tiny/index.html": json.dumps(document).encode(), "tiny/-/tiny-1.0.0.tgz": packed}


def _rust() -> dict[str, Files]:
    manifest = '[package]\nname = "tiny"\nversion = "1.0.0"\n'
    crate = tarball({"tiny-1.0.0/Cargo.toml": manifest, "tiny-1.0.0/src/lib.rs": ""})
    entry = {"name": "tiny", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False, "cksum": _sha256(crate)}
    config = {"dl": f"https://{CRATES}/crates"}
    index = {"config.json": json.dumps(config).encode(), "ti/ny/tiny": f"{json.dumps(entry)}\n".encode()}
    return {CRATES_INDEX: index, CRATES: {"crates/tiny/1.0.0/download": crate}}


def _go() -> Files:
    manifest, versions = f"module {_MODULE}\n", f"{_MODULE}/@v/v1.0.0"
    inside = {f"{_MODULE}@v1.0.0/go.mod": manifest, f"{_MODULE}@v1.0.0/a.go": "package a\n"}
    about = b'{"Version": "v1.0.0", "Time": "2020-01-01T00:00:00Z"}'
    return {f"{versions}.info": about, f"{versions}.mod": manifest.encode(), f"{versions}.zip": _zip(inside)}


def _maven() -> Files:
    """A parent, which a project has to read, an extension, of which it has to have the archive, and what Maven adds."""
    named = ("test.tiny", "parent", "1", "pom"), ("test.tiny", "extension", "1", "jar")
    found: dict[str, bytes] = {}
    for group, name, version, kind in (*named, ("org.codehaus.plexus", "plexus-utils", "1.1", "jar")):
        about = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        pom = f"<project><modelVersion>4.0.0</modelVersion>{about}<packaging>{kind}</packaging></project>"
        path = f"maven2/{group.replace('.', '/')}/{name}/{version}/{name}-{version}"
        found[f"{path}.pom"] = pom.encode()
        if kind == "jar":
            found[f"{path}.jar"] = _zip({"META-INF/MANIFEST.MF": "Manifest-Version: 1.0\n"})
    return found | {f"{path}.sha1": hashlib.sha1(content).hexdigest().encode() for path, content in found.items()}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tarball(inside: Mapping[str, str]) -> bytes:
    """An archive of files, by path."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, text in inside.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text.encode()), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue())


def _zip(inside: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in inside.items():
            archive.writestr(path, text)
    return packed.getvalue()
