"""How far position may have its say as training goes on: one file each."""
