"""All features of an autoencoder on a page: a line each, positions across, and one of them looked at closely."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence

import torch
from torch import Tensor

from whence.features.view import Context, Order, View

TALL = 640
"""Lines of the map; where there are more features, a line is the mean of several."""

STYLE = """
.features figure { margin: 0 } .features figcaption { font-size: .85em; color: #555 }
.features canvas { width: 19rem; height: 40rem; cursor: crosshair }
.features .ends { display: flex; justify-content: space-between; font-size: .8em; color: #555 }
.choose label { margin-right: 1.5rem } .choose input { width: 6rem }
.contexts td:first-child, .contexts td:nth-child(2) { white-space: nowrap }
mark { background: #ffe08a; color: inherit; padding: 0 .15em }
"""

MAP_SCRIPT = """
{
  const box = document.querySelector('.features'), data = JSON.parse(box.querySelector('script').textContent);
  const {positions, size, tall} = data, across = positions.length, says = document.querySelector('#feature-says');
  const bytes = Object.fromEntries(Object.entries(data.tables).map(
    ([name, t]) => [name, Uint8Array.from(atob(t.bytes), c => c.charCodeAt(0))]));
  const sort = document.querySelector('[name=sort]'), number = document.querySelector('[name=feature]');
  const known = document.querySelector('[name=known]'), rows = Math.min(size, tall);
  const row = (name, f) => bytes[name].subarray(f * across, (f + 1) * across);
  const peak = f => row('lifted', f).reduce((best, v, i, all) => v > all[best] ? i : best, 0);
  const centre = f => {
    let sum = 0, moment = 0;
    row('assigned', f).forEach((v, i) => { sum += v; moment += v * i; });
    return sum ? moment / sum : Infinity;
  };
  const keys = {peak, fidelity: f => -(data.fidelity[f] ?? -9), frequency: f => -data.active[f],
                assigned: centre, number: f => f};
  const silent = f => data.active[f] === 0 && sort.value !== 'assigned' && sort.value !== 'number';
  let order = [];
  const range = y => [Math.floor(y * size / rows), Math.max(Math.floor((y + 1) * size / rows), 0)];
  const draw = () => {
    const key = Array.from({length: size}, (_, f) => silent(f) ? Infinity : keys[sort.value](f));
    order = [...key.keys()].sort((a, b) => key[a] === key[b] ? a - b : key[a] < key[b] ? -1 : 1);
    for (const canvas of box.querySelectorAll('canvas')) {
      const image = new ImageData(across, rows), table = bytes[canvas.dataset.table];
      for (let y = 0; y < rows; y++) {
        const [from, to] = range(y);
        for (let x = 0; x < across; x++) {
          let v = 0;
          for (let i = from; i < to; i++) v += table[order[i] * across + x];
          v /= 255 * (to - from);
          image.data.set([255 - 255 * v, 255 - 141 * v, 255 - 77 * v, 255], 4 * (y * across + x));
        }
      }
      canvas.getContext('2d').putImageData(image, 0, 0);
    }
  };
  const percent = v => v === null || v === undefined ? 'too rare to say' : v.toFixed(3);
  const look = f => {
    if (!(f >= 0 && f < size)) return;
    number.value = f;
    known.value = [...known.options].some(o => +o.value === f) ? f : '';
    const words = {lifted: data.tables.used ? 'masks lifted' : 'mean activation', used: 'as trained',
                   assigned: 'may speak (right)'};
    const colours = {lifted: '#0072B2', used: '#E69F00', assigned: '#888'};
    const lines = Object.entries(data.tables).map(([name, t]) => ({
      x: positions, y: Array.from(row(name, f), v => v / 255 * t.most[f]), name: words[name], mode: 'lines',
      yaxis: name === 'assigned' ? 'y2' : 'y',
      line: {color: colours[name], dash: name === 'lifted' ? 'solid' : name === 'used' ? 'dash' : 'dot'}}));
    Plotly.react('feature-profile', lines, {template: {}, height: 320, margin: {l: 60, r: 60, t: 20, b: 50},
      xaxis: {title: {text: 'position'}}, yaxis: {title: {text: 'mean activation'}, rangemode: 'tozero'},
      yaxis2: {overlaying: 'y', side: 'right', range: [0, 1.05], tickvals: [0, 0.5, 1],
               visible: !!data.tables.assigned, showgrid: false},
      legend: {orientation: 'h', y: 1.15}, showlegend: true}, {displaylogo: false, responsive: true});
    document.querySelector('#feature-about').textContent = `Feature ${f}: peak at position ${positions[peak(f)]}, ` +
      `fidelity ${percent(data.fidelity[f])}, active at ${(100 * data.active[f]).toFixed(2)} % of states.`;
    document.querySelectorAll('.contexts').forEach(c => c.hidden = c.dataset.feature !== String(f));
    const none = document.querySelector('#no-contexts');
    if (none) none.hidden = !!document.querySelector(`.contexts[data-feature="${f}"]`);
  };
  const at = e => {
    const r = e.target.getBoundingClientRect(), cut = (v, n) => Math.min(n - 1, Math.max(0, Math.floor(v * n)));
    return [cut((e.clientX - r.left) / r.width, across), cut((e.clientY - r.top) / r.height, rows)];
  };
  for (const canvas of box.querySelectorAll('canvas')) {
    canvas.addEventListener('mousemove', e => {
      const [x, y] = at(e), [from, to] = range(y), name = canvas.dataset.table, f = order[from];
      const value = bytes[name][f * across + x] / 255 * data.tables[name].most[f];
      const more = to - from > 1 ? ` (and ${to - from - 1} more in this line)` : '';
      says.textContent = `feature ${f}${more}, position ${positions[x]}: ${value.toPrecision(3)}`;
    });
    canvas.addEventListener('click', e => look(order[range(at(e)[1])[0]]));
  }
  sort.addEventListener('change', draw);
  number.addEventListener('change', () => look(+number.value));
  known.addEventListener('change', () => known.value !== '' && look(+known.value));
  draw();
  look(data.first);
}
"""


def profiles(found: View) -> dict[str, tuple[str, Tensor]]:
    """By name, in words and as (positions, size): masks lifted; as trained, and the mask itself, where there is one."""
    there = {"lifted": ("where it speaks" + ", masks lifted" * (found.assigned is not None), found.lifted)}
    if found.assigned is not None:
        there |= {"used": ("where it speaks, as trained", found.used), "assigned": ("may speak", found.assigned)}
    return there


def shares(table: Tensor) -> Tensor:
    """Of (positions, size): from 0 to 1, in terms of each feature's maximum."""
    return (table / table.amax(0).clamp(min=1e-30)).clamp(0, 1)


def map_section(found: View) -> str:
    """Maps that share their order."""
    tables, size = profiles(found), found.lifted.shape[1]
    data = {
        "positions": found.positions.tolist(),
        "size": size,
        "tall": TALL,
        "first": next(iter([*found.bound, *found.contexts]), 0),
        "active": [round(value, 7) for value in found.active.tolist()],
        "fidelity": {feature: round(value, 4) for feature, value in found.fidelity.items()},
        "tables": {name: _packed(table) for name, (_, table) in tables.items()},
    }
    first, last = data["positions"][0], data["positions"][-1]
    ends = f"<div class=ends><span>{first}</span><span>position</span><span>{last}</span></div>"
    canvases = "".join(
        f"<figure><figcaption>{caption}</figcaption><canvas data-table={name} width={len(found.positions)} "
        f'height={min(size, TALL)} role=img aria-label="{caption}"></canvas>{ends}</figure>'
        for name, (caption, _) in tables.items()
    )
    document = json.dumps(data).replace("<", "\\u003c")
    several = f" A line is the mean of about {size / TALL:.1f} features." if size > TALL else ""
    return (
        f"<style>{STYLE}</style><p class=note>A line is a feature, darker is more; each is scaled to its own maximum, "
        f"and features that are never active stand last.{several} A click looks at a feature. Sorted by "
        "the place of the peak, noise makes a diagonal, too: how much of it is position, fidelity says.</p>"
        f"<p class=choose>{_sorts(found)}<output id=feature-says></output></p>"
        f'<div class="maps features">{canvases}<script type=application/json>{document}</script></div>'
    )


def feature_section(found: View) -> str:
    """One feature: its profile, and its text."""
    size = found.lifted.shape[1]
    groups = {
        "most position-bound": [f for place, f in enumerate(found.contexts) if place < len(found.contexts) // 2],
        "others, by frequency": [f for place, f in enumerate(found.contexts) if place >= len(found.contexts) // 2],
    }
    options = "".join(
        f'<optgroup label="{name}">'
        + "".join(f"<option value={f}>{f}{_degree(found, f)}" for f in those)
        + "</optgroup>"
        for name, those in groups.items()
        if those
    )
    note = found.note or "The text of this feature was not looked up: choose one of those with text."
    parts = [
        f"<p class=choose><label>feature <input name=feature type=number min=0 max={size - 1}></label>"
        f"<label>with text <select name=known><option value=''>–</option>{options}</select></label></p>"
        "<p id=feature-about></p><div id=feature-profile></div>",
        f"<p class=note id=no-contexts>{html.escape(note)}</p>",
        *(
            f"<div class=contexts data-feature={feature} hidden>{context_table(those)}</div>"
            for feature, those in found.contexts.items()
        ),
    ]
    return "".join(parts)


def sorts(found: View) -> dict[Order, str]:
    """By what the map can be sorted, in words."""
    names: dict[Order, str] = {"peak": "place of the peak", "fidelity": "fidelity", "frequency": "frequency"}
    names["number"] = "number"
    if found.assigned is not None:
        names["assigned"] = "assigned place"
    return names


def _sorts(found: View) -> str:
    options = "".join(f"<option value={key}>{name}</option>" for key, name in sorts(found).items())
    return f"<label>sorted by <select name=sort>{options}</select></label>"


def _degree(found: View, feature: int) -> str:
    return f" (fidelity {found.fidelity[feature]:.2f})" if feature in found.fidelity else ""


def context_table(those: Sequence[Context]) -> str:
    """The text of one feature, where it is most active."""
    rows = "".join(
        f"<tr><td class=n>{c.value:.3g}<td class=n>{c.position}<td>{html.escape(c.before)} "
        f"<mark>{html.escape(c.token)}</mark> {html.escape(c.after)}</tr>"
        for c in those
    )
    head = "<tr><th>activation<th>position<th>held-out text</tr>"
    return f"<table>{head}{rows}</table>"


def _packed(table: Tensor) -> dict[str, object]:
    """Of (positions, size): a byte per number, feature by feature, in shares of each feature's maximum."""
    most = table.amax(0).clamp(min=0)
    data = (shares(table).mT * 255).round().to(torch.uint8).contiguous().numpy().tobytes()
    return {"bytes": base64.b64encode(data).decode(), "most": [float(f"{value:.4g}") for value in most.tolist()]}
