"""A signal at any resolution, from learnable position tokens."""
