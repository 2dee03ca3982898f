"""open-instruct: the backend `rollbox` of its sandboxes, and the tool `rollbox_sandbox`, by importing this module.

`python -m rollbox_integrations.open_instruct open_instruct/grpo_fast.py ...` is an unmodified trainer that knows them.
"""

try:
    from open_instruct.environments.generic_sandbox import GenericSandboxEnv as _GenericSandboxEnv  # noqa: F401
except ImportError as error:
    # It is in no registry.
    _WANTED = "open-instruct's environments are not there: rollbox works with allenai/open-instruct at e6c3044"
    raise ImportError(f"{_WANTED} and newer, whose folder has to be on PYTHONPATH ({error})") from error

from rollbox_integrations.open_instruct.backend import RollboxBackend, SandboxLostError
from rollbox_integrations.open_instruct.environment import RollboxSandboxEnv, RollboxSandboxEnvConfig, register

__all__ = ["RollboxBackend", "RollboxSandboxEnv", "RollboxSandboxEnvConfig", "SandboxLostError", "register"]
