"""What a grader has found. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from rollbox._problem import SandboxError
from rollbox.files import paths
from rollbox.grading.tree import RefusedReason, Taken
from rollbox.result import ExecResult

GradeFault: TypeAlias = Literal["none", "sample", "grader", "platform"]
GradeReason: TypeAlias = (
    Literal[
        "graded",
        "solver_ended",
        "not_stopped",
        "timeout",
        "oom",
        "not_run",
        "not_prepared",
        "reward_missing",
        "reward_malformed",
        "failed",
    ]
    | RefusedReason
)


@dataclass(slots=True)
class GradeTimes:
    """Milliseconds that the steps took, measured here; 0 for those that were not come to.

    Attributes:
        stop_ms: until no process of the solver's ran any more.
        create_ms: until the grader was ready, beside that.
        take_ms: the hand-over.
        files_ms: the grader's own files.
        before_run_ms: all until the tests began.
        run_ms: the tests.
        total_ms: all of it, with the grader's end.
    """

    stop_ms: float = 0.0
    create_ms: float = 0.0
    take_ms: float = 0.0
    files_ms: float = 0.0
    before_run_ms: float = 0.0
    run_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(slots=True)
class Verdict:
    """What `Sandbox.grade` found.

    Attributes:
        fault: whose fault it is that there is no result of the tests: "none": there is one; "sample": what the solver
            left could not be taken, or it has ended by its own doing; "grader": the tests did not come to an end, or
            left no reward; "platform": of the platform, or of this program.
        reason: the same for programs: "graded", "timeout", "too_many_bytes", ...
        detail: the same in words.
        reward: what counts: of the tests' file, else 1 where the tests passed and 0 where not; 0 for a fault of the
            sample, None for the others.
        rewards: all of the file, by name.
        exit_code: of the tests; None where they did not exit.
        stdout, stderr: of the tests.
        result: the whole result of the tests; None where they did not run.
        taken: what was handed over, and what was left out.
        times: what it took.
        grader_id: the sandbox that graded, which is deleted; "" where there was none.
        error: the error behind a fault, where there is one.
    """

    fault: GradeFault = "none"
    reason: GradeReason = "graded"
    detail: str = ""
    reward: float | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    result: ExecResult | None = None
    taken: Taken = field(default_factory=Taken)
    times: GradeTimes = field(default_factory=GradeTimes)
    grader_id: str = ""
    error: SandboxError | None = None

    @property
    def passed(self) -> bool:
        """Whether the tests exited with 0, and nothing was at fault."""
        return self.fault == "none" and self.result is not None and self.result.ok

    @property
    def mask_sample(self) -> bool:
        """Whether this says nothing about the sample, which is left out of the loss."""
        return self.fault in ("grader", "platform")

    @property
    def exit_code(self) -> int | None:
        """The exit code of the tests."""
        return None if self.result is None else self.result.exit_code

    @property
    def stdout(self) -> str:
        """What the tests wrote."""
        return "" if self.result is None else self.result.stdout

    @property
    def stderr(self) -> str:
        """What the tests wrote to stderr."""
        return "" if self.result is None else self.result.stderr

    def to_json(self) -> dict[str, Any]:
        """Write it for `--json`."""
        report = self.taken.report.to_json()
        return {
            "passed": self.passed,
            "reward": self.reward,
            "rewards": self.rewards,
            "fault": self.fault,
            "reason": self.reason,
            "detail": self.detail,
            "mask_sample": self.mask_sample,
            "exit_code": self.exit_code,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "taken": {
                "count": report["count"],
                "size_bytes": report["size_bytes"],
                "dropped": report["skipped"],
                "dropped_count": report["skipped_count"],
                "missing": [paths.shown(path) for path in self.taken.missing],
            },
            "times": asdict(self.times),
            "grader_id": self.grader_id,
            "error": None if self.error is None else {"code": self.error.code, "detail": self.error.detail},
        }
