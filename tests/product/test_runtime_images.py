"""The runtime images: small, of few layers, with what they are for, for root and for every other user."""

from __future__ import annotations

import gzip
import json
import tarfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rollbox import Client
from tests.support.commits import ON_CLUSTER
from tests.support.images import runtime_image

# Counted in the sandbox, decompressed: whatever has built it.
MIB = "du -sxm / 2>/dev/null | cut -f1"
# Programs with capabilities of their own: one that a sandbox does not have keeps the program from starting.
CAPABLE = """
import os
for folder in ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"):
    for one in os.scandir(folder):
        if one.is_file(follow_symlinks=False) and "security.capability" in os.listxattr(one.path):
            print(one.path)
"""
# A user that no image has a name for; the home directory is the one that every user may write to.
NOBODY = "65534"


@dataclass(frozen=True)
class Runtime:
    """A runtime image.

    Attributes:
        most_mib: it may have decompressed. More is a decision: nodes fetch it, and budgets hold it.
        programs: commands that succeed in it.
    """

    name: str
    most_mib: int
    programs: tuple[str, ...]


PYTHON = Runtime("python", 240, ("python3 -c 'import json, sqlite3, ssl, venv'",))
SWE = Runtime(
    "swe",
    680,
    (
        "python3 -m pytest --version",
        "python3 -m venv --without-pip $HOME/venv",
        "git init -q $HOME/repo && cd $HOME/repo && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a",
        "printf 'int main(void) { return 0; }' | cc -x c -o $HOME/a - && $HOME/a",
        "make --version",
        "rg --version && jq --version && patch --version && curl --version",
    ),
)


@pytest.mark.parametrize("runtime", [PYTHON, SWE], ids=lambda one: one.name)
async def test_a_runtime_image_is_small_and_works_for_every_user(client: Client, runtime: Runtime) -> None:
    async with await client.create(runtime_image(runtime.name), memory="512Mi") as sandbox:
        size = int((await sandbox.exec(MIB)).stdout)
        print(runtime.name, size, "MiB")
        assert size <= runtime.most_mib
        assert (await sandbox.exec(["python3", "-c", CAPABLE], check=True)).stdout == ""
        for user in ("0", NOBODY):
            who = await sandbox.exec("id -u; head -1 /etc/passwd", user=user, check=True)
            assert who.stdout.splitlines() == [user, "root:x:0:0:root:/root:/bin/bash"]
            for number, command in enumerate(runtime.programs):
                home = f"/tmp/home-{user}-{number}"
                ran = await sandbox.exec(
                    ["/bin/sh", "-ec", f"export HOME={home}; mkdir -p $HOME; {command}"], user=user, timeout=120
                )
                assert ran.ok, (command, user, ran.stderr)


# Of each, in this order; of names that have versions the beginnings.
FIRST = ("usr/bin/dash", "usr/bin/bash", "usr/bin/python3", "usr/lib/python3")


def before_landmark(name: str) -> Iterator[str]:
    """The files that come before the landmark of each layer of an image of the tests' registry, lowest layer first."""
    registry, _, rest = name.partition("/")
    repository, _, tag = rest.rpartition(":")

    def asked(path: str) -> urllib.request.Request:
        kinds = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
        return urllib.request.Request(f"http://{registry}/v2/{repository}/{path}", headers={"Accept": kinds})

    with urllib.request.urlopen(asked(f"manifests/{tag}"), timeout=60) as manifest:
        layers = [one["digest"] for one in json.load(manifest)["layers"]]
    for digest in layers:
        found = []
        with (
            urllib.request.urlopen(asked(f"blobs/{digest}"), timeout=60) as blob,
            gzip.GzipFile(fileobj=blob) as content,
            tarfile.open(fileobj=content, mode="r|") as entries,
        ):
            for entry in entries:
                if entry.name.endswith(".landmark"):
                    break
                found += [entry.name.removeprefix("./")] if entry.isfile() else []
        if entry.name == ".prefetch.landmark":
            yield from found


@pytest.mark.skipif(not ON_CLUSTER, reason="an engine has whole images: nothing comes first")
def test_the_files_of_a_usual_start_come_first() -> None:
    found = list(before_landmark(runtime_image(PYTHON.name)))
    print(len(found), "files:", *found[:12])
    places = [next(at for at, name in enumerate(found) if name.startswith(one)) for one in FIRST]
    assert places == sorted(places)
    assert any("/json/__init__" in name for name in found)
    # All else is fetched when it is read.
    assert not any(name.startswith(("usr/lib/gcc", "usr/share/doc", "usr/bin/apt")) for name in found)
    assert len(found) < 1_000
