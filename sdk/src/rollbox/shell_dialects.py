"""The input of shells, and the marks that separate their answers from the output of commands. Pure.

A mark is 128 random bits, drawn for one command. The shell gets it in two halves, so that a shell that echoes what it
reads or runs (`set -v`, `set -x`) does not print it whole.

The first half of a mark is also what the processes of the next command have as ROLLBOX_COMMAND_ID among their
variables, by which the sandbox finds them when the command is to be abandoned.

Aborting a command that ran too long takes more than killing its processes: the shell would go on with the next command
of the same line. sh runs interactively, so SIGINT brings it back to its prompt. bash does not, since it would print
messages about jobs into the command's stderr: there SIGURG arms a DEBUG trap that skips every further command and
leaves every loop and function, until the shell gets the next request for a mark.
"""

from __future__ import annotations

import re
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from rollbox.shell_scripts import BASH_SETUP, END, HEADER, SH_SETUP, STATUS, TERMINAL_SETUP

_QUIET = {"ENV": "", "PS1": "", "PS2": ""}
# What is typed to it is no history of a person.
_ONLY_BASH = "set +o histexpand; unset PROMPT_COMMAND HISTFILE; "
# A terminal takes lines of 4095 bytes; quoted, a character of a command may take four of its bytes.
_PIECE_CHARS = 250


class Mark(NamedTuple):
    """A mark in two halves."""

    first: str
    second: str

    @classmethod
    def fresh(cls) -> Mark:
        """Draw a new mark."""
        return cls(secrets.token_hex(8), secrets.token_hex(8))

    @property
    def printed(self) -> bytes:
        """As the shell prints it."""
        return f"{self.first}{self.second}".encode()


@dataclass(frozen=True)
class Dialect:
    """A kind of shell.

    Attributes:
        argv, env: how it is started.
        setup: its first input.
        signal: makes it abandon a command whose processes were killed.
        prompt: what it prints on stderr when it is ready; empty when it prints nothing.
    """

    argv: list[str]
    setup: str
    signal: int
    prompt: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, line: Line, mark: Mark) -> str:
        """Write a command as a shell without a terminal gets it; bash prints the mark behind it, as for a request."""
        if self.prompt:
            return line.posix_text()
        text = line.bash_text()
        # A shell that abandons what comes skips the reading, and then these lines themselves.
        return f'\\command eval "$__rb"\n{HEADER.format(size=len(text), **mark._asdict())}{text}'

    def mark_request(self, mark: Mark) -> str:
        """Write what makes it print mark, exit code, jobs and mark to stdout, and the mark to stderr."""
        if self.prompt:
            return f"{_kept('__rollbox_ask', *mark)}\n"
        ask = '{ __rollbox_ask "$?" read&&:;}>&"$__rollbox_out" 2>/dev/null'
        return f"{ask}\n{HEADER.format(size=0, **mark._asdict())}"


BASH = Dialect(
    ["bash", "--norc", "--noprofile"],
    f'read -r -N {len(BASH_SETUP)} __rollbox;eval "$__rollbox"\n{BASH_SETUP}',
    signal.SIGURG,
)


def posix(prompt: str) -> Dialect:
    """A POSIX shell, whose prompt shows that it is ready."""
    # Through a descriptor of its own: a command may have redirected the shell's stderr.
    set_prompt = f"PS1='$({{ command printf {prompt} >&8; }} 2>/dev/null)'"
    setup = f"{SH_SETUP}{END.replace('PROMPT', set_prompt)}{set_prompt}\n"
    return Dialect(["sh", "-i"], setup, signal.SIGINT, prompt.encode(), _QUIET)


def on_terminal(mark: Mark) -> tuple[Dialect, Dialect]:
    """Bash and sh on a terminal. Their prompt is a mark, with a number and the exit code behind it.

    The number is that of the command, which its processes have as ROLLBOX_COMMAND_ID behind the first half of the mark.
    """
    shells = (["bash", "--norc", "--noprofile", "--noediting", "-i"], _ONLY_BASH), (["sh", "-i"], "")
    settings = {**mark._asdict(), "ask": prompt_request(0)}
    bash, sh = (
        Dialect(argv, TERMINAL_SETUP % {**settings, "only": only}, signal.SIGINT, mark.printed, {"ENV": ""})
        for argv, only in shells
    )
    return bash, sh


class Line(NamedTuple):
    """A command, and what holds for it alone.

    Attributes:
        command: what the shell runs.
        cwd: its directory; empty: the shell's.
        env: its variables, over the shell's.
        input_path: the file that it reads, and that is removed before it runs; empty: it reads the end of file.
        lost: what the shell prints on stderr when it cannot enter `cwd`.
    """

    command: str
    cwd: str = ""
    env: Mapping[str, str] = MappingProxyType({})
    input_path: str = ""
    lost: str = ""

    def posix_text(self) -> str:
        """Write it for sh: in the shell itself, or where it has a directory or variables of its own in a subshell."""
        # Not by a function or an alias of that name.
        run = f"\\command eval {quoted(_ended(_begun(self.command), _kept('__rollbox_end')))}"
        return f"{self._around(run, '</dev/null')}; {_kept('__rollbox_end')}\n"

    def bash_text(self) -> str:
        """Write it for bash, as settings of what the shell's line runs; ASCII, since `read` counts characters."""
        # bash shows the line with an error of syntax, which has to be the command's own.
        text, run = _said(self.command), self._around('\\command eval "$__rollbox_command"', "")
        if run.startswith("\\"):
            return f"__rollbox_run=$__rollbox_set{ascii_quoted(_ended(text, STATUS))}\n"
        run = ascii_quoted(_ended(run, STATUS))
        return f"__rollbox_command=$__rollbox_set{ascii_quoted(text)}\n__rollbox_run={run}\n"

    def _around(self, run: str, no_input: str) -> str:
        """Write what a command runs in: its directory, its variables and its input."""
        if self.cwd or self.env:
            enter = f"CDPATH= command cd -- {quoted(self.cwd)} || {{ command printf {self.lost} >&2; command exit 1; }}"
            variables = [f"command export {name}={quoted(value)}" for name, value in self.env.items()]
            run = f"( {'; '.join([enter] * bool(self.cwd) + variables + [run])} )"
        if self.input_path:
            path = quoted(self.input_path)
            return f"{{ command rm -f -- {path}; {run}; }} <{path}"
        return f"{run} {no_input}".rstrip()


def quoted(text: str) -> str:
    """Quote a text for any shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def ascii_quoted(text: str) -> str:
    """Quote a text for bash, in ASCII."""
    if text.isascii():
        return quoted(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").encode()
    return "$'" + "".join(chr(byte) if byte < 0x80 else f"\\x{byte:02x}" for byte in escaped) + "'"


def _kept(name: str, *more: str) -> str:
    """Write a call of a function that gets the exit code and returns it, unseen by `set -e` and the trap of ERR."""
    call = " ".join((name, '"$?"', *more))
    return f"{{ {call} && __rollbox_=; }} >/dev/null 2>&1"


def _begun(command: str) -> str:
    """Write a command with its settings before it."""
    return f"{_kept('__rollbox_begin')}; {_said(command)}"


def _said(command: str) -> str:
    """Return a command; one of comments alone succeeds."""
    nothing = all(line.lstrip()[:1] in ("", "#") for line in command.split("\n"))
    return "__rollbox_=" if nothing else command


# What has no end would take a line behind it for its rest: a here-document, an operator, the name of a function.
_OPEN = re.compile(r"<<|(?:\|&?|&&|\([ \t]*\)|\bfunction[ \t]+\S+)(?:[\s\\]|#[^\n]*(?:\n|$))*$")


def _ended(text: str, end: str) -> str:
    """Write behind a command what keeps its code.

    So `eval` has none: `set -e` and a trap of ERR would take one that is no failure (`! true`) for one of `eval`.
    """
    # A backslash at the end takes one newline away.
    newlines = "\n\n" if text.endswith("\\") else "\n"
    return text if _OPEN.search(text) else f"{text}{newlines}{end}"


_OWN_LINE = re.compile(rb'(?:\\command eval "\$__rb"|\{ __rollbox_|case \$BASH_COMMAND in "__rollbox_)[^\n]*\n+')


def without_own(shown: bytes) -> bytes:
    """Leave out the lines of this module, which a shell shows after `set -v`."""
    return _OWN_LINE.sub(b"", shown)


def typed(command: str, number: int) -> str:
    """Write a command as it is typed: in lines that a terminal takes, and with a prompt of its own behind it."""
    text = _ended(_begun(command), _terminal_end(number))
    pieces = [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]
    return "\\command eval " + "\\\n".join(map(quoted, pieces)) + f"; {prompt_request(number)}"


def prompt_request(number: int) -> str:
    """Build the line that gives a shell on a terminal another prompt, and keeps the exit code."""
    return f"{_terminal_end(number)}; __rollbox_prompt && __rollbox_=\n"


def _terminal_end(number: int) -> str:
    return f'{{ __rollbox_end {number} "$?"; }} >/dev/null 2>&1'


# More than a pipe holds. A shell that has taken it has read all lines before it; before the next line it says nothing.
FILLER = " " * (2**16 + 2**12)


def status(report: bytes) -> tuple[int, list[int]]:
    """Read the text between the marks: the exit code and the background processes."""
    code, *jobs = report.decode("ascii", "replace").split()
    return int(code), [int(pid) for pid in jobs]
