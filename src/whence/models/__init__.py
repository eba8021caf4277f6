"""Models built from a spec, and instruments that look into any model."""
