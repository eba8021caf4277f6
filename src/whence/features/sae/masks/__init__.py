"""Which features may speak at which positions: one file each."""
