"""whence: a laboratory for positional information in sequence models."""

__version__ = "0.1.0"
