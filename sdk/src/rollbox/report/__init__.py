"""The report of a run: as data, as text and as one HTML page. Pure.

Layers, lowest first: words < summary < text, plots, frame < page < run_report < of_records.
"""
