"""Which learned features are about position? Sparse autoencoders that know where activations come from."""
