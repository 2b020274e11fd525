// The page: its state, what changes it, and what is drawn when it has changed.

class App {
  constructor(data) {
    this.data = data;
    this.state = {
      time: 0, playing: false, chosen: null, chosenModule: null, found: new Set(),
      collapsed: new Set(), delays: false, silent: false, compare: data.runs.length > 1, run: 0,
    };
    this.camera = { x: 0, y: 0, zoom: 1 };
    this.rowHeight = 56; // wide graphs get taller rows
    this.panes = [];
    this.panel = new Panel(this);
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.describe();
    if (data.num_levels > 60) this.state.collapsed = modulesAt(data, 1);
    this.arrange();
    new Controls(this);
    addEventListener("resize", () => this.resized());
    this.layOut();
    this.changed();
    this.fit();
  }

  describe() {
    const { data } = this, active = data.vertices.filter((vertex) => vertex.slot >= 0).length;
    document.getElementById("title").textContent = data.title;
    document.getElementById("summary").textContent =
      `${data.vertices.length} vertices, ${active} with an error, ${data.num_levels} levels, ${data.num_delays} delays`;
    const notes = data.runs.map((run) => run.note).filter(Boolean);
    const note = document.getElementById("note");
    note.hidden = !notes.length;
    note.textContent = notes.join("  ");
  }

  // ---- what is shown ----------------------------------------------------------------------------

  shownRuns() {
    return this.panes.map((pane) => this.data.runs[pane.run]);
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
    this.scene = buildScene(this.data, this.state, this.rowHeight);
  }

  changed() {
    for (const pane of this.panes) pane.showRules();
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
    const { state, data, colours } = this, runs = this.shownRuns();
    const series = runs.map((run) => ({
      name: label(run.rule, 28), colour: RUN_COLOURS[data.runs.indexOf(run) % RUN_COLOURS.length],
      points: run.energy.map((energy, i) => [run.times[i], energy ?? NaN]), // JSON has no NaN
    }));
    this.energyAxis = drawCurves(document.getElementById("energy"), series, {
      last: this.lastTime(), time: state.time, title: "energy", colours, signed: true });
    drawLegend(document.getElementById("legend"), runs.map((run) => run.range), colours);
    this.drawn = (this.drawn ?? 0) + 1;
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

  // Everything, if it can be read then; of a graph that is much too high the top.
  fit() {
    const box = this.panes[0].view.getBoundingClientRect(), { scene } = this;
    const room = { x: Math.max(50, box.width - GUTTER - 30), y: Math.max(50, box.height - 30) };
    this.rowHeight = Math.max(56, Math.min(130, (room.y / scene.rows) * (scene.width / room.x)));
    measureRows(scene, this.rowHeight);
    const whole = Math.min(room.x / scene.width, room.y / scene.height, 1.4);
    const zoom = whole < 0.25 ? Math.min(0.6, room.x / scene.width) : whole;
    const x = GUTTER + (box.width - GUTTER - scene.width * zoom) / 2, y = (box.height - scene.height * zoom) / 2;
    this.camera = { zoom, x, y: Math.max(8, y) };
    this.fitted = { ...this.camera };
    this.ask();
  }

  // What nobody has moved yet is fitted again: inside another page there is no room at first.
  resized() {
    const { camera, fitted } = this;
    if (["zoom", "x", "y"].every((name) => camera[name] === fitted[name])) this.fit();
    this.ask();
    this.panel.refresh();
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
    if (moved) this.layOut();
    this.state.chosen = index;
    this.state.chosenModule = null;
    const block = this.scene.blocks[this.scene.ofVertex.get(index)];
    this.changed();
    this.onView?.();
    if (!block) return;
    const box = this.panes[0].view.getBoundingClientRect(), { camera } = this;
    camera.zoom = Math.max(camera.zoom, 0.7);
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

  open(module) {
    this.state.collapsed.delete(module);
    this.state.chosenModule = null;
    this.relayOut();
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
    if (name === "compare") { this.arrange(); this.setTime(this.state.time); }
    this.relayOut();
    if (name === "compare") this.fit();
  }
}

// The names of the modules of one depth.
function modulesAt(data, depth) {
  return new Set(depth ? data.vertices.map((vertex) => vertex.modules[depth - 1]).filter(Boolean) : []);
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
