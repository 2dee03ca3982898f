"""The type `rollbox` among SWE-ReX's configurations of deployments, a union that has no place to register at."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Union

from pydantic import ValidatorFunctionWrapHandler, WrapValidator
from swerex.deployment import config

from rollbox_integrations.swe_rex.deployment import RollboxDeploymentConfig

# Modules that have taken the union over when they were imported.
_READERS = ("sweagent.environment.swe_env", "sweagent.run.run_replay")


def register() -> None:
    """Add `type: rollbox` to `swerex.deployment.config.DeploymentConfig`. Idempotent.

    Call it before the program is imported whose configurations have the union, like SWE-agent.

    Raises:
        RuntimeError: SWE-agent has been imported, and has the union without it.
    """
    if RollboxDeploymentConfig in getattr(config.DeploymentConfig, "__args__", ()):
        return
    if late := [name for name in _READERS if name in sys.modules]:
        raise RuntimeError(f"register() comes too late: {late[0]} has been imported; call register() before that")
    both = Union[config.DeploymentConfig, RollboxDeploymentConfig]  # noqa: UP007 - of a value
    setattr(config, "DeploymentConfig", Annotated[both, WrapValidator(_of_its_type)])  # noqa: B010 - no type any more


def _of_its_type(value: Any, others: ValidatorFunctionWrapHandler) -> Any:  # noqa: ANN401 - before it is validated
    """Validate what says `rollbox` as that alone: one of the others ignores names that it does not know."""
    if isinstance(value, dict) and value.get("type") == "rollbox":
        return RollboxDeploymentConfig.model_validate(value)
    return others(value)
