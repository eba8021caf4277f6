"""What is asked of codes besides reconstruction and sparsity: one file each."""
