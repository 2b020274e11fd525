// Buttons, keys, the slider and the search.

const TOGGLES = ["parameters", "delays", "silent", "compare"];

class Controls {
  constructor(app) {
    this.app = app;
    this.get = (id) => document.getElementById(id);
    this.hits = [];
    this.marked = 0;
    this.depths = highest(app.data.vertices.map((vertex) => vertex.modules.length), 0);
    app.onTime = () => this.showTime();
    app.onView = () => this.showView();
    this.listenToTime();
    this.listenToView();
    this.listenToSearch();
    this.listenToKeys();
    this.showTime();
    this.showView();
  }

  showTime() {
    const { app } = this, last = app.lastTime(), time = this.get("time");
    time.max = last;
    time.value = app.state.time;
    this.get("clock").textContent = `t = ${app.state.time} of ${last}`;
    this.get("play").textContent = app.state.playing ? "❚❚" : "▶";
    this.get("play").setAttribute("aria-label", app.state.playing ? "Pause" : "Play");
  }

  showView() {
    const { state, data } = this.app;
    for (const name of TOGGLES) this.get(name).setAttribute("aria-pressed", String(state[name]));
    this.get("legend-module").hidden = !state.collapsed.size;
    this.get("legend-delay").hidden = !data.num_delays;
    this.get("legend-wave").hidden = !data.runs.some((run) => run.wave);
    this.get("depth").value = this.shownDepth();
    this.get("compare").hidden = data.runs.length < 2;
    this.get("delays").hidden = !data.num_delays;
    this.get("silent").hidden = !data.vertices.some((vertex) => vertex.silent && vertex.row >= 0);
  }

  // The depth of which all modules are collapsed; "some" if single ones were opened or collapsed.
  shownDepth() {
    const { data, state } = this.app;
    for (let depth = 0; depth <= this.depths; depth++) {
      const whole = modulesAt(data, depth);
      if (whole.size === state.collapsed.size && [...whole].every((module) => state.collapsed.has(module))) return depth;
    }
    return "some";
  }

  listenToTime() {
    const { app } = this, energy = this.get("energy");
    this.get("play").onclick = () => app.play(!app.state.playing);
    this.get("back").onclick = () => { app.play(false); app.setTime(app.state.time - 1); };
    this.get("on").onclick = () => { app.play(false); app.setTime(app.state.time + 1); };
    this.get("time").oninput = (event) => { const time = Number(event.target.value); app.play(false); app.setTime(time); };
    const scrub = (event) => {
      const { left, right } = app.energyAxis, x = event.clientX - energy.getBoundingClientRect().left;
      app.play(false);
      app.setTime(Math.round(((x - left) / (right - left)) * app.lastTime()));
    };
    energy.addEventListener("pointerdown", (event) => { energy.setPointerCapture(event.pointerId); scrub(event); });
    energy.addEventListener("pointermove", (event) => { if (event.buttons) scrub(event); });
  }

  listenToView() {
    const { app } = this, choices = ["open", ...Array.from({ length: this.depths }, (_, i) => `depth ${i + 1}`)];
    const some = element("option", "some", { value: "some", hidden: "", disabled: "" }); // seen, never chosen
    this.get("depth").replaceChildren(some, ...choices.map((text, i) => element("option", text, { value: i })));
    this.get("depth").parentElement.hidden = !this.depths;
    this.get("depth").onchange = (event) => app.collapseAll(Number(event.target.value));
    for (const name of TOGGLES) this.get(name).onclick = () => app.toggle(name);
    this.get("fit").onclick = () => app.fit();
    this.get("theme").onclick = () => this.turnTheme();
    this.get("help").onclick = () => this.get("keys").showModal();
  }

  turnTheme() {
    this.app.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  }

  turnModules() {
    if (this.depths) this.app.collapseAll(this.app.state.collapsed.size ? 0 : 1);
  }

  // ---- search -----------------------------------------------------------------------------------

  listenToSearch() {
    const query = this.get("query");
    query.oninput = query.onfocus = () => this.search(query.value);
    query.onblur = () => this.showMatches(false);
    this.get("matches").onmousedown = (event) => event.preventDefault(); // a click there keeps the focus
    query.onkeydown = (event) => {
      if (event.key === "ArrowDown") this.mark(this.marked + 1);
      else if (event.key === "ArrowUp") this.mark(this.marked - 1);
      else if (event.key === "Enter" && this.hits.length) this.take(this.hits[this.marked]);
      else if (event.key === "Escape") { query.value = ""; this.search(""); this.leaveSearch(); }
      else return;
      event.preventDefault();
    };
  }

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), { app } = this, list = this.get("matches");
    const hits = (vertex) => words.every((word) => vertex.name.toLowerCase().includes(word) || vertex.source.toLowerCase().includes(word));
    this.hits = words.length ? app.data.vertices.filter((vertex) => vertex.row >= 0 && hits(vertex)) : [];
    app.state.found = new Set(this.hits.map((vertex) => vertex.index));
    list.replaceChildren(...this.hits.slice(0, 30).map((vertex, i) => {
      const item = element("li", vertex.name, { role: "option", id: `match${i}` });
      item.append(element("small", [vertex.shape, vertex.source].filter(Boolean).join("  ")));
      item.onclick = () => this.take(vertex);
      return item;
    }));
    const remark = !this.hits.length ? "no vertex has this in its name or source line" : `and ${this.hits.length - 30} more`;
    if (!this.hits.length || this.hits.length > 30) {
      list.append(element("li", remark, { class: "quiet", role: "option", "aria-disabled": "true" }));
    }
    this.showMatches(words.length > 0);
    this.mark(0);
    app.ask();
  }

  showMatches(on) {
    this.get("matches").hidden = !on;
    this.get("query").setAttribute("aria-expanded", String(on));
    this.get("query").removeAttribute("aria-activedescendant");
  }

  mark(place) {
    const items = [...this.get("matches").children].slice(0, Math.min(30, this.hits.length));
    if (!items.length) return;
    this.marked = (place + items.length) % items.length;
    items.forEach((item, i) => item.setAttribute("aria-selected", String(i === this.marked)));
    items[this.marked].scrollIntoView({ block: "nearest" });
    this.get("query").setAttribute("aria-activedescendant", items[this.marked].id);
  }

  take(vertex) {
    this.app.goTo(vertex.index);
    this.leaveSearch();
  }

  // On to the picture, where the arrows walk from vertex to vertex.
  leaveSearch() {
    this.showMatches(false);
    this.app.panes[0].canvas.focus();
  }

  // ---- keys -------------------------------------------------------------------------------------

  listenToKeys() {
    const { app } = this, half = () => app.panes[0].view.getBoundingClientRect();
    const zoom = (factor) => app.zoomBy(factor, half().width / 2, half().height / 2);
    const step = (by) => { app.play(false); app.setTime(app.state.time + by); };
    const actions = {
      " ": () => app.play(!app.state.playing), ArrowLeft: () => step(-1), ArrowRight: () => step(1),
      Home: () => step(-Infinity), End: () => step(Infinity),
      ArrowUp: () => app.walk(-1), ArrowDown: () => app.walk(1),
      "/": () => this.get("query").focus(), "?": () => this.get("keys").showModal(),
      m: () => this.turnModules(), p: () => app.toggle("parameters"), d: () => app.data.num_delays && app.toggle("delays"), s: () => app.toggle("silent"),
      c: () => app.data.runs.length > 1 && app.toggle("compare"), f: () => app.fit(), l: () => this.turnTheme(),
      "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), Escape: () => app.choose(null),
    };
    addEventListener("keydown", (event) => {
      const inField = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.id !== "time";
      if (inField || event.ctrlKey || event.metaKey || event.altKey || this.get("keys").open) return;
      if (event.key === " " && event.target.tagName === "BUTTON") return;
      const action = actions[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  }
}
