"""What somebody does first with an installed release: `helm test`."""

from __future__ import annotations

import pytest

from tests.support.installed import Installed, objects


@pytest.mark.core
async def test_helm_test_runs_a_command_in_a_sandbox_and_leaves_nothing(stack: Installed) -> None:
    assert await stack.test() == {f"{stack.release}-test"}
    left = await objects("pods,configmaps", "-n", stack.namespace)
    assert f"{stack.release}-test" not in {one["metadata"]["name"] for one in left}
