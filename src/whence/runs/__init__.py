"""Runs: a frozen spec goes in, a directory of checked files comes out."""
