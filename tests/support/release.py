"""One installation of the chart for several runs of tests: installing takes longer than most of them.

python -m tests.support.release up     # install, and note its keys
python -m tests.support.release down   # uninstall; exit 1 when anything of it is left
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict

from tests.cluster.layout import CONTAINERD_SOCKET, LAZY_IMAGES
from tests.cluster.layout import STATE as CLUSTER
from tests.support.images import NOT_PUSHED, ON_CLUSTER
from tests.support.installed import RELEASE, STATE, Installed, Release

# Where `up` notes what it installed, for this user only: by the name, since checkouts share one cluster.
NOTES = STATE / f"release-{RELEASE}.json"
# Nodes of other clusters may have no lazy pulling; the runtime class alone takes nothing from them.
LAZY = (
    "lazyPulling.enabled=true",
    *(f"lazyPulling.images[{number}]={one}" for number, one in enumerate(LAZY_IMAGES)),
)
# Fewer than by default: what waits for its turn is then a few sandboxes, and not many.
STARTS_PER_NODE = 4
# Where tests put data sets; the node of `make cluster` is this machine.
DATASETS = STATE / "datasets"
# Of scratch; tests make its volumes (`tests.support.datasets.scratch_volumes`).
SCRATCH_CLASS = "rollbox-test-scratch"
VALUES = (
    "gateway.portsDomain=ports.test",
    f"controlplane.startsPerNode={STARTS_PER_NODE}",
    f"datasets.folders[0]={DATASETS}",
    "datasets.imageVolumes=true",
    f"scratch.storageClass={SCRATCH_CLASS}",
    *LAZY,
)

# Of the node of `make cluster`; where others have containerd is not known.
AGENTS = (
    "nodeAgent.enabled=true",
    f"nodeAgent.containerd.socket={CONTAINERD_SOCKET}",
    f"nodeAgent.containerd.root={CLUSTER / 'containerd'}",
    "nodeAgent.resources.requests.cpu=5m",
)


def noted() -> Release | None:
    """What `up` installed, or None when there is nothing."""
    return Release(**json.loads(NOTES.read_text())) if NOTES.is_file() else None


async def seen_by(owner: str) -> Installed:
    """What `up` installed, with this owner's key.

    Raises:
        RuntimeError: it has installed nothing, or this checkout does not know what was pushed.
    """
    release = noted()
    if release is None:
        raise RuntimeError("there is no release: `python -m tests.support.release up` installs one")
    if ON_CLUSTER.endswith(f":{NOT_PUSHED}"):
        raise RuntimeError(f"there is no image {ON_CLUSTER}: `make images` in this checkout pushes it")
    return await release.as_seen_by(owner)


async def up() -> None:
    """Install a release, in the place of one that an earlier run has left."""
    if noted() is not None:
        await down()
    release = Release.new()
    NOTES.touch(mode=0o600)
    NOTES.write_text(json.dumps(asdict(release)))
    await release.install(*VALUES)


async def down() -> None:
    """Uninstall it.

    Raises:
        RuntimeError: Helm's own words, or what was left behind.
    """
    release = noted()
    if release is not None:
        await release.uninstall()
        NOTES.unlink()


def main(arguments: list[str]) -> int:
    """Run one verb."""
    verbs = {"up": up, "down": down}
    if len(arguments) != 1 or arguments[0] not in verbs:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        asyncio.run(verbs[arguments[0]]())
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
