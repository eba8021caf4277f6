"""`python -m whence` is the command line."""

from whence.cli.main import main

main()
