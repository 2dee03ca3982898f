"""The public API: options of commands are those of the methods, and the blocking versions are the others'."""

import inspect
from collections.abc import Iterable

import rollbox
import rollbox.ports
import rollbox.sync.ports
from rollbox import errors, sync

# Plumbing of the SDK itself.
ONLY_ASYNC = {
    "Client": {"gateway"},
    "Interpreter": {"start"},
    "Shell": {"start"},
    "TerminalShell": {"start"},
    "OutputStream": {"arrived", "finish", "full", "needs_refetch", "tail"},
    "Run": {"begin", "end"},
}


def in_sync(names: Iterable[str]) -> set[str]:
    """What they are called there: the one rule."""
    return {"close" if name == "aclose" else name for name in names}


def public(kind: type) -> dict[str, object]:
    return {name: getattr(kind, name) for base in kind.__mro__[:-1] for name in vars(base) if not name.startswith("_")}


def parameters(method: object) -> list[str]:
    return [*inspect.signature(method).parameters] if callable(method) else []


def test_the_sync_face_has_the_same_names() -> None:
    assert sync.__all__ == sorted(in_sync(rollbox.__all__))
    assert all(hasattr(sync, name) for name in sync.__all__)


def shared_names() -> list[str]:
    return sorted((set(sync.__all__) & set(rollbox.__all__)) - {"errors"})


def test_what_the_sync_face_shares_is_not_to_be_awaited() -> None:
    assert sync.errors is errors
    for name in shared_names():
        kind = getattr(sync, name)
        if kind is getattr(rollbox, name) and inspect.isclass(kind):
            awaited = {one for one, member in public(kind).items() if inspect.iscoroutinefunction(member)}
            # `Client.health` makes it by `of`.
            assert awaited <= ({"of"} if name == "Health" else set()), name


def test_the_sync_face_has_the_same_methods_with_the_same_parameters() -> None:
    classes = {name: (getattr(rollbox, name), getattr(sync, name)) for name in shared_names()}
    classes |= {name: (getattr(rollbox.ports, name), getattr(sync.ports, name)) for name in ("Ports", "PortStream")}
    classes["PortDatagrams"] = (rollbox.ports.PortDatagrams, sync.ports.PortDatagrams)
    for name, (theirs, ours) in classes.items():
        if theirs is ours or not inspect.isclass(ours):
            continue
        there, here = public(theirs), public(ours)
        assert in_sync(set(there) - ONLY_ASYNC.get(name, set())) <= set(here), name
        for method in (set(there) & set(here)) - ONLY_ASYNC.get(name, set()):
            if "options" not in parameters(here[method]):
                assert parameters(here[method]) == parameters(there[method]), f"{name}.{method}"


def test_options_of_commands_are_those_of_the_methods() -> None:
    run = set(inspect.signature(rollbox.Sandbox.exec).parameters) - {"self", "cmd"}
    spawn = set(inspect.signature(rollbox.Sandbox.spawn).parameters) - {"self", "cmd"}
    assert set(rollbox.ExecOptions.__annotations__) == run
    assert set(rollbox.SpawnOptions.__annotations__) == spawn
    shell = set(inspect.signature(rollbox.Sandbox.shell).parameters) - {"self", "terminal"}
    assert set(rollbox.ShellOptions.__annotations__) == shell
    command = set(inspect.signature(rollbox.Shell.run).parameters) - {"self", "command"}
    assert set(rollbox.ShellRunOptions.__annotations__) == command
    interpreter = set(inspect.signature(rollbox.Sandbox.interpreter).parameters) - {"self", "language"}
    assert set(rollbox.InterpreterOptions.__annotations__) == interpreter
    for method in (rollbox.Interpreter.run, rollbox.Interpreter.stream):
        assert set(rollbox.CellOptions.__annotations__) == set(inspect.signature(method).parameters) - {"self", "code"}


# Of which only the detail can say what to do.
WITHOUT_HINT = ("invalid_argument", "permission_denied", "conflict", "not_found", "quota_exceeded", "unsupported")


def test_every_error_is_a_sandbox_error_of_its_own_code() -> None:
    for code, kind in errors.BY_CODE.items():
        assert issubclass(kind, rollbox.SandboxError)
        assert kind.code == code
        assert kind.hint.endswith(".") or code in WITHOUT_HINT
