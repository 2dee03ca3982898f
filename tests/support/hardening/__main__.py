"""``python -m tests.support.hardening``: writes the tables of the page anew; an empty cell of why is yours to fill."""

from tests.support.hardening import containers, facts, page, rights, ways


def main() -> None:
    """Writes the page."""
    text = page.PAGE.read_text()
    text = page.written(text, containers.HEAD, facts.of_containers())
    text = page.written(text, ways.HEAD, facts.of_ways())
    text = page.written(text, rights.HEAD, facts.of_rights())
    page.PAGE.write_text(page.written(text, facts.LEVELS_HEAD, facts.of_levels()))


if __name__ == "__main__":
    main()
