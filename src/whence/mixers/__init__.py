"""Modules that let positions of a sequence exchange information."""
