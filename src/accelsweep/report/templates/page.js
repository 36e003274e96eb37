"use strict";
(async () => {
  const canUnzip = "DecompressionStream" in window;
  const { charts, beyond, opened } = canUnzip ? JSON.parse(await unzipped("data")) : { charts: {}, beyond: {}, opened: {} };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const phone = window.matchMedia("(max-width: 40rem)");
  const paper = 680;
  const views = new Map();
  const tables = new Map();

  async function unzipped(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

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
    if (spec.usermeta?.step) keepLines(name, spec);
    return spec;
  }

  // Phones have no room for labels beside the plot: put them above the marks, inside it.
  function narrow(spec) {
    spec.config.axis.labelLimit = 160;
    spec.config.axis.titlePadding = 6;
    spec.config.legend.columns = spec.usermeta?.step ? 4 : 2;
    spec.config.legend.columnPadding = 8;
    spec.config.axisYPoint = { labelAlign: "left", labelPadding: 0, labelOffset: -14, labelLimit: 330, grid: false, zindex: 1 };
    for (const row of spec.datasets.rows) if (row.narrow_side !== undefined) row.side = row.narrow_side;
    visit(spec.layer, fewerColumns);
    if (spec.usermeta?.rows) {
      spec.height = 46 * spec.usermeta.rows;
      spec.config.axisYBand = { ...spec.config.axisYPoint, labelOffset: -17 };
    }
    if (spec.usermeta?.tiles) {
      spec.height = 58 * spec.usermeta.tiles;
      spec.config.scale = { rectBandPaddingInner: 0.4 };
      spec.config.axisYBand = { ...spec.config.axisYPoint, labelOffset: -27 };
    }
    if (spec.usermeta?.step) spec.usermeta.step = 27;
    if (spec.usermeta?.bands) {
      spec.height = 84 * spec.usermeta.bands;
      spec.config.axisYBand = { ...spec.config.axisYPoint, labelOffset: -38 };
    }
  }

  function visit(part, change) {
    if (part === null || typeof part !== "object") return;
    change(part);
    Object.values(part).forEach((inner) => visit(inner, change));
  }

  function fewerColumns(channel) {
    if (!channel.legend?.columns) return;
    const longest = Math.max(0, ...(channel.scale?.domain ?? []).map((name) => String(name).length));
    channel.legend.columns = Math.min(channel.legend.columns, longest > 20 ? 1 : 2);
  }

  // The first screen shows the first lines only; a checkbox draws the others.
  function keepLines(name, spec) {
    const box = document.getElementById(`every-${name}`);
    spec.datasets.rows = spec.datasets.rows.filter((row) => row.first || box?.checked);
    spec.height = spec.usermeta.step * new Set(spec.datasets.rows.map((row) => row.key)).size;
    if (box) box.closest("label").hidden = spec.datasets.rows.length === unpack(charts[name].rows).length && !box.checked;
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
      views.set(name, (await window.vegaEmbed(place, specification(name), options)).view);
      place.dataset.drawn = dark.matches ? "dark" : "light";
    } catch (error) {
      place.textContent = `This chart could not be drawn (${error.message}); its picture and its data are linked below.`;
    }
  }

  // The policy of the page allows these libraries by their hash.
  async function loadLibraries() {
    document.head.append(Object.assign(document.createElement("script"), { textContent: await unzipped("libraries") }));
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

  // A table holds all of its rows here, and shows at most `most` of those that match.
  const order = new Intl.Collator("en", { numeric: true }).compare;

  function liveTable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows].filter((row) => !row.classList.contains("more")).map(rowOf);
    const most = rows.length;
    const name = table.id.replace("table-", "");
    entriesBeyond(name).forEach((entries, place) => {
      const words = wordsOf(entries.flatMap((entry) => [entry.text, entry.detail ?? ""]));
      rows.push({ entries, lines: opened[name]?.[place], words });
    });
    let words = [];
    const show = () => {
      const matching = rows.filter((row) => words.every((word) => row.words.includes(word)));
      table.tBodies[0].replaceChildren(...matching.slice(0, most).flatMap((row) => elementsOf(row, heads)));
      return `${matching.length} of ${rows.length} rows` + (matching.length > most ? `, ${most} shown` : "");
    };
    return {
      heads,
      size: rows.length,
      titles: heads.map((head) => head.textContent),
      texts: () => rows.map((row) => (row.entries ? row.entries.map(entryText) : [...row.element.cells].map(cellText))),
      filter(text) {
        words = text.toLowerCase().split(/\s+/).filter(Boolean);
        return show();
      },
      sort(column, direction) {
        for (const row of rows) row.key = row.entries ? keyOfEntry(row.entries[column]) : keyOfCell(row.element.cells[column]);
        rows.sort((a, b) => {
          if (typeof a.key !== typeof b.key) return typeof a.key === "number" ? -1 : 1;
          return direction * (typeof a.key === "number" ? a.key - b.key : order(a.key, b.key));
        });
        show();
      },
    };
  }

  const entryText = (entry) => [entry.text, entry.detail].filter(Boolean).join(" ");
  const cellText = (cell) => [...cell.querySelectorAll("span, small, code")].map((part) => part.textContent).join(" ");
  const wordsOf = (texts) => texts.join(" ").toLowerCase();
  const keyOfEntry = (entry) => entry.order ?? entry.text;
  const keyOfCell = (cell) => (cell.dataset.order === undefined ? cell.textContent.trim() : Number(cell.dataset.order));
  const rowOf = (element) => ({ element, more: moreOf(element), words: wordsOf([...element.querySelectorAll("span, small, code")].map((part) => part.textContent)) });

  function moreOf(element) {
    const next = element.nextElementSibling;
    return next?.classList.contains("more") ? next : undefined;
  }

  function elementsOf(row, heads) {
    row.element ??= elementOf(row.entries, heads, row.lines);
    if (row.lines) row.more ??= moreElement(row.lines, heads.length);
    return row.more ? [row.element, row.more] : [row.element];
  }

  function moreElement(lines, columns) {
    const row = document.createElement("tr");
    row.className = "more";
    const list = row.appendChild(Object.assign(document.createElement("td"), { colSpan: columns })).appendChild(document.createElement("dl"));
    for (const line of lines) {
      list.appendChild(document.createElement("dt")).textContent = line.name;
      const words = list.appendChild(document.createElement("dd"));
      const place = line.code ? words.appendChild(document.createElement("pre")).appendChild(document.createElement("code")) : words;
      place.textContent = line.text;
    }
    return row;
  }

  function entriesBeyond(name) {
    const columns = (beyond[name] ?? []).map(unpack);
    return columns.length ? columns[0].map((_, row) => columns.map((column) => column[row])) : [];
  }

  function elementOf(entries, heads, lines) {
    const row = document.createElement("tr");
    entries.forEach((entry, column) => {
      const cell = row.appendChild(document.createElement(column ? "td" : "th"));
      if (!column) cell.scope = "row";
      cell.className = heads[column].className;
      if (column) cell.dataset.head = heads[column].textContent;
      const opens = !column && lines;
      const place = opens ? cell.appendChild(document.createElement("details")).appendChild(document.createElement("summary")) : cell;
      const words = place.appendChild(document.createElement(entry.code ? "code" : "span"));
      words.textContent = entry.text;
      if (entry.tone) words.className = `tone ${entry.tone.replaceAll(" ", "-")}`;
      if (entry.detail) cell.appendChild(document.createElement("small")).textContent = entry.detail;
    });
    return row;
  }

  function offerFilter(input, live) {
    if (live.size <= 12) return;
    const box = input.closest(".filter");
    box.hidden = false;
    input.addEventListener("input", () => {
      box.querySelector("[role=status]").textContent = live.filter(input.value);
    });
  }

  function offerSorting(live) {
    live.heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const direction = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
        live.heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
        live.sort(column, direction);
      });
    });
  }

  // In a sandboxed frame, such as MLflow's artifact viewer, links to files and sections do not work. There the page
  // scrolls by script, and builds the file from its own data: to save if the frame allows it, otherwise to copy.
  const framed = window.self !== window.top;

  function followLink(event) {
    const link = event.target.closest("a[href]");
    const address = link?.getAttribute("href") ?? "";
    if (!framed || !address) return;
    const text = address.startsWith("#") ? undefined : fileText(address);
    if (!address.startsWith("#") && text === undefined) return;
    event.preventDefault();
    if (text === undefined) document.getElementById(address.slice(1))?.scrollIntoView();
    else offerFile(address, text);
  }

  function fileText(address) {
    const [, name, kind] = /^([\w-]+)\.(csv|svg)$/.exec(address) ?? [];
    if (kind === "svg") return pictureOf(name);
    if (kind === "csv" && charts[name]) return asCsv(charts[name].columns, unpack(charts[name].rows).map((row) => charts[name].columns.map((key) => row[key])));
    const live = kind === "csv" ? tables.get(name) : undefined;
    return live && asCsv(live.titles, live.texts());
  }

  function pictureOf(name) {
    const words = document.querySelector(`#figure-${name} noscript`)?.textContent ?? "";
    return words.slice(words.indexOf("<svg"), words.lastIndexOf("</svg>") + 6) || undefined;
  }

  function asCsv(titles, rows) {
    const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    return [titles, ...rows].map((row) => row.map((value) => quoted(String(value ?? ""))).join(",")).join("\n") + "\n";
  }

  function offerFile(address, text) {
    const save = document.createElement("a");
    save.href = URL.createObjectURL(new Blob([text], { type: address.endsWith("svg") ? "image/svg+xml" : "text/csv" }));
    save.download = address;
    save.textContent = `Save ${address}`;
    const shown = document.createElement("dialog");
    const words = document.createElement("textarea");
    Object.assign(words, { value: text, readOnly: true, rows: 16 });
    words.setAttribute("aria-label", address);
    const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
    close.addEventListener("click", () => shown.close());
    shown.addEventListener("close", () => shown.remove());
    shown.append(words, save, close);
    document.body.append(shown);
    shown.showModal();
    words.select();
  }

  document.addEventListener("click", followLink);
  document.querySelectorAll(".copy").forEach(offerCopying);
  for (const box of document.querySelectorAll("[id^=every-]")) {
    box.addEventListener("change", () => draw(document.getElementById(`chart-${box.id.replace("every-", "")}`)));
  }
  for (const input of document.querySelectorAll("[data-filters]")) {
    const live = liveTable(document.getElementById(input.dataset.filters));
    tables.set(input.dataset.filters.replace("table-", ""), live);
    offerFilter(input, live);
    offerSorting(live);
  }
  // Paper is narrower than a screen: charts that were only scaled down would have tiny letters.
  window.addEventListener("beforeprint", () => views.forEach((view) => view.width(paper).run()));
  window.addEventListener("afterprint", () => window.dispatchEvent(new Event("resize")));
  dark.addEventListener("change", drawAll);
  phone.addEventListener("change", drawAll);
  await loadLibraries();
  await drawAll();
})().catch((error) => {
  const problem = "DecompressionStream" in window ? "The charts could not be drawn" : "The charts need a newer browser";
  for (const place of document.querySelectorAll(".chart")) place.textContent = `${problem} (${error.message}); pictures and data are linked below.`;
});
