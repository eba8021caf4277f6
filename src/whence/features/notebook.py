"""The position profiles of features in a notebook: the heat map of the report page as a table of colours."""

from __future__ import annotations

from whence.features.evals.profiles import FeatureProfiles
from whence.features.page import MAP_NOTE, describe_feature, profile_findings, tables
from whence.report.html import bullets, heading, render
from whence.report.notebook import fragment

LINES = 32
"""Features that are shown."""
MAP = """\
<div class=scroll><table style="width: auto; border-collapse: collapse" role=img aria-label="{{ caption }}">
{% for title, feature, shares in lines %}
<tr title="{{ title }}"><th scope=row style="padding: 0 .6em 0 0; border: 0; font-size: .8em">{{ feature }}</th>
{% for share in shares %}
<td style="background: rgba(230, 159, 0, {{ share }}); width: .7em; min-width: 3px; height: 1em; padding: 0; border: 0">
{% endfor %}</tr>
{% endfor %}</table></div>"""


def profiles_fragment(profiles: FeatureProfiles) -> str:
    """The most position-specific features, sorted by the position of their peak."""
    caption, values = tables(profiles)["mask_off"]
    selective = sorted(profiles.position_selectivity, key=lambda feature: -profiles.position_selectivity[feature])
    chosen = set(selective[:LINES])
    features = [feature for feature in profiles.order("peak") if feature in chosen]
    shares = (values / values.amax(0).clamp(min=1e-30)).clamp(0, 1)
    lines = [
        (describe_feature(profiles, feature), feature, [f"{share:.2f}" for share in shares[:, feature].tolist()])
        for feature in features
    ]
    first, last = profiles.positions[0], profiles.positions[-1]
    title = f"{caption.capitalize()}, positions {first} to {last}"
    note = f"The {len(features)} features of highest position selectivity. {MAP_NOTE}"
    parts = [bullets(profile_findings(profiles)), heading(title, note, level=3)]
    return fragment([*parts, render(MAP, caption=caption, lines=lines)])
