"""The packages of software.py, as they were released, and what breaks them: lines that their own tests detect."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One wrong line, which the package's tests detect."""

    file: str
    right: str
    wrong: str


@dataclass(frozen=True)
class Package:
    """A source distribution, how its own tests are run (all, and those that detect the bugs), and the bugs."""

    archive: str
    path: str
    suite: tuple[str, ...]
    quick: tuple[str, ...]
    bugs: tuple[Bug, ...]


PACKAGES = (
    Package(
        "toposort-1.7",
        "src",
        ("test/test_toposort.py",),
        ("test/test_toposort.py",),
        (
            Bug("src/toposort.py", "if len(data) == 0:", "if len(data) == 1:"),
            Bug("src/toposort.py", "self.data = data", "self.data = {}"),
            Bug("src/toposort.py", "(sorted if sort else list)", "(list if sort else sorted)"),
        ),
    ),
    Package(
        "xmltodict-0.13.0",
        ".",
        ("-m", "unittest", "discover", "-s", "tests"),
        ("-m", "unittest", "discover", "-s", "tests"),
        (
            Bug("xmltodict.py", "item[key] = [value, data]", "item[key] = [data, value]"),
            Bug("xmltodict.py", "return key in self.force_list", "return key not in self.force_list"),
            Bug("xmltodict.py", "full_name[:i], full_name[i+1:]", "full_name[:i], full_name[i:]"),
        ),
    ),
    Package(
        "more-itertools-10.5.0",
        ".",
        ("-m", "unittest", "tests.test_more", "tests.test_recipes"),
        ("-m", "unittest", *(f"tests.test_more.{name}Tests" for name in ("Chunked", "MinMax", "UniqueInWindow"))),
        (
            Bug("more_itertools/more.py", "            if hi < y:", "            if hi > y:"),
            Bug("more_itertools/more.py", "if counts[to_discard] == 1:", "if counts[to_discard] == 2:"),
            Bug("more_itertools/more.py", "if len(chunk) != n:", "if len(chunk) > n:"),
        ),
    ),
)
