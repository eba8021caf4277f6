"""What trained autoencoders are evaluated on."""
