"""The live tests of Prime's own client, unmodified, over the bridge: those of its repository that ask its cloud.

No registry has them: `ROLLBOX_TEST_PRIME` names a folder with a checkout of PrimeIntellect-ai/prime, at `COMMIT`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.bridges.published import of_client
from tests.bridges.running import bridge, environment_of
from tests.bridges.test_prime_clients import environment
from tests.support.images import AGAINST_CLUSTER, IMAGE
from tests.support.stack import Product

CLIENT: Final = "prime-sandboxes-tests"
COMMIT: Final = "66fb4b704377aa56b0f580756c80f3bc824a797a"
CHECKOUT: Final = "ROLLBOX_TEST_PRIME"
# How many tests each file has that asks the cloud; the others have a cloud of their own, or images to build.
FILES: Final = {
    "test_command_execution.py": 14,
    "test_file_operations.py": 8,
    "test_sandbox_operations.py": 10,
    # It waits for 100 s.
    "test_cmd_timeout.py": 1,
}
# The image that they name.
NAMED: Final = "python:3.11-slim"
# What one of them asks for, of which an engine says that it has none.
NOT_ON_ENGINES: Final = "disk_bytes 10737418240 cannot be honoured on an engine"


async def ran(stack: Product, tests: Path, home: Path) -> None:
    """Run them; what they did is below `home`."""
    python = environment_of(CLIENT) / "bin/python"
    async with bridge(stack, "--image", f"{NAMED}={IMAGE}", protocol="prime") as url:
        process = await asyncio.create_subprocess_exec(
            str(python),
            *f"-m pytest -q -p no:cacheprovider -c {os.devnull} --rootdir".split(),
            str(tests),
            f"--junitxml={home}/told.xml",
            *(str(tests / name) for name in FILES),
            env=environment(url, stack.api_key, home),
            stdout=asyncio.subprocess.DEVNULL,
        )
        await process.wait()


@pytest.fixture(scope="module")
def told(stack: Product, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """What became of the tests of each file: "" of those that have passed, else what they said."""
    folder = os.environ.get(CHECKOUT, "")
    if not folder:
        pytest.skip(f"no registry has the tests: {CHECKOUT} names a folder with a checkout of PrimeIntellect-ai/prime")
    home = tmp_path_factory.mktemp("home")
    asyncio.run(ran(stack, Path(folder, "packages/prime-sandboxes/tests"), home))
    found: dict[str, list[str]] = {name: [] for name in FILES}
    for case in ElementTree.parse(home / "told.xml").getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.py"
        troubles = [f"{one.get('message')}\n{one.text}" for one in case if one.tag != "system-out"]
        found[name].append("".join(f"{case.get('name')}: {text}" for text in troubles))
    return found


@of_client(CLIENT)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FILES)
def test_the_live_tests_of_the_client_pass(
    told: Mapping[str, list[str]], name: str, passed: Callable[[int], None], not_supported: Callable[[str], None]
) -> None:
    failed = [text for text in told[name] if text]
    passed(len(told[name]) - len(failed))
    if name == "test_sandbox_operations.py" and not AGAINST_CLUSTER:
        not_supported("one asks for a limit of the disk (an engine has none)")
        assert NOT_ON_ENGINES in failed.pop(0)
    assert failed == []
    assert len(told[name]) == FILES[name]
