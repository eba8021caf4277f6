"""States to train on: one file each."""
