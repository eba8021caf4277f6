"""Where weights start: one file each."""
