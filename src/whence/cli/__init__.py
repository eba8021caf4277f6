"""The command line: `whence INSTRUMENT VERB …`. Nothing here is imported by other parts of whence."""
