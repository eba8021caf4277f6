"""Comparisons of every instrument: variants × seeds → runs → a table with verdicts → a page."""
