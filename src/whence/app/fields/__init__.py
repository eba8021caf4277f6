"""The parts of the fields page."""
