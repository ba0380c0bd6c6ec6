// Charts tell their values at the pointer, and names in a legend hide and show what they stand for.
"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
for (const [name, chart] of Object.entries(charts)) {
  const svg = document.getElementById(`${name}-chart`);
  if (!svg) continue;
  const hidden = new Set();
  const tip = svg.parentElement.appendChild(document.createElement("div"));
  const here = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "circle"));
  tip.className = "tip";
  here.setAttribute("class", "here");
  here.setAttribute("r", 4);

  const hide = () => { tip.hidden = true; here.style.display = "none"; };
  const nearest = (x, y) => {
    let best = null, reach = 20 * 20;
    for (const point of chart.points) {
      const distance = (point[0] - x) ** 2 + (point[1] - y) ** 2;
      if (distance < reach && !hidden.has(point[2])) [best, reach] = [point, distance];
    }
    return best;
  };
  hide();
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const point = nearest(at.x, at.y);
    if (!point) return hide();
    here.setAttribute("cx", point[0]);
    here.setAttribute("cy", point[1]);
    here.style.display = "";
    tip.textContent = point[3];
    tip.hidden = false;
    const box = svg.parentElement.getBoundingClientRect();
    const left = event.clientX - box.left + 14;
    tip.style.left = Math.max(0, Math.min(left, box.width - tip.offsetWidth)) + "px";
    tip.style.top = event.clientY - box.top + 16 + "px";
  });

  chart.series.forEach((series, number) => {
    const label = document.getElementById(`${name}-l${number}`);
    if (!label) return;
    const toggle = () => {
      const off = !hidden.has(number);
      off ? hidden.add(number) : hidden.delete(number);
      label.classList.toggle("off", off);
      label.setAttribute("aria-pressed", !off);
      for (const part of svg.querySelectorAll(`[id^="${name}-s${number}-"]`)) part.classList.toggle("hidden", off);
      hide();
    };
    label.setAttribute("role", "button");
    label.setAttribute("tabindex", 0);
    label.setAttribute("aria-pressed", true);
    label.addEventListener("click", toggle);
    label.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
  });
}
