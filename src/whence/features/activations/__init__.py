"""Activations of models: collecting, storing and reading them."""
