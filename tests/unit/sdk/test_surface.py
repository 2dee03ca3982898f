"""The public API: this file lists its names, and checks docstrings, options and the blocking versions."""

import inspect

import rollbox
from rollbox import errors, sync


def test_the_door_lists_exactly_these_names() -> None:
    assert rollbox.__all__ == [
        "Batch",
        "Blocker",
        "BreakerPolicy",
        "Capacity",
        "Checkpoint",
        "Client",
        "Commit",
        "Commits",
        "CommittedImage",
        "Conversion",
        "ConversionProgress",
        "CreateOptions",
        "DeleteReport",
        "Drain",
        "EgressAttempt",
        "EgressPolicy",
        "EgressPreset",
        "EgressRule",
        "EgressState",
        "End",
        "ErrorContext",
        "ExecOptions",
        "ExecResult",
        "ExecSummary",
        "FileChange",
        "FileInfo",
        "Files",
        "Gap",
        "Health",
        "LazySandbox",
        "Listing",
        "Moment",
        "Need",
        "Node",
        "NodeImage",
        "NodePool",
        "NodeRoom",
        "NodesToCome",
        "Outcome",
        "OutputStream",
        "Place",
        "Pool",
        "PoolFailure",
        "Prefetch",
        "PrefetchProgress",
        "PrefetchReport",
        "Preflight",
        "Process",
        "Processes",
        "Quota",
        "QuotaLimits",
        "RetryPolicy",
        "Run",
        "RunReport",
        "Sandbox",
        "SandboxError",
        "SandboxGroup",
        "SandboxList",
        "SandboxRecord",
        "Scaling",
        "ScrubReport",
        "Shell",
        "SlowSandbox",
        "SpawnOptions",
        "StdinWriter",
        "Tail",
        "Timeline",
        "TransferReport",
        "Usage",
        "WaitingStart",
        "__version__",
        "aclose",
        "errors",
    ]
    assert all(hasattr(rollbox, name) for name in rollbox.__all__)


def test_every_public_class_and_method_tells_what_it_does() -> None:
    for name in (
        "Batch",
        "Blocker",
        "BreakerPolicy",
        "Client",
        "DeleteReport",
        "End",
        "ExecResult",
        "ExecSummary",
        "FileChange",
        "FileInfo",
        "Files",
        "Health",
        "LazySandbox",
        "Listing",
        "Need",
        "Outcome",
        "OutputStream",
        "Place",
        "Preflight",
        "Process",
        "Processes",
        "Quota",
        "RetryPolicy",
        "Run",
        "RunReport",
        "Sandbox",
        "SandboxError",
        "SandboxGroup",
        "SandboxRecord",
        "Shell",
        "StdinWriter",
        "TransferReport",
    ):
        kind = getattr(rollbox, name)
        assert kind.__doc__, name
        for member, value in vars(kind).items():
            if not member.startswith("_") and (
                inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)
            ):
                assert value.__doc__, f"{name}.{member}"


def test_the_sync_face_has_the_same_methods() -> None:
    closing_names = {"Client": {"aclose", "gateway"}, "Process": {"aclose"}, "Shell": {"aclose", "start"}}
    plumbing = {"arrived", "finish", "full", "needs_refetch"}
    streams = ("Process", "Processes", "OutputStream", "StdinWriter", "Shell", "Files")
    for name in ("Sandbox", "LazySandbox", "SandboxGroup", "Client", *streams):
        closing = closing_names.get(name, plumbing if name == "OutputStream" else set[str]())
        ours = {member for member in vars(getattr(sync, name)) if not member.startswith("_")}
        theirs = {member for member in vars(getattr(rollbox, name)) if not member.startswith("_")}
        assert theirs - closing <= ours, name


def test_options_of_commands_are_those_of_the_methods() -> None:
    run = set(inspect.signature(rollbox.Sandbox.exec).parameters) - {"self", "cmd"}
    spawn = set(inspect.signature(rollbox.Sandbox.spawn).parameters) - {"self", "cmd"}
    assert set(rollbox.ExecOptions.__annotations__) == run
    assert set(rollbox.SpawnOptions.__annotations__) == spawn


def test_every_error_is_a_sandbox_error_of_its_own_code() -> None:
    for code, kind in errors.BY_CODE.items():
        assert issubclass(kind, rollbox.SandboxError)
        assert kind.code == code
        assert kind.hint
