const chosen = (kind) => new Set([...document.querySelectorAll(`[data-filter="${kind}"]:checked`)].map((box) => box.value));
function filter() {
  const tasks = chosen("task"), algos = chosen("algo");
  for (const part of document.querySelectorAll("[data-task]")) part.hidden = !tasks.has(part.dataset.task);
  for (const part of document.querySelectorAll("[data-algo]")) part.hidden = !algos.has(part.dataset.algo);
  for (const chart of charts) {
    chart.hidden = new Set(chart.spec.series.map((s) => s.algo).filter((algo) => !algos.has(algo)));
    chart.hide();
    if (chart.holder.clientWidth) chart.draw();
  }
}
const query = new URLSearchParams(location.search);
for (const box of document.querySelectorAll("[data-filter]")) {
  const wanted = query.get(`${box.dataset.filter}s`);
  if (wanted !== null) box.checked = wanted.split(",").includes(box.value);
  box.addEventListener("change", filter);
}
for (const button of document.querySelectorAll("[data-all]")) {
  button.addEventListener("click", () => {
    for (const box of document.querySelectorAll(`[data-filter="${button.dataset.all}"]`)) box.checked = true;
    filter();
  });
}
filter();
