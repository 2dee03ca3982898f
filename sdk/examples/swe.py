"""A repository is prepared once, scrubbed of its future and committed; a group is graded from that image.

    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python sdk/examples/swe.py --image localhost/rollbox/swe:1

The repository has a bug, the commit that mends it, and tests. The policies are scripted: one looks for the solution in
the repository, one mends the bug, one does nothing, one breaks the code. Exits with 0 when every reward is as expected
and nothing of the solution was to be found.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

from rollbox import CommittedImage, Sandbox, SandboxGroup

BUGGY = "def middle(values):\n    return sorted(values)[len(values) // 2 - 1]\n"
MENDED = "def middle(values):\n    return sorted(values)[len(values) // 2]\n"
TESTS = "from middle import middle\n\n\ndef test_middle():\n    assert middle([3, 1, 2]) == 2\n"
PREPARE = """
set -eu
cd /repo
git init -q . && git config user.name rollbox && git config user.email rollbox@example.com
git add -A && git commit -q -m 'middle, as it was' && git tag v1
printf '%s' "$MENDED" > middle.py
git commit -q -a -m 'middle: the mended one' && git tag v2
git checkout -q v1
python3 -m compileall -q .
"""

Policy = Callable[[Sandbox], Awaitable[None]]


async def cheat(sandbox: Sandbox) -> None:
    """Take the solution out of the repository's future."""
    await sandbox.exec("cd /repo && for c in $(git log --all --reflog --format=%H); do git checkout -q $c -- .; done")
    await sandbox.exec("cd /repo && git checkout -q v2")


async def mend(sandbox: Sandbox) -> None:
    """Write the right code."""
    await sandbox.files.write("/repo/middle.py", MENDED)


async def rest(sandbox: Sandbox) -> None:
    """Do nothing."""


async def spoil(sandbox: Sandbox) -> None:
    """Write code that does not even compile."""
    await sandbox.files.write("/repo/middle.py", "def middle(")


POLICIES: tuple[tuple[Policy, float], ...] = ((cheat, 0.0), (mend, 1.0), (rest, 0.0), (spoil, 0.0))


async def prepared(image: str) -> CommittedImage:
    """The image of a repository that is ready to work on, without its later commits."""
    files = {"/repo/middle.py": BUGGY, "/repo/test_middle.py": TESTS}
    async with await Sandbox.create(image, files=files, memory="512Mi", ttl=600) as sandbox:
        await sandbox.exec(PREPARE, env={"MENDED": MENDED}, check=True, timeout=120)
        report = await sandbox.scrub_git("/repo", at="v1")
        print(f"scrubbed: {report.objects} objects are left, all of {report.commit[:12]} and its ancestors")
        return await sandbox.commit("example-swe:v1")


async def graded(sandbox: Sandbox, policy: Policy) -> float:
    """The reward of one sample."""
    await policy(sandbox)
    result = await sandbox.exec("cd /repo && python3 -m pytest -q test_middle.py", timeout=300)
    return float(result.ok)


async def main() -> int:
    """Prepare once, grade a group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="localhost/rollbox/swe:1", help="an image with Git, Python and pytest")
    parser.add_argument("--each", type=int, default=4, help="how many samples of each of the four policies")
    options = parser.parse_args()
    samples = POLICIES * options.each
    began = time.monotonic()
    image = await prepared(options.image)
    print(f"committed {image} ({image.size_bytes} bytes) after {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    # What is reserved, and the limit: a sample mostly waits, so 16 fit where there are two cores.
    cpu, memory = (0.02, 1), ("128Mi", "512Mi")
    async with await SandboxGroup.create(
        image, n=len(samples), cpu=cpu, memory=memory, ttl=600, start_timeout=600
    ) as group:
        rewards = await asyncio.gather(*(graded(one, policy) for one, (policy, _) in zip(group, samples, strict=True)))
    for (policy, expected), reward in zip(samples, rewards, strict=True):
        print(f"{policy.__name__:6} {reward:g}" + ("" if reward == expected else f", and not {expected:g}"))
    print(f"graded {len(rewards)} samples after {time.monotonic() - began:.1f} s")
    return int(any(reward != expected for (_, expected), reward in zip(samples, rewards, strict=True)))


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
