// Live charts, sorting and switches of a report page; without it the page shows still pictures and plain tables.
"use strict";
(() => {
  const root = document.documentElement;
  const holder = document.getElementById("data");
  const plots = holder ? JSON.parse(holder.textContent).plots : {};
  const state = { hidden: new Set(), seed: "", zoom: "" };
  const mounted = new Map(); // figure element -> its charts
  const toggles = [...document.querySelectorAll(".toggle")];
  const crowd = 10; // lines from which only the emphasised ones have a band
  const groups = new Map(); // the charts that share cursor and zoom: those of a task and pattern over equal axes
  const groupOf = (figure, plot) => {
    const key = [...document.querySelectorAll(".plots")].indexOf(figure.parentElement) + plot.x.label;
    if (!groups.has(key)) groups.set(key, { key, charts: new Set(), view: null, busy: false });
    return groups.get(key);
  };

  const colour = (ink) =>
    getComputedStyle(root).getPropertyValue({ "-1": "--ink-base", "-2": "--ink-ref" }[ink] || `--ink${ink}`).trim();
  const themed = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const short = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
  };
  const position = (x, value) => {
    if (value === null) return "";
    return x.high > 2e6 ? `${short(value / 1e6)}M` : `${short(value / 1e3)}k`;
  };

  // What a line contributes in the present state: [label, look, values, x, alpha, weight, band] each.
  const parts = (plot, panel) => {
    const found = [];
    const crowded = toggles.length - state.hidden.size >= crowd;
    for (const line of panel.lines) {
      if (state.hidden.has(line.name)) continue;
      const look = plot.looks[line.name];
      const calm = crowded && !look.strong;
      const x = plot.grids[line.x];
      const add = (values, extra) => found.push({ name: line.name, look, x, values, calm, ...extra });
      const own = line.seeds || {};
      const single = state.seed && state.seed !== "*";
      if (single && own[state.seed]) add(own[state.seed], { told: true });
      else if (single && line.seeds) continue;
      else if (state.seed === "*" || !line.y) {
        for (const values of Object.values(own)) add(values, { faint: true, alone: !line.y });
        if (line.y) add(line.y, { told: true });
      } else {
        if (line.low && !calm) {
          add(line.high, { edge: true });
          add(line.low, { edge: true, closes: true });
        }
        add(line.y, { told: true });
        if (line.regained) add(line.y.map((value, i) => (line.regained.includes(i) ? value : null)), { dots: true, calm });
      }
    }
    return found.sort((a, b) => b.calm - a.calm); // emphasised lines lie on top
  };

  const marks = (plot) => (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.strokeStyle = themed("--soft");
    ctx.globalAlpha = 0.7;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash((plot.x.jumps ? [5, 4] : [1.5, 3]).map((length) => length * devicePixelRatio));
    for (const mark of plot.x.marks) {
      const at = Math.round(chart.valToPos(mark, "x", true));
      if (at < bbox.left || at > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  const tip = make("div", "tip");
  tip.hidden = true;
  const said = make("div", "said");
  said.setAttribute("aria-live", "polite");
  document.body.append(tip, said);
  const tell = (plot, row, shown) => (chart) => {
    const { idx, left, top } = chart.cursor;
    if (!chart.aesjaxOver || idx === null || idx === undefined || left < 0) return;
    tip.replaceChildren(make("div", "", `${plot.x.label}: ${position(plot.x, chart.data[0][idx])}`));
    const told = shown.map((part, i) => [part, chart.data[i + 1][idx]]).filter(([part, value]) => part.told && value !== null && value !== undefined);
    const away = ([, value]) => Math.abs(chart.valToPos(value, "y") - top);
    const near = [...told].sort((a, b) => away(a) - away(b)).slice(0, 8).sort((a, b) => b[1] - a[1]);
    for (const [part, value] of near) {
      const line = make("div");
      line.style.color = colour(part.look.ink);
      line.append(make("b", "", short(value)), part.name);
      tip.append(line);
    }
    if (near.length < told.length) tip.append(make("div", "", `and ${told.length - near.length} more`));
    if (chart.aesjaxKeys) said.textContent = [tip.firstChild.textContent, ...near.map(([part, value]) => `${part.name} ${short(value)}`)].join(", ");
    tip.hidden = false;
    const box = chart.over.getBoundingClientRect();
    const width = tip.offsetWidth;
    const beside = box.left + left + 14;
    tip.style.left = `${Math.max(4, beside + width > innerWidth - 4 ? box.left + left - width - 14 : beside)}px`;
    tip.style.top = `${Math.max(4, Math.min(box.top + top + 10, innerHeight - tip.offsetHeight - 4))}px`;
  };

  const range = (plot) => {
    const x = plot.x;
    if (state.zoom === "") return [x.low, x.high];
    const count = document.getElementById("zoom").options.length - 1;
    const size = (x.high - x.low) / count;
    return [x.low + state.zoom * size, x.low + (Number(state.zoom) + 1) * size];
  };

  const chartOf = (plot, panel, place, group) => {
    const row = plot.rows[panel.row];
    const shown = parts(plot, panel);
    const grid = { stroke: themed("--line"), width: 1 };
    const text = themed("--soft");
    const series = shown.map((part) => {
      const ink = colour(part.look.ink);
      return {
        label: part.name,
        stroke: part.edge ? "transparent" : part.faint ? ink + (part.alone ? "b0" : "66") : part.calm ? ink + "80" : ink,
        width: part.edge ? 0 : part.faint ? 0.8 : part.look.width + 0.2,
        dash: part.edge ? undefined : part.look.dash.map((length) => length * 1.6),
        points: part.dots ? { show: true, size: 7, width: 1.6, fill: themed("--paper") } : { show: part.values.length < 2 },
        paths: part.dots ? () => null : row.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        spanGaps: true,
        fill: undefined,
      };
    });
    const bands = [];
    shown.forEach((part, i) => {
      if (part.closes) bands.push({ series: [i, i + 1], fill: colour(part.look.ink) + "26" });
    });
    const tables = shown.length ? shown.map((part) => [part.x, part.values]) : [[[plot.x.low, plot.x.high], [null, null]]];
    if (!shown.length) series.push({ label: "", stroke: "transparent" });
    const linked = (chart, key) => {
      if (key !== "x" || group.busy) return;
      group.busy = true;
      const { min, max } = chart.scales.x;
      group.view = [min, max];
      for (const other of group.charts) if (other !== chart) other.setScale("x", { min, max });
      group.busy = false;
    };
    const [low, high] = group.view || range(plot);
    const lowest = !plot.panels.some((other) => other.column === panel.column && other.row > panel.row);
    const titled = (label) => ({ label, labelSize: 17, labelGap: 0, labelFont: "11px system-ui, sans-serif" });
    const chart = new uPlot(
      {
        width: Math.max(160, place.clientWidth),
        height: Math.round(row.height * 80 + 28 + 17 * lowest),
        legend: { show: false },
        cursor: { sync: { key: group.key }, drag: { x: true, y: false }, points: { size: 6 } },
        scales: {
          x: { time: false, min: low, max: high, range: (_, min, max) => (min === null || min === max ? [low, high] : [min, max]) },
          y: row.log ? { distr: 3 } : { range: (_, min, max) => (min === null ? [0, 1] : min === max ? [min - 1, max + 1] : uPlot.rangeNum(min, max, 0.08, false)) },
        },
        axes: [
          { stroke: text, grid, ticks: { show: false }, size: 24, space: 60, ...(lowest ? titled(plot.x.label) : {}), font: "11px system-ui, sans-serif", values: (_, ticks) => ticks.map((tick) => position(plot.x, tick)) },
          { stroke: text, grid, ticks: { show: false }, size: 46, space: 28, ...titled(row.label), font: "11px system-ui, sans-serif", values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : short(tick))) },
        ],
        series: [{}, ...series],
        bands,
        hooks: { drawAxes: [marks(plot)], setCursor: [tell(plot, row, shown)], setScale: [linked] },
      },
      uPlot.join(tables),
      place,
    );
    chart.over.addEventListener("mouseenter", () => {
      chart.aesjaxOver = true;
      chart.aesjaxKeys = false;
    });
    chart.over.addEventListener("mouseleave", () => {
      chart.aesjaxOver = false;
      tip.hidden = true;
    });
    chart.over.addEventListener("dblclick", () => {
      const [min, max] = range(plot);
      chart.setScale("x", { min, max });
    });
    place.dataset.lines = [...new Set(shown.map((part) => part.name))].join(",");
    return chart;
  };

  // Arrow keys move the cursor of a focused panel, so that values can be read without a mouse.
  const steer = (place, chart) => {
    place.tabIndex = 0;
    place.onkeydown = (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      const x = chart.data[0];
      const now = chart.cursor.idx ?? (way > 0 ? -1 : x.length);
      const next = Math.min(x.length - 1, Math.max(0, now + way));
      chart.aesjaxOver = chart.aesjaxKeys = true;
      chart.setCursor({ left: chart.valToPos(x[next], "x"), top: 10 });
    };
    place.onblur = () => {
      chart.aesjaxOver = false;
      tip.hidden = true;
    };
  };

  const mount = (figure) => {
    unmount(figure);
    const plot = plots[figure.dataset.plot];
    if (!plot) return;
    const live = make("div", "live");
    live.style.setProperty("--columns", Math.max(1, plot.columns.length));
    figure.insertBefore(live, figure.querySelector(".still"));
    figure.querySelector(".still").classList.add("off");
    const group = groupOf(figure, plot);
    const ordered = [...plot.panels].sort((a, b) => a.row - b.row || a.column - b.column);
    const places = ordered.map((panel) => {
      const row = plot.rows[panel.row];
      const place = make("div", "panel");
      const head = make("h4", "", plot.columns.length > 1 && panel.row === 0 ? plot.columns[panel.column] : "");
      place.append(head);
      place.setAttribute("role", "group");
      place.setAttribute("aria-label", `${plot.columns[panel.column]} ${row.label}; arrow keys read values`);
      live.append(place);
      return place;
    });
    const charts = ordered.map((panel, i) => {
      const chart = chartOf(plot, panel, places[i], group);
      group.charts.add(chart);
      steer(places[i], chart);
      return chart;
    });
    mounted.set(figure, charts);
  };
  const unmount = (figure) => {
    for (const chart of mounted.get(figure) || []) {
      groups.forEach((group) => group.charts.delete(chart));
      chart.destroy();
    }
    mounted.delete(figure);
    figure.querySelector(".live")?.remove();
    figure.querySelector(".still").classList.remove("off");
  };
  // A redraw keeps the height of the page, so that nothing jumps under the reader.
  const redraw = () => {
    for (const figure of [...mounted.keys()]) {
      figure.style.minHeight = `${figure.offsetHeight}px`;
      mount(figure);
      figure.style.minHeight = "";
    }
  };

  const figures = [...document.querySelectorAll("figure.plot")];
  if (holder && figures.length) {
    const seen = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          if (!entry.isIntersecting) continue;
          seen.unobserve(entry.target);
          mount(entry.target);
        }
      },
      { rootMargin: "400px" },
    );
    figures.forEach((figure) => seen.observe(figure));
    document.querySelectorAll(".controls").forEach((controls) => (controls.hidden = false));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    let width = innerWidth;
    let waiting = 0;
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      clearTimeout(waiting);
      waiting = setTimeout(redraw, 150);
    });
  }

  const press = (button, on) => {
    button.setAttribute("aria-pressed", String(on));
    state.hidden[on ? "delete" : "add"](button.dataset.name);
  };
  const changed = () => {
    const count = document.getElementById("count");
    if (count) count.textContent = `${toggles.length - state.hidden.size} of ${toggles.length}`;
    redraw();
  };
  for (const button of toggles) {
    button.addEventListener("click", () => {
      press(button, button.getAttribute("aria-pressed") !== "true");
      changed();
    });
  }
  document.getElementById("filter")?.addEventListener("input", (event) => {
    const text = event.target.value.trim().toLowerCase();
    for (const button of toggles) button.hidden = !button.dataset.name.toLowerCase().includes(text);
  });
  for (const button of document.querySelectorAll(".set")) {
    button.addEventListener("click", () => {
      const set = button.dataset.set;
      for (const toggle of toggles) {
        if (set === "only") press(toggle, !toggle.hidden);
        else if (!toggle.hidden) press(toggle, set === "all");
      }
      changed();
    });
  }
  for (const name of ["seed", "zoom"]) {
    document.getElementById(name)?.addEventListener("change", (event) => {
      state[name] = event.target.value;
      if (name === "zoom") groups.forEach((group) => (group.view = null));
      redraw();
    });
  }

  // Sorting keeps the groups of a table; a third click restores its order.
  const valueOf = (cell) => {
    const named = cell.classList.contains("name"); // its text is in several nodes
    const text = ((named ? cell : cell.firstChild)?.textContent || "").trim();
    const found = /^[▲▼≈=○·<\s]*(-?\d[\d\s]*(?:\.\d+)?)/.exec(text);
    return found ? Number(found[1].replace(/\s/g, "")) : text;
  };
  const compared = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  };
  for (const table of document.querySelectorAll(".table table")) {
    const heads = [...table.tHead.rows[0].cells];
    const order = [...table.tBodies].map((body) => [...body.rows]);
    heads.forEach((head, column) => {
      const button = make("button", "", head.textContent);
      button.type = "button";
      button.title = head.title;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const next = { ascending: "descending", descending: "none" }[head.ariaSort] || "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (next !== "none") head.setAttribute("aria-sort", next);
        [...table.tBodies].forEach((body, i) => {
          const rows = order[i].slice(1);
          const way = next === "descending" ? -1 : 1;
          if (next !== "none") rows.sort((a, b) => way * compared(valueOf(a.cells[column]), valueOf(b.cells[column])));
          body.append(order[i][0], ...rows);
        });
      });
    });
  }
  // A printed page has no folds.
  let folds = [];
  addEventListener("beforeprint", () => {
    folds = [...document.querySelectorAll("details.more:not([open])")];
    for (const fold of folds) fold.open = true;
  });
  addEventListener("afterprint", () => folds.forEach((fold) => (fold.open = false)));
  root.classList.add("ready");
})();
