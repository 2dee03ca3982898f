"""The languages: under which name a program is written, how it is compiled, and how it runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_NAME: Final = "program"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How programs of one language run, in the directory that they are written to.

    Attributes:
        file: the name of the program's file.
        run: the command that runs it.
        build: the command before that, where there is one.
        begin: what a program begins with; put before one that does not.
    """

    file: str
    run: tuple[str, ...]
    build: tuple[str, ...] = ()
    begin: str = ""

    def text(self, code: str) -> str:
        """The content of the program's file."""
        return code if code.lstrip().startswith(self.begin) else f"{self.begin}\n{code}"


def _run(command: str, suffix: str, begin: str = "") -> Recipe:
    """One that is interpreted, or compiled as it is run."""
    return Recipe(f"{_NAME}{suffix}", (*command.split(), f"{_NAME}{suffix}"), begin=begin)


def _built(command: str, suffix: str) -> Recipe:
    """One that is built to a program, whose name the command ends with."""
    return Recipe(f"{_NAME}{suffix}", (f"./{_NAME}",), tuple(command.format(f"{_NAME}{suffix}", _NAME).split()))


RECIPES: Final[Mapping[str, Recipe]] = {
    "python": _run("python3", ".py"),
    "pytest": _run("pytest", ".py"),
    "cpp": _built("g++ -std=c++17 {} -o {}", ".cpp"),
    "nodejs": _run("node", ".js"),
    "typescript": _run("tsx", ".ts"),
    "go": _built("go build -o {1} {0}", ".go"),
    "go_test": Recipe(f"{_NAME}_test.go", ("go", "test", f"{_NAME}_test.go")),
    "java": Recipe("Main.java", ("java", "-ea", "Main"), ("javac", "Main.java")),
    "bash": _run("bash", ".sh"),
    "php": _run("php -f", ".php", "<?php"),
    "rust": _built("rustc {} -o {}", ".rs"),
    "lua": _run("lua", ".lua"),
    "R": _run("Rscript", ".R"),
    "perl": _run("perl", ".pl"),
    "ruby": _run("ruby", ".rb"),
    "julia": _run("julia", ".jl"),
    "kotlin_script": _run("kotlin", ".kts"),
    "swift": _built("swiftc {} -o {}", ".swift"),
    "racket": _run("racket", ".rkt"),
    "D_ut": _built("dmd {} -unittest -of={}", ".d"),
    "verilog": Recipe(
        f"{_NAME}.sv",
        ("vvp", "-n", f"{_NAME}.vvp"),
        tuple(f"iverilog -Wall -Winfloop -Wno-timescale -g2012 -s tb -o {_NAME}.vvp {_NAME}.sv".split()),
    ),
}
"""By the protocol's names. What else the protocol names needs files of its server's image."""


def recipe_of(language: str, files: Iterable[str]) -> Recipe:
    """The recipe of a program with these files beside it; archives of Java are on its class path."""
    recipe = RECIPES[language]
    archives = [name for name in files if name.endswith(".jar")]
    if language != "java" or not archives:
        return recipe
    path = ("-cp", ":".join([".", *archives]))
    return Recipe(recipe.file, ("java", *path, "-ea", "Main"), ("javac", *path, "Main.java"))
