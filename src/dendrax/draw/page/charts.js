// Curves over time: the energy, and the trace of one vertex.

const RUN_COLOURS = ["#3b7ddd", "#e07b1a"];
const LAYER_COLOURS = ["#2a9d8f", "#c2548f", "#b58900", "#7d6bd6", "#5a9e3a", "#c8553d", "#3f8fb0", "#9a7b56"];
const FRONT = "½ Σ ε² where the wave is"; // of a record of arrivals, which has no energy
const SMALL = "11px system-ui, sans-serif";

function prepare(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(box.width * ratio));
  canvas.height = Math.max(1, Math.round(box.height * ratio));
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, box.width, box.height);
  return { pen, width: box.width, height: box.height };
}

// series: [{ points: [[t, value]], colour, name }]; null is not known, NaN is not finite. What may be
// negative is `signed`; a part of another curve is `thin`; what is larger than a `ceiling`, as it is where
// the energy `grows` behind a wave, leaves the chart.
function drawCurves(canvas, series, { last, time, title, colours, signed = false, grows = false }) {
  const { pen, width, height } = prepare(canvas);
  const left = 66, right = width - 8, top = 18, bottom = height - 4;
  const values = (some) => some.flatMap(({ points, ceiling = Infinity }) =>
    points.map(([, value]) => value).filter((value) => !(value > ceiling)));
  const axis = findAxis(values(series), signed, values(series.filter(({ thin }) => !thin)));
  const x = (t) => left + (right - left) * (last ? t / last : 0);
  const y = (value) => bottom - (bottom - top) * Math.max(-99, Math.min(99, axis.part(value)));
  pen.font = SMALL;
  pen.textBaseline = "middle";
  pen.fillStyle = colours.quiet;
  pen.textAlign = "left";
  const heading = headingFor(pen, title, axis, grows, left, right);
  pen.fillText(heading.text, heading.x, 7);
  if (axis) {
    pen.textAlign = "right";
    pen.fillText(number(axis.high), left - 6, top + 2);
    pen.fillText(number(axis.low), left - 6, bottom - 6);
    if (axis.linear && axis.low < 0 && axis.high > 0) drawLine(pen, colours.line, 1, [left, y(0)], [right, y(0)]);
    for (const value of axis.decades) drawLine(pen, colours.line, 1, [left, y(value)], [right, y(value)]);
    const shown = (point) => point !== undefined && axis.shows(point[1]);
    pen.save();
    pen.beginPath();
    pen.rect(left - 4, top - 2, right - left + 8, bottom - top + 6);
    pen.clip();
    for (const { points, colour, thin } of [...series].reverse()) drawCurve(pen, points, shown, x, y, colour, thin ? 1.2 : 2.2);
    pen.restore();
  } else reasons(series.filter(({ thin }) => !thin)).forEach((text, i) => pen.fillText(text, left + 6, (top + bottom) / 2 + 13 * i));
  drawKey(pen, series, axis, right, heading.x + pen.measureText(heading.text).width + 16);
  const now = x(Math.min(time, last));
  drawLine(pen, colours.mark, 1.5, [now, top - 4], [now, bottom]);
  return { left, right };
}

// As many words as there is room for; on a phone they begin above the numbers of the axis.
function headingFor(pen, title, axis, grows, left, right) {
  const width = (text) => pen.measureText(text).width, whole = axis ? `${title} (${axis.linear ? "linear" : "log"} axis)` : title;
  const remark = `${whole}; behind the wave it grows, where nobody learns`;
  if (grows && width(remark) <= 0.55 * (right - left)) return { text: remark, x: left };
  const short = ", grows behind the wave", shorter = [...(grows ? [whole + short, title + short] : []), whole, title];
  const text = shorter.find((words) => width(words) <= right) ?? title;
  return { text, x: Math.max(0, Math.min(left, right - width(text))) };
}

// The axis: which values it shows, and where between 0 and 1; null if there is nothing to show. It is
// logarithmic and leaves zeros out, except for what is signed and not positive everywhere. The `main`
// values have to be seen; of the others, what lies near them.
function findAxis(values, signed, main = values) {
  if (!values.some(isSeen)) return null;
  const seen = main.some(isSeen) ? main : values, finite = seen.filter((value) => Number.isFinite(value));
  const linear = signed && finite.some((value) => value <= 0);
  const scale = linear ? (value) => value : Math.log10, back = linear ? scale : (place) => 10 ** place;
  let [low, high] = linear ? [lowest(finite), highest(finite)] : logRange(finite, values, signed);
  const room = linear ? 0.1 * Math.max(-low, high) : 0.2; // what hardly changes is a flat line
  if (high - low < room) { low -= room / 2; high += room / 2; }
  const part = (value) => (scale(value) - low) / (high - low);
  const shows = (value) => Number.isFinite(value) && (linear || value > 0);
  return { linear, shows, part, decades: linear ? [] : powersOfTen(low, high), low: back(low), high: back(high) };
}

// Down to four powers of ten below the main values, if others are there. No more than sixteen: the
// upper ones, or of an energy those about its start. (Inference may diverge.)
function logRange(main, values, signed) {
  const logs = (some) => some.filter((value) => Number.isFinite(value) && value > 0).map(Math.log10);
  const places = logs(main), all = logs(values), high = highest(all), low = Math.max(lowest(all), lowest(places) - 4);
  if (high - low <= 16) return [low, high];
  return signed ? [Math.max(low, places[0] - 8), Math.min(high, places[0] + 8)] : [high - 16, high];
}

function powersOfTen(low, high) {
  const first = Math.ceil(low), count = Math.floor(high) - first + 1;
  return count < 12 ? Array.from({ length: Math.max(0, count) }, (_, i) => 10 ** (first + i)) : [];
}

function isSeen(value) {
  return Number.isFinite(value) && value !== 0;
}

// Why a curve is not there.
function reason(points) {
  const known = points.filter(([, value]) => value !== null);
  if (!known.length) return "not computed";
  const finite = known.filter(([, value]) => Number.isFinite(value)).length;
  if (finite === known.length) return "exactly zero at all times";
  return finite ? "zero or not finite at all times" : "not finite at any time";
}

function reasons(series) {
  const found = [...new Set(series.map(({ points }) => reason(points)))];
  return found.length > 1 ? series.map(({ name, points }) => `${name}: ${reason(points)}`) : found;
}

function drawLine(pen, colour, width, from, to) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
}

// A line through the points that are shown; one that stands alone is a dot.
function drawCurve(pen, points, shown, x, y, colour, width) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  points.forEach((point, i) => {
    if (!shown(point)) return;
    const place = [x(point[0]), y(point[1])];
    if (shown(points[i - 1])) pen.lineTo(...place); else pen.moveTo(...place);
    if (!shown(points[i - 1]) && !shown(points[i + 1])) pen.fillRect(place[0] - 3, place[1] - 3, 6, 6);
  });
  pen.stroke();
}

// The names of the curves, as many as there is room for; beside other curves, why one is missing.
function drawKey(pen, series, axis, right, left) {
  const named = [], single = series.filter(({ thin }) => !thin).length === 1;
  let width = 0;
  for (const { name, colour, points, thin } of series.filter((one) => one.name)) {
    const missing = axis && !thin && !points.some(([, value]) => isSeen(value));
    const text = missing ? `${name}: ${reason(points)}` : name;
    width += pen.measureText(text).width + 12;
    if (!missing && (thin || single) && width > right - left) break;
    named.push([text, colour]);
  }
  pen.textAlign = "right";
  let end = right;
  for (const [text, colour] of named.reverse()) {
    pen.fillStyle = colour;
    pen.fillText(text, end, 7);
    end -= pen.measureText(text).width + 12;
  }
}

// The bar of colours, and whose they are.
function drawLegend(canvas, range, whose, colours) {
  const { pen, width } = prepare(canvas), left = 4, wide = width - 8;
  pen.font = SMALL;
  pen.textBaseline = "top";
  pen.fillStyle = colours.quiet;
  pen.textAlign = "left";
  pen.fillText(label(`error, ${whose}`, Math.floor(wide / 6.6)), left, 1);
  for (let px = 0; px < wide; px++) {
    pen.fillStyle = shade(px / wide, colours.ramp).css;
    pen.fillRect(left + px, 17, 1.2, 12);
  }
  pen.fillStyle = colours.quiet;
  pen.fillText((range.cut ? "≤ " : "") + number(10 ** range.low), left, 33);
  pen.textAlign = "right";
  pen.fillText(number(10 ** range.high), left + wide, 33);
  pen.textAlign = "left";
  pen.fillText("root mean square", left, 49);
}
