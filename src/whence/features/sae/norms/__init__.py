"""Normalisation of activations: one file each."""
