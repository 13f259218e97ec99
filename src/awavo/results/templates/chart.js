"use strict";
const NS = "http://www.w3.org/2000/svg";
const MARGIN = { left: 54, right: 14, top: 10, bottom: 38 };
const color = (index) => `var(--c${index})`;

function node(name, attributes, parent, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function logTicks(low, high) {
  const decades = Math.log10(high / low), steps = decades > 3 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 3, 5, 7];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const step of steps) if (step * 10 ** power >= low && step * 10 ** power <= high) found.push(step * 10 ** power);
  return found;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
  return size !== 0 && size < 1e-3 ? value.toExponential(1) : `${+value.toPrecision(4)}`;
}

function extent(values, include, margin = false) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (value !== null && Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (include !== null && include !== undefined) { low = Math.min(low, include); high = Math.max(high, include); }
  if (low > high) return [0, 1];
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [!margin && low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
}

function path(xs, ys, sx, sy) {
  let text = "", pen = false;
  ys.forEach((y, i) => {
    if (y === null) { pen = false; return; }
    text += `${pen ? "L" : "M"}${sx(xs[i]).toFixed(1)} ${sy(y).toFixed(1)}`;
    pen = true;
  });
  return text;
}

function bandPath(series, sx, sy) {
  const keep = series.x.map((_, i) => i).filter((i) => series.low[i] !== null && series.high[i] !== null);
  if (keep.length < 2) return "";
  const point = (i, side) => `${sx(series.x[i]).toFixed(1)} ${sy(series[side][i]).toFixed(1)}`;
  return `M${keep.map((i) => point(i, "high")).join("L")}L${keep.reverse().map((i) => point(i, "low")).join("L")}Z`;
}

class Chart {
  constructor(holder, spec) {
    this.holder = holder; this.spec = spec; this.zoom = null; this.seeds = false; this.at = null;
    this.hidden = new Set();
    const scale = (log) => (log ? (v) => Math.log10(Math.max(v, 1e-9)) : (v) => v);
    this.fx = scale(spec.log_x); this.fy = scale(spec.log_y);
    this.tip = document.createElement("div"); this.tip.className = "tip"; this.tip.hidden = true;
    new ResizeObserver(() => this.draw()).observe(holder);
    this.listen(); this.draw();
  }
  get series() { return this.spec.series.filter((s) => !this.hidden.has(s.algo)); }
  domain() {
    const { kind, limit } = this.spec, series = this.series;
    if (kind === "scatter") {
      const points = series.flatMap((s) => s.points);
      return [extent(points.map((p) => p[0]), limit, true), extent(points.map((p) => p[1]), null, true)];
    }
    if (kind === "interval") return [extent(series.flatMap((s) => [s.value, s.low, s.high]), limit, true), [-0.5, Math.max(series.length, 1) - 0.5]];
    const inside = (s) => (_, i) => !this.zoom || (s.x[i] >= this.zoom[0] && s.x[i] <= this.zoom[1]);
    const rows = (s) => [s.y, s.low, s.high, ...(this.seeds ? s.lines : [])];
    const ys = series.flatMap((s) => rows(s).flatMap((row) => row.filter(inside(s))));
    const xs = series.flatMap((s) => s.x), end = Math.max(...xs, xs.length ? -Infinity : 1);
    const begin = this.spec.log_x ? Math.min(...xs, end) / 1.1 : this.spec.fit_x ? Math.min(...xs, end) : Math.min(0, ...xs);
    const known = ys.filter((y) => y !== null);
    const dy = this.spec.log_y && known.length ? [Math.min(...known) / 1.3, Math.max(...known) * 1.3] : extent(ys, limit);
    return [this.zoom || [begin, this.spec.fit_x ? end : end * (this.spec.log_x ? 1.1 : 1.005)], dy];
  }
  draw() {
    const width = this.holder.clientWidth || 420, height = this.holder.clientHeight || 264;
    const [dx, dy] = this.domain(), m = MARGIN;
    const { fx, fy } = this, [x0, x1] = dx.map(fx), [y0, y1] = dy.map(fy);
    this.x = (v) => m.left + ((fx(v) - x0) / (x1 - x0)) * (width - m.left - m.right);
    this.y = (v) => height - m.bottom - ((fy(v) - y0) / (y1 - y0)) * (height - m.top - m.bottom);
    const unscale = (v) => (this.spec.log_x ? 10 ** v : v);
    this.back = (px) => unscale(x0 + ((px - m.left) / (width - m.left - m.right)) * (x1 - x0));
    this.size = { width, height };
    const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    this.axes(svg, dx, dy);
    const clip = `clip-${this.spec.id}`;
    node("rect", { x: m.left, y: m.top, width: width - m.left - m.right, height: height - m.top - m.bottom }, node("clipPath", { id: clip }, svg));
    const body = node("g", { "clip-path": `url(#${clip})` }, svg);
    ({ scatter: () => this.scatter(body), interval: () => this.intervals(body) }[this.spec.kind] || (() => this.lines(body)))();
    this.limit(svg, dx, dy);
    if (this.spec.kind === "interval") this.rowNames(svg);
    this.over = node("g", {}, svg);
    this.holder.replaceChildren(svg, this.tip);
  }
  axes(svg, dx, dy) {
    const { width, height } = this.size, m = MARGIN, bottom = height - m.bottom;
    const values = this.spec.kind === "interval" ? [] : this.spec.log_y ? logTicks(...dy) : ticks(dy[0], dy[1], height < 200 ? 3 : 5);
    for (const t of values) {
      node("line", { class: "gridline", x1: m.left, x2: width - m.right, y1: this.y(t), y2: this.y(t) }, svg);
      node("text", { x: m.left - 7, y: this.y(t) + 4, "text-anchor": "end" }, svg, short(t));
    }
    for (const t of this.spec.log_x ? logTicks(...dx) : ticks(dx[0], dx[1], Math.max(2, Math.floor(width / 95)))) {
      node("line", { class: "axis", x1: this.x(t), x2: this.x(t), y1: bottom, y2: bottom + 4 }, svg);
      node("text", { x: this.x(t), y: bottom + 17, "text-anchor": this.x(t) > width - 24 ? "end" : "middle" }, svg, short(t));
    }
    node("line", { class: "axis", x1: m.left, x2: width - m.right, y1: bottom, y2: bottom }, svg);
    node("text", { x: (m.left + width - m.right) / 2, y: height - 4, "text-anchor": "middle" }, svg, this.spec.x_label);
  }
  lines(body) {
    for (const s of this.series) {
      const stroke = `stroke:${color(s.color)}`;
      if (this.seeds) for (const line of s.lines) node("path", { class: "seed", style: stroke, d: path(s.x, line, this.x, this.y) }, body);
      node("path", { class: "band", style: `fill:${color(s.color)}`, d: bandPath(s, this.x, this.y) }, body);
      node("path", { class: "series", style: stroke, "stroke-dasharray": ["", "7 3", "2 3", "9 3 2 3"][s.dash] || "", d: path(s.x, s.y, this.x, this.y) }, body);
      const seen = s.x.map((_, i) => i).filter((i) => s.y[i] !== null);
      if (seen.length === 1) this.lone(body, s, seen[0]);
    }
  }
  lone(body, s, i) {  // a line of one point cannot be seen
    const x = this.x(s.x[i]), y = this.y(s.y[i]), stroke = `stroke:${color(s.color)}`;
    if (s.low[i] !== null) node("path", { class: "series", style: stroke, d: `M${x} ${this.y(s.low[i])}V${this.y(s.high[i])}` }, body);
    node("circle", { class: "dot", style: `${stroke};fill:${color(s.color)}`, cx: x, cy: y, r: 4 }, body);
  }
  rowNames(svg) {
    const most = Math.floor(0.13 * this.size.width);
    this.series.forEach((s, i) => {
      const label = `${s.name}: ${s.value === null ? "–" : short(s.value)}`;
      node("text", { class: "row-name", x: MARGIN.left + 4, y: this.y(this.series.length - 1 - i) - 12 }, svg, label.length > most ? `${label.slice(0, most)}…` : label);
    });
  }
  intervals(body) {  // one row a run, the first at the top
    this.series.forEach((s, i) => {
      const y = this.y(this.series.length - 1 - i), stroke = `stroke:${color(s.color)}`, label = `${s.name}: ${s.value === null ? "–" : short(s.value)}`;
      if (s.value === null) return;
      if (s.low !== null && s.high !== null) {
        const low = this.x(s.low), high = this.x(s.high);
        node("path", { class: "series", style: stroke, d: `M${low} ${y - 5}V${y + 5}M${low} ${y}H${high}M${high} ${y - 5}V${y + 5}` }, body);
      }
      const dot = node("circle", { class: "dot", style: `${stroke};fill:${color(s.color)}`, cx: this.x(s.value), cy: y, r: 5 }, body);
      node("title", {}, dot, s.low === null ? label : `${label} [${short(s.low)}, ${short(s.high)}]`);
    });
  }
  scatter(body) {
    for (const s of this.series) for (const [x, y, seed] of s.points) {
      if (x === null || y === null) continue;
      const look = { class: `dot${s.hollow ? " hollow" : ""}`, style: `stroke:${color(s.color)};${s.hollow ? "" : `fill:${color(s.color)}`}` };
      const shape = ["a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z", "v-4.5h9v9h-9Z", "l6 -6 6 6 -6 6Z"][s.shape];
      const dot = node("path", { ...look, d: `M${(this.x(x) - [5, 4.5, 6][s.shape]).toFixed(1)} ${this.y(y).toFixed(1)}${shape}` }, body);
      node("title", {}, dot, `${s.name}, seed ${seed}: ${short(x)}, return ${short(y)}`);
    }
  }
  limit(svg, dx, dy) {
    const { limit, kind } = this.spec, { width, height } = this.size, m = MARGIN;
    if (limit === null || limit === undefined) return;
    const text = `limit ${short(limit)}`;
    if (kind === "scatter" || kind === "interval") {
      const x = this.x(limit), room = width - m.right - x;
      node("rect", { class: "zone", x, y: m.top, width: Math.max(room, 0), height: height - m.top - m.bottom }, svg);
      node("line", { class: "lim", x1: x, x2: x, y1: m.top, y2: height - m.bottom }, svg);
      node("text", { class: "lim-text", x: room > 70 ? x + 6 : x - 6, y: height - m.bottom - 8, "text-anchor": room > 70 ? "start" : "end" }, svg, text);
      return;
    }
    const y = this.y(limit);
    node("rect", { class: "zone", x: m.left, y: m.top, width: width - m.left - m.right, height: Math.max(y - m.top, 0) }, svg);
    node("line", { class: "lim", x1: m.left, x2: width - m.right, y1: y, y2: y }, svg);
    node("text", { class: "lim-text", x: m.left + 6, y: y - m.top > 16 ? y - 5 : y + 14 }, svg, text);
  }
}
