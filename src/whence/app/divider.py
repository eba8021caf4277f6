"""Pictures of one size, to compare: two with a divider that is dragged between them, or all beside each other.

All that moves, moves in the browser: the divider (by finger, mouse or arrow keys) and the zoom.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamlit.components.v2 import component
from torch import Tensor

from whence.fields.images import data_uri

HTML = """<div class="all">
  <div class="tools">
    <label class="mover"><span class="left"></span><input type="range" min="0" max="100" step="1" value="50">
      <span class="right"></span></label>
    <label>zoom <select aria-label="zoom"><option value="1">fit</option><option value="2">×2</option>
      <option value="4">×4</option><option value="8">×8</option></select></label>
  </div>
  <div class="views"></div>
</div>"""

CSS = """
.all { color: var(--st-text-color); font: 0.9rem/1.4 var(--st-font, sans-serif) }
.tools { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: center; margin-bottom: .5rem }
.mover { display: flex; flex: 1 1 14rem; gap: .7rem; align-items: center; min-width: 0 }
.mover input { flex: 1; min-width: 4rem; height: 1.8rem; accent-color: var(--st-primary-color) }
.all.beside .mover { display: none }
select { font: inherit; color: inherit; background: var(--st-secondary-background-color); padding: .2rem .4rem;
  border: 1px solid var(--st-border-color, #8888); border-radius: .4rem }
.views { display: flex; flex-wrap: wrap; gap: .8rem }
figure { margin: 0; flex: 1 1 100%; min-width: 0 }
.beside figure { flex: 1 1 15rem }
figcaption { opacity: .8; margin-bottom: .2rem }
.frame { overflow: auto; max-height: 75vh; border-radius: .4rem; overscroll-behavior: contain }
.sheet { position: relative; line-height: 0 }
.sheet img { width: 100%; height: auto; image-rendering: pixelated; display: block; user-select: none }
.sheet img + img { position: absolute; inset: 0; height: 100% }
.line { position: absolute; top: 0; bottom: 0; width: 44px; margin-left: -22px; cursor: ew-resize; touch-action: none }
.line::before { content: ""; position: absolute; top: 0; bottom: 0; left: 21px; width: 2px; background: #fff;
  box-shadow: 0 0 0 1px #0009 }
.line::after { content: "⇆"; position: sticky; top: calc(min(50%, 30vh)); display: block; width: 30px; height: 30px;
  margin: 0 7px; border-radius: 50%; background: #fff; color: #111; font: 18px/30px sans-serif; text-align: center;
  box-shadow: 0 0 0 1px #0009 }
input:focus-visible, select:focus-visible, .frame:focus-visible { outline: 2px solid var(--st-primary-color);
  outline-offset: 2px }
"""

JS = """
export default function ({ data, parentElement }) {
  const all = parentElement.querySelector(".all"), views = all.querySelector(".views");
  const range = all.querySelector("input"), zoom = all.querySelector("select");
  const made = (name, className) => Object.assign(document.createElement(name), { className });
  all.classList.toggle("beside", !data.divided);
  const [first, last] = [data.pictures[0], data.pictures[data.pictures.length - 1]];
  all.querySelector(".left").textContent = first.name;
  all.querySelector(".right").textContent = last.name;
  range.setAttribute("aria-label", `divider: ${first.name} to its left, ${last.name} to its right`);

  const kept = views.querySelector(".frame");
  const was = kept ? [kept.scrollLeft / kept.scrollWidth, kept.scrollTop / kept.scrollHeight] : [0, 0];
  views.replaceChildren();
  const frames = (data.divided ? [[first, last]] : data.pictures.map(one => [one])).map(shown => {
    const figure = made("figure", ""), frame = made("div", "frame"), sheet = made("div", "sheet");
    frame.tabIndex = 0;
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", shown.map(one => one.name).join(" and "));
    if (!data.divided) {
      const caption = made("figcaption", "");
      caption.textContent = shown[0].name;
      figure.append(caption);
    }
    const image = one => Object.assign(made("img", ""), { src: one.src, alt: one.name, draggable: false });
    sheet.append(...shown.map(image));
    frame.append(sheet);
    figure.append(frame);
    views.append(figure);
    return frame;
  });

  const line = made("div", "line"), [frame] = frames, top = frame.querySelectorAll("img")[1];
  if (data.divided) frame.firstChild.append(line);
  const place = () => {
    if (!data.divided) return;
    const at = frame.scrollLeft + frame.clientWidth * range.value / 100;
    top.style.clipPath = `inset(0 0 0 ${at}px)`;
    line.style.left = `${at}px`;
  };
  const resize = () => {
    for (const one of frames) one.firstChild.style.width = `${100 * zoom.value}%`;
    place();
  };
  const drag = event => {
    if (!line.hasPointerCapture(event.pointerId)) return;
    const box = frame.getBoundingClientRect();
    range.value = Math.round(100 * (event.clientX - box.left) / frame.clientWidth);
    place();
  };
  line.onpointerdown = event => { line.setPointerCapture(event.pointerId); event.preventDefault(); };
  line.onpointermove = drag;
  range.oninput = place;
  zoom.onchange = resize;
  for (const one of frames) one.onscroll = () => {
    for (const other of frames) if (other !== one && Math.abs(other.scrollLeft - one.scrollLeft)
      + Math.abs(other.scrollTop - one.scrollTop) > 1) other.scrollTo(one.scrollLeft, one.scrollTop);
    place();
  };
  resize();
  for (const one of frames) one.scrollTo(was[0] * one.scrollWidth, was[1] * one.scrollHeight);
  const watch = new ResizeObserver(place);
  watch.observe(frame);
  return () => watch.disconnect();
}
"""

_mounted = component("whence_divider", html=HTML, css=CSS, js=JS)


def compare(pictures: Mapping[str, Tensor], key: str, *, divided: bool) -> None:
    """By name, (3, height, width). divided: the first and the last, else all."""
    shown = [{"name": name, "src": data_uri(picture)} for name, picture in pictures.items()]
    _mounted(key=key, data={"pictures": shown, "divided": divided})
