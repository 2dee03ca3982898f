"""SWE-ReX's own tests of what it does with a runtime: those that the installed version's source distribution has.

Its others are of its local runtime's own functions, and of its deployments on Docker and in clouds.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Final

import pytest

from on_swe_rex import own_fixtures
from on_swe_rex.own_fixtures import (  # noqa: F401 - fixtures
    remote_runtime,
    remote_server,
    runtime_with_default_session,
    sandbox_runtime,
)

_package = ModuleType("tests")
_package.__path__ = [os.environ["ROLLBOX_TEST_OWN"]]
sys.modules |= {"tests": _package, "tests.conftest": own_fixtures}

from tests.test_execution import *  # noqa: E402, F403 - of the package above
from tests.test_remote_deployment import *  # noqa: E402, F403
from tests.test_server import *  # noqa: E402, F403

NOT_SUPPORTED: Final = {
    "test_read_write_file": "files of the tests' own machine",
    "test_read_large_file": "files of the tests' own machine",
    "test_interrupt_pager": "job control's word for a killed pager",
    "test_unauthenticated_request": "a status of FastAPI's that has changed since, with SWE-ReX's own runtime too",
    "test_run_in_shell_multiple_interactive_and_normal_commands": "what SWE-ReX expects to fail with its own too",
}
for _name, _why in NOT_SUPPORTED.items():
    # One that passes all the same fails, and so does one that breaks.
    _expected = pytest.mark.xfail(reason=f"not supported: {_why}", strict=True, raises=(AssertionError, OSError))
    globals()[_name].pytestmark = [_expected.mark]
