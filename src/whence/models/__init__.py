"""Models built from a configuration, pretrained models, and what looks into any of them."""
