"""`python -m whence` is the command line."""

from whence.cli import main

main()
