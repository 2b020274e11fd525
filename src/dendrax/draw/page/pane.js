// One picture of the graph: a canvas that shows one rule at the current time.

const GUTTER = 46, EDGE = 5; // left of the graph; above and below a module
const FRONT_PIXELS = 7; // of the wave in a module, on the screen, its outline included

class Pane {
  constructor(app, run) {
    this.app = app;
    this.run = run;
    this.element = document.createElement("div");
    this.element.className = "pane";
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "The graph in levels, coloured by error");
    this.rules = document.createElement("div");
    this.rules.className = "rule";
    this.view = document.createElement("div");
    this.view.className = "view";
    this.view.append(this.canvas);
    this.element.append(this.rules, this.view);
    this.buttons = app.data.runs.map(({ rule }, index) => {
      const button = element("button", rule, { title: rule });
      button.onclick = () => this.chooseRule(index);
      return button;
    });
    this.now = element("span", "", { class: "now quiet" });
    this.rules.append(...this.buttons, this.now);
    this.listen();
  }

  // The buttons stay the same ones, so that the keyboard's focus stays on them.
  showRules() {
    this.buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === this.run)));
  }

  // Where the error is now, in words.
  news() {
    const { time } = this.app.state, run = this.app.data.runs[this.run], { wave, last } = run;
    if (wave) return time < last ? `t = ${time}: the error is in row S${time}` : `t = ${last}: the error has been everywhere`;
    const energy = `energy ${number(run.energy[moment(run, time)] ?? NaN)}`;
    return time < last ? `t = ${time}: ${energy}` : `t = ${last}: ${energy}, inference has ended`;
  }

  chooseRule(index) {
    const { app } = this;
    this.run = index;
    if (!app.state.compare) app.state.run = index;
    app.setTime(app.state.time); // this rule may end sooner than the other
    app.changed();
  }

  // ---- what is drawn ----------------------------------------------------------------------------

  draw() {
    const { scene, colours, camera } = this.app;
    this.now.textContent = this.news();
    this.shapes = new Map();
    const box = this.canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    if (!box.width || !box.height) return;
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    const pen = this.pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = colours.back;
    pen.fillRect(0, 0, box.width, box.height);
    const top = rowAt(scene, -camera.y / camera.zoom) - 1;
    const bottom = rowAt(scene, (box.height - camera.y) / camera.zoom) + 1;
    this.visible = { top, bottom, left: (GUTTER - 40 - camera.x) / camera.zoom, right: (box.width - camera.x) / camera.zoom };
    this.drawRows(box, top, bottom);
    pen.save();
    pen.translate(camera.x, camera.y);
    pen.scale(camera.zoom, camera.zoom);
    for (const wire of scene.wires) this.drawWire(wire);
    for (const block of scene.blocks) this.drawBlock(block);
    this.drawShapes();
    pen.restore();
    this.drawLevels(box, top, bottom);
  }

  drawRows(box, top, bottom) {
    const { pen } = this, { scene, colours, camera, state, data } = this.app;
    for (let row = Math.max(0, top); row <= Math.min(scene.rows - 1, bottom); row++) {
      const isWave = row === state.time && data.runs[this.run].wave;
      const y = camera.y + scene.tops[row] * camera.zoom, height = (scene.tops[row + 1] - scene.tops[row]) * camera.zoom;
      if (!isWave && (row % 2 || height < 24)) continue; // thin stripes would only flicker
      pen.fillStyle = isWave ? colours.mark + "55" : colours.row;
      pen.fillRect(0, y, box.width, isWave ? Math.max(3, height) : height);
    }
  }

  drawLevels(box, top, bottom) {
    const { pen } = this, { scene, colours, camera } = this.app;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.back + "f2";
    pen.fillRect(0, 0, 36, box.height);
    pen.fillStyle = colours.quiet;
    let last = -Infinity;
    for (let row = Math.max(0, top); row <= Math.min(scene.rows - 1, bottom); row++) {
      const y = camera.y + scene.middle(row) * camera.zoom;
      if (y - last < 18) continue;
      pen.fillText("S" + row, 8, y);
      last = y;
    }
  }

  drawWire(wire) {
    const { pen, visible } = this, { scene, colours, camera, state } = this.app;
    if (wire.to > visible.bottom || wire.from < visible.top) return;
    const chosen = state.chosen !== null && wire.edges.some((e) => e.source === state.chosen || e.user === state.chosen);
    const silent = wire.edges.every((edge) => edge.silent);
    pen.strokeStyle = chosen ? colours.accent : wire.delay > 0 ? colours.delay : colours.wire;
    pen.globalAlpha = silent && !chosen ? 0.45 : 1;
    pen.lineWidth = (chosen ? 2.2 : 1.1) / Math.max(0.35, Math.min(1, camera.zoom));
    pen.setLineDash(silent ? [4, 4] : []);
    const start = this.port(scene.blocks[wire.lower], wire.from, -1);
    const end = this.port(scene.blocks[wire.upper], wire.to, +1);
    pen.beginPath();
    pen.moveTo(start.x, start.y);
    if (wire.block >= 0) {
      const x = scene.blocks[wire.block].x;
      const low = scene.middle(wire.from - 1), high = scene.middle(wire.to + 1);
      curve(pen, start, { x, y: low });
      pen.lineTo(x, high);
      curve(pen, { x, y: high }, end);
    } else curve(pen, start, end);
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
    if (wire.block >= 0 && wire.delay > 0) this.drawDelays(wire);
    else if (camera.zoom > 0.75 && scene.blocks[wire.lower].kind === "vertex" && start.y - end.y > 16) this.noteShape(wire.edges[0], start, end);
  }

  // All wires of a vertex begin at one place, so one of them is labelled.
  noteShape(edge, start, end) {
    const key = `${edge.source} ${edge.shape}`;
    if (!this.shapes.has(key)) this.shapes.set(key, { text: edge.shape, x: start.x + 5 + (end.x - start.x) * 0.12, y: start.y - 7 });
  }

  // Over the wires and the halo of what is chosen, which would strike them through.
  drawShapes() {
    const { pen } = this, { colours } = this.app;
    pen.font = `${LETTERS}px system-ui, sans-serif`;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.strokeStyle = colours.back;
    pen.lineWidth = 3;
    pen.lineJoin = "round";
    pen.fillStyle = colours.quiet;
    for (const { text, x, y } of this.shapes.values()) {
      pen.strokeText(text, x, y);
      pen.fillText(text, x, y);
    }
  }

  // A chain of delays: every identity vertex with its error, or how many there are.
  drawDelays(wire) {
    const { visible } = this, { camera, state } = this.app;
    if (!state.delays) {
      if (camera.zoom >= 0.3) this.drawDelayCount(wire);
      return;
    }
    const first = Math.max(wire.to + 1, visible.top), last = Math.min(wire.from - 1, visible.bottom);
    for (let row = first; row <= last; row++) {
      const value = this.waitingIn(wire, row);
      if (value !== undefined) this.drawDelay(wire, row, value);
    }
  }

  drawDelayCount(wire) {
    const { pen } = this, { scene, colours } = this.app, { x } = scene.blocks[wire.block];
    const y = (scene.middle(wire.from) + scene.middle(wire.to)) / 2, text = "×" + wire.delay;
    pen.font = `${LETTERS}px system-ui, sans-serif`;
    const width = pen.measureText(text).width + 8;
    pen.fillStyle = colours.back;
    pen.strokeStyle = colours.delay;
    pen.lineWidth = 1;
    rounded(pen, x - width / 2, y - 8, width, 16, 8);
    pen.fill(); pen.stroke();
    pen.fillStyle = colours.delay;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(text, x, y);
  }

  // The largest error that waits in a row of a wire; undefined where there is no delay. Places are
  // counted from the source itself: the wire of a collapsed module begins at the module's top.
  waitingIn(wire, row) {
    const { data, state } = this.app, run = data.runs[this.run], found = [];
    for (const edge of wire.edges) {
      const place = data.vertices[edge.source].level - 1 - row;
      if (place >= 0 && place < edge.delay) found.push(run.waiting(edge, place, state.time));
    }
    return found.length ? largest(found) : undefined;
  }

  drawDelay(wire, row, value) {
    const { pen } = this, { scene, colours, state, data } = this.app, run = data.runs[this.run];
    const behind = run.wave && row < state.time;
    pen.fillStyle = run.delayed ? errorColour(value, this.app.range, colours).css : colours.back;
    pen.strokeStyle = colours.delay;
    pen.lineWidth = 1.6;
    const height = Math.min(14, scene.tops[row + 1] - scene.tops[row] - 1.5);
    rounded(pen, scene.blocks[wire.block].x - 9, scene.middle(row) - height / 2, 18, height, 4);
    pen.globalAlpha = behind && value ? 0.3 : 1;
    pen.fill();
    pen.globalAlpha = 1;
    pen.stroke();
  }

  drawBlock(block) {
    const { visible } = this;
    if (block.kind === "wire" || block.first > visible.bottom || block.last < visible.top) return;
    if (block.x + block.width / 2 < visible.left || block.x - block.width / 2 > visible.right) return;
    if (block.kind === "module") this.drawModule(block); else this.drawVertex(block);
  }

  drawVertex(block) {
    const { pen } = this, { data, scene, colours, camera, state } = this.app, { vertex } = block;
    const run = data.runs[this.run], value = run.seen(vertex, state.time);
    const fill = vertex.silent || vertex.slot < 0 ? { css: colours.back, ink: colours.ink } : errorColour(value, this.app.range, colours);
    const y = scene.middle(block.first) - BOX / 2;
    const behind = run.wave && vertex.slot >= 0 && vertex.level < state.time && value !== 0 && value !== null;
    rounded(pen, block.x - block.width / 2, y, block.width, BOX, vertex.kind === "internal" ? 5 : BOX / 2);
    pen.fillStyle = colours.empty;
    pen.fill();
    pen.globalAlpha = behind ? 0.3 : 1;
    pen.fillStyle = fill.css;
    pen.strokeStyle = colours[vertex.silent ? "data" : vertex.kind];
    pen.lineWidth = 2;
    pen.setLineDash(vertex.silent && vertex.kind === "internal" ? [3, 3] : []);
    pen.fill();
    pen.globalAlpha = 1;
    pen.stroke();
    pen.setLineDash([]);
    const found = [vertex, ...block.folded].some(({ index }) => state.found.has(index));
    this.drawHalo(block, vertex.index === state.chosen, found, y, BOX);
    if (camera.zoom <= 0.32) return;
    const ink = behind ? colours.ink : fill.ink;
    this.drawName(block, ink, y + BOX / 2 - (block.leaves ? 8 : 0));
    if (block.leaves) this.drawLeaves(block, ink, y + BOX / 2 + 8);
  }

  // A collapsed module: one stripe per level, with the largest error of its members there.
  drawModule(block) {
    const { pen } = this, { data, scene, colours, camera, state } = this.app, run = data.runs[this.run];
    const { tops } = scene, y = tops[block.first] + EDGE, height = tops[block.last + 1] - tops[block.first] - 2 * EDGE;
    const left = block.x - block.width / 2;
    const worst = new Map();
    for (const vertex of block.members) {
      const value = run.seen(vertex, state.time);
      if (value !== null) worst.set(vertex.row, largest([worst.get(vertex.row) ?? null, value]));
    }
    pen.save();
    rounded(pen, left, y, block.width, height, 8);
    pen.clip();
    pen.fillStyle = colours.empty;
    pen.fillRect(left, y, block.width, height);
    for (const [row, value] of worst) {
      pen.globalAlpha = run.wave && row < state.time ? 0.3 : 1;
      pen.fillStyle = errorColour(value, this.app.range, colours).css;
      pen.fillRect(left, tops[row], block.width, tops[row + 1] - tops[row]);
    }
    if (run.wave && worst.has(state.time)) this.drawFront(block, worst.get(state.time), y, height);
    pen.globalAlpha = 1;
    pen.restore();
    pen.strokeStyle = colours.module;
    pen.lineWidth = 2.5;
    rounded(pen, left, y, block.width, height, 8);
    pen.stroke();
    this.drawHalo(block, state.chosenModule === block.module, block.members.some((v) => state.found.has(v.index)), y, height);
    if (camera.zoom > 0.45) this.drawName(block, colours.ink, y + height / 2, true);
    else this.drawNameBeside(block, y + height / 2);
  }

  // Where the wave is, in a module that is `height` high: never too thin to be seen.
  drawFront(block, value, y, height) {
    const { pen } = this, { scene, colours, camera, state, range } = this.app;
    const thick = Math.min(height, Math.max(scene.tops[state.time + 1] - scene.tops[state.time], FRONT_PIXELS / camera.zoom));
    pen.fillStyle = errorColour(value, range, colours).css;
    pen.globalAlpha = 1;
    pen.fillRect(block.x - block.width / 2, Math.max(y, Math.min(y + height - thick, scene.middle(state.time) - thick / 2)), block.width, thick);
  }

  // From afar a name is written beside its module, in a size that can be read.
  drawNameBeside(block, y) {
    const { pen } = this, { colours, camera } = this.app;
    pen.font = `${11 / camera.zoom}px system-ui, sans-serif`;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.ink;
    pen.fillText(label(block.name), block.x + block.width / 2 + 5 / camera.zoom, y);
  }

  drawHalo(block, chosen, found, y, height) {
    if (!chosen && !found) return;
    const { pen } = this, { colours } = this.app;
    pen.strokeStyle = chosen ? colours.accent : colours.mark;
    pen.lineWidth = 4;
    rounded(pen, block.x - block.width / 2 - 5, y - 5, block.width + 10, height + 10, 9);
    pen.stroke();
  }

  // The parameters that are folded into a vertex, with the sign of a parameter.
  drawLeaves(block, ink, y) {
    const { pen } = this, width = pen.measureText(block.leaves).width;
    pen.fillStyle = this.app.colours.raised;
    rounded(pen, block.x - width / 2 - 5, y - 7.5, width + 10, 15, 7.5);
    pen.fill();
    pen.fillStyle = this.app.colours.parameter;
    pen.fillText(block.leaves, block.x, y);
  }

  drawName(block, ink, y, plate = false) {
    const { pen } = this, text = label(block.name);
    const { zoom } = this.app.camera; // of vertices only while two lines have room
    const size = plate || zoom > 0.6 ? Math.max(LETTERS, 11 / zoom) : LETTERS;
    pen.font = `${plate ? 600 : 400} ${size}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    if (plate) {
      const width = Math.min(block.width - 6, pen.measureText(text).width + 10);
      pen.fillStyle = this.app.colours.raised;
      rounded(pen, block.x - width / 2, y - 0.7 * size, width, 1.4 * size, 4); // errors are seen around it
      pen.fill();
    }
    pen.fillStyle = ink;
    pen.fillText(text, block.x, y, block.width - 6);
  }

  // Where a wire leaves or enters a block: below it (+1) or above it (-1).
  port(block, row, side) {
    const { tops, middle } = this.app.scene, tall = block.kind === "module";
    if (side < 0) return { x: block.x, y: tall ? tops[block.first] + EDGE : middle(row) - BOX / 2 };
    return { x: block.x, y: tall ? tops[block.last + 1] - EDGE : middle(row) + BOX / 2 };
  }

  // ---- what the user does -----------------------------------------------------------------------

  blockAt(clientX, clientY) {
    const box = this.canvas.getBoundingClientRect(), { camera, scene } = this.app;
    const x = (clientX - box.left - camera.x) / camera.zoom, y = (clientY - box.top - camera.y) / camera.zoom;
    const row = rowAt(scene, y);
    return scene.blocks.find((block) =>
      block.kind !== "wire" && block.first <= row && row <= block.last && Math.abs(x - block.x) <= block.width / 2 + 2) ?? null;
  }

  // Where a vertex is on the screen.
  screen(vertex) {
    const box = this.canvas.getBoundingClientRect(), { camera, scene } = this.app;
    const block = scene.blocks[scene.ofVertex.get(vertex)];
    const y = (scene.tops[block.first] + scene.tops[block.last + 1]) / 2;
    return { x: box.left + camera.x + block.x * camera.zoom, y: box.top + camera.y + y * camera.zoom };
  }

  listen() {
    const { canvas, app } = this, fingers = new Map();
    let moved = 0, span = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, event);
      moved = 0;
      span = distance(fingers);
      canvas.classList.add("dragging");
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) { canvas.style.cursor = this.blockAt(event.clientX, event.clientY) ? "pointer" : ""; return; }
      const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
      moved += Math.abs(dx) + Math.abs(dy);
      fingers.set(event.pointerId, event);
      if (fingers.size === 2) {
        const now = distance(fingers), middle = centre(fingers), box = canvas.getBoundingClientRect();
        if (span > 0) app.zoomBy(now / span, middle.x - box.left, middle.y - box.top);
        span = now;
      }
      app.pan(dx / fingers.size, dy / fingers.size);
    });
    const done = (event) => {
      if (event.type === "pointerup" && fingers.size === 1 && moved < 6) app.choose(this.blockAt(event.clientX, event.clientY));
      fingers.delete(event.pointerId);
      if (!fingers.size) canvas.classList.remove("dragging");
    };
    canvas.addEventListener("pointerup", done);
    canvas.addEventListener("pointercancel", done);
    canvas.addEventListener("dblclick", (event) => {
      const block = this.blockAt(event.clientX, event.clientY);
      if (block?.kind === "module") app.open(block.module);
    });
    canvas.addEventListener("wheel", (event) => {
      // Inside another page the wheel belongs to that page, or nobody could scroll past.
      if (window.parent !== window && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey || Math.abs(event.deltaY) >= 40 || event.deltaMode) {
        app.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.clientX - box.left, event.clientY - box.top);
      } else app.pan(-event.deltaX, -event.deltaY);
    }, { passive: false });
  }
}

function curve(pen, from, to) {
  const bend = (to.y - from.y) / 2;
  pen.bezierCurveTo(from.x, from.y + bend, to.x, to.y - bend, to.x, to.y);
}

// By arcs: browsers that can unpack the data may still lack roundRect.
function rounded(pen, x, y, width, height, radius) {
  const right = x + width, bottom = y + height, round = Math.max(0, Math.min(radius, width / 2, height / 2));
  pen.beginPath();
  pen.moveTo(x + round, y);
  pen.arcTo(right, y, right, bottom, round);
  pen.arcTo(right, bottom, x, bottom, round);
  pen.arcTo(x, bottom, x, y, round);
  pen.arcTo(x, y, right, y, round);
  pen.closePath();
}

function distance(fingers) {
  if (fingers.size !== 2) return 0;
  const [a, b] = [...fingers.values()];
  return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
}

function centre(fingers) {
  const all = [...fingers.values()];
  const mean = (name) => all.reduce((sum, finger) => sum + finger[name], 0) / all.length;
  return { x: mean("clientX"), y: mean("clientY") };
}
