const byId = (id) => document.getElementById(id);
const drawn = new Map();
let videoMark = null;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function showState(data) {
  const share = data.total_steps ? Math.min(1, data.env_steps / data.total_steps) : 0;
  const words = { training: "Training", finished: "Finished", stopped: "Not running" };
  const marks = { training: "▶", finished: "✓", stopped: "‖" };
  byId("state").className = `verdict ${data.state === "stopped" ? "part" : ""}`;
  byId("state").querySelector(".mark").textContent = marks[data.state];
  byId("line").textContent = `${words[data.state]}: ${data.env_steps.toLocaleString("en")} of ${data.total_steps.toLocaleString("en")} steps of each of ${data.seeds} seed${data.seeds === 1 ? "" : "s"}`;
  const parts = [];
  if (data.steps_per_second) parts.push(`${short(data.steps_per_second)} steps a second, all seeds together`);
  if (data.state === "training" && data.left_s !== null) parts.push(`about ${duration(data.left_s)} left`);
  if (data.state === "stopped") parts.push("the same awavo train command goes on from the last checkpoint");
  if (data.evaluated) parts.push(`evaluated: ${data.evaluated.seeds} seeds within their limits`);
  byId("from").textContent = parts.join("; ");
  byId("bar").value = share;
  byId("note").hidden = !data.note;
  byId("note").textContent = data.note || "";
}

function showFigures(figures) {
  byId("figures").replaceChildren(...figures.map((figure) => {
    const above = figure.limit !== null && figure.value !== null && figure.value > figure.limit;
    const tile = element("div", `tile${figure.limit === null ? "" : above ? " bad" : " ok"}`);
    tile.append(element("p", "name", figure.name), element("p", "value", figure.value === null ? "–" : short(figure.value)));
    tile.append(element("p", "name", figure.limit === null ? "mean of an episode" : `${above ? "above" : "within"} the limit ${short(figure.limit)}`));
    return tile;
  }));
}

function showCharts(specs) {
  for (const spec of specs) {
    const known = drawn.get(spec.id);
    if (known) { known.spec = spec; known.draw(); continue; }
    const figure = element("figure", "chart"), plot = element("div", "plot");
    plot.tabIndex = 0;
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", spec.summary);
    figure.append(element("figcaption", "", spec.title), plot);
    byId("charts").append(figure);
    drawn.set(spec.id, new Chart(plot, spec));
  }
}

function showVideo(video) {
  byId("episode").hidden = !video;
  if (!video || video.mark === videoMark) return;
  videoMark = video.mark;
  const shown = element(video.kind === "video/mp4" ? "video" : "img", "picture");
  if (video.kind === "video/mp4") Object.assign(shown, { controls: true, loop: true, muted: true, autoplay: true });
  else shown.alt = "One episode, the costs counting up beside it";
  shown.src = `/video?${video.mark}`;
  byId("video").replaceChildren(shown);
}

async function update() {
  try {
    const answer = await fetch("/data.json");
    if (!answer.ok) throw new Error(await answer.text());
    const data = await answer.json();
    showState(data); showFigures(data.figures); showCharts(data.charts); showVideo(data.video);
    byId("updated").textContent = `updated ${new Date().toLocaleTimeString("en-GB")}`;
  } catch (error) {
    byId("updated").textContent = `no answer: ${error.message.slice(0, 120)}`;
  }
  setTimeout(update, 2000);
}
update();
