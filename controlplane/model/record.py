"""A sandbox's record as text, for a cluster to carry beside it, so that a restart can adopt what still runs.

The environment stays out of it: it may hold secrets, and whoever may list containers could read them.
"""

import json
from typing import Final

from pydantic import ValidationError

from controlplane.model.sandbox import Sandbox, State
from controlplane.model.spec import SandboxSpec

_FIELDS: Final = ("id", "owner", "created_at_ms", "expires_at_ms", "fingerprint", "idempotency_key", "generation")


def dump_record(sandbox: Sandbox) -> str:
    """What is known before the start, as JSON; without the environment."""
    spec = sandbox.spec.model_dump(mode="json", exclude={"env"})
    return json.dumps({**{name: getattr(sandbox, name) for name in _FIELDS}, "spec": spec}, separators=(",", ":"))


def load_record(text: str) -> Sandbox | None:
    """Reads what ``dump_record`` wrote; None when it is not such a record (another version, or damaged)."""
    try:
        fields = json.loads(text)
        spec = SandboxSpec.model_validate(fields.pop("spec"))
        return Sandbox(spec=spec, state=State.STARTING, **{name: fields[name] for name in _FIELDS})
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return None
