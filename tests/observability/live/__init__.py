"""The dashboards on the real stack: a release with all its parts, a Prometheus that scrapes it, and a load."""
