"""The documentation: the site is whole, links lead somewhere, and what the pages show is run."""
