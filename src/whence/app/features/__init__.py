"""The parts of the features page that are too large for its file."""
