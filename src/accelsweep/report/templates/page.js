"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const phone = window.matchMedia("(max-width: 40rem)");
  const views = new Map();

  function unpack(columns) {
    const expand = (column) => (Array.isArray(column) ? column : column.at.map((place) => column.of[place]));
    const full = Object.entries(columns).map(([key, column]) => [key, expand(column)]);
    return full[0][1].map((_, row) => Object.fromEntries(full.map(([key, values]) => [key, values[row]])));
  }

  function specification(name) {
    const chart = charts[name];
    const spec = structuredClone(dark.matches ? chart.dark : chart.light);
    spec.datasets = { ...spec.datasets, rows: unpack(chart.rows) };
    if (phone.matches) narrow(spec);
    return spec;
  }

  // On a phone a row's label stands above its mark, inside the plot, because beside it there is no room for both.
  function narrow(spec) {
    spec.config.axis.labelLimit = 120;
    spec.config.axis.titlePadding = 6;
    spec.config.legend.columns = 2;
    spec.config.axisYPoint = { labelAlign: "left", labelPadding: 0, labelOffset: -14, labelLimit: 330, grid: false, zindex: 1 };
    if (spec.usermeta?.rows) spec.height = 46 * spec.usermeta.rows;
  }

  async function draw(place) {
    const name = place.dataset.figure;
    const options = {
      actions: false,
      ast: true,
      renderer: "svg",
      bind: `#controls-${name}`,
      tooltip: { theme: dark.matches ? "dark" : "light" },
    };
    try {
      views.get(name)?.finalize();
      document.getElementById(`controls-${name}`).replaceChildren();
      views.set(name, await window.vegaEmbed(place, specification(name), options));
      place.dataset.drawn = dark.matches ? "dark" : "light";
    } catch (error) {
      place.textContent = `This chart could not be drawn (${error.message}); its picture and its data are linked below.`;
    }
  }

  async function drawAll() {
    for (const place of document.querySelectorAll(".chart")) await draw(place);
    document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
  }

  function offerCopying(button) {
    if (!navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
      window.setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }

  function offerFilter(input) {
    const rows = [...document.getElementById(input.dataset.filters).tBodies[0].rows];
    if (rows.length <= 12) return;
    const box = input.closest(".filter");
    box.hidden = false;
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
      const shown = rows.filter((row) => !row.hidden).length;
      box.querySelector("[role=status]").textContent = `${shown} of ${rows.length} rows`;
    });
  }

  function sortBy(table, column, direction) {
    const key = (row) => {
      const item = row.cells[column];
      return item.dataset.order === undefined ? item.textContent.trim() : Number(item.dataset.order);
    };
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      return direction * (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true }));
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
  }

  function offerSorting(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const direction = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
        sortBy(table, column, direction);
      });
    });
  }

  document.querySelectorAll(".copy").forEach(offerCopying);
  document.querySelectorAll("[data-filters]").forEach(offerFilter);
  document.querySelectorAll("table").forEach(offerSorting);
  dark.addEventListener("change", drawAll);
  phone.addEventListener("change", drawAll);
  drawAll();
})();
