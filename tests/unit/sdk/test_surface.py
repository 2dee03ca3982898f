"""The public surface is a list, and this file owns it."""

import inspect

import rollbox
from rollbox import errors, sync


def test_the_door_lists_exactly_these_names() -> None:
    assert rollbox.__all__ == [
        "Client",
        "CreateOptions",
        "DeleteReport",
        "End",
        "ExecOptions",
        "ExecResult",
        "RetryPolicy",
        "Sandbox",
        "SandboxError",
        "SandboxList",
        "SandboxRecord",
        "__version__",
        "aclose",
        "errors",
    ]
    assert all(hasattr(rollbox, name) for name in rollbox.__all__)


def test_every_public_class_and_method_tells_what_it_does() -> None:
    for name in (
        "Client",
        "DeleteReport",
        "End",
        "ExecResult",
        "RetryPolicy",
        "Sandbox",
        "SandboxError",
        "SandboxRecord",
    ):
        kind = getattr(rollbox, name)
        assert kind.__doc__, name
        for member, value in vars(kind).items():
            if not member.startswith("_") and (
                inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)
            ):
                assert value.__doc__, f"{name}.{member}"


def test_the_sync_face_has_the_same_methods() -> None:
    for name, closing in (("Sandbox", set[str]()), ("Client", {"aclose", "gateway"})):
        ours = {member for member in vars(getattr(sync, name)) if not member.startswith("_")}
        theirs = {member for member in vars(getattr(rollbox, name)) if not member.startswith("_")}
        assert theirs - closing <= ours, name


def test_options_are_those_of_the_methods() -> None:
    create = set(inspect.signature(rollbox.Sandbox.create).parameters) - {"image", "client"}
    run = set(inspect.signature(rollbox.Sandbox.exec).parameters) - {"self", "cmd"}
    assert set(rollbox.CreateOptions.__annotations__) == create
    assert set(rollbox.ExecOptions.__annotations__) == run


def test_every_error_is_a_sandbox_error_of_its_own_code() -> None:
    for code, kind in errors.BY_CODE.items():
        assert issubclass(kind, rollbox.SandboxError)
        assert kind.code == code
        assert kind.hint
