"""What is taken off states before they are encoded, and put back after: one file each."""
