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
