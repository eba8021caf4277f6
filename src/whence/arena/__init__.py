"""Which positional encoding, and does it extrapolate past the training length?"""
