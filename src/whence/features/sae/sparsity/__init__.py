"""What keeps codes sparse: one file each."""
