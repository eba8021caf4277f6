"""Compare positional encodings in distribution and out of distribution."""
