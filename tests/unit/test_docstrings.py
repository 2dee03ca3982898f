"""What the rule for docstrings finds, and what it lets pass."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.lint import docstrings
from tests.lint.__main__ import ROOT

SHORT = """
def f(a, b, *, c=1, **d):
    '''Adds.'''
"""
LEFT_OUT = """
def f(a, b, *, c=1, **d):
    '''Adds.

    Args:
        a: one.
        b, c: two.
    '''
"""
ELSEWHERE = """
def f(a, b, *, c=1, **d):
    '''Adds.

    Raises:
        a, b, c, d: no.
    '''
"""
METHOD = """
class A:
    async def f(self, a, b, c, d):
        '''Adds.'''
"""
ANOTHER_ERROR = """
def f():
    '''Fails.

    Raises:
        KeyError: always.
    '''
    raise ValueError
"""
NO_SECTION = """
class A:
    def f(self, a, b, c, d):
        '''See `A.g`.'''
    def g(self):
        '''Goes.'''
"""
PROPERTY = """
class A:
    @property
    def f(self):
        '''Fails.'''
        raise ValueError
"""
WRONG = {
    "no docstring": "def f(a, b, c, d): ...",
    "no section": SHORT,
    "a parameter that is left out": LEFT_OUT,
    "the words in another section": ELSEWHERE,
    "a method": METHOD,
    "an error": "def f():\n    'Fails.'\n    raise ValueError",
    "an error of a package": "def f():\n    'Fails.'\n    if a:\n        raise errors.Problem('x') from None",
    "another error": ANOTHER_ERROR,
    "an error outside of the section": "def f():\n    'Raises ValueError.'\n    raise ValueError",
    "a reference to what has no section": NO_SECTION,
    "a reference to itself": METHOD.replace("Adds.", "See `A.f`."),
    "a property": PROPERTY,
}
WHOLE = """
def f(a, b, *, c=1, **d):
    '''Adds.

    Args:
        a, b: one.
        c: two,
            in two lines.
        **d: more.

    Returns:
        e: it.

    Raises:
        errors.Problem, ValueError: always.
    '''
    raise Problem("x")
    raise ValueError
"""
WITHIN = """
def f():
    '''Adds.'''
    def g(a, b, c, d): raise ValueError
    return g
"""
CAUGHT = """
def f():
    '''Adds.'''
    try:
        g()
    except ValueError as error:
        raise error
    raise
"""
RIGHT = {
    "all that is asked for": WHOLE,
    "three parameters": "def f(a, b, c):\n    'Adds.'",
    "three beside the object": "class A:\n    def f(self, a, b, c):\n        'Adds.'",
    "a private function": "def _f(a, b, c, d): raise ValueError",
    "a method of a private class": "class _A:\n    def f(self, a, b, c, d): raise ValueError",
    "a constructor": "class A:\n    def __init__(self, a, b, c, d): raise ValueError",
    "a function in a function": WITHIN,
    "what was caught": CAUGHT,
    "what cannot happen": "def f():\n    'Adds.'\n    raise AssertionError('unreachable')",
    "a route": "@router.get('/a')\nasync def f(a, b, c, d): raise Problem('x')",
    "an overload": "@overload\ndef f(a, b, c, d): ...",
    "an override": "class A:\n    @override\n    def f(self, a, b, c, d): ...",
}
INTERFACE = """
class Store:
    def f(self, a, b, c, d):
        '''Adds.

        Args:
            a, b, c, d: numbers.
        '''
"""


def told(**sources: str) -> list[str]:
    """The paths with a problem, one for each."""
    return [one.path for one in docstrings.problems({path: dedent(text) for path, text in sources.items()})]


def implementation(words: str, body: str = "...", name: str = "Memory") -> str:
    return f"class {name}:\n    def f(self, a, b, c, d):\n        '''{words}'''\n        {body}"


@pytest.mark.parametrize("source", WRONG.values(), ids=WRONG.keys())
def test_what_is_left_out_is_found_once(source: str) -> None:
    assert told(a=source) == ["a"]


@pytest.mark.parametrize("source", RIGHT.values(), ids=RIGHT.keys())
def test_what_is_said_or_not_public_is_let_pass(source: str) -> None:
    assert told(a=source) == []


@pytest.mark.parametrize(
    "words", ["See ``Store.f``. Cost: one.", "As `package.module.Store.f`.", "As `await Store.f`."]
)
def test_an_implementation_has_the_words_of_the_interface_that_it_refers_to(words: str) -> None:
    assert told(a=INTERFACE, b=implementation(words)) == []
    assert told(a=INTERFACE, b=implementation(words), c=implementation("See `Memory.f`.")) == []
    assert told(a=INTERFACE, b=implementation("See `Store.g`.")) == ["b"]
    assert told(b=implementation(words)) == ["b"]
    # What it adds is asked for all the same.
    assert told(a=INTERFACE, b=implementation(words, "raise ValueError")) == ["b"]


def test_the_same_name_in_another_module_is_another_function() -> None:
    twin = implementation("As `rollbox.Store.f`.", name="Store")
    assert told(a=INTERFACE, b=twin) == []
    assert told(b=twin) == ["b"]


def test_commands_of_the_command_line_have_their_help() -> None:
    path, name = docstrings.COMMANDS
    functions = "def ps(a, b, c, d): 'List.'\ndef other(a, b, c, d): 'List.'"
    table = {path: f"{name} = {{'ps': 'sandboxes:ps'}}", "sdk/src/rollbox/cli/sandboxes.py": functions}
    (found,) = docstrings.problems(table)
    assert found.words.startswith("other: ")
    with pytest.raises(LookupError):
        docstrings.problems({path: "COMMANDS = {}"})


def test_private_modules_are_left_out_and_packages_are_not() -> None:
    source = "def f(a, b, c, d): ..."
    found = docstrings.problems({"a/_b.py": source, "a/__init__.py": source})
    assert [one.path for one in found] == ["a/__init__.py"]


def test_both_packages_are_read_whole() -> None:
    read = docstrings.sources(ROOT)
    assert {path.split("/")[0] for path in read} == {"controlplane", "sdk"}
    assert len(read) > 300
    assert len([one for path, text in read.items() for one in docstrings.public(ast.parse(text), path)]) > 1000
