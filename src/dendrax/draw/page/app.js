// The page: its state, what changes it, and what is drawn when it has changed.

const NARROW = 720; // pixels, as in the style: on a phone there is one pane at first

class App {
  constructor(data) {
    this.data = data;
    this.state = {
      time: 0, playing: false, chosen: null, chosenModule: null, found: new Set(),
      collapsed: new Set(), delays: false, silent: false, run: 0,
      compare: data.runs.length > 1 && innerWidth > NARROW,
      parameters: false, shown: new Set(), // parameters: all of them, or these
    };
    this.camera = { x: 0, y: 0, zoom: 1 };
    this.rowHeight = ROW; // as there is room
    this.thin = THIN;
    this.panes = [];
    this.panel = new Panel(this);
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.describe();
    this.arrange();
    this.layOut();
    new Controls(this);
    addEventListener("resize", () => this.resized());
    this.changed();
    this.begin();
  }

  // The first view: as many modules open as leave names that can be read.
  begin() {
    const { data, state } = this, deepest = highest(data.vertices.map((vertex) => vertex.modules.length), 0);
    const depths = Array.from({ length: deepest }, (_, i) => deepest - i);
    if (data.num_levels <= 60 || !deepest) depths.unshift(0);
    for (const depth of depths) {
      state.collapsed = modulesAt(data, depth);
      this.onView(); // the legend depends on it, and so does the room
      this.layOut();
      if (fitScene(this.scene, this.room(), LEGIBLE).whole) break;
    }
    this.fit(innerWidth > NARROW ? LEGIBLE : 0.65);
    this.begun = JSON.stringify([...state.collapsed]);
  }

  describe() {
    const { data } = this, active = data.vertices.filter((vertex) => vertex.slot >= 0).length;
    document.getElementById("title").textContent = data.title;
    document.getElementById("summary").textContent =
      [counted(data.vertices.length, "vertex", "vertices"), `${active} with an error`, counted(data.num_levels, "level"), counted(data.num_delays, "delay")].join(", ");
    const notes = data.runs.map((run) => run.note).filter(Boolean);
    const note = document.getElementById("note");
    note.hidden = !notes.length;
    note.textContent = notes.join("  ");
  }

  // ---- what is shown ----------------------------------------------------------------------------

  shownRuns() {
    return this.panes.map((pane) => this.data.runs[pane.run]);
  }

  // The colours mean the same in all panes.
  get range() {
    return sharedRange(this.shownRuns().map((run) => run.range));
  }

  lastTime() {
    return Math.max(...this.shownRuns().map((run) => run.last));
  }

  arrange() {
    const wanted = this.state.compare && this.data.runs.length > 1 ? [0, 1] : [this.state.run];
    this.panes = wanted.map((run) => new Pane(this, run));
    document.getElementById("panes").replaceChildren(...this.panes.map((pane) => pane.element));
  }

  layOut() {
    this.scene = buildScene(this.data, this.state, this.rowHeight, this.thin);
  }

  changed() {
    for (const pane of this.panes) pane.showRules();
    document.getElementById("story").textContent = this.story();
    this.panel.show();
    this.ask();
  }

  // Draw once before the browser's next picture, however much has changed.
  ask() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  draw() {
    for (const pane of this.panes) pane.draw();
    const { state, colours } = this, runs = this.shownRuns(), onlyFront = runs.every((run) => run.arrivals);
    this.energyAxis = drawCurves(document.getElementById("energy"), this.energies(runs), {
      last: this.lastTime(), time: state.time, title: onlyFront ? FRONT : "energy", colours, signed: true, grows: runs.some((run) => run.grows) });
    drawLegend(document.getElementById("legend"), this.range, runs.length > 1 ? "both panes" : runs[0].rule, colours);
    this.drawn = (this.drawn ?? 0) + 1;
  }

  // The energy of each rule; where there is one rule, the share of each layer, too. What grows behind
  // a wave leaves the chart: nobody learns from it, and the rest would be flat beside it.
  energies(runs) {
    const points = (run, energy) => energy.map((value, i) => [run.times[i], value ?? NaN]); // JSON has no NaN
    const mixed = runs.some((run) => run.arrivals) && !runs.every((run) => run.arrivals);
    const totals = runs.map((run) => ({
      name: label(run.rule, 28) + (mixed && run.arrivals ? `: ${FRONT}` : ""), points: points(run, run.energy),
      ceiling: run.ceiling, colour: RUN_COLOURS[this.data.runs.indexOf(run) % RUN_COLOURS.length],
    }));
    if (runs.length > 1) return totals;
    const layers = Object.entries(runs[0].layers).map(([name, energy], i) => ({
      name: label(name, 18), colour: LAYER_COLOURS[i % LAYER_COLOURS.length], points: points(runs[0], energy),
      ceiling: runs[0].ceiling, thin: true }));
    return [...totals.map((one) => ({ ...one, name: layers.length ? `total, ${one.name}` : one.name })), ...layers];
  }

  // What one sees, in words; what changes with time is written in the panes.
  story() {
    const course = (run) => run.wave
      ? `Under ${label(run.rule, 28)} the error comes down one row per time step.`
      : `Under ${label(run.rule, 28)} it spreads a little at every step.`;
    return `The graph of ${this.data.title}, output on top; the colour of a box is the size of its error. `
      + [...this.shownRuns().map(course), "Press ▶."].join(" ");
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    this.colours = readColours();
    if (this.scene) { this.ask(); this.panel.refresh(); }
  }

  // ---- time -------------------------------------------------------------------------------------

  setTime(time) {
    this.state.time = Math.max(0, Math.min(this.lastTime(), time));
    this.follow();
    this.onTime?.();
    this.panel.refresh();
    this.ask();
  }

  play(on) {
    this.state.playing = on;
    if (on && this.state.time >= this.lastTime()) this.setTime(0);
    this.onTime?.();
    let before = performance.now(), part = 0;
    const tick = (now) => {
      if (!this.state.playing || this.token !== token) return;
      part += ((now - before) / 1000) * Number(document.getElementById("speed").value);
      before = now;
      if (part >= 1) {
        const steps = Math.floor(part);
        part -= steps;
        this.setTime(this.state.time + steps);
        if (this.state.time >= this.lastTime()) this.state.playing = false;
        this.onTime?.();
      }
      requestAnimationFrame(tick);
    };
    const token = this.token = {};
    if (on) requestAnimationFrame(tick);
  }

  // ---- space ------------------------------------------------------------------------------------

  pan(dx, dy) {
    this.camera.x += dx;
    this.camera.y += dy;
    this.ask();
  }

  zoomBy(factor, x, y) {
    const { camera } = this, zoom = Math.min(4, Math.max(0.01, camera.zoom * factor));
    const real = zoom / camera.zoom;
    camera.x = x - (x - camera.x) * real;
    camera.y = y - (y - camera.y) * real;
    camera.zoom = zoom;
    this.ask();
  }

  // The part of a pane that is in sight: on a phone the panel lies over the lower one.
  sight() {
    const view = this.panes[0].view.getBoundingClientRect(), panel = this.panel.root.getBoundingClientRect();
    const isCovered = panel.height > 0 && panel.left < view.right && panel.top > view.top && panel.top < view.bottom;
    return { width: view.width, height: isCovered ? panel.top - view.top : view.height };
  }

  room() {
    const box = this.sight();
    return { x: Math.max(50, box.width - GUTTER - 16), y: Math.max(50, box.height - 24) };
  }

  // Everything; of a graph that would be too small then (a zoom of less than `least`) the top.
  fit(least = 0.25) {
    const box = this.sight(), { scene } = this;
    const { zoom, row, thin } = fitScene(scene, this.room(), least);
    this.rowHeight = row;
    this.thin = thin;
    const wide = scene.width * zoom, top = scene.blocks.find((block) => block.kind !== "wire" && block.first === 0);
    const room = box.width - GUTTER, middle = wide <= room || !top ? wide / 2 : top.x * zoom;
    this.camera = { zoom, x: GUTTER + room / 2 - middle, y: Math.max(8, (box.height - scene.height * zoom) / 2) };
    this.fitted = { ...this.camera, least };
    this.ask();
  }

  isFitted() {
    return ["zoom", "x", "y"].every((name) => this.camera[name] === this.fitted[name]);
  }

  isInSight(block) {
    const { camera, scene } = this, box = this.sight();
    const x = camera.x + block.x * camera.zoom, y = camera.y + scene.middle(block.first) * camera.zoom, half = (block.width / 2) * camera.zoom;
    return x - half >= 0 && x + half <= box.width && y >= BOX / 2 && y <= box.height - BOX / 2;
  }

  // What nobody has moved yet is fitted again: inside another page there is no room at first.
  resized() {
    if (this.isFitted()) {
      if (JSON.stringify([...this.state.collapsed]) === this.begun && this.fitted.least > 0.25 && this.panel.root.hidden) this.begin();
      else this.fit(this.panel.root.hidden ? this.fitted.least : undefined);
    }
    this.ask();
    this.panel.refresh();
  }

  // The panel takes room from the graph: what was in sight stays in sight. Not at once, or the second
  // click of two would meet something else.
  makeRoom() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.resized(), 400);
  }

  // Where the whole graph cannot be seen, the picture goes with the wave.
  follow() {
    const { camera, scene, state } = this, height = this.panes[0].view.getBoundingClientRect().height;
    if (!this.shownRuns().some((run) => run.wave) || scene.height * camera.zoom <= height) return;
    const y = camera.y + scene.middle(Math.min(scene.rows - 1, state.time)) * camera.zoom;
    if (y < height * 0.15 || y > height * 0.8) camera.y += height * 0.35 - y;
  }

  // ---- choosing ---------------------------------------------------------------------------------

  choose(block) {
    this.state.chosen = block?.kind === "vertex" ? block.vertex.index : null;
    this.state.chosenModule = block?.kind === "module" ? block.module : null;
    this.changed();
  }

  // Choose a vertex and bring it into sight, whatever hides it.
  goTo(index) {
    const vertex = this.data.vertices[index];
    let moved = false;
    for (const module of vertex.modules) moved = this.state.collapsed.delete(module) || moved;
    if (vertex.silent && !this.state.silent) { this.state.silent = true; moved = true; }
    if (isFolded(this.data, vertex, this.state)) { this.state.shown.add(index); moved = true; }
    if (moved) this.layOut();
    this.state.chosen = index;
    this.state.chosenModule = null;
    const block = this.scene.blocks[this.scene.ofVertex.get(index)], wasFitted = this.isFitted();
    this.changed();
    this.onView?.();
    if (wasFitted) this.fit();
    if (!block || (wasFitted && this.camera.zoom >= LEGIBLE && this.isInSight(block))) return;
    const box = this.sight(), { camera } = this;
    camera.zoom = Math.max(camera.zoom, LEGIBLE);
    camera.x = box.width / 2 - block.x * camera.zoom;
    camera.y = box.height / 2 - this.scene.middle(block.first) * camera.zoom;
  }

  // The neighbour above (uses it) or below (it uses); if nothing is chosen, the output.
  walk(direction) {
    if (this.state.chosenModule !== null) return;
    if (this.state.chosen === null) { this.goTo(this.data.vertices.findIndex((vertex) => vertex.level === 0)); return; }
    const vertex = this.data.vertices[this.state.chosen];
    const edge = direction < 0 ? vertex.above[0] : vertex.below[0];
    if (edge) this.goTo(direction < 0 ? edge.user : edge.source);
  }

  // ---- modules and delays -----------------------------------------------------------------------

  collapse(module) {
    this.state.collapsed.add(module);
    this.state.chosen = null;
    this.state.chosenModule = module;
    this.relayOut();
  }

  // What is inside appears where the module was.
  open(module) {
    const { scene: before, camera } = this, block = before.blocks.find((one) => one.module === module);
    this.state.collapsed.delete(module);
    this.state.chosenModule = null;
    this.relayOut();
    const inside = block && this.scene.blocks[this.scene.ofVertex.get(block.members.find((v) => v.row === block.first).index)];
    if (!inside) return;
    const zoom = Math.max(camera.zoom, LEGIBLE), x = camera.x + block.x * camera.zoom, y = camera.y + before.tops[block.first] * camera.zoom;
    this.camera = { zoom, x: x - inside.x * zoom, y: y - this.scene.tops[inside.first] * zoom };
  }

  // All modules of one depth; 0 opens everything.
  collapseAll(depth) {
    this.state.collapsed = modulesAt(this.data, depth);
    this.state.chosenModule = null;
    this.relayOut();
    this.fit();
  }

  relayOut() {
    this.layOut();
    this.onView?.();
    this.changed();
  }

  toggle(name) {
    this.state[name] = !this.state[name];
    if (name === "parameters") this.state.shown.clear();
    if (name === "compare") { this.arrange(); this.setTime(this.state.time); }
    this.relayOut();
    if (name === "compare" || name === "parameters") this.fit();
  }
}

function counted(count, noun, plural = noun + "s") {
  return `${count} ${count === 1 ? noun : plural}`;
}

// The names of the modules of one depth, and of those less deep in which there are no others.
function modulesAt(data, depth) {
  if (!depth) return new Set();
  const outer = new Set(data.vertices.flatMap((vertex) => vertex.modules.slice(0, -1)));
  const chosen = ({ modules }) => modules[depth - 1] ?? modules.slice(-1).find((module) => !outer.has(module));
  return new Set(data.vertices.map(chosen).filter(Boolean));
}

// Nothing can be seen: say why, and what can be done.
function giveUp(problem) {
  console.error(problem);
  const note = document.getElementById("note");
  note.hidden = false;
  note.textContent = window.DecompressionStream
    ? `This page cannot be shown, its data may be damaged (${problem.message.replace(/\.$/, "")}). Write it again with dendrax.explore.`
    : "This browser cannot unpack the data of the page. Open it with Chrome 80, Firefox 113, Safari 16.4 or a later one.";
  document.body.dataset.ready = "no";
}

readPayload().then((data) => { window.explorer = new App(data); document.body.dataset.ready = "yes"; }).catch(giveUp);
