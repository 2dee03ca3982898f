"""Who wants a sandbox: a model of what clients do, and what the record says of it."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.record.callers import MOST_CALLERS, OTHERS, call_of, joined, left, new_caller, withdrawn
from controlplane.model import Sandbox, SandboxSpec

CALLS = ("a", "b", "c")
# What a call does: it tries (again), the server hears that one of its tries has hung up, or it takes back everything.
ACTS = st.lists(st.tuples(st.sampled_from(("try", "hang up", "take back")), st.sampled_from(CALLS), st.integers(0, 5)))


def fresh(*callers: str) -> Sandbox:
    """A sandbox as it is admitted for its first caller."""
    spec = SandboxSpec(image="a")
    return Sandbox("sb-1", "ann", spec, 1, 2, spec.fingerprint(), "k", callers=callers)


@given(ACTS)
def test_it_is_abandoned_when_and_only_when_no_call_wants_it(acts: list[tuple[str, str, int]]) -> None:
    first = new_caller("a")
    sandbox, wanted, tries = fresh(first), {"a": first}, {call: list[str]() for call in CALLS}
    tries["a"].append(first)
    for now_ms, (act, call, which) in enumerate(acts, start=1):
        before = sandbox
        if act == "try":
            caller = new_caller(call)
            tries[call].append(caller)
            wanted[call] = caller
            sandbox = joined(sandbox, caller)
        elif act == "hang up" and tries[call]:
            caller = tries[call][which % len(tries[call])]
            # Of an earlier try than the last one it says nothing.
            if wanted.get(call) == caller:
                del wanted[call]
            sandbox = left(sandbox, caller, now_ms)
        else:
            wanted.pop(call, None)
            sandbox = withdrawn(sandbox, call, now_ms)
        assert {call_of(one): one for one in sandbox.callers} == wanted
        assert (sandbox.abandoned_at_ms is not None) == (not wanted)
        assert sandbox is before or sandbox.version == before.version + 1


def test_of_very_many_callers_some_are_forgotten_and_the_sandbox_stays() -> None:
    sandbox = fresh(new_caller())
    callers = [new_caller() for _ in range(3 * MOST_CALLERS)]
    for caller in callers:
        sandbox = joined(sandbox, caller)
    assert len(sandbox.callers) == MOST_CALLERS
    for caller in callers:
        sandbox = left(sandbox, caller, 1)
    assert (sandbox.callers, sandbox.abandoned_at_ms) == ((OTHERS,), None)


def test_what_a_lost_store_has_forgotten_may_be_anybodys() -> None:
    sandbox = fresh()
    assert withdrawn(sandbox, "a", 1) is left(sandbox, "a/1", 1) is sandbox
    again = withdrawn(joined(sandbox, "b/1"), "b", 1)
    assert (again.callers, again.abandoned_at_ms) == ((OTHERS,), None)
