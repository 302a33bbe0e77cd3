// Live charts, sorting and switches of a report page; without it the page shows still pictures and plain tables.
"use strict";
(() => {
  const root = document.documentElement;
  const holder = document.getElementById("data");
  const plots = holder ? JSON.parse(holder.textContent).plots : {};
  const state = { hidden: new Set(), seed: "", zoom: "" };
  const mounted = new Map(); // figure element -> its charts

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
    if (x.form === "percent") return short(100 * value);
    if (x.form !== "steps") return short(value);
    return x.high > 2e6 ? `${short(value / 1e6)}M` : `${short(value / 1e3)}k`;
  };

  // What a line contributes in the present state: [label, look, values, x, alpha, weight, band] each.
  const parts = (plot, panel) => {
    const found = [];
    for (const line of panel.lines) {
      if (state.hidden.has(line.name)) continue;
      const look = plot.looks[line.name];
      const x = plot.grids[line.x];
      const add = (values, extra) => found.push({ name: line.name, look, x, values, ...extra });
      const own = line.seeds || {};
      const single = state.seed && state.seed !== "*";
      if (single && own[state.seed]) add(own[state.seed], { told: true });
      else if (single && line.seeds) continue;
      else if (state.seed === "*" || !line.y) {
        for (const values of Object.values(own)) add(values, { faint: true, alone: !line.y });
        if (line.y) add(line.y, { told: true });
      } else {
        if (line.low) {
          add(line.high, { edge: true });
          add(line.low, { edge: true, closes: true });
        }
        add(line.y, { told: true });
      }
    }
    return found;
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
  document.body.append(tip);
  const tell = (plot, row, shown) => (chart) => {
    const { idx, left, top } = chart.cursor;
    if (!chart.aesjaxOver || idx === null || idx === undefined || left < 0) return;
    tip.replaceChildren(make("div", "", `${plot.x.label}: ${position(plot.x, chart.data[0][idx])}`));
    const told = shown.map((part, i) => [part, chart.data[i + 1][idx]]).filter(([part, value]) => part.told && value !== null && value !== undefined);
    told.sort((a, b) => b[1] - a[1]);
    for (const [part, value] of told) {
      const line = make("div");
      line.style.color = colour(part.look.ink);
      line.append(make("b", "", short(value)), part.name);
      tip.append(line);
    }
    tip.hidden = false;
    const box = chart.over.getBoundingClientRect();
    const width = tip.offsetWidth;
    const beside = box.left + left + 14;
    tip.style.left = `${Math.max(4, beside + width > innerWidth - 4 ? box.left + left - width - 14 : beside)}px`;
    tip.style.top = `${Math.max(4, Math.min(box.top + top + 10, innerHeight - tip.offsetHeight - 4))}px`;
  };

  const range = (plot) => {
    const x = plot.x;
    if (state.zoom === "" || !x.segments) return [x.low, x.high];
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
        stroke: part.edge ? "transparent" : part.faint ? ink + (part.alone ? "b0" : "66") : ink,
        width: part.edge ? 0 : part.faint ? 0.8 : part.look.width + 0.2,
        dash: part.edge ? undefined : part.look.dash.map((length) => length * 1.6),
        points: { show: part.values.length < 2 },
        paths: row.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
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
      for (const other of group.charts) if (other !== chart) other.setScale("x", { min, max });
      group.busy = false;
    };
    const [low, high] = range(plot);
    const chart = new uPlot(
      {
        width: Math.max(160, place.clientWidth),
        height: Math.round(row.height * 80 + 28),
        legend: { show: false },
        cursor: { sync: { key: group.key }, drag: { x: true, y: false }, points: { size: 6 } },
        scales: {
          x: { time: false, min: low, max: high, range: (_, min, max) => (min === null || min === max ? [low, high] : [min, max]) },
          y: row.log ? { distr: 3 } : { range: (_, min, max) => (min === null ? [0, 1] : min === max ? [min - 1, max + 1] : uPlot.rangeNum(min, max, 0.08, false)) },
        },
        axes: [
          { stroke: text, grid, ticks: { show: false }, size: 24, space: 60, font: "11px system-ui, sans-serif", values: (_, ticks) => ticks.map((tick) => position(plot.x, tick)) },
          { stroke: text, grid, ticks: { show: false }, size: 46, space: 28, font: "11px system-ui, sans-serif", values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : short(tick))) },
        ],
        series: [{}, ...series],
        bands,
        hooks: { drawAxes: [marks(plot)], setCursor: [tell(plot, row, shown)], setScale: [linked] },
      },
      uPlot.join(tables),
      place,
    );
    chart.over.addEventListener("mouseenter", () => (chart.aesjaxOver = true));
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
      chart.aesjaxOver = true;
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
    const group = { key: figure.dataset.plot, charts: [], busy: false };
    const ordered = [...plot.panels].sort((a, b) => a.row - b.row || a.column - b.column);
    const places = ordered.map((panel) => {
      const row = plot.rows[panel.row];
      const place = make("div", "panel");
      const head = make("h4", "", [row.title, plot.columns.length > 1 ? plot.columns[panel.column] : ""].filter(Boolean).join(" · "));
      if (plot.rows.length > 1) head.append(" ", make("small", "", row.label));
      place.append(head);
      place.setAttribute("role", "group");
      place.setAttribute("aria-label", `${head.textContent} ${row.label}; arrow keys read values`);
      live.append(place);
      return place;
    });
    ordered.forEach((panel, i) => {
      const chart = chartOf(plot, panel, places[i], group);
      group.charts.push(chart);
      steer(places[i], chart);
    });
    mounted.set(figure, group.charts);
  };
  const unmount = (figure) => {
    for (const chart of mounted.get(figure) || []) chart.destroy();
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

  for (const button of document.querySelectorAll(".toggle")) {
    button.addEventListener("click", () => {
      const name = button.dataset.name;
      const hide = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!hide));
      state.hidden[hide ? "add" : "delete"](name);
      redraw();
    });
  }
  for (const name of ["seed", "zoom"]) {
    document.getElementById(name)?.addEventListener("change", (event) => {
      state[name] = event.target.value;
      redraw();
    });
  }

  // Sorting keeps the groups of a table; a third click restores its order.
  const valueOf = (cell) => {
    const text = (cell.firstChild?.textContent || "").trim();
    const found = /^[▲▼○<\s]*(-?\d[\d\s]*(?:\.\d+)?)/.exec(text);
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
  root.classList.add("ready");
})();
