"""openai-agents' contract of a session: commands, users, files, manifests, archives, ports."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
import urllib.request
from pathlib import Path

import pytest
from agents.sandbox import ExposedPortUnavailableError, LocalSnapshotSpec, Manifest, SandboxPathGrant, User
from agents.sandbox.entries import Dir, File
from agents.sandbox.errors import (
    ConfigurationError,
    InvalidManifestPathError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.files import EntryKind
from agents.sandbox.manifest import Environment
from agents.sandbox.session import BaseSandboxClientOptions, SandboxSession

from on_openai_agents.sessions import LABELS, options, session
from rollbox import Client, EgressPolicy
from rollbox_integrations.openai_agents import RollboxSandboxClient, RollboxSandboxClientOptions, sandbox_of

BINARY = bytes(range(256)) * 64


async def test_a_command_ends_with_its_code_and_both_outputs(box: SandboxSession) -> None:
    result = await box.exec("echo out; echo err >&2; pwd; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n/workspace\n", b"err\n", 3)
    plain = await box.exec("printf", "%s|", "a b", "$HOME", shell=False)
    assert plain.stdout == b"a b|$HOME|"
    assert (await box.exec("no-such-program", shell=False)).exit_code == 127


async def test_a_command_that_is_cancelled_is_dead_with_all_that_it_started(box: SandboxSession) -> None:
    running = asyncio.create_task(box.exec("sleep 305 & echo on > started; sleep 305"))
    while not (await box.exec("test -e started")).ok():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert (await box.exec("pgrep -f 'sleep [3]05'")).exit_code == 1


async def test_a_user_needs_no_sudo_and_has_files_of_its_own(box: SandboxSession) -> None:
    assert (await box.exec("which sudo")).exit_code == 1
    assert (await box.exec("id -un", user="daemon")).stdout == b"daemon\n"
    await box.exec("chmod 777 .")
    await box.write(Path("of/daemon"), io.BytesIO(b"1"), user=User(name="daemon"))
    assert (await box.exec("stat -c %U of/daemon")).stdout == b"daemon\n"
    missing = await box.exec("true", user="nobody-there")
    assert (missing.exit_code, b"no such user" in missing.stderr) == (126, True)


async def test_a_manifest_has_files_variables_and_accounts(client: Client) -> None:
    manifest = Manifest(
        root="/srv/work",
        entries={"a.txt": File(content=b"a"), "tests": Dir(children={"b.txt": File(content=b"b")})},
        environment=Environment(value={"NAME": "value"}),
        users=[User(name="solver")],
    )
    async with session(manifest) as box:
        told = await box.exec("pwd; cat a.txt tests/b.txt; echo $NAME; id -un solver")
        assert told.stdout == b"/srv/work\nabvalue\nsolver\n"


async def test_a_workspace_below_a_folder_of_root_is_the_users(client: Client) -> None:
    async with session(user="1000") as box:
        assert (await box.exec("id -u; touch a && stat -c %u a")).stdout == b"1000\n1000\n"


async def test_files_are_written_read_and_listed_as_they_are(box: SandboxSession) -> None:
    await box.write(Path("new/folder/data"), io.BytesIO(BINARY))
    with await box.read(Path("new/folder/data")) as data:
        assert data.read() == BINARY
    assert await box.read_bounded(Path("new/folder/data"), max_bytes=3) == BINARY[:3]
    await box.write(Path("new/folder/data"), io.BytesIO(b"shorter"))
    entries = {Path(entry.path).name: (entry.kind, entry.size) for entry in await box.ls("new/folder")}
    assert entries == {"data": (EntryKind.FILE, 7)}
    await box.mv("new/folder/data", "moved")
    await box.rm("new", recursive=True)
    assert [Path(entry.path).name for entry in await box.ls(".")] == ["moved"]


async def test_a_large_file_goes_through_this_machines_disk(box: SandboxSession, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(BINARY * 1200)
    with (tmp_path / "large").open("rb") as local:
        await box.write(Path("large"), local)
    with await box.read(Path("large")) as data:
        assert data.read() == BINARY * 1200


async def test_what_is_no_file_is_said_so(box: SandboxSession) -> None:
    with pytest.raises(WorkspaceReadNotFoundError):
        await box.read(Path("not/there"))
    with pytest.raises(WorkspaceArchiveReadError) as folder:
        await box.read(Path())
    assert folder.value.context["rollbox"]["code"] == "invalid_argument"  # type: ignore[index]
    with pytest.raises(InvalidManifestPathError):
        await box.read(Path("/etc/passwd"))
    with pytest.raises(WorkspaceWriteTypeError):
        await box.write(Path("text"), io.StringIO("text"))
    await box.exec("mkdir -p taken/by")
    with pytest.raises(WorkspaceArchiveWriteError, match="invalid_argument"):
        await box.write(Path("taken"), io.BytesIO(b""))


async def test_a_link_that_leads_out_of_the_workspace_is_not_followed(box: SandboxSession) -> None:
    await box.exec("ln -s /etc/passwd out")
    with pytest.raises(InvalidManifestPathError):
        await box.read(Path("out"))


async def test_a_workspace_is_archived_without_what_is_skipped(box: SandboxSession) -> None:
    await box.exec("mkdir -p keep skip deep/skip && touch keep/a skip/b deep/skip/c && ln keep/a hard && ln -s / out")
    inner = box._inner
    inner.register_persist_workspace_skip_path("skip")
    with await box.persist_workspace() as archive, tarfile.open(fileobj=archive) as opened:  # type: ignore[call-overload]
        names = {member.name: member for member in opened.getmembers()}
    assert set(names) == {".", "./keep", "./keep/a", "./deep", "./deep/skip", "./deep/skip/c", "./hard", "./out"}
    assert names["./hard"].isreg()


async def test_a_session_is_taken_up_from_its_snapshot_in_another_sandbox(client: Client, tmp_path: Path) -> None:
    provider = RollboxSandboxClient()
    async with session(snapshot=LocalSnapshotSpec(base_path=tmp_path)) as box:
        await box.exec("python3 -m venv --without-pip env && echo kept > a && chmod 750 a && ln a b")
        first = sandbox_of(box).id
    written = provider.serialize_session_state(box.state)
    again = await provider.resume(provider.deserialize_session_state(written))
    try:
        async with again:
            told = await again.exec("cat a b; stat -c %a a; env/bin/python -c 'import sys; print(sys.prefix)'")
            assert told.stdout == b"kept\nkept\n750\n/workspace/env\n"
            assert sandbox_of(again).id != first
    finally:
        await provider.delete(again)


async def test_a_session_is_taken_up_in_its_own_sandbox_while_that_runs(client: Client) -> None:
    provider = RollboxSandboxClient()
    async with session() as box:
        await box.exec("echo here > a; echo there > /tmp/b")
        written = provider.serialize_session_state(box.state)
        again = await provider.resume(provider.deserialize_session_state(written))
        await again.start()
        assert (await again.exec("cat a /tmp/b")).stdout == b"here\nthere\n"
        assert sandbox_of(again).id == sandbox_of(box).id


async def test_an_archive_that_leads_out_of_the_workspace_is_refused(box: SandboxSession) -> None:
    bad = io.BytesIO()
    with tarfile.open(fileobj=bad, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../etc/motd"), io.BytesIO())
    with pytest.raises(WorkspaceArchiveWriteError) as refused:
        await box.hydrate_workspace(io.BytesIO(bad.getvalue()))
    assert refused.value.context["member"] == "../../etc/motd"
    with pytest.raises(WorkspaceArchiveWriteError):
        await box.hydrate_workspace(io.BytesIO(b"no archive"))


async def test_a_port_has_an_address_that_a_browser_opens(client: Client) -> None:
    async with session(exposed_ports=(8000,)) as box:
        await box.exec("echo page > index.html")
        await box.pty_exec_start("python3 -m http.server 8000", yield_time_s=0)
        await sandbox_of(box).ports.wait(8000)
        endpoint = await box.resolve_exposed_port(8000)
        # No resolver knows the name here, so the gateway is asked by its own.
        headers = {"Host": f"{endpoint.host}:{endpoint.port}"}
        asked = urllib.request.Request(os.environ["ROLLBOX_URL"], headers=headers)
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(asked, timeout=30).read())
        assert page == b"page\n"
        with pytest.raises(ExposedPortUnavailableError, match="not configured"):
            await box.resolve_exposed_port(8001)


async def test_a_session_ends_with_its_program(box: SandboxSession) -> None:
    record = sandbox_of(box).record
    assert record.lease is not None
    assert record.labels == LABELS
    assert await box.running()


async def test_a_path_of_this_machine_is_refused_before_anything_is_made(client: Client) -> None:
    manifest = Manifest(extra_path_grants=(SandboxPathGrant(path="/data", host_path="/srv"),))
    with pytest.raises(ConfigurationError, match="mounts nothing of this machine: .*/data"):
        await RollboxSandboxClient().create(manifest=manifest, options=options())


def test_options_are_read_back_from_json() -> None:
    given = options(egress=EgressPolicy(mode="allow", allow=["pypi.org"]))
    read = BaseSandboxClientOptions.parse(json.loads(given.model_dump_json()))
    assert isinstance(read, RollboxSandboxClientOptions)
    assert isinstance(read.egress, EgressPolicy)
    assert read.egress.to_json() == {"mode": "allow", "allow": ["pypi.org"]}
    assert read.model_copy(update={"egress": None}) == given.model_copy(update={"egress": None})
