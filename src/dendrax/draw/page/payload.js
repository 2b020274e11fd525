// The data of the page: compressed JSON, and one number of 16 bits for each recorded quantity.

const ZERO = 0, LOST = 65535; // codes: exactly zero; not finite
const GROWTH = 3; // times its start: behind a wave the energy grows, and what is larger leaves the chart

async function readPayload() {
  const text = document.getElementById("payload").textContent.trim();
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const start = 4 + length + ((4 + length) % 2);
  data.codes = new Uint16Array(bytes.buffer, start);
  data.vertices.forEach((vertex, index) => { vertex.index = index; vertex.above = []; vertex.below = []; });
  data.edges.forEach((edge, index) => {
    edge.index = index;
    data.vertices[edge.source].above.push(edge);
    data.vertices[edge.user].below.push(edge);
  });
  data.runs.forEach((run) => prepareRun(data, run));
  return data;
}

// run.value and run.waiting: sizes at a time; null is "not known".
function prepareRun(data, run) {
  const { low, high, steps } = data.scale, slots = data.num_slots;
  const count = run.arrivals ? 1 : run.times.length;
  const decode = (code) =>
    code === ZERO ? 0 : code === LOST ? NaN : 10 ** (low + ((code - 1) / steps) * (high - low));
  const at = (row, t) => decode(data.codes[run.offset + row * count + (run.arrivals ? 0 : moment(run, t))]);
  run.value = (vertex, name, t) => {
    if (vertex.slot < 0 || (run.arrivals && t > vertex.level)) return null;
    if (run.arrivals && name === "error" && t < vertex.level) return 0;
    return at(data.statistics.indexOf(name) * slots + vertex.slot, t);
  };
  // What colours a vertex: its error, and behind a wave of arrivals the one that has passed.
  run.seen = (vertex, t) => run.value(vertex, "error", run.arrivals ? Math.min(t, vertex.level) : t);
  run.waiting = (edge, place, t) => {
    if (!run.delayed || !edge.line) return null;
    const [number, first] = edge.line, start = data.statistics.length * slots;
    if (!run.arrivals) return at(start + first + place, t);
    const arrives = data.vertices[edge.source].level - 1 - place;
    return t < arrives ? 0 : at(start + number, t); // what has passed stays in sight
  };
  run.last = run.times[run.times.length - 1];
  const [start] = run.energy, isPositive = start > 0 && run.energy.every((energy) => energy === null || energy >= 0);
  run.ceiling = run.wave && !run.arrivals && isPositive ? GROWTH * start : Infinity;
  run.grows = run.ceiling < Infinity && run.energy.some((energy) => energy === null || energy > run.ceiling);
  run.range = errorRange(data, run);
}

// The largest of some sizes: null if none is known, NaN if one is not finite.
function largest(sizes) {
  let most = null;
  for (const size of sizes) {
    if (Number.isNaN(size)) return NaN;
    if (size !== null && (most === null || size > most)) most = size;
  }
  return most;
}

// The place in the record of the last time that was kept, up to t.
function moment(run, t) {
  const times = run.times;
  if (t >= times[times.length - 1]) return times.length - 1;
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle] <= t) low = middle; else high = middle - 1;
  }
  return low;
}

// The colours span the errors of the run. Behind a wave errors may grow without bounds, and nobody
// learns from them any more: there the errors at their arrival count.
function errorRange(data, run) {
  const logs = [];
  for (const vertex of data.vertices) {
    if (vertex.slot < 0) continue;
    const times = run.wave ? [vertex.level] : run.times;
    for (const t of times) {
      const value = run.value(vertex, "error", t);
      if (value > 0) logs.push(Math.log10(value));
    }
  }
  if (!logs.length) return { low: -6, high: 0 };
  const high = highest(logs), low = lowest(logs);
  return { low: Math.max(low, high - 8) - 0.05, high: high + 0.05, cut: low < high - 8 };
}

// One range for several runs. Before errors arrive under IL they are as small as can be: of two runs
// only the upper five powers of ten are told apart, or all the rest would look the same.
function sharedRange(ranges) {
  if (ranges.length === 1) return ranges[0];
  const high = highest(ranges.map((range) => range.high)), low = lowest(ranges.map((range) => range.low));
  return { low: Math.max(low, high - 5), high, cut: low < high - 5 || ranges.some((range) => range.cut) };
}
