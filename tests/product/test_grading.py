"""Grading in a fresh sandbox: what the solver leaves is judged there, and nothing of it reaches further."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, LazySandbox, Sandbox, Verdict, sync
from rollbox.errors import Conflict, Deleted, ImageNotFound, InvalidArgument
from rollbox.grading import HARBOR_REWARD_FILES
from tests.support.command_line import rollbox as command_line
from tests.support.images import AGAINST_CLUSTER, IMAGE
from tests.support.stack import Product
from tests.support.waiting import succeeds, until

EXAMPLE = Path(__file__).parents[2] / "sdk" / "examples" / "harbor.py"
ANSWERED = 'test "$(cat /app/answer)" = 42'
# No mark is left by which its command would be known: neither parent, session nor variables.
DAEMON = "env -i setsid sh -c 'while :; do echo 42 >> /app/answer; done' >/dev/null 2>&1 &"
# The init, a file worker that waits, and the three that look.
MOST_LEFT = 5
# What an attacker would like to be there: told by the grader's own look at what it was given.
SEEN = """
import json, os, stat
seen = {}
for top, folders, files in os.walk("/app"):
    for name in folders + files:
        path = os.path.join(top, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            to = os.path.realpath(path)
            seen[path] = "link in" if to.startswith("/app") else "link out"
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            seen[path] = "other"
        elif stat.S_ISREG(mode):
            seen[path] = "set-id" if mode & 0o6000 else "links" if os.lstat(path).st_nlink > 1 else "file"
print(json.dumps(seen))
"""


async def graded(sandbox: Sandbox, run: Any = ANSWERED, **options: Any) -> Verdict:
    return await sandbox.grade(IMAGE, **{"take": "/app", "run": run, "memory": "256Mi", **options})


async def processes(sandbox: Sandbox) -> int:
    """Those of a sandbox, with the two or three of this look."""
    return int((await sandbox.exec("set -- /proc/[0-9]*; echo $#")).stdout)


async def gone(client: Client, verdict: Verdict) -> bool:
    return (await client.get(verdict.grader_id)).state in ("ending", "ended")


@pytest.mark.core
async def test_what_the_solver_has_made_is_judged_by_tests_that_it_never_had(sandbox: Sandbox, client: Client) -> None:
    await sandbox.exec("mkdir /app; echo 42 > /app/answer; echo hidden > /other", check=True)
    tests = f"test -f /tests/right; test ! -e /other; {ANSWERED}; echo told; echo apart >&2"
    right = await graded(sandbox, f"set -e; {tests}", files={"/tests/right": b"", "/tests/more/x": "x"})
    assert (right.fault, right.reason, right.passed, right.reward, right.exit_code) == ("none", "graded", True, 1.0, 0)
    assert (right.stdout, right.stderr, right.mask_sample) == ("told\n", "apart\n", False)
    assert (right.taken.count, right.taken.size_bytes, right.taken.missing) == (1, 3, [])
    assert right.times.run_ms > 0
    assert right.times.total_ms >= right.times.before_run_ms > 0
    assert await gone(client, right)
    await sandbox.exec("echo 43 > /app/answer", check=True)
    wrong = await graded(sandbox)
    assert (wrong.fault, wrong.passed, wrong.reward, wrong.exit_code) == ("none", False, 0.0, 1)
    assert json.loads(json.dumps(wrong.to_json()))["reward"] == 0.0
    assert await succeeds(sandbox, "test -f /app/answer"), "the solver's sandbox is left as it was"


@pytest.mark.core
async def test_no_process_of_the_solver_lives_on_and_none_writes_into_what_is_taken(sandbox: Sandbox) -> None:
    await sandbox.exec(f"mkdir /app; {DAEMON}", check=True)
    await until(lambda: succeeds(sandbox, "test -s /app/answer"))
    shell = await sandbox.spawn("trap '' TERM INT HUP; sleep 3600", stdin=False)
    verdict = await graded(sandbox, "sort -u /app/answer")
    assert verdict.stdout == "42\n", verdict
    assert (await shell.wait()).end == "cancelled"
    sizes = [(await sandbox.files.stat("/app/answer")).size_bytes for _ in range(2)]
    assert sizes[0] == sizes[1]
    assert await processes(sandbox) <= MOST_LEFT


async def test_a_bomb_of_forks_is_ended_before_anything_is_taken(client: Client) -> None:
    async with await client.create(IMAGE, memory="256Mi", pids=100) as bomb:
        await bomb.exec("mkdir /app; echo 42 > /app/answer", check=True)
        await bomb.spawn("b() { b | b & }; b", stdin=False)
        verdict = await graded(bomb)
        assert verdict.passed, verdict
        assert await processes(bomb) <= MOST_LEFT


HOSTILE = {
    "link to the answers": ("ln -s /tests/answer /app/a", "link"),
    "link to the reward": ("ln -s /logs/verifier/reward.txt /app/a", "link"),
    "link upwards": ("ln -s ../../tests/answer /app/a", "link"),
    "link by way of a link": ("mkdir -p /app/d/e; ln -s ../.. /app/d/e/up; ln -s up/../tests /app/d/e/a", "link"),
    "link into /proc": ("ln -s /proc/self/root/tests /app/a", "link"),
    "directory that is a link": ("ln -s / /app/a", "link"),
    "set-user-ID": ("cp /bin/ls /app/a; chmod 6755 /app/a", "bits"),
    "fifo": ("mkfifo /app/a", "nothing"),
    "socket": ("python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/app/a')\"", "nothing"),
    "name with a newline": ("touch \"$(printf '/app/a\\nb')\"", "name"),
    "name with an escape": ("touch \"$(printf '/app/\\033[2Ja')\"", "name"),
    "hard link to the image's": ("ln /etc/passwd /app/a || cp /etc/passwd /app/a", "copy"),
    "more bytes than allowed": ("head -c 2000000 /dev/zero > /app/a", "too_many_bytes"),
    "sparse bomb": ("truncate -s 100G /app/a", "too_many_bytes"),
    "many entries": ("cd /app; seq 300 | xargs touch", "too_many_entries"),
    "deep path": ("cd /app; for n in $(seq 40); do mkdir ddddddddddddddd; cd ddddddddddddddd; done", "path_too_long"),
    "root is a link": ("rm -r /app; ln -s /etc /app", "not_a_tree"),
    "root is a fifo": ("rm -r /app; mkfifo /app", "not_a_tree"),
    "root is a link to itself": ("rm -r /app; ln -s /app /app", "not_a_tree"),
}


@pytest.mark.core
async def test_hostile_trees_are_refused_or_lose_what_is_hostile(sandbox: Sandbox) -> None:
    succeeded = []
    for name, (prepare, wanted) in HOSTILE.items():
        await sandbox.exec("rm -rf /app; mkdir /app", check=True)
        await sandbox.exec(prepare, check=True)
        verdict = await graded(
            sandbox,
            ["python3", "-c", SEEN],
            files={"/tests/answer": "42"},
            max_bytes="1Mi" if wanted != "bits" else "100Mi",
            max_entries=200,
            max_path_bytes=500,
        )
        if wanted in ("too_many_bytes", "too_many_entries", "path_too_long", "not_a_tree"):
            told = (verdict.fault, verdict.reason, verdict.reward, verdict.mask_sample)
            held = told == ("sample", wanted, 0.0, False)
        else:
            kinds = set(json.loads(verdict.stdout).values()) if verdict.passed else {str(verdict)}
            held = kinds <= {"file", "link in"}
            held = held and (verdict.taken.dropped_count > 0) is (wanted in ("link", "bits", "name"))
        succeeded += [] if held else [(name, verdict)]
    assert succeeded == []


async def test_what_the_solver_removed_is_removed_and_what_is_excluded_stays(sandbox: Sandbox) -> None:
    # /etc of the image stands for a task's folder: what it has there, the grader has too.
    await sandbox.exec("rm /etc/hostname.old /etc/issue; echo changed > /etc/issue.net; rm -r /etc/init.d || true")
    whole = await graded(sandbox, "ls -A /etc/skel; ls /etc/issue; cat /etc/issue.net", take="/etc/skel")
    assert whole.taken.count > 0
    await sandbox.exec("rm -rf /etc/skel; mkdir -p /srv/made/tests; echo own > /srv/made/tests/planted", check=True)
    missing = await graded(sandbox, "test ! -e /etc/skel", take=["/etc/skel", "/srv/made"])
    assert (missing.passed, missing.taken.missing) == (True, ["/etc/skel"])
    tests = {"/srv/made/tests/real": "real"}
    excluded = await graded(sandbox, "ls /srv/made/tests", take="/srv/made", exclude="/srv/made/tests", files=tests)
    assert excluded.stdout == "real\n"
    assert list(excluded.taken.dropped) == ["/srv/made/tests"]


async def test_one_file_another_user_and_the_shape_of_a_tree(sandbox: Sandbox) -> None:
    await sandbox.exec("mkdir -p /app/deep/er /srv; chmod 750 /app/deep; echo 42 > /app/answer; echo 7 > /srv/out")
    await sandbox.exec("ln -s answer /app/link; chmod 600 /app/answer; touch -d @1700000000 /app/answer", check=True)
    look = "id -u; stat -c '%U %a %Y %F' /app/answer /app/deep; readlink /app/link; cat /srv/out; touch /app/mine"
    verdict = await graded(sandbox, look, take=["/app", "/srv/out"], user="nobody")
    assert verdict.stdout.splitlines() == [
        "65534",
        "nobody 600 1700000000 regular file",
        *[line for line in verdict.stdout.splitlines() if line.endswith("directory")],
        "answer",
        "7",
    ]
    assert verdict.passed, verdict
    assert "nobody 750" in verdict.stdout


async def test_rewards_are_read_bounded_and_typed(sandbox: Sandbox) -> None:
    await sandbox.exec("mkdir /app", check=True)
    text, written = HARBOR_REWARD_FILES[1], HARBOR_REWARD_FILES[0]
    table = [
        (f"echo 0.5 > {text}", ("none", "graded", 0.5)),
        (f"echo 1 > {text}; exit 3", ("none", "graded", 1.0)),
        (f"""echo '{{"reward": 0.25, "style": 1}}' > {written}; echo 1 > {text}""", ("none", "graded", 0.25)),
        ("true", ("grader", "reward_missing", None)),
        (f"echo nan > {text}", ("grader", "reward_malformed", None)),
        (f"echo high > {text}", ("grader", "reward_malformed", None)),
        (f"echo '[1]' > {written}", ("grader", "reward_malformed", None)),
        (f"head -c 1000000 /dev/zero > {text}", ("grader", "reward_malformed", None)),
        (f"mkdir {text}", ("grader", "reward_malformed", None)),
    ]
    found = [await graded(sandbox, run, reward_files=HARBOR_REWARD_FILES) for run, _ in table]
    assert [(one.fault, one.reason, one.reward) for one in found] == [wanted for _, wanted in table]
    assert [one.mask_sample for one in found] == [wanted[0] == "grader" for _, wanted in table]
    assert found[2].rewards == {"reward": 0.25, "style": 1.0}


async def test_a_grader_that_never_ends_or_cannot_begin_is_the_graders_fault(sandbox: Sandbox, client: Client) -> None:
    await sandbox.exec("mkdir /app", check=True)
    endless = await graded(sandbox, "echo begun; sleep 3600", timeout=1)
    assert (endless.fault, endless.reason, endless.mask_sample, endless.reward) == ("grader", "timeout", True, None)
    assert endless.stdout == "begun\n"
    missing = await graded(sandbox, ["no-such-tests"])
    assert (missing.fault, missing.reason) == ("grader", "not_run")
    full = await graded(sandbox, ["python3", "-c", "x = b'x' * (1 << 30)"], memory="128Mi")
    assert (full.fault, full.reason, full.mask_sample) == ("grader", "oom", True)
    assert await gone(client, endless)
    assert await gone(client, missing)


async def test_a_mistake_of_the_program_is_raised(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    await sandbox.exec("mkdir /app", check=True)
    with pytest.raises(ImageNotFound):
        await sandbox.grade(f"{IMAGE.rpartition('/')[0]}/never-built:1", take="/app", run="true")
    for options in (
        {"take": "app"},
        {"take": "/"},
        {"take": "/app/../etc"},
        {"take": ["/app", "/app/x"]},
        {"take": "/app", "exclude": "/other"},
        {"take": "/app", "files": {"/app": b""}},
        {"take": "/app", "files": {"/tests": tmp_path / "none"}},
        {"take": "/app", "reward_files": "/app/reward.txt"},
        {"take": "/app", "timeout": 0},
        {"take": "/app", "max_entries": 0},
        {"take": "/app", "max_bytes": "much"},
    ):
        with pytest.raises(InvalidArgument):
            await sandbox.grade(IMAGE, run="true", **options)
    assert await _none(client, sandbox)


async def test_a_solver_that_has_ended_is_told_with_its_cause(client: Client) -> None:
    ended = await client.create(IMAGE, memory="256Mi")
    await client.delete(ended.id, wait=True)
    verdict = await graded(ended)
    assert (verdict.fault, verdict.reason, verdict.mask_sample) == ("platform", "solver_ended", True)
    assert isinstance(verdict.error, Deleted)
    assert await _none(client, ended)
    await ended.delete()
    with pytest.raises(Deleted):
        await graded(ended)


async def test_the_grader_goes_with_a_cancelled_call_and_the_solver_where_it_is_not_kept(client: Client) -> None:
    async with await client.create(IMAGE, memory="256Mi") as solver:
        await solver.exec("mkdir /app; echo 42 > /app/answer", check=True)
        grading = asyncio.create_task(graded(solver, "sleep 3600"))
        await until(lambda: client.list({"grades": solver.id}))
        await asyncio.sleep(0)
        grading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await grading
        assert await _none(client, solver)
        assert (await graded(solver, keep=False)).passed
        assert (await client.get(solver.id)).state in ("ending", "ended")


async def test_a_grader_has_no_network_and_a_lazy_solver_is_started(client: Client) -> None:
    async with LazySandbox(IMAGE, memory="256Mi", client=client) as lazy:
        verdict = await lazy.grade(IMAGE, take="/app", run="exec 3<>/dev/tcp/192.0.2.1/80", memory="256Mi")
        assert (verdict.fault, verdict.passed, verdict.taken.missing) == ("none", False, ["/app"])


async def test_files_may_be_a_local_directory(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "test.sh").write_text("#!/bin/sh\ncat /tests/sub/expected\n")
    (tmp_path / "test.sh").chmod(0o755)
    (tmp_path / "sub" / "expected").write_text("42")
    await sandbox.exec("mkdir /app", check=True)
    assert (await graded(sandbox, ["/tests/test.sh"], files={"/tests": tmp_path})).stdout == "42"


async def test_without_await_and_by_the_command_line(stack: Product, sandbox: Sandbox, client: Client) -> None:
    await sandbox.exec("mkdir /app; echo 42 > /app/answer", check=True)

    def judged() -> Verdict:
        with sync.Client(stack.url, stack.api_key) as waiting:
            return waiting.connect(sandbox.id).grade(IMAGE, take="/app", run=ANSWERED, memory="256Mi")

    assert (await asyncio.to_thread(judged)).passed
    said = ["grade", sandbox.id, "--image", IMAGE, "--take", "/app", "--memory", "256Mi", "--run"]
    status, out, err = await command_line(stack, *said, f"echo shown; {ANSWERED}")
    assert (status, out) == (0, b"shown\n"), err
    status, out, _ = await command_line(stack, *said, "exit 3", "--json")
    told = json.loads(out)
    assert (status, told["reward"], told["fault"], told["exit_code"]) == (1, 0.0, "none", 3)
    status, _, err = await command_line(stack, *said, "sleep 60", "--timeout", "0.5")
    assert status == 124
    assert "timeout" in err
    await sandbox.exec("rm -r /app; ln -s /etc /app", check=True)
    status, _, err = await command_line(stack, *said, "true")
    assert status == 1
    assert "symbolic link" in err
    assert await _none(client, sandbox)


# On a cluster a release that builds has them built: ``tests/e2e/test_builds.py``.
@pytest.mark.tools
@pytest.mark.parametrize("options", [[]] if AGAINST_CLUSTER else [[], ["--build"]])
@pytest.mark.usefixtures("client")
async def test_tasks_in_harbors_format_are_graded_by_their_oracle_and_stand_attacks(
    stack: Product, options: list[str]
) -> None:
    said = await harbor_example(stack, *options)
    assert said[0] == "oracle: reward 1 in 10 of 10 tasks"
    assert [line for line in said[1:] if not line.endswith(": reward 0 in 10 of 10 tasks")] == []
    assert len(said) == 6


async def harbor_example(stack: Product, *options: str) -> list[str]:
    """What the example says, a line for each agent; the images that it builds are removed."""
    async with Client(stack.url, stack.api_key) as client:
        before = {one.image for one in (await client.commits()).images} if options else set()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLE),
            "--image",
            IMAGE,
            *options,
            env={**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if options:
            for one in (await client.commits()).images:
                if one.image not in before:
                    await until(partial(_removed, client, one.image))
    said = out.decode().splitlines()
    assert process.returncode == 0, said
    return said


async def _removed(client: Client, image: str) -> bool:
    """Whether it is; containers of sandboxes that have ended take a moment."""
    try:
        await client.remove_image(image)
    except Conflict:
        return False
    return True


async def _none(client: Client, sandbox: Sandbox) -> bool:
    """Whether no grader of a solver's is left; what is ending is in the server's hand."""
    return not [one for one in await client.list({"grades": sandbox.id}) if one.state != "ending"]
