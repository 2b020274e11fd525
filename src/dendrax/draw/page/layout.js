// Where everything stands. Rows are levels; the columns are found as in dendrax/draw/_layout.py:
// blocks are sorted by where they would like to be and set down from the left and from the right.

const BOX = 36, GAP = 18, LETTER = 7.2, SWEEPS = 40;
const ROW = 56, THIN = 7; // how high a row is; one in which nothing but modules and wires is seen
const LETTERS = 12, LEGIBLE = 11 / LETTERS; // pixels of a name; the zoom with which it has eleven

// Math.max(...values) has too many arguments in a large graph.
function highest(values, least = -Infinity) {
  return values.reduce((most, value) => Math.max(most, value), least);
}

function lowest(values) {
  return -highest(values.map((value) => -value));
}

function label(name, most = 26) {
  return name.length <= most ? name : name.slice(0, 9) + "…" + name.slice(-(most - 10));
}

// The blocks that are visible: vertices, collapsed modules, and wires that pass through rows.
// A row with vertices is rowHeight high, one without is thin.
function buildScene(data, state, rowHeight, thin = THIN) {
  const { edges, rows } = visibleEdges(data, state);
  const blocks = [], ofVertex = new Map(), modules = new Map();
  for (const vertex of data.vertices) {
    const row = rows.get(vertex.index);
    if (row === undefined) continue;
    const module = collapsedModule(vertex, state), known = module === null ? undefined : modules.get(module);
    if (known === undefined) {
      const kind = module === null ? "vertex" : "module", name = module === null ? vertex.label : module;
      if (module !== null) modules.set(module, blocks.length);
      ofVertex.set(vertex.index, blocks.length);
      blocks.push({ kind, module, vertex, members: [vertex], first: row, last: row, name });
    } else {
      const block = blocks[known];
      block.members.push(vertex);
      block.first = Math.min(block.first, row);
      block.last = Math.max(block.last, row);
      ofVertex.set(vertex.index, known);
    }
  }
  for (const block of blocks) {
    block.folded = block.kind === "vertex" ? foldedInto(data, block.vertex, rows) : [];
    for (const leaf of block.folded) if (!ofVertex.has(leaf.index)) ofVertex.set(leaf.index, ofVertex.get(block.vertex.index));
    block.leaves = label(leafNames(block.folded), 30);
    const letter = block.kind === "module" ? 1.15 * LETTER : LETTER; // modules are bold
    block.width = Math.max(44, label(block.name).length * letter + 18, block.leaves.length * LETTER + 14);
  }
  const wires = buildWires(blocks, ofVertex, edges, rows, state), links = [];
  for (const wire of wires) {
    if (wire.block < 0) links.push([wire.upper, wire.lower]);
    else links.push([wire.upper, wire.block], [wire.block, wire.lower]);
  }
  const x = place(blocks, links);
  blocks.forEach((block, b) => { block.x = x[b]; });
  const count = highest(blocks.map((block) => block.last), 0) + 1;
  const width = highest(blocks.map((block) => block.x + block.width / 2), 1);
  return measureRows({ blocks, wires, ofVertex, rows: count, width }, rowHeight, thin);
}

// The parameters that are not drawn themselves but written into the vertex that uses them.
function foldedInto(data, vertex, rows) {
  const leaves = vertex.below.map((edge) => data.vertices[edge.source]);
  return [...new Set(leaves)].filter((leaf) => leaf.kind === "parameter" && leaf.row >= 0 && !leaf.silent && !rows.has(leaf.index));
}

// "weight, bias": without the module that they lie in.
function leafNames(leaves) {
  return leaves.map(({ label, modules }) => {
    const module = modules[modules.length - 1] ?? "";
    return (label.startsWith(module) ? label.slice(module.length) : label).replace(/^\./, "");
  }).join(", ");
}

// How high each row is: tops[row] is where it begins, the last entry is the height of it all.
function measureRows(scene, rowHeight, thin) {
  const heights = new Array(scene.rows).fill(thin);
  for (const block of scene.blocks) if (block.kind === "vertex") heights[block.first] = rowHeight;
  for (const block of scene.blocks) {
    if (block.kind !== "module") continue;
    let total = 0;
    for (let row = block.first; row <= block.last; row++) total += heights[row];
    if (total < 38) heights[block.first] += 38 - total;
  }
  scene.tops = [0];
  for (const height of heights) scene.tops.push(scene.tops[scene.tops.length - 1] + height);
  scene.height = scene.tops[scene.rows];
  scene.middle = (row) => (scene.tops[row] + scene.tops[row + 1]) / 2;
  return scene;
}

// The zoom and the heights of rows with which all of a scene is in sight, with large rows if there is
// room; `whole` says whether that is so with names that can be read. If it is not, all of the scene is
// seen from afar, but not from farther away than `least`.
function fitScene(scene, room, least) {
  const across = room.x / scene.width, sizes = [];
  for (let part = 2; part > 0.84; part -= 0.05) sizes.push([ROW * part, Math.max(1, THIN * part * part)]);
  for (const thin of [3.5, 2.8, 2.2, 1.8, 1.4, 1.2, 1]) sizes.push([ROW * 0.85, thin]);
  for (const zoom of [Math.min(1.25, across), LEGIBLE]) {
    if (zoom < LEGIBLE || zoom > across + 1e-9) continue;
    for (const [row, thin] of sizes) {
      if (measureRows(scene, row, thin).height * zoom <= room.y) return { zoom, row, thin, whole: true };
    }
  }
  measureRows(scene, ROW, THIN);
  const all = Math.min(across, room.y / scene.height);
  return { zoom: all >= least ? all : Math.min(LEGIBLE, Math.max(least, across)), row: ROW, thin: THIN, whole: false };
}

function rowAt(scene, y) {
  let low = 0, high = scene.rows;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (scene.tops[middle + 1] <= y) low = middle + 1; else high = middle;
  }
  return low;
}

// What is seen. While silent vertices are hidden, data connect to what they reach through them.
function visibleEdges(data, state) {
  const rows = new Map(), edges = [];
  for (const vertex of data.vertices) {
    if (vertex.row < 0 || (!state.silent && (vertex.silent || vertex.kind === "data"))) continue;
    if (!isFolded(data, vertex, state)) rows.set(vertex.index, vertex.row);
  }
  for (const edge of data.edges) if (rows.has(edge.source) && rows.has(edge.user)) edges.push(edge);
  if (state.silent) return { edges, rows };
  for (const vertex of data.vertices) {
    if (vertex.kind !== "data") continue;
    const reached = reachedThroughSilent(data, vertex, rows);
    if (!reached.length) continue;
    rows.set(vertex.index, highest(reached.map((user) => rows.get(user))) + 1);
    for (const user of reached) edges.push({ source: vertex.index, user, delay: 0, silent: true, shape: "" });
  }
  return { edges, rows };
}

// A parameter is part of what uses it, unless it is asked for, or nothing that is seen uses it.
function isFolded(data, vertex, state) {
  if (vertex.kind !== "parameter" || state.parameters || state.shown.has(vertex.index)) return false;
  if (collapsedModule(vertex, state) !== null) return false; // it is in sight as a part of the module
  const users = vertex.above.map((edge) => data.vertices[edge.user]).filter((user) => user.row >= 0 && (state.silent || !user.silent));
  return users.length > 0 && users.every((user) => collapsedModule(user, state) === null);
}

function reachedThroughSilent(data, start, rows) {
  const found = new Set(), seen = new Set([start.index]), waiting = [start];
  while (waiting.length) {
    for (const { user } of waiting.pop().above) {
      if (rows.has(user)) found.add(user);
      else if (!seen.has(user)) { seen.add(user); waiting.push(data.vertices[user]); }
    }
  }
  return [...found];
}

// One wire between two blocks; if it passes other rows it gets a place there.
function buildWires(blocks, ofVertex, edges, rows, state) {
  const wires = new Map();
  for (const edge of edges) {
    const lower = ofVertex.get(edge.source), upper = ofVertex.get(edge.user);
    if (lower === upper) continue;
    const key = lower + " " + upper;
    if (wires.has(key)) wires.get(key).edges.push(edge);
    else wires.set(key, { lower, upper, edges: [edge], from: rows.get(edge.source), to: rows.get(edge.user), block: -1 });
  }
  for (const wire of wires.values()) {
    if (blocks[wire.lower].kind === "module") wire.from = blocks[wire.lower].first;
    if (blocks[wire.upper].kind === "module") wire.to = blocks[wire.upper].last;
    wire.delay = highest(wire.edges.map((edge) => edge.delay));
    if (wire.from - wire.to < 2) continue;
    const spread = state.delays && wire.delay > 0;
    wire.block = blocks.length;
    blocks.push({ kind: "wire", wire, first: wire.to + 1, last: wire.from - 1, width: spread ? 22 : 4, members: [] });
  }
  return [...wires.values()];
}

// The outermost collapsed module that a vertex lies in, or null.
function collapsedModule(vertex, state) {
  for (const module of vertex.modules) if (state.collapsed.has(module)) return module;
  return null;
}

function place(blocks, links) {
  const above = blocks.map(() => []), below = blocks.map(() => []);
  for (const [upper, lower] of links) { above[lower].push(upper); below[upper].push(lower); }
  const both = above.map((list, b) => list.concat(below[b]));
  let x = pushed(blocks, depthFirst(blocks, below), blocks.map(() => 0));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const [near, far] = sweep >= SWEEPS / 2 ? [both, both] : sweep % 2 ? [below, above] : [above, below];
    const wishes = x.map((here, b) => {
      const list = near[b].length ? near[b] : far[b];
      return list.length ? (here + list.reduce((sum, n) => sum + x[n], 0) / list.length) / 2 : here;
    });
    const order = x.map((_, b) => b).sort((a, b) => wishes[a] - wishes[b] || x[a] - x[b]);
    const right = pushed(blocks, order, wishes);
    const left = pushed(blocks, order.reverse(), wishes.map((wish) => -wish));
    x = right.map((value, b) => (value - left[b]) / 2);
  }
  const edge = lowest(x.map((value, b) => value - blocks[b].width / 2));
  return x.map((value) => value - edge);
}

function depthFirst(blocks, below) {
  const seen = new Set();
  const roots = blocks.map((_, b) => b).sort((a, b) => blocks[a].first - blocks[b].first);
  for (const root of roots) {
    const waiting = [root];
    while (waiting.length) {
      const b = waiting.pop();
      if (seen.has(b)) continue;
      seen.add(b);
      for (let i = below[b].length - 1; i >= 0; i--) waiting.push(below[b][i]);
    }
  }
  return [...seen];
}

function pushed(blocks, order, wishes) {
  const rows = blocks.reduce((most, block) => Math.max(most, block.last), 0) + 1;
  const x = new Array(blocks.length).fill(0), edge = new Float64Array(rows).fill(-Infinity);
  for (const b of order) {
    const { first, last, width } = blocks[b];
    const step = 1 + Math.floor((last - first) / 200); // of a very long wire some rows are enough
    let place = wishes[b];
    for (let row = first; row <= last; row += step) place = Math.max(place, edge[row] + GAP + width / 2);
    x[b] = place;
    for (let row = first; row <= last; row += step) edge[row] = place + width / 2;
  }
  return x;
}
