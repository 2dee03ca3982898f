"""Code that attacks its own sandbox: its neighbour goes on, and its caller is told within seconds.

Where the kernel holds a bomb within a limit of its own (of processes), the sandbox takes the next command; where the
limit is the whole sandbox's (memory under gVisor) it may end with it, and the code says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from rollbox import Client, ExecResult, Sandbox
from rollbox.errors import InvalidArgument, NoSpace, OomKilled, PidsExhausted
from tests.support.bombs import BOMBS, FLOODS, output
from tests.support.commits import ON_CLUSTER
from tests.support.images import IMAGE
from tests.support.isolation import is_gvisor
from tests.support.neighbour import Neighbour, goes_off, in_time, serves_again
from tests.support.product import Kept, keeping
from tests.support.stack import Product
from tests.support.waiting import until

# What takes memory under gVisor and not on an engine: there the sandbox may be out of it before the deadline.
TAKE_MEMORY = frozenset({"forks", "forks that ignore signals", "descriptors"})
# How often a neighbour answers while a bomb burns. One that burns for seconds goes off again until it has: so few are
# little for a machine that is slow, and too many for one where neighbours wait for the end of the fire.
ANSWERS = 5
MOST_BURNS = 10
# More output than the sandbox has memory for, 256 MiB; gVisor takes ten times as long for it as an engine.
MUCH_BYTES = 400_000_000 if ON_CLUSTER else 1_000_000_000


@pytest.fixture
async def neighbour(shared: Sandbox) -> AsyncIterator[Neighbour]:
    """Answers all the time; afterwards each of its commands has had its answer in time."""
    found = Neighbour(shared)
    asking = asyncio.create_task(found.ask())
    yield found
    await found.answers_again()
    asking.cancel()
    await asyncio.wait([asking])
    assert found.failures == []


@pytest.fixture(scope="module")
def attacked(stack: Product) -> Iterator[Kept]:
    """The sandbox behind `bombed`."""
    yield from keeping(stack, memory="256Mi", cpu=1)


@pytest.fixture
async def bombed(client: Client, attacked: Kept, request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """The sandbox that is attacked: another one where the one before has ended, or may not have all its memory back.

    Deleting it is bounded too, whatever runs in it.
    """
    made = await attacked.connect(client, request.node.nodeid)
    yield made
    spent = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name") in TAKE_MEMORY
    if spent or (await client.get(made.id)).state != "running":
        await in_time(made.delete(wait=True), 30)
        attacked.id = ""


@pytest.fixture
async def one_limit(client: Client) -> bool:
    """Whether memory is limited for the whole sandbox only, its kernel and files too: what passes it ends all of it."""
    return await is_gvisor(client)


async def is_gone(sandbox: Sandbox) -> None:
    """By its own doing, and says so.

    A gateway that has not heard of the end yet sends the command there, and tells how that ended.
    """
    told: list[OomKilled] = []
    try:
        ended = await in_time(sandbox.exec("true"))
    except OomKilled as gone:
        told.append(gone)
    else:
        assert ended.oom_killed, ended
    assert not any(gone.is_infra for gone in told)


async def still_serves(sandbox: Sandbox, ended: ExecResult, *, one_limit: bool) -> None:
    """Take another command, or be gone by its own doing."""
    await (is_gone(sandbox) if ended.oom_killed and one_limit else serves_again(sandbox))


async def quiet(sandbox: Sandbox) -> bool:
    """Whether nothing runs any more but what asks; a kill may go on behind its answer."""
    try:
        return (await sandbox.exec("ls /proc | grep -c '^[0-9]'")).stdout == "4\n"
    except PidsExhausted:
        return False


async def test_processes_and_threads_are_limited(client: Client) -> None:
    program = (
        "import threading, time\nfor n in range(200):\n"
        "  try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "  except RuntimeError as error: print(n, error); break"
    )
    async with await client.create(IMAGE, memory="256Mi", pids=64) as sandbox:
        for user in ("0", "1000"):
            number, words = (await sandbox.exec(["python3", "-c", program], user=user)).stdout.split(" ", 1)
            assert (words, int(number) in range(48, 73)) == ("can't start new thread\n", True), number
        assert (await sandbox.usage()).processes_limit == 64


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_hurts_only_its_own_sandbox(
    bombed: Sandbox, neighbour: Neighbour, one_limit: bool, name: str
) -> None:
    takes_all = one_limit and name in TAKE_MEMORY
    # Memory has to be full before the time is over.
    ends, limit_s = ({"oom_killed"}, 10) if name == "memory" else ({"deadline"}, 2)
    answered = 0
    for _ in range(MOST_BURNS):
        before = neighbour.answers
        ended = await goes_off(bombed, BOMBS[name], ends | ({"oom_killed"} if takes_all else set()), limit_s)
        answered += neighbour.answers - before
        # Between the deadline and the last kill it may still take the rest.
        try:
            await still_serves(bombed, ended, one_limit=one_limit)
        except OomKilled:
            assert takes_all
            break
        if answered >= ANSWERS or (ended.oom_killed and one_limit):
            break
    else:
        pytest.fail(f"{answered} answers of the neighbour while the bomb burnt {MOST_BURNS} times")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("answers", [0, 10])
async def test_the_sandbox_can_be_asked_while_it_burns(client: Client, neighbour: Neighbour, answers: int) -> None:
    """Usage, the list and a cancel come through in the middle of a fork bomb, and nothing of that is left.

    It burns until the neighbour has answered so many times.
    """
    # Room for as many processes as it may have: it is to burn, and not to end.
    async with await client.create(IMAGE, memory="1Gi", cpu=1) as bombed:
        async with await bombed.spawn("b() { b | b & }; b; sleep 600", stdin=False) as process:
            await neighbour.answers_again(answers)
            await in_time(bombed.usage())
            listed = await in_time(bombed.processes.list())
            assert process.exec_id in {item.exec_id for item in listed if item.running}
            await in_time(process.kill())
            assert (await in_time(process.wait())).end == "cancelled"
        await serves_again(bombed)
        await until(lambda: quiet(bombed))


async def test_files_without_end_are_bounded_by_their_time(client: Client, neighbour: Neighbour) -> None:
    """As many as a few seconds give; a list of them is bounded by its limit."""
    # Under gVisor what the kernel knows of each is memory: of what it has that takes a part.
    flooded = await client.create(IMAGE, memory="2Gi", cpu=1)
    # More than are asked for below, however few a busy machine makes in time.
    await flooded.exec("mkdir /tmp/first; cd /tmp/first; touch $(seq -f first-%g 2000)", check=True)
    await goes_off(flooded, FLOODS["files without end"], {"deadline"}, 6)
    listed = await in_time(flooded.files.list("/tmp", recursive=True, limit=1_000))
    assert (len(listed), listed.truncated) == (1_000, True)
    await serves_again(flooded)
    await neighbour.answers_again()
    await in_time(flooded.delete(wait=True))


@pytest.mark.soak
@pytest.mark.timeout(2_000)
async def test_a_million_files_are_made_listed_and_go_with_their_sandbox(client: Client, neighbour: Neighbour) -> None:
    """Minutes on an engine's disk. Under gVisor what the kernel knows of them is memory: it is given enough of that."""
    sandbox = await client.create(IMAGE, memory="4Gi", cpu=1)
    made = await sandbox.exec(FLOODS["files without end"].replace("count()", "range(1_000_000)"), timeout=1_500)
    assert made.ok, made
    listed = await in_time(sandbox.files.list("/tmp/many", limit=1_000))
    assert (len(listed), listed.truncated) == (1_000, True)
    assert (await sandbox.exec("ls -f /tmp/many | wc -l", timeout=60)).stdout == "1000002\n"
    await neighbour.answers_again()
    # An engine's machine takes a million files off its disk before it says that they are gone.
    await in_time(sandbox.delete(wait=True, wait_timeout=240), 240)


async def test_a_full_file_system_is_told_and_room_can_be_made(bombed: Sandbox, neighbour: Neighbour) -> None:
    """The one that has a size on every backend: as large as the memory, in which it is."""
    filled = await goes_off(bombed, "head -c 10G /dev/zero > /dev/shm/full", {"exited"}, 30)
    await neighbour.answers_again()
    assert (filled.exit_code, "No space left on device" in filled.stderr) == (1, True)
    with pytest.raises(NoSpace):
        await bombed.files.write("/dev/shm/more", b"x" * 100_000)
    await bombed.files.remove("/dev/shm/full")
    await bombed.files.write("/dev/shm/more", b"x" * 100_000)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("size_bytes", [MUCH_BYTES, pytest.param(10_000_000_000, marks=pytest.mark.soak)])
async def test_a_flood_of_output_is_drained_and_counted_to_its_end(
    bombed: Sandbox, neighbour: Neighbour, size_bytes: int
) -> None:
    """What is kept of it is bounded: its sandbox has 256 MiB for all."""
    ended = await goes_off(bombed, output(size_bytes), {"exited"}, size_bytes / 15_000_000)
    assert (ended.exit_code, ended.stdout_total_bytes, ended.stderr_total_bytes) == (0, size_bytes, size_bytes // 100)
    assert len(ended.stdout_bytes) + len(ended.stderr_bytes) <= 2**25
    await neighbour.answers_again()
    await serves_again(bombed)


async def test_output_without_end_waits_for_its_reader_and_ends_when_it_is_told_to(
    bombed: Sandbox, neighbour: Neighbour
) -> None:
    async with await bombed.spawn(["cat", "/dev/zero"]) as process:
        for _ in range(50):
            assert await anext(process.stdout)
        await in_time(process.kill())
        # Its end would wait for who reads the rest.
        assert [one.exec_id for one in await bombed.processes.list() if one.running] == []
    await neighbour.answers_again()
    await serves_again(bombed)


async def test_without_its_files_the_sandbox_tells_what_is_missing(bombed: Sandbox, neighbour: Neighbour) -> None:
    ended = await goes_off(bombed, FLOODS["no files left"], {"exited"}, 60)
    # What is mounted there, such as /proc, cannot go.
    assert ended.exit_code == 1
    with pytest.raises(InvalidArgument) as told:
        await in_time(bombed.exec(["/bin/echo", "alive"]))
    assert (told.value.details["reason"], told.value.is_infra) == ("command_not_found", False)
    # What needs no file of the image still works.
    await bombed.files.write("/word", b"kept")
    assert await bombed.files.read("/word") == b"kept"
    assert (await bombed.usage()).processes >= 0
    await neighbour.answers_again()
    await in_time(bombed.delete(wait=True), 30)
