"""The sparse autoencoder and its parts."""
