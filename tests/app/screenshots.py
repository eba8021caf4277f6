"""Every page of the app as a visitor sees it, light, dark and narrow, from real runs:

    make screenshots            (about 15 minutes the first time; runs are kept in screenshots/store)

All go to screenshots/; those that the README shows go to docs/ as well.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "screenshots"
COMMANDS = [
    ["arena", "--preset", "source_k_back"],
    ["leak", "cure", "--seeds", "2", "--steps", "200"],
    ["features", "collect", "--model", "minilm", "--layer", "3", "--tokens", "60000"],
    ["features", "bench", "--activations", "minilm-3", "--seeds", "2", "--steps", "400", "--presets"]
    + ["plain_topk", "position_mean_topk", "001_run01_hard_mask", "001_run02_soft_mask"],
    ["fields", "train", "--data", "photos", "--steps", "600"],
]
LOOKS = {"light": (1280, "light"), "dark": (1280, "dark"), "narrow": (390, "light")}
IN_README = {"arena-light", "leak-light", "features-light", "fields-light"}
