"""Comparisons: variants × seeds → runs → a table with verdicts → a page, for every instrument."""
