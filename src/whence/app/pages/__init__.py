"""One file per page; each has a function `show`."""
