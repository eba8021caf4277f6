"""Comparisons: variants × seeds → runs → a table with verdicts → a page, for every instrument.

instrument   what an instrument supplies
results      what the store holds of planned runs
table        cells, columns, rows, tables
tabulate     from the store to tables with verdicts
comparison   `run_comparison`: plan, check, run, measure, tabulate, report
saved        presets, and configurations that a store remembers
looks        which verdicts have been shown
page         the report of a comparison
"""
