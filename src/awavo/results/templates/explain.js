"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const NS = "http://www.w3.org/2000/svg";
const PAD = { left: 46, right: 12, top: 8, bottom: 26 };
const tint = (i) => `var(--c${i % 8})`;
const slider = document.getElementById("instant");
const at = () => Math.min(+slider.value, data.time.length - 1);
const get = (id) => document.getElementById(id);

function node(name, attributes, parent, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}
function canvas(view) {
  const holder = document.querySelector(`[data-view="${view}"] .plot`);
  if (!holder || !holder.clientWidth) return null;
  holder.replaceChildren();
  const w = holder.clientWidth, h = holder.clientHeight;
  const svg = node("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": view }, holder);
  return { svg, w, h };
}
const stamp = (t, digits) => data.unit === "s" ? `${digits === undefined ? t : t.toFixed(digits)} s` : `${data.unit} ${t}`;
const line = (points) => "M" + points.map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("L");
function steps(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) out.push(+v.toFixed(6));
  return out;
}
function axes({ svg, w, h }, low, high, xs = data.time) {
  const x0 = xs[0], x1 = xs[xs.length - 1] > x0 ? xs[xs.length - 1] : x0 + 1;
  const sx = (t) => PAD.left + (t - x0) / (x1 - x0) * (w - PAD.left - PAD.right);
  const sy = (v) => h - PAD.bottom - (v - low) / (high - low) * (h - PAD.top - PAD.bottom);
  for (const v of steps(low, high, 6)) {
    node("line", { class: "gridline", x1: PAD.left, x2: w - PAD.right, y1: sy(v), y2: sy(v) }, svg);
    node("text", { x: PAD.left - 6, y: sy(v) + 4, "text-anchor": "end" }, svg, `${v}`);
  }
  for (const t of steps(x0, x1, w / 110)) node("text", { x: sx(t), y: h - 8, "text-anchor": "middle" }, svg, stamp(t));
  return { sx, sy };
}
function band(svg, sx, sy, low, high, colour) {
  const up = data.time.map((t, i) => [sx(t), sy(high[i])]), down = data.time.map((t, i) => [sx(t), sy(low[i])]).reverse();
  node("path", { class: "band", fill: colour, d: line(up.concat(down)) + "Z" }, svg);
}
const column = (rows, i) => rows.map((row) => row[i]);
function cursor(c, sx) { node("line", { class: "cursor", x1: sx(data.time[at()]), x2: sx(data.time[at()]), y1: PAD.top, y2: c.h - PAD.bottom }, c.svg); }

function drawStrips(c) {
  const x0 = data.time[0], x1 = Math.max(data.time[data.time.length - 1], x0 + 1), tall = (c.h - PAD.bottom) / data.names.length;
  const sx = (t) => PAD.left + (t - x0) / (x1 - x0) * (c.w - PAD.left - PAD.right);
  data.names.forEach((name, i) => {
    const base = (i + 1) * tall, sy = (v) => base - v * (tall - 20);
    for (const v of [0, 1]) {
      node("line", { class: "gridline", x1: PAD.left, x2: c.w - PAD.right, y1: sy(v), y2: sy(v) }, c.svg);
      node("text", { x: PAD.left - 6, y: sy(v) + 4, "text-anchor": "end" }, c.svg, `${v}`);
    }
    const curve = data.time.map((t, k) => [sx(t), sy(data.value[k][i])]);
    node("path", { class: "strip", fill: tint(i), d: line([[sx(x0), base], ...curve, [sx(x1), base]]) + "Z" }, c.svg);
    node("path", { class: "series", stroke: tint(i), d: line(curve) }, c.svg);
    data.time.forEach((t, k) => { if (data.best[k][i] > 0.005) node("circle", { class: "dot", cx: sx(t).toFixed(1), cy: sy(data.best[k][i]).toFixed(1), r: 1.2, fill: "var(--ink)" }, c.svg); });
    node("text", { x: PAD.left + 6, y: sy(1) + 13, style: `fill:${tint(i)}` }, c.svg, `${name} ${data.value[at()][i].toFixed(2)}, necessity ${data.best[at()][i].toFixed(2)}`);
  });
  for (const t of steps(x0, x1, c.w / 110)) node("text", { x: sx(t), y: c.h - 8, "text-anchor": "middle" }, c.svg, stamp(t));
  node("line", { class: "cross", x1: sx(data.push), x2: sx(data.push), y1: 0, y2: c.h - PAD.bottom }, c.svg);
  cursor(c, sx);
}
function shade(c, sx) {
  for (const s of data.segments) {
    const i = Math.max(0, data.names.indexOf(s.factor));
    node("rect", { class: "shade", fill: tint(i), x: sx(s.start), width: Math.max(1, sx(s.end) - sx(s.start)), y: PAD.top, height: c.h - PAD.top - PAD.bottom }, c.svg);
  }
}
function again() { const box = get("again"); return box && box.value ? data.refly[box.value] : null; }
function drawCurves(view, curves, limits, top) {
  const c = canvas(view); if (!c) return;
  const { sx, sy } = axes(c, 0, top);
  shade(c, sx);
  for (const [value, name] of limits) {
    node("line", { class: "cross", x1: PAD.left, x2: c.w - PAD.right, y1: sy(value), y2: sy(value) }, c.svg);
    node("text", { x: PAD.left + 6, y: sy(value) - 4 }, c.svg, name);
  }
  curves.forEach(([name, values, colour, dashes, times], i) => {
    const xs = times || data.time;
    node("path", { class: `series ${dashes ? "refly" : ""}`, stroke: colour, d: line(values.map((v, k) => [sx(xs[k]), sy(Math.min(v, top))])) }, c.svg);
    node("text", { x: c.w - PAD.right - 4, y: PAD.top + 14 * (i + 1), "text-anchor": "end", style: `fill:${colour}` }, c.svg, dashes ? name : `${name} ${values[at()].toFixed(2)}`);
  });
  cursor(c, sx);
}
function drawError() {
  if (!data.error) return;
  const other = again(), curves = [["error", data.error, tint(3)]], limits = [];
  if (data.clearance) { curves.push(["clearance", data.clearance, tint(1)]); limits.push([data.clearance_limit, `least clearance ${data.clearance_limit}`]); }
  if (other) curves.push([`error, flown again ${get("again").value}`, other.error, "var(--ink)", true, other.time]);
  drawCurves("error", curves, limits, Math.max(0.3, 2.5 * (data.clearance_limit || 0), ...data.error, ...(other ? other.error : [])) * 1.15);
  drawCurves("tilt", [["tilt", data.tilt, tint(3)]], [[data.tilt_limit, `limit ${data.tilt_limit.toFixed(0)}`]], Math.max(data.tilt_limit, ...data.tilt) * 1.15);
}
function drawInfluence() {
  const c = canvas("influence"); if (!c) return;
  if (!data.low) return drawStrips(c);
  const { sx, sy } = axes(c, 0, 1);
  shade(c, sx);
  data.alarms.forEach((a, i) => {
    const x = Math.min(Math.max(a.start, data.time[0]), data.time[data.time.length - 1]);
    node("line", { class: "cross", style: "stroke:var(--bad)", x1: sx(x), x2: sx(x), y1: PAD.top, y2: c.h - PAD.bottom }, c.svg);
    const late = sx(x) > c.w * 0.7;
    node("text", { x: sx(x) + (late ? -4 : 4), y: PAD.top + 12 + 14 * i, "text-anchor": late ? "end" : "start", style: "fill:var(--bad)" }, c.svg, `alarm: ${a.kind}`);
  });
  if (data.believed) data.names.forEach((_, i) => node("path", { class: "believed", fill: "none", "stroke-dasharray": "4 3", stroke: tint(i), d: line(data.time.map((t, k) => [sx(t), sy(data.believed[k][i])])) }, c.svg));
  node("line", { class: "cross", x1: PAD.left, x2: c.w - PAD.right, y1: sy(data.calm), y2: sy(data.calm) }, c.svg);
  drawBands(c, sx, sy, data);
}
function drawBands(c, sx, sy, bands) {
  data.names.forEach((name, i) => {
    band(c.svg, sx, sy, column(bands.low, i), column(bands.high, i), tint(i));
    node("path", { class: "series", stroke: tint(i), d: line(data.time.map((t, k) => [sx(t), sy(bands.value[k][i])])) }, c.svg);
  });
  cursor(c, sx);
}
function drawNecessity() {
  if (!data.necessity) return;
  const c = canvas("necessity"); if (!c) return;
  const { sx, sy } = axes(c, 0, 1);
  drawBands(c, sx, sy, data.necessity);
}
function drawMagnitude() {
  if (!data.magnitude) return;
  const c = canvas("magnitude"); if (!c) return;
  const unit = get("unit").value, bands = data.magnitude[unit];
  const { sx, sy } = axes(c, 0, Math.max(1e-3, ...bands.high.flat()) * 1.05);
  drawBands(c, sx, sy, bands);
  const k = at(), digits = unit === "us" ? 0 : 2;
  const said = data.names.map((n, i) => `${n} ${bands.value[k][i].toFixed(digits)} [${bands.low[k][i].toFixed(digits)}, ${bands.high[k][i].toFixed(digits)}] ${unit}`);
  get("moved").textContent = `at ${stamp(data.time[k], 2)}: ${said.join(", ")}`;
}
function drawForce() {
  if (!data.force) return;
  const c = canvas("force"); if (!c) return;
  const reach = Math.max(0.5, ...data.force.flat().map(Math.abs)) * 1.2;
  const { sx, sy } = axes(c, -reach, reach);
  if (!data.names.length) shade(c, sx);
  ["east", "north", "up"].forEach((name, i) => {
    const mean = column(data.force, i);
    band(c.svg, sx, sy, column(data.force_low, i), column(data.force_high, i), tint(i + 4));
    node("path", { class: "series", stroke: tint(i + 4), d: line(data.time.map((t, k) => [sx(t), sy(mean[k])])) }, c.svg);
    node("text", { x: c.w - PAD.right - 4, y: PAD.top + 14 * (i + 1), "text-anchor": "end", style: `fill:${tint(i + 4)}` }, c.svg, name);
  });
  cursor(c, sx);
}
function drawShares() {
  const c = canvas("shares"); if (!c) return;
  const k = at(), rows = [...data.names.map((n, i) => [n, data.shares[k][i], tint(i)]), ["all together", data.together[k], "var(--muted)"]];
  const left = 130, zero = left + 20, scale = (c.w - zero - 60) / 1, tall = (c.h - 10) / rows.length;
  rows.forEach(([name, value, colour], r) => {
    const y = 5 + r * tall;
    node("text", { x: left, y: y + tall / 2 + 4, "text-anchor": "end" }, c.svg, name);
    node("rect", { class: "share", fill: colour, x: Math.min(zero, zero + value * scale), width: Math.max(1, Math.abs(value) * scale), y: y + 3, height: Math.max(4, tall - 8) }, c.svg);
    node("text", { x: zero + Math.max(0, value) * scale + 6, y: y + tall / 2 + 4 }, c.svg, value.toFixed(3));
  });
  const sum = data.shares[k].reduce((a, b) => a + b, 0);
  get("sum").textContent = `Shapley shares of removing everything: they sum to ${sum.toFixed(4)}, the influence of all factors together.` + (data.effective ? ` Temperature ${data.temperature}, effective candidates ${data.effective[k].toFixed(0)}.` : "");
}
let turn = [-0.6, 0.55];
function project(p, w, h, box) {
  const [cx, cy, cz, size] = box, [a, b] = turn;
  const x = p[0] - cx, y = p[1] - cy, z = p[2] - cz;
  const u = x * Math.cos(a) - y * Math.sin(a), v = x * Math.sin(a) + y * Math.cos(a);
  const s = Math.min(w, h * 1.6) / size * 0.8;
  return [w / 2 + s * u, h / 2 - s * (z * Math.cos(b) + v * Math.sin(b))];
}
const colour = (v) => `color-mix(in srgb, var(--bad) ${Math.round(100 * Math.min(1, v))}%, var(--c0))`;
function drawSpace() {
  const c = canvas("space"); if (!c) return;
  const mid = [0, 1, 2].map((i) => { const v = column(data.position, i); return (Math.min(...v) + Math.max(...v)) / 2; });
  const span = Math.max(1, ...[0, 1, 2].map((i) => { const v = column(data.position, i); return Math.max(...v) - Math.min(...v); }));
  const put = (p) => project(p, c.w, c.h, [...mid, span * 1.25]);
  for (const o of data.cylinders) {
    for (const z of [0, o.height]) {
      const ring = Array.from({ length: 25 }, (_, j) => put([o.x + o.radius * Math.cos(j * Math.PI / 12), o.y + o.radius * Math.sin(j * Math.PI / 12), z]));
      node("path", { class: "cylinder", fill: "none", stroke: "var(--muted)", d: line(ring) }, c.svg);
    }
    for (const side of [-1, 1]) node("path", { stroke: "var(--muted)", d: line([put([o.x + side * o.radius * Math.cos(turn[0]), o.y - side * o.radius * Math.sin(turn[0]), 0]), put([o.x + side * o.radius * Math.cos(turn[0]), o.y - side * o.radius * Math.sin(turn[0]), o.height])]) }, c.svg);
  }
  const i = +get("factor").value, shown = (k) => data.names.length ? data.value[k][i] : data.paint[k];
  if (data.reference) node("path", { class: "reference", d: line(data.reference.map(put)) }, c.svg);
  const other = again();
  if (other) node("path", { class: "refly", stroke: "var(--ink)", d: line(other.position.map(put)) }, c.svg);
  for (let k = 1; k < data.time.length; k++)
    node("path", { class: "series flown", stroke: colour(shown(k)), d: line([put(data.position[k - 1]), put(data.position[k])]) }, c.svg);
  const [t0, t1] = [data.time[0], data.time[data.time.length - 1]];
  for (const t of steps(t0, t1, 10)) {
    const k = data.time.findIndex((v) => v >= t - 1e-9), [x, y] = put(data.position[k < 0 ? data.time.length - 1 : k]);
    node("circle", { class: "mark", cx: x, cy: y, r: 2.5, fill: "var(--ink)" }, c.svg);
    node("text", { class: "mark", x: x + 5, y: y - 4 }, c.svg, stamp(t));
  }
  for (let j = 0; j < 40; j++) node("rect", { x: 12 + 3 * j, y: c.h - 24, width: 3, height: 8, fill: colour(j / 39) }, c.svg);
  ["0", data.paint_top || "1"].forEach((text, j) => node("text", { class: "scale", x: 12 + 120 * j, y: c.h - 28, "text-anchor": j ? "end" : "start" }, c.svg, text));
  const [o, n] = [put(mid), put([mid[0], mid[1] + 1, mid[2]])], away = Math.hypot(n[0] - o[0], n[1] - o[1]) || 1;
  const foot = [c.w - 40, 46], tip = foot.map((v, j) => v + 28 * (n[j] - o[j]) / away);
  node("path", { class: "compass", stroke: "var(--ink)", d: line([foot, tip]) }, c.svg);
  node("text", { x: tip[0], y: tip[1] - 3, "text-anchor": "middle" }, c.svg, "N");
  const every = Math.max(1, Math.round(data.time.length / 28));
  for (let k = 0; k < data.time.length; k += every) {
    const p = data.position[k], f = data.force[k], end = [0, 1, 2].map((j) => p[j] + 0.5 * f[j]);
    node("path", { class: "arrow", stroke: "var(--c4)", "stroke-width": 1.5, d: line([put(p), put(end)]) }, c.svg);
  }
  const [x, y] = put(data.position[at()]);
  node("circle", { cx: x, cy: y, r: 5, fill: "var(--ink)" }, c.svg);
}
function drawMotors() {
  const c = canvas("motors"); if (!c) return;
  const m = +get("motor").value;
  const parts = data.names.map((_, i) => data.motors.map((row) => row[1 + i][m]));
  const ups = data.time.map((_, k) => parts.reduce((a, p) => a + Math.max(0, p[k]), 0));
  const downs = data.time.map((_, k) => parts.reduce((a, p) => a + Math.min(0, p[k]), 0));
  const reach = Math.max(5, ...ups, ...downs.map((v) => -v)) * 1.1;
  const { sx, sy } = axes(c, -reach, reach);
  const wide = Math.max(1, (c.w - PAD.left - PAD.right) / data.time.length);
  data.time.forEach((t, k) => {
    let up = 0, down = 0;
    parts.forEach((p, i) => {
      const from = p[k] >= 0 ? up : down, to = from + p[k];
      if (p[k] >= 0) up = to; else down = to;
      node("rect", { class: "part", fill: tint(i), x: sx(t) - wide / 2, width: wide, y: sy(Math.max(from, to)), height: Math.max(0.2, Math.abs(sy(to) - sy(from))) }, c.svg);
    });
  });
  const k = at();
  get("signals").textContent = (`at ${stamp(data.time[k], 2)}: task ${data.motors[k][0][m].toFixed(0)} us, ` + data.names.map((n, i) => `${n} ${data.motors[k][1 + i][m] >= 0 ? "+" : ""}${data.motors[k][1 + i][m].toFixed(0)} us`).join(", "));
  cursor(c, sx);
}
function drawFan() {
  if (!data.fans.length) return;
  const c = canvas("fan"); if (!c) return;
  const fan = data.fans.reduce((best, f) => Math.abs(f.place - at()) < Math.abs(best.place - at()) ? f : best);
  const kinds = ["as it was", get("removed").value];
  const all = kinds.flatMap((kind) => fan.paths[kind].flat());
  const [x0, x1, y0, y1] = [0, 1].flatMap((i) => { const v = column(all, i); return [Math.min(...v) - 0.3, Math.max(...v) + 0.3]; });
  const s = Math.min((c.w - 20) / (x1 - x0), (c.h - 40) / (y1 - y0));
  const put = (p) => [c.w / 2 + s * (p[0] - (x0 + x1) / 2), c.h / 2 - s * (p[1] - (y0 + y1) / 2)];
  for (const o of data.cylinders) { const [x, y] = put([o.x, o.y]); node("circle", { cx: x, cy: y, r: Math.max(1, s * o.radius), fill: "var(--none-bg)", stroke: "var(--muted)" }, c.svg); }
  kinds.forEach((kind, i) => {
    for (const p of fan.paths[kind]) node("path", { class: i ? "seed after" : "seed before", stroke: tint(i), "stroke-dasharray": i ? "5 4" : "none", d: line(p.map(put)) }, c.svg);
    node("text", { x: 10, y: 18 + 16 * i, style: `fill:${tint(i)}` }, c.svg, `${i ? "dashed: " : "solid: "}${kind}`);
  });
  node("text", { x: 10, y: c.h - 8 }, c.svg, `at ${stamp(data.time[fan.place], 2)}`);
}
function update() {
  get("shown").textContent = stamp(data.time[at()], 2);
  drawForce(); drawError();
  if (data.names.length) { drawInfluence(); drawNecessity(); drawShares(); drawMagnitude(); }
  if (data.position) drawSpace();
  if (data.motors) { drawMotors(); drawFan(); }
}
slider.max = data.time.length - 1;
slider.value = data.start;
data.names.forEach((name, i) => {
  const item = document.createElement("li"), mark = document.createElement("span");
  mark.className = `swatch c${i % 8}`; item.append(mark, name); get("legend").append(item);
  if (get("factor")) get("factor").append(new Option(name, i));
  if (get("removed")) get("removed").append(new Option(name, `without ${name}`));
});
slider.addEventListener("input", update);
for (const id of ["factor", "motor", "removed", "unit", "again"]) if (get(id)) get(id).addEventListener("change", update);
const space = document.querySelector('[data-view="space"] .plot');
if (space) {
  let from = null;
  space.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY, ...turn]; space.setPointerCapture(e.pointerId); });
  space.addEventListener("pointermove", (e) => { if (from) { turn = [from[2] + (e.clientX - from[0]) / 160, Math.max(0, Math.min(1.57, from[3] + (e.clientY - from[1]) / 160))]; drawSpace(); } });
  space.addEventListener("pointerup", () => { from = null; });
}
addEventListener("resize", update);
update();
