"""What each container may do, as the manifests say it: the rows of the tables in docs/operating/hardening.md."""
