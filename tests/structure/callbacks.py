"""Functions that one object of the control plane gives another one when it makes it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Callback:
    """A function, or the maker itself, among the arguments of a constructor.

    Attributes:
        upward: it belongs to the maker, so what is made calls back into what it is a part of.
    """

    module: str
    line: int
    made: str
    given: str
    upward: bool


def callbacks(found: Mapping[str, ast.Module]) -> list[Callback]:
    """All of them, in the order of the modules."""
    classes = {node.name for tree in found.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    methods = {name for tree in found.values() for node in ast.walk(tree) for name in _methods(node)}
    methods -= {name for tree in found.values() for node in ast.walk(tree) for name in _values(node)}
    return [one for name, tree in found.items() for one in _given(name, tree, classes, methods)]


def _methods(node: ast.AST) -> Iterator[str]:
    """The methods of a class; a property is a value."""
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.decorator_list:
                yield one.name


def _values(node: ast.AST) -> Iterator[str]:
    """What is no method wherever it is called so: fields, what is assigned to an attribute, and properties."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.FunctionDef) and any(ast.unparse(one) == "property" for one in node.decorator_list):
        yield node.name


def _given(module: str, tree: ast.Module, classes: set[str], methods: set[str]) -> Iterator[Callback]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        own = set(_methods(node))
        for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
            made = call.func.id if isinstance(call.func, ast.Name) else ""
            if made not in classes:
                continue
            for given in (*call.args, *(keyword.value for keyword in call.keywords)):
                upward = _is_makers(given, own)
                if upward or (isinstance(given, ast.Attribute) and given.attr in methods and _is_part(given.value)):
                    yield Callback(module, given.lineno, made, ast.unparse(given), upward)


def _is_makers(given: ast.expr, own: set[str]) -> bool:
    """Whether it is the maker, a method of it, or a function that reaches it."""
    if isinstance(given, ast.Lambda):
        return any(isinstance(one, ast.Name) and one.id == "self" for one in ast.walk(given))
    if isinstance(given, ast.Attribute):
        return isinstance(given.value, ast.Name) and given.value.id == "self" and given.attr in own
    return isinstance(given, ast.Name) and given.id == "self"


def _is_part(value: ast.expr) -> bool:
    """Whether it can be an object with methods: a name, or a part of one; records are no parts."""
    return isinstance(value, ast.Name | ast.Attribute) and "options" not in ast.unparse(value)
