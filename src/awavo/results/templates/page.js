const specs = JSON.parse(document.getElementById("charts").textContent);
const charts = [];
for (const figure of document.querySelectorAll("[data-chart]")) {
  charts.push(new Chart(figure.querySelector(".plot"), specs[figure.dataset.chart]));
}
for (const toggle of document.querySelectorAll(".seeds-toggle")) {
  const apply = () => charts.forEach((chart) => { chart.seeds = toggle.checked; chart.draw(); });
  toggle.addEventListener("change", apply);
  apply();
}
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", () => {
    const text = button.parentElement.querySelector("pre").textContent;
    const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
    navigator.clipboard?.writeText(text).then(done, () => { button.textContent = "Select and copy"; });
  });
}
const themes = ["auto", "light", "dark"], themeButton = document.getElementById("theme");
function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
  themeButton.textContent = `Theme: ${name}`;
  themeButton.dataset.name = name;
  try { localStorage.setItem("awavo-theme", name); } catch { /* storage is off: the choice lasts for this page */ }
}
let stored = null;
try { stored = localStorage.getItem("awavo-theme"); } catch { stored = null; }
const asked = new URLSearchParams(location.search).get("theme");
setTheme([asked, stored].find((name) => themes.includes(name)) || "auto");
themeButton.addEventListener("click", () => setTheme(themes[(themes.indexOf(themeButton.dataset.name) + 1) % 3]));
