"""From states to pre-activations: one file each."""
