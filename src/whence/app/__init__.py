"""The lab in a browser. Pages read the store and submit commands; nothing is ever trained in this process."""
