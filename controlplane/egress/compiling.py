"""Makes rules of a policy: presets that it includes are looked up, and every rule gets the name that refusals tell."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from controlplane.egress import names
from controlplane.egress.compiled import Compiled, CompiledRule, WireMode
from controlplane.egress.policy import EgressPolicy, EgressRule, Mode, check_count

Side = Literal["allow", "deny"]
# ConsoleViews a preset up for the owner of the policy; None: there is none.
Presets = Callable[[str], EgressPolicy | None]

_USUAL: Final[names.Ports] = ((80, 80), (443, 443))
_ON_WIRE: Final[dict[Mode, WireMode]] = {"none": "offline", "allow": "rules", "deny": "open", "open": "open"}


def compiled(name: str, policy: EgressPolicy, presets: Presets, dated: Sequence[str] = ()) -> Compiled:
    """The rules of a policy.

    Args:
        name: of the preset that it is, or ``custom``.
        policy: as it was written.
        presets: looks up those that it includes.
        dated: hosts that a policy with a date reaches through the package cache alone; empty: there is no cache.

    Raises:
        ValueError: it includes what there is not, what has another mode, or itself; it has too many rules, or a date
            where there is no package cache; the message is for people.
    """
    allow = tuple(_rules(name, policy, "allow", presets, (name,)))
    deny = tuple(_rules(name, policy, "deny", presets, (name,)))
    check_count(len(allow) + len(deny))
    limits = policy.limits.model_dump(exclude_none=True)
    if not (until := min(_dates(policy, presets), default="")):
        return Compiled(name, _ON_WIRE[policy.mode], allow, deny, limits)
    if not dated:
        raise ValueError("it has a date (`until`), and no package cache is installed here that could keep it")
    return Compiled(name, "dated", allow, deny, limits, tuple(CompiledRule("until", one) for one in dated), until)


def _dates(policy: EgressPolicy, presets: Presets) -> Iterator[str]:
    # Of those that it includes too: the earliest counts. That none includes itself is known from its rules.
    if policy.until:
        yield policy.until
    for included in policy.include:
        if (found := presets(included)) is not None:
            yield from _dates(found, presets)


def _rules(
    name: str, policy: EgressPolicy, side: Side, presets: Presets, path: tuple[str, ...]
) -> Iterator[CompiledRule]:
    own: list[EgressRule] = getattr(policy, side)
    for number, rule in enumerate(own, start=1):
        # Explicit, so that what is stored does not change its meaning with a default.
        ports = names.ports(rule.ports) or (_USUAL if side == "allow" else ())
        yield CompiledRule(_id(name, side, number, rule), rule.host or "", rule.cidr or "", ports)
    for included in policy.include:
        yield from _rules(included, _included(included, policy, presets, path), side, presets, (*path, included))


def _included(included: str, policy: EgressPolicy, presets: Presets, path: tuple[str, ...]) -> EgressPolicy:
    if included in path:
        raise ValueError(f"preset {included} includes itself: {' > '.join((*path, included))}")
    found = presets(included)
    if found is None:
        raise ValueError(f"there is no preset {included}")
    if found.mode != policy.mode:
        raise ValueError(f"preset {included} has mode {found.mode}, and a policy of mode {policy.mode} includes it")
    return found


def _id(name: str, side: Side, number: int, rule: EgressRule) -> str:
    return f"{name}/{rule.name}" if rule.name else f"{name}/{side} {number}"
