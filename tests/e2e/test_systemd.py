"""The installer on a node whose services a real systemd keeps: what it starts, what comes back, and what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.test_installer import FAILED, PROGRAMS, replace
from tests.support.bare_node import payload
from tests.support.installed import own_cluster
from tests.support.systemd_node import SystemdNode, systemd_node
from tests.support.waiting import until

pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(not own_cluster(), reason="programs of a node are built for the cluster of this machine"),
]
SERVE, MOUNTS = "rollbox-snapshotter.service", "rollbox-snapshotter-mounts.service"
LAZY = {"LAZY_HANDLER": "runsc-lazy", "LAZY_IMAGES": "registry.example.com/estargz/"}
# systemd's own limit is five starts within ten seconds.
ENDS = 7


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return payload(tmp_path_factory.mktemp("payload"))


@pytest.fixture
async def node(tmp_path: Path, programs: Path) -> AsyncIterator[SystemdNode]:
    async with systemd_node(tmp_path, programs) as found:
        found.told |= LAZY
        yield found


async def install(node: SystemdNode) -> None:
    done = await node.run_installer("install")
    assert done.status == 0, done.log


async def test_systemd_keeps_what_is_installed_and_has_nothing_afterwards(node: SystemdNode) -> None:
    before = node.tree()
    planned = await node.plan()
    assert {*PROGRAMS, f"write {SERVE}", f"write {MOUNTS}"} < {*planned}
    assert planned[-4:-1] == ["provide rollbox-snapshotter-mounts", "provide rollbox-snapshotter", "restart containerd"]
    await install(node)
    assert "gvisor" in (await node.in_gvisor("/bin/busybox", "cat", "/proc/version")).lower()
    for unit in (SERVE, MOUNTS):
        assert [await node.of(unit, name) for name in ("ActiveState", "UnitFileState")] == ["active", "enabled"]
    for unit in (*[SERVE] * ENDS, MOUNTS, "containerd.service"):
        await node.killed(unit)
    # Its process is there before it listens.
    await until(node.answers, 60)
    assert await node.plan() == []
    assert (await node.run_installer("uninstall")).status == 0
    assert node.tree() == before
    for unit in (SERVE, MOUNTS):
        assert await node.of(unit, "LoadState") == "not-found"
    assert await node.of("containerd.service", "ActiveState") == "active"


async def test_what_somebody_changes_about_a_unit_is_noticed_and_put_right(node: SystemdNode) -> None:
    await install(node)
    unit = node.units / SERVE
    text = unit.read_text()
    unit.write_text(text.replace("RestartSec=1", "RestartSec=1000"))
    again = ["provide rollbox-snapshotter-mounts", "provide rollbox-snapshotter", "verify runsc"]
    assert await node.plan() == [f"write {SERVE}", *again]
    await install(node)
    assert unit.read_text() == text
    taken = {"StopUnit": ("ss", SERVE, "replace"), "DisableUnitFiles": ("asb", "1", SERVE, "false")}
    for method, words in taken.items():
        await node.call(method, *words)
        # As systemctl does.
        await node.call("Reload")
        assert await node.plan() == ["provide rollbox-snapshotter", again[-1]], method
        await install(node)
        assert await node.plan() == []


async def test_a_unit_that_fails_is_told_with_systemds_words_and_undone(node: SystemdNode) -> None:
    before = node.tree()
    node.told["STARTS_SECONDS"] = "3"
    replace(node, "rollbox-snapshotter", b"#!/bin/sh\nexit 7\n")
    done = await node.run_installer("install")
    assert done.status == FAILED
    assert "exit status 7" in done.log
    assert "the node is as it was before" in done.log
    assert node.tree() == before
    assert await node.of(MOUNTS, "LoadState") == "not-found"
