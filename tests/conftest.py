"""Settings every test shares."""

import os

# Some oracles come from libraries that can download models. The tests must run, and mean the same, without a network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
