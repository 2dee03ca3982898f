"""``Pool``: the state of one pool at a replica, without clock or store: it takes events in and returns plans.

Times are Unix ms.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from controlplane.errors import Code
from controlplane.lifecycle.pools.declared import Declared
from controlplane.lifecycle.pools.demand import Demand, Size, size
from controlplane.lifecycle.pools.expectations import Members
from controlplane.lifecycle.pools.pace import Pace
from controlplane.lifecycle.pools.planner import Member, Plan, by_use, plan
from controlplane.model import Sandbox, SandboxSpec, State
from controlplane.model.pool import PoolSpec

# An unclaimed sandbox is replaced so long before it expires, while it can still serve.
REPLACED_BEFORE_MS: Final = 600_000
# A sandbox that dies so soon after it was ready counts as a failed start: else it would be replaced without end.
EARLY_MS: Final = 60_000
# A claim that is older than this was counted already: a record is published again whenever it changes.
NEWS_MS: Final = 30_000
# The code of a start that is refused because the installation is full.
FULL: Final[Code] = "capacity_unavailable"
# Causes of ends that do not indicate a bad template.
WANTED: Final[frozenset[Code]] = frozenset(
    {"deleted", "ttl_expired", "stopped_by_operator", "sandbox_evicted", "node_lost", "draining"}
)


@dataclass(frozen=True, slots=True)
class Step:
    """The plan for a pool and its wanted size.

    Attributes:
        missing: how many starts are needed; ``plan.start`` of them are allowed now.
    """

    plan: Plan
    size: Size

    @property
    def missing(self) -> int:
        """See above."""
        return self.plan.missing


class Pool:
    """One pool.

    Attributes:
        held: why nothing is started for it now; empty: nothing keeps it from that.

    Args:
        declared: its declaration; while that is invalid, nothing is started and nothing stopped.
    """

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._withdrawn = False
        self._sound = declared.spec
        self._take_form()
        self._members = Members()
        self._demand = Demand()
        self._pace = Pace()
        self._missed: dict[str, int] = {}
        self.held = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self._declared.name

    @property
    def spec(self) -> PoolSpec | None:
        """The last valid declaration; None: there was none."""
        return self._sound

    @property
    def template(self) -> SandboxSpec | None:
        """The template with which its sandboxes are started."""
        return None if self._sound is None else self._sound.spec()

    @property
    def interpreter(self) -> str:
        """What its sandboxes keep running for their first caller; empty: nothing."""
        return "" if self._sound is None else self._sound.interpreter

    @property
    def selector(self) -> Mapping[str, str]:
        """The labels of the nodes to which its sandboxes come."""
        return {} if self._sound is None else self._sound.spec().node_selector

    @property
    def template_hash(self) -> str:
        """The hash of its template; empty: it has none."""
        return self._template

    def declare(self, declared: Declared) -> bool:
        """Replaces the declaration, and forgets the failures of the old one; whether it has changed."""
        if declared == self._declared and not self._withdrawn:
            return False
        self._declared, self._withdrawn = declared, False
        if declared.spec is not None:
            before, self._sound = self._form, declared.spec
            self._take_form()
            self._pace.renew(proven=self._form == before)
        return True

    def withdraw(self) -> None:
        """Marks the pool as removed: it keeps no sandboxes."""
        self._withdrawn = True

    def observe(self, sandbox: Sandbox, now_ms: int) -> bool:
        """Takes in a change of a sandbox of this pool; whether the planner may have something to do."""
        self.started_at(sandbox, now_ms)
        if not sandbox.unclaimed:
            return self._claimed(sandbox, now_ms)
        if sandbox.end is not None:
            return self._ended(sandbox, now_ms)
        if _nobodys(sandbox):
            return self._members.gone(sandbox.id, now_ms)
        member = _member(sandbox)
        self._prove(sandbox, member)
        return self._members.add(member, now_ms)

    def see(self, view: Iterable[Sandbox], now_ms: int) -> None:
        """Takes in all of its unclaimed sandboxes, as they were read from the store."""
        shown: list[Member] = []
        for sandbox in view:
            self.started_at(sandbox, now_ms)
            if _nobodys(sandbox):
                continue
            member = _member(sandbox)
            shown.append(member)
            self._prove(sandbox, member)
        self._members.seen(shown, now_ms)

    def missed(self, sandbox_id: str, now_ms: int) -> None:
        """Counts a create that found none of its template warm; repeated calls for one sandbox count once."""
        self._missed = {one: at_ms for one, at_ms in self._missed.items() if 0 <= now_ms - at_ms < NEWS_MS}
        if sandbox_id not in self._missed:
            self._missed[sandbox_id] = now_ms
            self._demand.claimed(now_ms)

    def started(self, sandbox: Sandbox, now_ms: int) -> None:
        """Takes in a sandbox that this replica has started."""
        self._pace.admitted()
        self._members.add(_member(sandbox), now_ms)
        self.started_at(sandbox, now_ms)

    def started_at(self, sandbox: Sandbox, now_ms: int) -> None:
        """Counts a start for the rate, whatever has become of it; other replicas' starts count too."""
        self._pace.started(sandbox.id, sandbox.created_at_ms, now_ms)

    def refused(self, code: Code, detail: str, now_ms: int) -> None:
        """Takes in that a start was refused before it began."""
        (self._pace.full if code == FULL else self._pace.failed)(code, detail, now_ms)

    def room(self) -> None:
        """Takes in that there may be room again for a start that found none."""
        self._pace.room()

    def stopped(self, sandbox_id: str, now_ms: int) -> None:
        """Takes in that a sandbox was stopped here, or was claimed before that."""
        self._members.gone(sandbox_id, now_ms)

    def next_step(self, now_ms: int) -> Step:
        """The next step."""
        current, old = self._split(now_ms)
        if self._withdrawn:
            return Step(plan([], [*current, *old], wanted=0, surge=0, allowed=0), Size(0, "it is declared no more"))
        spec = self._sound
        if spec is None or self._declared.spec is None:
            return Step(Plan(), Size(0, self._declared.trouble))
        wanted = size(spec, self._demand, now_ms)
        starting = _unready(current)
        allowed = self._pace.allowed(now_ms, spec.starts_per_minute, starting)
        return Step(plan(current, old, wanted=wanted.wanted, surge=spec.surge, allowed=allowed), wanted)

    def missing(self, now_ms: int) -> int:
        """How many starts it needs that have not begun; 0 while starts of its template fail."""
        return 0 if self._pace.paused_until_ms(now_ms) else self.next_step(now_ms).missing

    def least(self, now_ms: int) -> tuple[float, str] | None:
        """The sandbox that it needs least, and how much: its claims within the time of a start, per sandbox it has.

        None: it has no sandbox, or its declaration is invalid.
        """
        return next(iter(self.offers(now_ms)), None)

    def offers(self, now_ms: int) -> Sequence[tuple[float, str]]:
        """Its sandboxes in the order in which it gives them up, each with how much it needs that one then."""
        current, old = self._split(now_ms)
        if self._declared.spec is None and not self._withdrawn:
            return ()
        wanted = 0 if self._withdrawn else self._demand.most_at_once(now_ms)
        there = [*by_use(old), *by_use(current)]
        return [(wanted / (len(there) - at), one.id) for at, one in enumerate(there)]

    def status(self, now_ms: int) -> dict[str, Any]:
        """Its status; see ``PoolStatus`` in the API."""
        step = self.next_step(now_ms)
        current, old = self._split(now_ms)
        starting = _unready(current)
        return {
            "ready": len(current) - starting,
            "starting": starting,
            "outdated": len(old),
            "wanted": step.size.wanted,
            "claimed_per_minute": self._demand.per_minute(now_ms),
            "why": self._why(step, now_ms),
            "failures": [asdict(failure) for failure in self._pace.failures],
            "paused_until_ms": self._pace.paused_until_ms(now_ms),
        }

    @property
    def over(self) -> bool:
        """Whether it was removed and has no sandboxes left."""
        return self._withdrawn and not self._members.all()

    @property
    def starting(self) -> int:
        """How many of its starts are under way."""
        return _unready(self._members.all())

    def _take_form(self) -> None:
        spec = self.template
        self._template = "" if spec is None else spec.template_hash()
        self._form = "" if spec is None else _form(spec, self.interpreter)

    def _split(self, now_ms: int) -> tuple[list[Member], list[Member]]:
        """The members that are up to date, and the others."""
        members, form, least_ms = self._members.all(), self._form, now_ms + REPLACED_BEFORE_MS
        current = [one for one in members if one.form == form and one.expires_at_ms > least_ms]
        if len(current) == len(members):
            return current, []
        return current, [one for one in members if one.form != form or one.expires_at_ms <= least_ms]

    def _prove(self, sandbox: Sandbox, member: Member) -> None:
        """Counts a successful start of the pool's template, once."""
        if member.ready_at_ms is not None and member.form == self._form and self._members.is_new(member):
            self._demand.started(max(0, member.ready_at_ms - sandbox.created_at_ms))
            self._pace.succeeded()

    def _claimed(self, sandbox: Sandbox, now_ms: int) -> bool:
        news = self._members.gone(sandbox.id, now_ms)
        if not news or abs(now_ms - (sandbox.claimed_at_ms or 0)) > NEWS_MS:
            return False
        self._demand.claimed(now_ms)
        return True

    def _ended(self, sandbox: Sandbox, now_ms: int) -> bool:
        if not self._members.gone(sandbox.id, now_ms) or sandbox.end is None:
            return False
        lived_ms = None if sandbox.ready_at_ms is None else sandbox.end.at_ms - sandbox.ready_at_ms
        early = lived_ms is None or lived_ms < EARLY_MS
        fresh = _form(sandbox.spec, sandbox.interpreter) == self._form
        if early and fresh and sandbox.end.cause == FULL:
            self._pace.full(sandbox.end.cause, sandbox.end.detail, now_ms)
        elif early and fresh and sandbox.end.cause not in WANTED:
            self._pace.failed(sandbox.end.cause, sandbox.end.detail, now_ms)
        return True

    def _why(self, step: Step, now_ms: int) -> str:
        spec = self._sound
        if self._withdrawn:
            return step.size.why
        if spec is None or self._declared.spec is None:
            return f"nothing is started and nothing stopped: {self._declared.trouble}"
        said = [step.size.why]
        until_ms, failures = self._pace.paused_until_ms(now_ms), self._pace.failures
        if step.missing and self.held:
            said.append(f"{step.missing} are missing: {self.held}")
        elif failures:
            last = failures[-1]
            then = "starts pause" if until_ms else "one start at a time is tried"
            said.append(f"{step.missing} are missing and {then}, since starts fail: {last.code}: {last.detail}")
        elif step.missing and self._pace.within_a_minute(now_ms) >= spec.starts_per_minute:
            said.append(f"{step.missing} are missing: {spec.starts_per_minute} were started within a minute already")
        old = len(self._split(now_ms)[1])
        if old and not spec.drain:
            said.append(f"{old} of an older template or age serve until others are ready")
        return "; ".join(said)


def _form(spec: SandboxSpec, interpreter: str) -> str:
    """What is equal for sandboxes that need not be replaced by one another. A claim asks for the template alone."""
    return spec.template_hash() + interpreter


def _nobodys(sandbox: Sandbox) -> bool:
    """Whether a rebuild has made it impossible to claim (``replicas.observation``).

    It may have been claimed before the store was lost, so the pool must not stop it.
    """
    return sandbox.state is State.WARM and (sandbox.ready_at_ms or 0) > sandbox.expires_at_ms


def _unready(members: Sequence[Member]) -> int:
    """How many are starting. A list, which is faster than a generator: this is called many times a second."""
    return sum([one.ready_at_ms is None for one in members])


def _member(sandbox: Sandbox) -> Member:
    ready_at_ms = sandbox.ready_at_ms if sandbox.state is State.WARM else None
    form = _form(sandbox.spec, sandbox.interpreter)
    return Member(sandbox.id, form, sandbox.version, sandbox.expires_at_ms, ready_at_ms)
