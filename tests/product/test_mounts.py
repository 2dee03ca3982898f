"""Data sets and scratch from inside, where the user's code is the attacker; what is mounted stays as it is."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, Dataset, Sandbox, SandboxError, SandboxGroup, Scratch
from rollbox.dataset import Mounts
from rollbox.errors import (
    CapacityUnavailable,
    Conflict,
    DatasetUnavailable,
    FileNotFound,
    InvalidArgument,
    NoSpace,
    NotFound,
    PermissionDenied,
    Unsupported,
)
from tests.support.commits import ON_CLUSTER, commit, made_where_offered, repository
from tests.support.datasets import (
    CONTENT,
    FLEETING,
    FOLDER,
    MINI,
    THEIRS,
    Files,
    claim,
    on_cluster,
    on_engine,
    scratch_volumes,
    written,
)
from tests.support.images import IMAGE
from tests.support.installed import Installed, apply, kubectl, own_cluster
from tests.support.product import Kept, keeping
from tests.support.release import DATASETS
from tests.support.stack import Product
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(
    ON_CLUSTER and not own_cluster(), reason="whether nodes have such files is not known of another cluster"
)
engine_only = pytest.mark.skipif(ON_CLUSTER, reason="a scratch of a cluster is what its class makes of it; see below")
cluster_only = pytest.mark.skipif(not ON_CLUSTER, reason="of a cluster's objects")
DATA: dict[str, Dataset | Scratch] = {"/data": Dataset(MINI)}
SMALL = "16Mi"
# Each ends with 0 if it has changed something, or got further than a read-only mount.
ATTACKS = [
    "touch /data/new",
    "echo x > /data/train/one",
    "echo x >> /data/train/one",
    "rm /data/train/one",
    "mv /data/train /data/test",
    "chmod 777 /data/train/one",
    "chmod 777 /data",
    "chown 1 /data/train/one",
    "mkdir /data/dir",
    "ln /data/train/one /data/hard",
    "ln /data/train/one /tmp/hard",
    "ln -s /etc /data/soft",
    "mknod /data/null c 1 3",
    "mkfifo /data/pipe",
    "truncate -s 0 /data/train/one",
    "truncate -s 0 /proc/self/root/data/train/one",
    "truncate -s 0 /proc/self/cwd/train/one",
    "touch /proc/1/root/data/new",
    "mount -o remount,rw /data",
    "mount -o remount,bind,rw /data",
    "mount --bind /data /mnt && mount -o remount,bind,rw /mnt",
    "mount --bind /tmp /data",
    "mount -t tmpfs none /data",
    "umount /data",
    "umount -l /data",
    "unshare --mount sh -c 'mount -o remount,rw /data'",
    "unshare --user --map-root-user --mount sh -c 'mount -o remount,rw /data'",
    "nsenter --mount=/proc/1/ns/mnt sh -c 'touch /data/new'",
    "chroot /data /script",
]
# By system calls that no program here has an option for: open_tree, move_mount, mount_setattr, open for writing by a
# descriptor, setxattr, utime, fallocate.
CALLS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
won = []
def tried(name, *arguments):
    if libc.syscall(*arguments) >= 0:
        won.append(name)
tree = libc.syscall(428, -100, b"/data", 1)  # open_tree(OPEN_TREE_CLONE)
if tree >= 0:
    won.append("open_tree")
tried("mount_setattr", 442, -100, b"/data", 0, ctypes.create_string_buffer(b"\\0" * 8 + b"\\1" + b"\\0" * 23), 32)
tried("mount", 165, None, b"/data", None, 32 | 4096, None)
tried("pivot_root", 155, b"/data", b"/data")
one = os.open("/data/train/one", os.O_RDONLY)
def written(name, call):
    try:
        call()
        won.append(name)
    except OSError:
        pass
written("reopen", lambda: os.open(f"/proc/self/fd/{one}", os.O_WRONLY))
written("utime", lambda: os.utime("/data/train/one", (1, 1)))
written("xattr", lambda: os.setxattr("/data/train/one", "user.a", b"1"))
written("fallocate", lambda: os.posix_fallocate(one, 0, 1 << 20))
written("rename", lambda: os.rename("/tmp", "/data/tmp"))
print(won)
"""


@pytest.fixture(scope="module")
def files() -> Iterator[Files]:
    with written() as made:
        yield made


if not ON_CLUSTER:

    @pytest.fixture(scope="module")
    def stack(files: Files) -> Iterator[Product]:
        """One that knows the data set."""
        yield from on_engine(files)


@pytest.fixture(scope="module", autouse=True)
def declared(stack: Product, files: Files) -> Iterator[None]:
    """The data set is known to the product."""
    if isinstance(stack, Installed):
        yield from on_cluster(stack, files)
    else:
        yield


@pytest.fixture(scope="module")
def kept(stack: Product, declared: None) -> Iterator[Kept]:
    assert declared is None
    yield from keeping(stack, mounts=DATA)


@pytest.fixture
async def untouched(files: Files) -> AsyncIterator[None]:
    """The data set is what it was, byte for byte."""
    before = files.digest()
    yield
    assert files.digest() == before


async def test_commands_and_files_see_a_data_set(client: Client, shared: Sandbox) -> None:
    assert (await shared.exec("cat /data/train/one")).stdout.encode() == CONTENT
    assert await shared.files.read("/data/train/one") == CONTENT
    assert (await shared.exec("/data/script", user="nobody")).stdout == "ran\n"
    async with await shared.shell() as shell:
        assert (await shell.run("cat /data/train/one")).stdout.encode() == CONTENT
    assert (await client.get(shared.id)).mounts == {"/data": {"dataset": MINI}}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.usefixtures("untouched")
async def test_no_command_of_root_changes_a_data_set(shared: Sandbox, attack: str) -> None:
    result = await shared.exec(attack, timeout=20, cwd="/data")
    assert (result.end, result.exit_code != 0) == ("exited", True), result


@pytest.mark.usefixtures("untouched")
async def test_no_system_call_of_root_changes_a_data_set(shared: Sandbox) -> None:
    assert (await shared.exec(["python3", "-c", CALLS], check=True)).stdout == "[]\n"


@pytest.mark.usefixtures("untouched")
async def test_no_other_process_is_a_way_round(shared: Sandbox) -> None:
    look = "sleep 30 & touch /proc/$!/root/data/new; won=$?; kill $!; exit $won"
    assert (await shared.exec(look)).exit_code != 0


@pytest.mark.usefixtures("untouched")
async def test_no_file_call_changes_a_data_set(shared: Sandbox) -> None:
    await file_calls_are_refused(shared)


async def file_calls_are_refused(sandbox: Sandbox) -> None:
    """No call of files changes the data set at /data."""
    files = sandbox.files
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: files.write("/data/new", b"1"),
        lambda: files.write("/data/train/one", b"1"),
        lambda: files.remove("/data/train/one"),
        lambda: files.move("/data/train/one", "/data/two"),
        lambda: files.mkdir("/data/dir"),
    ]
    for call in calls:
        with pytest.raises(PermissionDenied, match="Read-only file system"):
            await call()


async def test_links_in_a_data_set_lead_into_the_sandbox_only(shared: Sandbox) -> None:
    own = (await shared.exec("cat /etc/hostname")).stdout
    assert own.strip() == shared.id
    for link in ("/data/outward", "/data/upward"):
        assert (await shared.exec(["cat", link])).stdout == own
        assert (await shared.files.read(link)).decode() == own


async def test_what_is_below_a_mount_stays_there(client: Client) -> None:
    """A mount over a folder of the image hides it, and leaves it as it is."""
    async with await client.create(IMAGE, mounts={"/usr/share": Dataset(MINI)}) as sandbox:
        assert (await sandbox.exec("ls /usr/share")).stdout.split() == ["outward", "script", "train", "upward"]


@pytest.mark.parametrize(
    ("mounts", "error", "said"),
    [
        ({"/data": Dataset("minni")}, NotFound, "did you mean mini"),
        ({"/data": Dataset(THEIRS)}, PermissionDenied, f"the data set {THEIRS} is not for"),
        ({"/": Dataset(MINI)}, InvalidArgument, "root"),
        ({"/proc": Dataset(MINI)}, InvalidArgument, "/proc"),
        ({"/dev/shm": Dataset(MINI)}, InvalidArgument, "/dev"),
        ({"/data": Dataset(MINI), "/data/in": Dataset(MINI)}, InvalidArgument, "in one another"),
        ({f"/m{n}": Dataset(MINI) for n in range(17)}, InvalidArgument, "more than 16"),
        ({"/cache": Scratch("s", size="60Ti")}, InvalidArgument, "size_bytes"),
    ],
)
async def test_what_nobody_can_have_is_refused_at_once(
    client: Client, mounts: dict[str, Dataset | Scratch], error: type[Exception], said: str
) -> None:
    before = {one.id for one in await client.list(all=True)}
    with pytest.raises(error, match=said):
        await client.create(IMAGE, mounts=mounts)
    assert {one.id for one in await client.list(all=True)} == before


async def test_an_image_that_is_in_the_way_is_told_of(client: Client) -> None:
    with pytest.raises(Unsupported, match="/bin/sh"):
        await client.create(IMAGE, mounts={"/bin/sh": Dataset(MINI)})


@engine_only
async def test_a_scratch_is_shared_bounded_and_gone(client: Client) -> None:
    cache: Mounts = {"/cache": Scratch("cache", size=SMALL), **DATA}
    async with await client.create(IMAGE, mounts=cache) as one, await client.create(IMAGE, mounts=cache) as two:
        # Any user may write, and another sandbox sees it at once.
        await one.exec("echo shared > /cache/file", user="nobody", check=True)
        assert await two.files.read("/cache/file") == b"shared\n"
        # No command takes more than its size, neither in one sandbox nor in all.
        filled = await two.exec("head -c 64M /dev/zero > /cache/big", timeout=60)
        assert filled.exit_code != 0
        assert "No space left" in filled.stderr
        assert (await one.exec("du -sm /cache")).stdout.split()[0] in ("16", "17")
        await one.exec("rm /cache/big", check=True)
        await one.delete(wait=True)
        assert (await two.exec("cat /cache/file")).stdout == "shared\n"
        with pytest.raises(Conflict, match="another size"):
            await client.create(IMAGE, mounts={"/cache": Scratch("cache", size="32Mi")})
        await two.delete(wait=True)
    async with await client.create(IMAGE, mounts=cache) as again:
        assert (await again.exec("ls -A /cache")).stdout == ""


async def test_a_full_scratch_is_told_to_those_who_write_there_and_ends_none(client: Client) -> None:
    cache = {"/cache": Scratch("full", size=SMALL)}
    async with (
        scratch_volumes(1, size="16M"),
        await client.create(IMAGE, memory="256Mi", mounts=cache) as one,
        await client.create(IMAGE, memory="256Mi", mounts=cache) as two,
    ):
        filled = await one.exec("head -c 64M /dev/zero > /cache/big", timeout=60)
        assert (filled.end, filled.ok) == ("exited", False)
        assert "No space left" in filled.stderr
        for sandbox in (one, two):
            with pytest.raises(NoSpace) as refused:
                await sandbox.files.write("/cache/more", bytes(1 << 20))
            assert (refused.value.fault, refused.value.mask_sample) == ("workload", False)
            # Nothing of it stays, and what is not in the scratch goes on.
            assert (await sandbox.exec("ls -A /cache; echo kept > /tmp/kept", check=True)).stdout == "big\n"
        await one.exec("rm /cache/big", check=True)
        await two.files.write("/cache/more", bytes(1 << 20))
        assert (await one.exec("stat -c %s /cache/more", check=True)).stdout == "1048576\n"
        await client.delete(one.id, two.id, wait=True)


@engine_only
async def test_groups_share_within_and_not_between(client: Client) -> None:
    mounts = {"/cache": Scratch("group", size=SMALL)}

    async def group() -> SandboxGroup[Sandbox]:
        return await SandboxGroup.create(IMAGE, n=2, memory="256Mi", mounts=mounts, client=client)

    async with await group() as here, await group() as there:
        await here[0].files.write("/cache/answer", b"42")
        assert await here[1].files.read("/cache/answer") == b"42"
        assert not await there[0].files.exists("/cache/answer")


async def test_two_at_once_make_one_scratch(client: Client) -> None:
    mounts = {"/cache": Scratch("at-once", size=SMALL)}
    async with scratch_volumes(1):
        made = await asyncio.gather(*(client.create(IMAGE, memory="256Mi", mounts=mounts) for _ in range(4)))
        for number, sandbox in enumerate(made):
            await sandbox.exec(f"touch /cache/{number}", check=True)
        assert (await made[0].exec("ls /cache")).stdout.split() == ["0", "1", "2", "3"]
        await client.delete(*(one.id for one in made))


async def test_a_pool_serves_creates_with_the_same_mounts(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="a scratch is an owner's, and warm sandboxes have none yet"):
        await client.set_pool("with-scratch", IMAGE, 1, mounts={"/cache": Scratch("cache")})
    await client.set_pool("with-data", IMAGE, 1, memory="256Mi", mounts=DATA)
    try:
        await until(lambda: _ready(client, "with-data"))
        async with await client.create(IMAGE, memory="256Mi", mounts=DATA) as warm:
            assert warm.record.source == "warm"
            assert (await warm.exec("cat /data/train/one")).stdout.encode() == CONTENT
        async with await client.create(IMAGE, memory="256Mi", mounts={"/other": Dataset(MINI)}) as cold:
            assert (cold.record.source, cold.record.cold_reason) == (
                "cold",
                f"pool with-data keeps {IMAGE} with other mounts",
            )
    finally:
        await client.remove_pool("with-data")


async def _ready(client: Client, pool: str) -> bool:
    return (await client.pool(pool)).ready == 1


@made_where_offered
async def test_an_image_of_a_sandbox_has_nothing_of_its_mounts(client: Client) -> None:
    mounts: Mounts = {**DATA, "/cache": Scratch("committed", size=SMALL)}
    async with scratch_volumes(1), repository() as ours:
        async with await client.create(IMAGE, mounts=mounts) as sandbox:
            await sandbox.exec("echo kept > /kept; echo lost > /cache/lost", check=True)
            made = await commit(sandbox, ours)
        async with await client.create(made) as again:
            seen = await again.exec("cat /kept; find /data /cache -mindepth 1 2> /dev/null")
            assert seen.stdout == "kept\n"


async def test_the_disk_of_a_sandbox_is_without_its_mounts(client: Client, files: Files) -> None:
    big = files.folder / "big"
    with big.open("wb") as file:
        file.truncate(8 << 30)
    try:
        async with await client.create(IMAGE, mounts=DATA) as sandbox:
            assert ((await sandbox.usage()).disk_bytes or 0) < 1 << 30
    finally:
        big.unlink()


@engine_only
async def test_a_folder_that_vanishes_is_the_installations_fault(client: Client, files: Files, tmp_path: Path) -> None:
    async with await client.create(IMAGE, mounts=DATA) as sandbox:
        files.folder.rename(tmp_path / "away")
        try:
            with pytest.raises(DatasetUnavailable, match="there is no folder") as gone:
                await client.create(IMAGE, mounts=DATA)
            assert (gone.value.fault, gone.value.mask_sample) == ("platform", True)
            (told,) = [one for one in await client.datasets() if one.name == MINI]
            assert "there is no folder" in told.trouble
            # What runs keeps what it has mounted.
            assert (await sandbox.exec("cat /data/train/one")).stdout.encode() == CONTENT
        finally:
            (tmp_path / "away").rename(files.folder)
    assert (await client.dataset(MINI)).trouble == ""


async def test_files_that_vanish_under_a_sandbox_are_errors_of_its_reads_alone(client: Client, files: Files) -> None:
    mounts = {"/data": Dataset(FLEETING)}
    async with await client.create(IMAGE, mounts=mounts) as sandbox, await sandbox.shell() as shell:
        await shell.run("exec 3< /data/one", check=True)
        shutil.rmtree(files.fleeting)
        try:
            # What a program has open it reads on.
            assert (await shell.run("cat <&3", check=True)).stdout.encode() == CONTENT
            gone = await sandbox.exec("cat /data/one")
            assert (gone.end, gone.ok) == ("exited", False)
            with pytest.raises(FileNotFound):
                await sandbox.files.read("/data/one")
            assert (await sandbox.exec("touch /data/new")).exit_code != 0
            with pytest.raises(DatasetUnavailable, match=FLEETING) as refused:
                await client.create(IMAGE, mounts=mounts, start_timeout=100)
            assert (refused.value.fault, refused.value.mask_sample) == ("platform", True)
        finally:
            files.fleeting.mkdir(mode=0o755)
        (files.fleeting / "one").write_bytes(b"again\n")
        async with await client.create(IMAGE, mounts=mounts) as again:
            assert await again.files.read("/data/one") == b"again\n"


@cluster_only
async def test_a_folder_of_the_node_is_mounted_as_a_claim_is(client: Client, untouched: None) -> None:
    del untouched
    async with await client.create(IMAGE, mounts={"/data": Dataset(FOLDER)}) as sandbox:
        assert (await sandbox.exec("cat /data/train/one")).stdout.encode() == CONTENT
        assert (await sandbox.exec("touch /data/new")).exit_code != 0


@cluster_only
async def test_a_folder_that_a_node_lacks_is_told_with_the_data_set(client: Client) -> None:
    await client.set_dataset("absent", folder=str(DATASETS / "absent"))
    try:
        with pytest.raises(DatasetUnavailable, match="the data set absent cannot be mounted on node") as refused:
            await client.create(IMAGE, mounts={"/data": Dataset("absent")}, start_timeout=100)
        assert (refused.value.fault, refused.value.mask_sample) == ("platform", True)
    finally:
        await client.remove_dataset("absent")


@cluster_only
async def test_a_folder_that_the_chart_does_not_name_is_refused(client: Client) -> None:
    with pytest.raises(PermissionDenied, match=r"datasets\.folders of the chart"):
        await client.set_dataset("of-the-node", folder="/etc")
    assert "of-the-node" not in {one.name for one in await client.datasets()}


@cluster_only
async def test_a_pod_that_would_write_is_refused_by_the_api_server(stack: Installed, files: Files) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "writes"},
        "spec": {
            "runtimeClassName": "gvisor",
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "a", "image": IMAGE, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        },
    }
    # Neither a data set, nor the scratch of another installation.
    for claimed in (files.claim, f"rollbox-scratch-other-{'a' * 32}"):
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}]
        with pytest.raises(RuntimeError, match="must mount claims and hostPaths read only"):
            await apply(pod, namespace=stack.sandboxes)


@cluster_only
async def test_a_scratch_is_a_claim_of_its_group_and_goes_with_it(client: Client, stack: Installed) -> None:
    cache = {"/cache": Scratch("group", size=SMALL)}

    async def group(owners: Client) -> SandboxGroup[Sandbox]:
        return await SandboxGroup.create(IMAGE, n=2, memory="256Mi", mounts=cache, client=owners)

    async with (
        scratch_volumes(3) as folders,
        Client(stack.url, stack.strangers_key) as stranger,
        await group(client) as here,
        await group(client) as there,
        await stranger.create(IMAGE, memory="256Mi", mounts=cache, labels=here[0].record.labels) as theirs,
    ):
        # Both ways, at once, whichever user; by commands, file calls and programs that have a file open.
        await here[0].exec("echo 42 > /cache/answer", user="nobody", check=True)
        assert await here[1].files.read("/cache/answer") == b"42\n"
        async with await here[0].shell() as shell:
            await shell.run("exec 3< /cache/answer; cat <&3", check=True)
            await here[1].exec("echo 43 >> /cache/answer; mkdir /cache/made; mv /cache/answer /cache/made/", check=True)
            assert (await shell.run("cat <&3", check=True)).stdout == "43\n"
            assert (await shell.run("cat /cache/made/answer; ls /cache", check=True)).stdout == "42\n43\nmade\n"
        # Another group has one of its own, and so has another owner, whatever it calls its group.
        for other in (*there, theirs):
            assert (await other.exec("ls /cache", check=True)).stdout == ""
        assert len(await _claims(stack)) == 3
        assert len([one for one in folders if (one / "made").exists()]) == 1
        larger = {"/cache": Scratch("group", size="32Mi")}
        with pytest.raises(Conflict, match="another size"):
            await client.create(IMAGE, mounts=larger, labels=here[0].record.labels)
        await here[0].delete(wait=True)
        assert (await here[1].exec("cat /cache/made/answer")).stdout == "42\n43\n"
    await until(lambda: _none_claimed(stack))


@cluster_only
async def test_a_scratch_whose_claim_is_removed_is_the_installations_fault(client: Client, stack: Installed) -> None:
    cache = {"/cache": Scratch("removed", size=SMALL)}
    async with scratch_volumes(2), await client.create(IMAGE, memory="256Mi", mounts=cache) as sandbox:
        (claimed,) = await _claims(stack)
        await kubectl("delete", claimed, "-n", stack.sandboxes, "--wait=false")
        with pytest.raises(DatasetUnavailable, match="is being removed while sandboxes have it") as refused:
            await client.create(IMAGE, memory="256Mi", mounts=cache)
        assert (refused.value.fault, refused.value.mask_sample) == ("platform", True)
        # What runs keeps what it has mounted.
        await sandbox.exec("echo kept > /cache/file; cat /cache/file", check=True)
        await sandbox.delete(wait=True)
        async with await client.create(IMAGE, memory="256Mi", mounts=cache) as again:
            assert (await again.exec("ls -A /cache")).stdout == ""
    await until(lambda: _none_claimed(stack))


@cluster_only
async def test_a_scratch_that_the_class_has_no_volume_for_ends_the_start(client: Client, stack: Installed) -> None:
    cache = {"/cache": Scratch("none", size=SMALL)}
    async with scratch_volumes(0):
        with pytest.raises(CapacityUnavailable, match="PersistentVolumeClaim") as refused:
            await client.create(IMAGE, memory="256Mi", mounts=cache, start_timeout=10)
        assert (refused.value.fault, refused.value.mask_sample) == ("capacity", True)
        await until(lambda: _none_claimed(stack))


async def _claims(stack: Installed) -> list[str]:
    told = await kubectl("get", "pvc", "-n", stack.sandboxes, "-o", "name")
    return [one for one in told.split() if "rollbox-scratch-" in one]


async def _none_claimed(stack: Installed) -> bool:
    return not await _claims(stack)


@cluster_only
async def test_a_claim_that_vanishes_is_the_installations_fault(client: Client, stack: Installed, files: Files) -> None:
    await apply(*claim(f"gone-{files.claim}", files.folder), namespace=stack.sandboxes)
    try:
        await client.set_dataset("gone", claim=f"gone-{files.claim}")
        async with await client.create(IMAGE, mounts={"/data": Dataset("gone")}) as sandbox:
            await kubectl("delete", "pvc", f"gone-{files.claim}", "-n", stack.sandboxes, "--wait=false")
            await until(lambda: _refused(client, "gone", "is being removed"))
            # What runs keeps what it has mounted.
            assert (await sandbox.exec("cat /data/train/one")).stdout.encode() == CONTENT
            await sandbox.delete(wait=True)
        await until(lambda: _refused(client, "gone", "there is no claim gone-"))
    finally:
        await client.remove_dataset("gone")
        await kubectl(
            "delete", "pvc", f"gone-{files.claim}", "-n", stack.sandboxes, "--ignore-not-found", "--wait=false"
        )
        await kubectl("delete", "pv", f"gone-{files.claim}", "--ignore-not-found", "--wait=false")


@cluster_only
async def test_a_claim_for_one_node_is_refused(client: Client, stack: Installed, files: Files) -> None:
    await apply(*claim(f"one-{files.claim}", files.folder, "ReadWriteOnce"), namespace=stack.sandboxes)
    try:
        await client.set_dataset("one", claim=f"one-{files.claim}")
        with pytest.raises(DatasetUnavailable, match="is for one node") as refused:
            await client.create(IMAGE, mounts={"/data": Dataset("one")})
        assert (refused.value.fault, refused.value.mask_sample) == ("platform", True)
    finally:
        await client.remove_dataset("one")
        await kubectl(
            "delete", "pvc", f"one-{files.claim}", "-n", stack.sandboxes, "--ignore-not-found", "--wait=false"
        )
        await kubectl("delete", "pv", f"one-{files.claim}", "--ignore-not-found", "--wait=false")


async def _refused(client: Client, name: str, said: str) -> bool:
    try:
        # What a replica has seen of a claim holds for two seconds: such a start waits for its volume.
        async with await client.create(IMAGE, mounts={"/data": Dataset(name)}, start_timeout=15):
            return False
    except SandboxError as refused:
        return isinstance(refused, DatasetUnavailable) and said in str(refused)
