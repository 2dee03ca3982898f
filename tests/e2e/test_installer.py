"""The installer on real nodes that have nothing of rollbox: a containerd of the test's own, and gVisor in the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.bare_node import BareNode, bare_node, payload
from tests.support.installed import own_cluster
from tests.support.waiting import until

pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(not own_cluster(), reason="programs of a node are built for the cluster of this machine"),
]
PROGRAMS = ["write containerd-shim-runsc-v1", "write rollbox-node", "write runsc", "write runsc.toml"]
REFUSED, FAILED = 3, 1


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return payload(tmp_path_factory.mktemp("payload"))


@pytest.fixture
async def node(tmp_path: Path, programs: Path) -> AsyncIterator[BareNode]:
    async with bare_node(tmp_path, programs) as found:
        yield found


def replace(node: BareNode, name: str, content: bytes) -> None:
    """Another version of a program in the payload."""
    (node.payload / name).write_bytes(content)
    manifest = json.loads((node.payload / "manifest.json").read_text())
    manifest[name] = {"version": "2", "digest": sha256(content).hexdigest()}
    (node.payload / "manifest.json").write_text(json.dumps(manifest))


async def install(node: BareNode) -> None:
    done = await node.run_installer("install")
    assert done.status == 0, done.log


@pytest.mark.parametrize("version", [2, 3])
async def test_a_node_gets_gvisor_and_is_itself_again(tmp_path: Path, programs: Path, version: int) -> None:
    async with bare_node(tmp_path, programs, version) as node:
        before, settings = node.tree(), node.config.read_text()
        assert await node.plan() == [
            *PROGRAMS,
            "write rollbox.toml",
            "write config.toml",
            "restart containerd",
            "verify runsc",
        ]
        assert node.tree() == before, "a dry run has changed something"
        await install(node)
        assert "gvisor" in (await node.in_gvisor("/bin/busybox", "cat", "/proc/version")).lower()
        after = node.config.read_text().splitlines()
        assert [line for line in after if not line.startswith("imports = ")] == settings.splitlines()
        pid = node.pids["containerd"]
        again = await node.run_installer("install")
        assert (again.status, again.out) == (0, "nothing to do: the node has all of it\n")
        assert node.pids["containerd"] == pid, "containerd was started anew for nothing"
        assert (await node.run_installer("uninstall")).status == 0
        assert node.tree() == before
        assert node.pids["containerd"] != pid


async def test_lazy_pulling_comes_with_its_processes_and_goes_with_them(node: BareNode) -> None:
    before = node.tree()
    node.told |= {"LAZY_HANDLER": "runsc-lazy", "LAZY_IMAGES": "registry.example.com/estargz/"}
    await install(node)
    assert {"mounts", "serve"} < node.pids.keys()
    assert await node.plan() == []
    node.told["LAZY_IMAGES"] += ",registry.example.com/more/"
    pid = node.pids["serve"]
    await install(node)
    assert node.pids["serve"] != pid, "it goes on with what it was told before"
    del node.told["LAZY_HANDLER"], node.told["LAZY_IMAGES"]
    await install(node)
    assert "proxy_plugins" not in (node.config.parent / "conf.d/rollbox.toml").read_text()
    for socket in ("snapshotter", "mounts"):
        with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
            await asyncio.open_unix_connection(f"{node.run}/snapshotter/{socket}.sock")
    assert (await node.run_installer("uninstall")).status == 0
    assert node.tree() == before


async def test_an_upgrade_replaces_what_is_new(node: BareNode) -> None:
    await install(node)
    pid = node.pids["containerd"]
    # What follows the end of a program is not read.
    replace(node, "runsc", (node.payload / "runsc").read_bytes() + b"another version")
    assert await node.plan() == ["write runsc", "verify runsc"]
    await install(node)
    assert node.pids["containerd"] == pid
    assert json.loads((node.opt / "state/status.json").read_text())["versions"]["runsc"] == "2"
    assert await node.plan() == []


@pytest.mark.parametrize("program", ["runsc", "containerd-shim-runsc-v1"])
async def test_a_version_that_does_not_work_is_taken_back(node: BareNode, program: str) -> None:
    await install(node)
    before = node.tree()
    replace(node, program, b"#!/bin/sh\nexit 7\n")
    done = await node.run_installer("install")
    assert done.status == FAILED
    assert "the node is as it was before" in done.log
    assert node.tree() == before
    assert "gvisor" in (await node.in_gvisor("/bin/busybox", "cat", "/proc/version")).lower()


async def test_a_snapshotter_that_is_stopped_fails_the_verification(node: BareNode) -> None:
    node.told |= {"LAZY_HANDLER": "runsc-lazy", "LAZY_IMAGES": "registry.example.com/estargz/"}
    await install(node)
    before = node.tree()
    replace(node, "runsc", (node.payload / "runsc").read_bytes() + b"another version")
    assert await node.plan() == ["write runsc", "verify runsc"]
    os.kill(node.pids["serve"], signal.SIGSTOP)
    done = await node.run_installer("install")
    assert (done.status, "rollbox-snapshotter runs, and answers no call within 20s" in done.log) == (FAILED, True), (
        done.log
    )
    assert node.tree() == before
    os.kill(node.pids["serve"], signal.SIGCONT)
    await install(node)


async def test_a_first_install_that_fails_leaves_nothing(node: BareNode) -> None:
    before = node.tree()
    replace(node, "runsc", b"#!/bin/sh\nexit 7\n")
    assert (await node.run_installer("install")).status == FAILED
    assert node.tree() == before
    assert json.loads((node.opt / "state/status.json").read_text())["state"] == "failed"


async def test_one_that_stays_tries_again_what_has_failed_when_it_is_asked(node: BareNode) -> None:
    replace(node, "runsc", b"#!/bin/sh\nexit 7\n")
    node.told |= {"EVERY_SECONDS": "1", "RETRY_SECONDS": "3600"}
    process = await node.begin("install", "--stay")
    assert process.stderr is not None
    tried = waited = 0
    async with asyncio.timeout(120):
        async for line in process.stderr:
            said = json.loads(line)
            tried += said["msg"] == "step" and said["do"] == "verify"
            if "has failed before" in said.get("error", ""):
                waited += 1
                assert tried == (1 if waited <= 2 else 2)
                if waited == 2:
                    assert (await node.run_installer("again")).status == 0
            if tried == 2 and waited == 3:
                break
    process.terminate()
    await process.communicate()
    assert process.returncode == 0
    status = json.loads((node.opt / "state/status.json").read_text())
    assert (status["state"], status["failures"]) == ("failed", 1)
    assert (await node.run_installer("install")).status == FAILED, "by hand it is tried"


async def test_a_dry_run_names_a_run_that_was_stopped(node: BareNode) -> None:
    process = await node.begin("install")
    assert process.stderr is not None
    async for line in process.stderr:
        if json.loads(line).get("target", "").endswith("config.toml"):
            process.kill()
            break
    await process.communicate()
    await until(node.answers, 30)
    told = await node.run_installer("install", "--dry-run")
    assert told.status == 0
    assert told.out.startswith("A run was stopped before its end. The next one undoes it first")
    assert str(node.config) in told.out
    told = await node.run_installer("install", "--dry-run", "--json")
    assert str(node.config) in json.loads(told.out)["unfinished"]["files"]
    await install(node)


async def test_a_containerd_that_does_not_start_with_its_new_settings_gets_the_old_ones(node: BareNode) -> None:
    before = node.tree()
    node.refuses = node.config.parent / "conf.d/rollbox.toml"
    node.told["STARTS_SECONDS"] = "3"
    done = await node.run_installer("install")
    assert (done.status, "was not started again" in done.log) == (FAILED, True)
    assert node.tree() == before
    assert await node.answers()


@pytest.mark.parametrize("step", ["runsc.toml", "config.toml", "containerd"])
async def test_an_installer_that_is_killed_is_finished_by_the_next(node: BareNode, step: str) -> None:
    before = node.tree()
    process = await node.begin("install")
    assert process.stderr is not None
    async for line in process.stderr:
        if json.loads(line).get("target", "").endswith(step):
            process.kill()
            break
    await process.communicate()
    assert (node.opt / "state/journal.json").exists()
    # On a busy machine the signal arrives while containerd is started anew.
    await until(node.answers, 30)
    done = await node.run_installer("uninstall")
    assert done.status == 0
    assert node.tree() == before, done.log
    await install(node)
    assert await node.plan() == []


async def test_a_runtime_of_somebody_else_is_not_touched(node: BareNode) -> None:
    settings = node.config.read_text()
    theirs = (
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]\n  runtime_type = 'io.containerd.runc.v2'\n"
    )
    node.config.write_text(settings + theirs)
    before = node.tree()
    done = await node.run_installer("install")
    assert (done.status, "handler_taken" in done.log) == (REFUSED, True)
    assert node.tree() == before
