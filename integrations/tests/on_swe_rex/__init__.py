"""SWE-ReX."""
