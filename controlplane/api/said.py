"""What a call says of itself while it is answered, for its audit entry. Nothing is kept where nobody listens."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from controlplane.access import Caller
from controlplane.errors import Code


@dataclass(slots=True)
class Said:
    """What was said so far.

    Attributes:
        caller: whose key the call has; None: it has none that is in force.
        about: sandboxes that it has opened or ended.
        code: of the problem that it was answered with; empty: none.
    """

    caller: Caller | None = None
    about: list[str] = field(default_factory=list)
    code: Code | str = ""


_current: ContextVar[Said | None] = ContextVar("said", default=None)


@contextmanager
def listening() -> Iterator[Said]:
    """Takes what the call of this context says."""
    said = Said()
    token = _current.set(said)
    try:
        yield said
    finally:
        _current.reset(token)


def shown(caller: Caller) -> None:
    """The call has the key of ``caller``."""
    if (said := _current.get()) is not None:
        said.caller = caller


def concerns(*sandbox_ids: str) -> None:
    """The call has opened or ended these."""
    if (said := _current.get()) is not None:
        said.about.extend(sandbox_ids)


def refused(code: Code) -> None:
    """The call is answered with a problem."""
    if (said := _current.get()) is not None:
        said.code = code
