"""Models built from a configuration, pretrained models, and the capture of activations and attention."""
