// What there is to know about the chosen vertex or module. Text is only ever set as text.

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

class Panel {
  constructor(app) {
    this.app = app;
    this.root = document.getElementById("panel");
  }

  show() {
    const { state, data, scene } = this.app;
    const module = state.chosenModule && scene.blocks.find((block) => block.module === state.chosenModule);
    const hidden = state.chosen === null && !module;
    if (hidden !== this.root.hidden) this.app.makeRoom();
    this.root.hidden = hidden;
    if (this.root.hidden) { this.root.replaceChildren(); return; }
    const close = element("button", "×", { class: "close", "aria-label": "Close", title: "Close ( esc )" });
    close.onclick = () => this.app.choose(null);
    this.root.replaceChildren(close, ...(module ? this.moduleParts(module) : this.vertexParts(data.vertices[state.chosen])));
    this.refresh();
  }

  // What changes with time: numbers and the cursor of the trace.
  refresh() {
    const { state, data, colours } = this.app;
    if (this.root.hidden || !this.numbers) return;
    const { members, list, remark, trace } = this.numbers;
    remark.textContent = this.remarkOn(members);
    list.replaceChildren();
    for (const run of this.app.shownRuns()) {
      if (members.length === 1) {
        for (const [name, text] of [["error", "error ε"], ["x", "value x"], ["mu", "prediction μ"]]) {
          this.row(list, text + this.ofRule(run), number(run.value(members[0], name, state.time)));
        }
      } else this.row(list, "largest error" + this.ofRule(run), number(largestError(members, run, state.time)));
    }
    const series = this.app.shownRuns().map((run) => ({
      name: this.app.shownRuns().length > 1 ? label(run.rule, 18) : "",
      colour: RUN_COLOURS[data.runs.indexOf(run) % RUN_COLOURS.length],
      points: run.times.map((t) => [t, largestError(members, run, t)]),
    }));
    drawCurves(trace, series, { last: this.app.lastTime(), time: state.time, title: "error over time", colours });
  }

  // Behind a wave errors grow, or are not known: neither is a failure.
  remarkOn(members) {
    const passed = (run) => run.wave && members.every((vertex) => vertex.level < this.app.state.time);
    const run = this.app.shownRuns().find(passed);
    if (!run) return "";
    return "The wave has passed: " + (run.arrivals ? "nothing is computed behind it." : "from what comes here now nobody learns.");
  }

  // Which rule a number belongs to, where two are shown.
  ofRule(run) {
    return this.app.shownRuns().length > 1 ? ` (${run.rule})` : "";
  }

  row(list, name, value) {
    list.append(element("dt", name), element("dd", value));
  }

  vertexParts(vertex) {
    const kinds = { parameter: "parameter", data: "data", internal: vertex.silent ? "without error" : "vertex" };
    const facts = element("dl");
    this.row(facts, "shape", vertex.shape);
    this.row(facts, "level", vertex.level === null ? "none: it carries no error" : `S${vertex.level}`);
    for (const run of this.app.shownRuns()) {
      const time = run.learns[vertex.index];
      if (time) this.row(facts, "learns at" + this.ofRule(run), time);
    }
    if (vertex.modules.length) this.row(facts, "module", vertex.modules[vertex.modules.length - 1]);
    const parts = [element("h2", vertex.name), this.chip(vertex, kinds[vertex.kind]), facts];
    this.numbers = null;
    if (vertex.slot >= 0) parts.push(...this.statistics([vertex]));
    else if (vertex.kind !== "internal") parts.push(element("p", "A leaf: its value is given, it has no error node."));
    if (vertex.source) parts.push(element("h3", "Source"), element("div", vertex.source));
    if (vertex.code) parts.push(element("pre", vertex.code));
    if (vertex.local) parts.push(element("h3", "Local function"), element("pre", vertex.local));
    parts.push(...this.links("Reads", vertex.below, "source"), ...this.links("Used by", vertex.above, "user"));
    parts.push(...this.moduleButtons(vertex));
    return parts;
  }

  chip(vertex, text) {
    const chip = element("span", text, { class: "chip" });
    chip.style.background = `var(--${vertex.silent ? "data" : vertex.kind})`;
    return chip;
  }

  statistics(members) {
    const list = element("dl"), trace = element("canvas", undefined, { "aria-label": "Error over time" });
    const remark = element("p", "", { class: "remark quiet" });
    this.numbers = { members, list, remark, trace };
    return [element("h3", "At this time (root mean square)"), list, remark, trace];
  }

  links(title, edges, end) {
    if (!edges.length) return [];
    const { data } = this.app, box = element("div", undefined, { class: "links" });
    for (const edge of edges.slice(0, 40)) {
      const other = data.vertices[edge[end]];
      const wait = edge.delay ? `, delay ${edge.delay}` : "";
      const button = element("button", `${other.name}  ${edge.shape}${wait}`);
      button.onclick = () => this.app.goTo(other.index);
      box.append(button);
    }
    if (edges.length > 40) box.append(element("span", `and ${edges.length - 40} more`, { class: "quiet" }));
    return [element("h3", title), box];
  }

  moduleButtons(vertex) {
    if (!vertex.modules.length) return [];
    const box = element("div", undefined, { class: "links" });
    for (const module of vertex.modules) {
      const button = element("button", `Collapse ${module}`);
      button.onclick = () => this.app.collapse(module);
      box.append(button);
    }
    return [element("h3", "Modules"), box];
  }

  moduleParts(block) {
    const open = element("button", "Open this module");
    open.onclick = () => this.app.open(block.module);
    const facts = element("dl");
    this.row(facts, "vertices", String(block.members.length));
    this.row(facts, "levels", block.first === block.last ? `S${block.first}` : `S${block.first} to S${block.last}`);
    const active = block.members.filter((vertex) => vertex.slot >= 0), list = element("div", undefined, { class: "links" });
    for (const vertex of block.members.slice(0, 60)) {
      const button = element("button", `${vertex.name}  ${vertex.shape}`);
      button.onclick = () => { this.app.open(block.module); this.app.goTo(vertex.index); };
      list.append(button);
    }
    this.numbers = null;
    const statistics = active.length ? this.statistics(active) : [];
    return [element("h2", block.module), open, facts, ...statistics, element("h3", "Inside"), list];
  }
}

function largestError(members, run, t) {
  return largest(members.map((vertex) => run.value(vertex, "error", t)));
}
