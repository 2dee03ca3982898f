"""What makes a test depend on the speed of the machine, as far as its text shows it.

A line that has to be as it is says why: `# speed: REASON`, on the line, or alone on the line above. Benches measure
speed, and the unit tests of the control plane and the tests of ends have virtual time: of these only names and ports
are looked at.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field
from typing import Final

from tests.lint.problem import Problem

TIMELESS: Final = ("tests/bench/", "tests/unit/controlplane/", "tests/contract/ends/")
EXCUSE: Final = re.compile(r"#\s*speed:(.*)")
LEAST_S: Final = 5.0
# Calls that give up after a time, by which of their arguments says so; a keyword may say it too.
_FIRST: Final = "timeout wait join result settimeout"
_SECOND: Final = "wait_for until eventually eventually_true communicate create_connection subprocess.run"
LIMITED: Final = {**dict.fromkeys(_FIRST.split(), 0), **dict.fromkeys(_SECOND.split(), 1)}
LIMITS: Final = ("timeout", "limit_s", "delay")
CLOCKS: Final = re.compile(r"(.+\.)?(monotonic|perf_counter)(_ns)?|.*\.time")
LISTENING: Final = re.compile(r"(.+\.)?(bind|create_server|start_server|TCPSite|create_datagram_endpoint)")
OPENING: Final = re.compile(
    r"Path|open|(os|shutil|tempfile)\..+|(.+\.)?(start_unix_server|open_unix_connection|UnixSite)"
)
EVERYBODYS: Final = ("/tmp/", "/var/tmp/")

QUICK = "it asserts that something was quick: count what was done instead, or make it a bench"
HOPE = "it hopes that something has happened meanwhile: wait for that, see tests.support.eventually"
SPIN = "it spins, and takes the CPU from what it waits for: see tests.support.eventually"
ALARM = "an alarm interrupts whatever runs then"
NAME = "the name is everybody's on this machine: take tmp_path or mkdtemp"


def problems(source: str, path: str) -> list[Problem]:
    """What is wrong with the text of a module."""
    look, excuses, used = _Look(timeless=any(folder in path for folder in TIMELESS)), _excuses(source), set[int]()
    look.visit(ast.parse(source))
    found = []
    for node, words in look.found:
        excused = excuses.keys() & range(node.lineno, (node.end_lineno or node.lineno) + 1)
        used |= excused
        found += [] if excused else [Problem(path, node.lineno, words)]
    for line, reason in excuses.items():
        if not reason or line not in used:
            found.append(Problem(path, line, "the excuse excuses nothing" if reason else "the excuse has no reason"))
    return sorted(found)


def _excuses(source: str) -> dict[int, str]:
    """Which lines are excused, and why."""
    comments = (one for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type == tokenize.COMMENT)
    said = [(one, EXCUSE.match(one.string)) for one in comments]
    alone = {one.start[0] for one, _ in said if not one.line[: one.start[1]].strip()}
    return {one.start[0] + (one.start[0] in alone): why[1].strip() for one, why in said if why}


def _name(called: ast.expr) -> str:
    """`a.b.c`; what is no name in it is left out."""
    if isinstance(called, ast.Attribute):
        return f"{_name(called.value)}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""


@dataclass
class _Look(ast.NodeVisitor):
    timeless: bool
    found: list[tuple[ast.stmt | ast.expr, str]] = field(default_factory=list)
    _numbers: dict[str, float] = field(default_factory=dict)
    _moments: set[str] = field(default_factory=set)
    # The functions and loops around this place.
    _around: list[str] = field(default_factory=list)

    def generic_visit(self, node: ast.AST) -> None:
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        around = function or isinstance(node, ast.For | ast.AsyncFor | ast.While)
        self._around += [getattr(node, "name", "")] * around
        super().generic_visit(node)
        del self._around[len(self._around) - around :]

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [one.id for one in targets if isinstance(one, ast.Name)]
        if node.value is not None:
            self._numbers.update(dict.fromkeys(names, self._number(node.value)))
            self._moments.update(names if self._tells_time(node.value) else ())
        self.generic_visit(node)

    visit_AnnAssign = visit_Assign  # noqa: N815 - the visitor's name for it

    def visit_While(self, node: ast.While) -> None:
        if isinstance(node.body[0], ast.Pass) and not any(isinstance(one, ast.Await) for one in ast.walk(node.test)):
            self.found.append((node, SPIN))
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        for compare in (one for one in ast.walk(node.test) if isinstance(one, ast.Compare) and not self.timeless):
            sides = [compare.left, *compare.comparators]
            for left, bound, right in zip(sides, compare.ops, sides[1:], strict=False):
                if self._passed(right if isinstance(bound, ast.Gt | ast.GtE) else left):
                    self.found.append((node, QUICK))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node.func)
        if name in ("signal.alarm", "signal.setitimer"):
            self.found.append((node, ALARM))
        if LISTENING.fullmatch(name) and (port := self._port(node)):
            self.found.append((node, f"port {port:g} may be another's: 0 takes a free one"))
        if OPENING.fullmatch(name) and any(_text(one).startswith(EVERYBODYS) for one in node.args):
            self.found.append((node, NAME))
        if not self.timeless:
            self._look_at_time(node, name)
        self.generic_visit(node)

    def _look_at_time(self, node: ast.Call, name: str) -> None:
        at = LIMITED.get(name, LIMITED.get(name.rpartition(".")[2]))
        if at is not None:
            given = [*(one.value for one in node.keywords if one.arg in LIMITS), *node.args[at : at + 1]]
            if 0 < (limit_s := self._first(given)) < LEAST_S:
                self.found.append((node, f"{limit_s:g} s are nothing on a busy machine: an event, or {LEAST_S:g} s"))
        here = self._around[-1] if self._around else ""
        if name in ("asyncio.sleep", "time.sleep") and here.startswith("test_") and self._first(node.args):
            self.found.append((node, HOPE))

    def _port(self, node: ast.Call) -> float:
        """The port of an address, or behind a handler and a host; 0 where there is none."""
        given = [one.value for one in node.keywords if one.arg in ("port", "local_addr")]
        given += [*node.args[:1], *node.args[2:3]]
        return self._first([one.elts[1] if isinstance(one, ast.Tuple) and len(one.elts) > 1 else one for one in given])

    def _first(self, given: list[ast.expr]) -> float:
        """The first number of these; 0 where there is none."""
        return next(filter(None, map(self._number, given)), 0.0)

    def _number(self, node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value)  # type: ignore[arg-type]
        return self._numbers.get(node.id, 0.0) if isinstance(node, ast.Name) else 0.0

    def _tells_time(self, node: ast.AST) -> bool:
        """Whether a moment is in it, by a call or by a name that was given one."""
        inside = [*ast.walk(node)]
        called = any(CLOCKS.fullmatch(_name(one.func)) for one in inside if isinstance(one, ast.Call))
        return called or any(one.id in self._moments for one in inside if isinstance(one, ast.Name))

    def _passed(self, node: ast.AST) -> bool:
        """Whether it is the time between two moments."""
        parts = [one for one in ast.walk(node) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)]
        return any(map(self._tells_time, parts)) or (isinstance(node, ast.Name) and node.id in self._moments)


def _text(node: ast.expr) -> str:
    """How a text begins, also one that is put together; empty for anything else."""
    begin = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    return begin.value if isinstance(begin, ast.Constant) and isinstance(begin.value, str) else ""
