"""``Binding``: which policy a sandbox has, as its record says it, and as the cluster keeps it with the sandbox."""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from controlplane.egress.compiled import OFFLINE_NAME, Compiled, read_compiled

_MOST_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class Binding:
    """The policy of a sandbox; its rules are kept beside the records, since thousands of sandboxes have few policies.

    Attributes:
        name: of the preset that it was, or ``custom``.
        digest: of its rules; empty: it has been offline since its birth, and nothing is to be told to anybody.
        revision: increases with every switch, also across a loss of the store (Unix ms of the switch).
        applied: the last revision that its egress replica has put in force; 0: none yet.
        cut: how many connections were closed for that one.
    """

    name: str = OFFLINE_NAME
    digest: str = ""
    revision: int = 0
    applied: int = 0
    cut: int = 0

    @property
    def bound(self) -> bool:
        """Whether an egress replica has to know it."""
        return bool(self.digest)

    @property
    def in_force(self) -> bool:
        """Whether its last switch is in force."""
        return self.applied >= self.revision

    def switched(self, policy: Compiled, now_ms: int) -> Self:
        """With this policy from now on; the same where it has it."""
        if policy.digest == self.digest:
            return self
        revision = max(now_ms, self.revision + 1)
        return replace(self, name=policy.name, digest=policy.digest, revision=revision, cut=0)

    def confirmed(self, revision: int, cut: int) -> Self:
        """With this revision in force; the same where it is, or a later one."""
        return replace(self, applied=revision, cut=cut) if self.applied < revision <= self.revision else self

    def fact(self, policy: Compiled) -> str:
        """As the cluster stores it with the sandbox, with the rules: then they survive what keeps them."""
        return f"{self.revision}:{policy.text}"


UNBOUND: Final = Binding()


def read_fact(fact: str) -> tuple[Binding, Compiled] | None:
    """Reads what ``Binding.fact`` wrote; its switch counts as not yet in force. None for any other text."""
    revision, _, text = fact.partition(":")
    policy = read_compiled(text)
    if policy is None or not revision.isascii() or not revision.isdigit() or len(revision) > _MOST_DIGITS:
        return None
    return Binding(policy.name, policy.digest, int(revision)), policy


def load_binding(fields: Any) -> Binding:  # noqa: ANN401 - JSON
    """Reads the members of a stored binding.

    Raises:
        TypeError: it is none of this version.
    """
    return Binding(**fields)
