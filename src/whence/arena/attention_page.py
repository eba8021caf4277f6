"""Attention maps on a page: one canvas, and a choice of encoding, layer, head and example."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping

from whence.arena.attention import Maps, maps_of
from whence.arena.run import ArenaRun
from whence.experiments.table import Table
from whence.store.files import digest
from whence.store.runs import Store

MAP_SCRIPT = """
for (const box of document.querySelectorAll('.maps:not([data-drawn])')) {
  box.dataset.drawn = '';
  const data = JSON.parse(box.querySelector('script').textContent), canvas = box.querySelector('canvas');
  const pick = name => box.querySelector(`[name=${name}]`), says = box.querySelector('output');
  const bytes = {}, size = data.tokens;
  let shown = null;
  const draw = () => {
    const m = data.encodings[pick('encoding').value];
    const key = pick('encoding').value;
    bytes[key] ??= Uint8Array.from(atob(m.weights), c => c.charCodeAt(0));
    const [layer, example, head] = ['layer', 'example', 'head'].map(name => +pick(name).value);
    const at = ((layer * data.examples + example) * data.heads + head) * size * size;
    shown = bytes[key].subarray(at, at + size * size);
    const image = new ImageData(size, size);
    for (let i = 0; i < size * size; i++) {
      const w = Math.sqrt(shown[i] / 255);
      image.data.set([255 - 255 * w, 255 - 141 * w, 255 - 77 * w, 255], 4 * i);
    }
    canvas.getContext('2d').putImageData(image, 0, 0);
    says.textContent = `looks ${m.distance[layer][head].toFixed(1)} places away on average`;
  };
  canvas.addEventListener('mousemove', e => {
    const r = canvas.getBoundingClientRect(), at = v => Math.min(size - 1, Math.max(0, Math.floor(v * size)));
    const key = at((e.clientX - r.left) / r.width), query = at((e.clientY - r.top) / r.height);
    const tokens = data.encodings[pick('encoding').value].inputs[+pick('example').value];
    says.textContent = `place ${query} (symbol ${tokens[query]}) looks at place ${key} (symbol ${tokens[key]}): ` +
      `${(100 * shown[query * size + key] / 255).toFixed(0)} %`;
  });
  canvas.addEventListener('mouseleave', draw);
  box.querySelectorAll('select').forEach(s => s.addEventListener('change', draw));
  draw();
}
"""


def attention_of(table: Table[ArenaRun], store: Store) -> list[str]:
    """The section of one table, with the script that draws it."""
    section = attention_section(digest(table.title)[:8], maps_of(table, store))
    return [section, f"<script>{MAP_SCRIPT}</script>"] if section else []


def attention_section(name: str, maps: Mapping[str, Maps]) -> str:
    """Nothing, where nothing attends. Models of different shapes, as tuning may choose, do not share a canvas."""
    alike: dict[tuple[int, ...], dict[str, Maps]] = {}
    for encoding, found in maps.items():
        alike.setdefault(tuple(found.weights.shape), {})[encoding] = found
    drawn = [_canvas(f"{name}-{number}", group) for number, group in enumerate(alike.values())]
    heading = (
        "<h3>Where attention goes</h3><p class=note>One seed, on test sequences of the training length. Rows look, "
        "columns are looked at; darker is more (the square root of the weight is drawn).</p>"
    )
    return heading + "".join(drawn) if drawn else ""


def _canvas(name: str, maps: Mapping[str, Maps]) -> str:
    layers, examples, heads, tokens, _ = next(iter(maps.values())).weights.shape
    data = {
        "tokens": tokens,
        "heads": heads,
        "examples": examples,
        "encodings": {
            encoding: {
                "weights": base64.b64encode((m.weights * 255).round().byte().numpy().tobytes()).decode(),
                "distance": [[round(v, 2) for v in layer] for layer in m.distance.tolist()],
                "inputs": m.inputs.tolist(),
            }
            for encoding, m in maps.items()
        },
    }
    choices = {
        "encoding": [(encoding, encoding) for encoding in maps],
        "layer": [(str(i), str(i + 1)) for i in range(layers)],
        "head": [(str(i), str(i + 1)) for i in range(heads)],
        "example": [(str(i), str(i + 1)) for i in range(examples)],
    }
    selects = "".join(
        f'<label>{field} <select name={field} aria-label="{field}">'
        + "".join(f'<option value="{html.escape(value)}">{html.escape(text)}</option>' for value, text in options)
        + "</select></label>"
        for field, options in choices.items()
    )
    document = json.dumps(data).replace("<", "\\u003c")
    return (
        f'<div class=maps id="maps-{name}"><canvas width={tokens} height={tokens} style="width:22rem;height:22rem" '
        f'role=img aria-label="attention map"></canvas><div>{selects}<p><output></output></p>{_distances(maps)}</div>'
        f"<script type=application/json>{document}</script></div>"
    )


def _distances(maps: Mapping[str, Maps]) -> str:
    """Mean attention distance, in places."""
    layers, heads = next(iter(maps.values())).distance.shape
    head = "".join(f"<th>{layer + 1}.{number + 1}" for layer in range(layers) for number in range(heads))
    rows = "".join(
        f"<tr><td>{html.escape(encoding)}"
        + "".join(f"<td class=n>{v:.1f}" for v in m.distance.flatten().tolist())
        + "</tr>"
        for encoding, m in maps.items()
    )
    words = "Mean attention distance in places, by layer and head:"
    return f"<p class=note>{words}</p><table><tr><th>{head}</tr>{rows}</table>"
