Chart.prototype.listen = function () {
  if (this.spec.kind === "scatter" || this.spec.kind === "interval") return;
  const holder = this.holder;
  const place = (event) => event.clientX - holder.getBoundingClientRect().left;
  holder.addEventListener("pointermove", (event) => {
    if (this.from !== undefined) this.brush(place(event)); else this.show(this.back(place(event)));
  });
  holder.addEventListener("pointerleave", () => this.hide());
  holder.addEventListener("blur", () => this.hide());
  holder.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") this.from = place(event); });
  window.addEventListener("pointerup", (event) => {
    if (this.from === undefined) return;
    const ends = [this.from, place(event)].sort((a, b) => a - b);
    this.from = undefined;
    if (ends[1] - ends[0] > 12) this.zoom = ends.map((px) => Math.max(0, this.back(px)));
    this.draw();
  });
  holder.addEventListener("dblclick", () => { this.zoom = null; this.draw(); });
  holder.addEventListener("keydown", (event) => {
    const xs = this.series[0]?.x ?? [], step = { ArrowLeft: -1, ArrowRight: 1, Home: -xs.length, End: xs.length }[event.key];
    if (step === undefined || !xs.length) return;
    event.preventDefault();
    this.at = Math.min(xs.length - 1, Math.max(0, (this.at ?? -1) + step));
    this.show(xs[this.at]);
  });
};

Chart.prototype.brush = function (to) {
  const [left, right] = [this.from, to].sort((a, b) => a - b);
  this.over.replaceChildren();
  node("rect", { class: "brush", x: left, width: right - left, y: MARGIN.top, height: this.size.height - MARGIN.top - MARGIN.bottom }, this.over);
};

Chart.prototype.show = function (value) {
  const lines = [];
  let px = null;
  this.over.replaceChildren();
  const far = (x) => Math.abs(this.fx(x) - this.fx(value)), steps = this.spec.x_label === "environment steps";
  const place = (x) => (steps ? `${Math.round(x).toLocaleString("en")} steps` : `${this.spec.x_label} ${short(x)}`);
  for (const s of this.series) {
    const i = s.x.reduce((best, x, k) => (far(x) < far(s.x[best]) ? k : best), 0);
    if (!s.x.length || s.y[i] === null) continue;
    if (px === null) { px = this.x(s.x[i]); lines.push([place(s.x[i]), null]); }
    const band = s.low[i] === null ? "" : ` [${short(s.low[i])}, ${short(s.high[i])}]`;
    lines.push([`${this.series.length > 1 ? `${s.name}: ` : ""}${short(s.y[i])}${band}`, s.color]);
    node("circle", { cx: this.x(s.x[i]), cy: this.y(s.y[i]), r: 4, style: `fill:${color(s.color)}` }, this.over);
  }
  if (px === null) return this.hide();
  node("line", { class: "cross", x1: px, x2: px, y1: MARGIN.top, y2: this.size.height - MARGIN.bottom }, this.over);
  this.tip.replaceChildren(...lines.map(([text, hue]) => {
    const row = document.createElement("div");
    row.textContent = text;
    if (hue !== null) row.style.color = color(hue); else row.style.fontWeight = 600;
    return row;
  }));
  this.tip.hidden = false;
  const left = px > this.size.width / 2 ? px - this.tip.offsetWidth - 12 : px + 12;
  this.tip.style.left = `${Math.max(0, left)}px`;
  this.tip.style.top = "14px";
};

Chart.prototype.hide = function () {
  this.tip.hidden = true;
  this.at = null;
  this.over.replaceChildren();
};
