// Curves over time with a logarithmic axis: the energy, and the trace of one vertex.

const RUN_COLOURS = ["#3b7ddd", "#e07b1a"];

function prepare(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(box.width * ratio));
  canvas.height = Math.max(1, Math.round(box.height * ratio));
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, box.width, box.height);
  return { pen, width: box.width, height: box.height };
}

// series: [{ points: [[t, value]], colour, name }]. Values that are not positive are left out.
function drawCurves(canvas, series, { last, time, title, colours }) {
  const { pen, width, height } = prepare(canvas);
  const left = 60, right = width - 8, top = 14, bottom = height - 4;
  const logs = series.flatMap(({ points }) => points.filter(([, v]) => v > 0 && Number.isFinite(v)).map(([, v]) => Math.log10(v)));
  const x = (t) => left + (right - left) * (last ? t / last : 0);
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.fillStyle = colours.quiet;
  pen.textAlign = "left";
  pen.fillText(title, left, 6);
  if (logs.length) {
    let low = logs.reduce((a, b) => Math.min(a, b)), high = logs.reduce((a, b) => Math.max(a, b));
    low = Math.max(low, high - 16);
    if (high - low < 0.2) { low -= 0.1; high += 0.1; }
    const y = (value) => bottom - ((bottom - top) * (Math.log10(value) - low)) / (high - low);
    pen.textAlign = "right";
    pen.fillText(number(10 ** high), left - 6, top + 2);
    pen.fillText(number(10 ** low), left - 6, bottom - 6);
    const shown = (point) => point && point[1] > 0 && Number.isFinite(point[1]) && Math.log10(point[1]) >= low - 1e-9;
    for (const { points, colour } of series) drawCurve(pen, points, shown, x, y, colour);
  } else {
    const unknown = series.every(({ points }) => points.every(([, value]) => value === null));
    pen.textAlign = "left";
    pen.fillText(unknown ? "not computed" : "exactly zero at all times", left, (top + bottom) / 2);
  }
  drawKey(pen, series, right);
  pen.strokeStyle = colours.mark;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x(Math.min(time, last)), top - 4);
  pen.lineTo(x(Math.min(time, last)), bottom);
  pen.stroke();
  return { left, right };
}

// A line through the points that are shown; one that stands alone is a dot.
function drawCurve(pen, points, shown, x, y, colour) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.8;
  pen.beginPath();
  points.forEach((point, i) => {
    if (!shown(point)) return;
    const place = [x(point[0]), y(point[1])];
    if (shown(points[i - 1])) pen.lineTo(...place); else pen.moveTo(...place);
    if (!shown(points[i - 1]) && !shown(points[i + 1])) pen.fillRect(place[0] - 3, place[1] - 3, 6, 6);
  });
  pen.stroke();
}

function drawKey(pen, series, right) {
  pen.textAlign = "right";
  let end = right;
  for (const { name, colour } of [...series].reverse()) {
    if (!name) continue;
    pen.fillStyle = colour;
    pen.fillText(name, end, 6);
    end -= pen.measureText(name).width + 12;
  }
}

function drawLegend(canvas, ranges, colours) {
  const { pen, width, height } = prepare(canvas);
  const left = 4, wide = width - 8;
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillStyle = colours.quiet;
  pen.textAlign = "left";
  pen.fillText("error (root mean square)", left, 0, wide);
  ranges.forEach((range, i) => {
    const y = 14 + i * Math.min(34, (height - 14) / ranges.length);
    for (let px = 0; px < wide; px++) {
      pen.fillStyle = shade(px / wide, colours.ramp).css;
      pen.fillRect(left + px, y, 1.2, 8);
    }
    pen.fillStyle = colours.quiet;
    pen.textAlign = "left";
    pen.fillText(number(10 ** range.low), left, y + 10);
    pen.textAlign = "right";
    pen.fillText(number(10 ** range.high), left + wide, y + 10);
  });
}
