"""Programs that change the user work for a user who is not root, and give no more than root of the sandbox has."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator

import pytest

from rollbox import Sandbox

PERSON = "1000:1000"
# Each of these is a power over the sandbox's own init, or over its mounts.
SYS_PTRACE, SYS_ADMIN, SYS_RESOURCE, NET_RAW = 1 << 19, 1 << 21, 1 << 24, 1 << 13


async def ids(sandbox: Sandbox, program: str) -> object:
    """The user and group ids of a copy of Python that a person runs."""
    look = "import os; print([*os.getresuid(), *os.getresgid()])"
    ran = await sandbox.exec([program, "-I", "-c", look], user=PERSON, check=True)
    return ast.literal_eval(ran.stdout)


@pytest.mark.core
@pytest.mark.parametrize("folder", ["/usr/local/bin", "/tmp", "/var/tmp"])
async def test_the_bits_of_a_file_change_the_user_and_the_group(shared: Sandbox, folder: str) -> None:
    program = f"{folder}/changes-user"
    await shared.exec(f"install $(readlink -f $(command -v python3)) {program}", check=True)
    try:
        for owner, mode, wanted in (
            ("0:0", "755", [1000] * 6),
            ("0:0", "4755", [1000, 0, 0, 1000, 1000, 1000]),
            ("0:0", "6755", [1000, 0, 0, 1000, 0, 0]),
            ("0:4242", "2755", [1000, 1000, 1000, 1000, 4242, 4242]),
            ("65534:0", "4755", [1000, 65534, 65534, 1000, 1000, 1000]),
        ):
            await shared.exec(f"chown {owner} {program}; chmod {mode} {program}", check=True)
            assert await ids(shared, program) == wanted, (owner, mode)
    finally:
        await shared.exec(f"rm {program}")


@pytest.fixture
async def person(shared: Sandbox) -> AsyncIterator[Sandbox]:
    """A sandbox with a person in it, where root has a password."""
    prepare = "useradd --create-home --uid 1000 person && echo root:secret | chpasswd"
    await shared.exec(prepare, check=True)
    yield shared
    await shared.exec("userdel --remove person; usermod --password '*' root", check=True)


async def test_su_makes_a_person_root_for_the_right_password_alone(person: Sandbox) -> None:
    for password, wanted in (("secret", "0 root\n"), ("wrong", "")):
        ran = await person.exec(f"echo {password} | su -c 'echo $(id -u) $(id -un)'", user="person", timeout=60)
        assert ran.stdout == wanted, ran


async def test_root_by_su_has_the_powers_of_a_plain_container(person: Sandbox) -> None:
    look = "grep -E '^Cap(Eff|Bnd)|^Seccomp:' /proc/self/status"
    seen = (await person.exec(f'echo secret | su -c "{look}"', user="person", check=True)).stdout
    sets = {line.split()[0]: int(line.split()[1], 16) for line in seen.splitlines()}
    for name in ("CapEff:", "CapBnd:"):
        assert sets[name] & (SYS_PTRACE | SYS_ADMIN | SYS_RESOURCE) == 0, seen
    assert sets["Seccomp:"] == 2
    for attack in (
        "mount -t tmpfs none /mnt",
        "unshare --mount true",
        "unshare --user true",
        "echo x > /proc/sys/kernel/core_pattern",
        "cat /proc/1/environ",
        "kill -9 1; kill -0 1",
    ):
        ran = await person.exec(["sh", "-c", f"echo secret | su -c '{attack}'"], user="person", timeout=60)
        assert ran.exit_code != 0 or attack.startswith("kill"), (attack, ran)
    assert (await person.exec("echo alive", user="person")).stdout == "alive\n"
