"""Pages: what may run on them, and what they may fetch."""

from __future__ import annotations

import re
from collections.abc import Callable

import plotly.graph_objects as go
import pytest

from whence.report.figures import figure_of
from whence.report.shell import Script, plot, script_hash, shell

NETWORK = """
document.title = 'unchanged';
for (const load of [() => fetch('http://127.0.0.1:1/'), () => new WebSocket('ws://127.0.0.1:1/')])
  try { load().catch?.(() => 0) } catch {}
document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:1/x.png'}));
eval("document.title = 'evaluated'");
"""
INJECTED = """<script>document.title = 'taken'</script><img src=x onerror="document.title = 'taken'">
<svg onload="document.title = 'taken'"></svg><iframe srcdoc="x"></iframe><base href="http://127.0.0.1:1/">
<a href="javascript:document.title = 'taken'" id=a>x</a><form action="http://127.0.0.1:1/"></form>"""


def policy(page: bytes) -> str:
    [found] = re.findall(r'<meta http-equiv=Content-Security-Policy content="([^"]*)">', page.decode())
    return found


@pytest.fixture
def figure() -> go.Figure:
    return figure_of("step", "score").add_scatter(x=[1, 2, 3], y=[1, 4, 9], name="</script><script>")


def test_only_the_scripts_of_a_page_are_allowed(figure: go.Figure) -> None:
    assert "script-src;" in policy(shell("x", ["<p>text</p>"]))
    script = Script("document.title = 'drawn'")
    page = shell("x", [script, plot(figure), script])
    assert page.count(script.encode()) == 1
    scripts = re.findall(r"<script>(.*?)</script>", page.decode(), re.DOTALL)
    assert len(scripts) == 3, "plotly.js, what draws figures, and the given one"
    assert f"script-src {' '.join(map(script_hash, scripts))};" in policy(page)
    assert policy(shell("y", [plot(go.Figure()), script])) == policy(page), "what differs between pages is data"


@pytest.mark.parametrize("source", ["'unsafe-inline' 'unsafe-eval'", "default-src *", "connect-src", "http", "'self'"])
def test_the_policy_allows_no_other_source_of_scripts(figure: go.Figure, source: str) -> None:
    assert source not in policy(shell("x", [plot(figure)]))


def test_a_browser_draws_figures_without_a_breach_of_the_policy(
    figure: go.Figure, browse: Callable[[bytes], str]
) -> None:
    figure.update_layout(updatemenus=[{"buttons": [{"label": "one", "method": "restyle", "args": [{}]}]}])
    shown = browse(shell("title", [plot(figure), plot(go.Figure(go.Heatmap(z=[[0, 1], [2, 3]]))), plot(go.Figure())]))
    assert shown.count('class="main-svg"') >= 6
    assert "<title>title</title>" in shown
    assert shown.count('class="heatmaplayer') == 1


def test_what_was_not_escaped_cannot_run_or_fetch(figure: go.Figure, browse: Callable[[bytes], str]) -> None:
    """Text on pages is escaped. This is for the case that it once is not."""
    with pytest.raises(AssertionError) as refused:
        browse(
            shell("title", [INJECTED, plot(figure), Script("document.querySelector('#a').click()"), Script(NETWORK)])
        )
    for directive in ("script-src-elem", "script-src-attr", "connect-src", "img-src", "base-uri", "script-src: eval"):
        assert directive in str(refused.value), directive
    assert "taken" not in str(refused.value)


def test_the_policy_comes_before_anything_that_it_governs(figure: go.Figure) -> None:
    page = shell("x", [plot(figure)])
    assert page.index(b"Content-Security-Policy") < min(page.index(b"<style"), page.index(b"<script"))
