"""Measure line and branch coverage, print a table a language, and write build/coverage/*.json.

python -m tests.coverage                  both languages
python -m tests.coverage --rust|--python  one
"""

from __future__ import annotations

import argparse

from tests.coverage import python, rust
from tests.coverage.figures import OUT


def main() -> int:
    """The exit status is 1 when a test failed or something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    measures = {"python": python.measure, "rust": rust.measure}
    for language in measures:
        parser.add_argument(f"--{language}", action="store_true", help=f"measure {language}")
    asked = vars(parser.parse_args())
    OUT.mkdir(parents=True, exist_ok=True)
    measured = [measure() for language, measure in measures.items() if asked[language] or not any(asked.values())]
    for figures in measured:
        path = figures.save()
        print(figures.table(), f"  {path}", sep="\n")
    return 0 if all(figures.complete for figures in measured) else 1


if __name__ == "__main__":
    raise SystemExit(main())
