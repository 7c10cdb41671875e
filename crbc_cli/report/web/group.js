// One group: its graph, what is known about an anchor or a step, and its rollouts to read.

class GroupView {
  constructor(data, home) {
    this.data = data;
    this.depth = data.run;
    this.rollout = null;
    this.chosen = null;
    this.graph = new Graph(data, (what) => this.choose(what));
    this.details = element("div", { class: "details", role: "region", "aria-label": "Details", tabindex: "0" });
    this.transcript = element("section", { class: "transcript", "aria-label": "Rollout" });
    this.depthName = element("output", { class: "depth-name" });
    this.slider = element("input", { type: "range", min: 0, max: data.depths.length - 1, step: 1,
      value: this.depth, id: "depth", oninput: () => this.setDepth(Number(this.slider.value)) });
    this.chips = data.rollouts.map((rollout, index) => this.chip(rollout, index));
    home.replaceChildren(this.head(), this.toolbar(), element("div", { class: "stage" },
      element("div", { class: "canvas" }, this.graph.svg, this.zoomButtons()), this.details),
      this.transcript);
    this.setDepth(this.depth);
    this.graph.fit();
    this.choose(null);
    this.read(0);
  }

  head() {
    const { data } = this, won = data.rollouts.filter((r) => r.outcome === "success").length;
    const keys = Object.entries(data.key).map(([name, value]) => `, ${name} ${value}`).join("");
    return element("div", { class: "group-head" },
      element("h3", { tabindex: "-1", id: "group-name" }, `Group ${data.id}${keys}`),
      element("p", null, `${data.status}: ${won} of ${data.rollouts.length} rollouts succeeded; ` +
        `${data.anchors.length} anchors, ${data.arrows.length} transitions; ${data.files.join(", ")}`));
  }

  toolbar() {
    return element("div", { class: "toolbar" },
      element("div", { class: "depth" }, element("label", { for: "depth" }, "Closure depth "),
        this.slider, this.depthName),
      element("div", { class: "chips", role: "group", "aria-label": "Rollouts: point at one to see its path, press to read it" },
        element("span", { class: "chips-name" }, "Rollouts "), ...this.chips),
      this.legend());
  }

  chip(rollout, index) {
    const sign = { success: "✓", failure: "✗", truncated: "✂", unscored: "?" }[rollout.outcome];
    const chip = element("button", { type: "button", class: `chip ${rollout.outcome}`, "aria-pressed": "false",
      title: `${rollout.outcome}, ${rollout.steps.length} steps`,
      onclick: () => this.read(this.rollout === index && this.pinned ? null : index, true) },
      element("span", { "aria-hidden": "true" }, sign), ` ${rollout.id}`,
      element("span", { class: "unseen" }, ` ${rollout.outcome}`));
    chip.addEventListener("pointerenter", () => this.graph.highlight(index));
    chip.addEventListener("pointerleave", () => this.graph.highlight(this.pinned ? this.rollout : null));
    return chip;
  }

  legend() {
    const scale = (stops, low, high, name) => element("span", { class: "scale" }, `${name} ${low} `,
      element("span", { class: "ramp", "aria-hidden": "true", style:
        `background:linear-gradient(90deg,${stops.map((s) => `rgb(${s})`).join(",")})` }), ` ${high}`);
    this.creditScale = element("span");
    return element("p", { class: "legend" }, scale(scales.value, "0", this.data.top, "value V"),
      this.creditScale, element("span", null, "size: visits · width: count · ringed rollouts reach the chosen anchor"));
  }

  zoomButtons() {
    const button = (text, name, act) => element("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
    return element("div", { class: "zoom" }, button("+", "Zoom in", () => this.graph.zoom(1.4)),
      button("−", "Zoom out", () => this.graph.zoom(1 / 1.4)), button("⤢", "Fit the graph", () => this.graph.fit()));
  }

  setDepth(depth) {
    this.depth = depth;
    const numbers = this.data.depths[depth], notes = [];
    const name = numbers.depth === "inf" ? "∞ (full closure)" : String(numbers.depth);
    if (numbers.depth === this.data.settled) notes.push("coverage settles here");
    if (depth === this.data.run) notes.push("this run");
    this.depthName.textContent = `K = ${name}${notes.length ? `, ${notes.join(", ")}` : ""}`;
    this.slider.setAttribute("aria-valuetext", this.depthName.textContent);
    const largest = Math.max(0, ...numbers.credit.map(Math.abs));
    this.creditScale.replaceChildren("credit Q − V ", signed(-largest, 2), " ",
      element("span", { class: "ramp", "aria-hidden": "true", style:
        `background:linear-gradient(90deg,${scales.credit.map((s) => `rgb(${s})`).join(",")})` }),
      ` ${signed(largest, 2)}`);
    this.graph.setDepth(depth);
    this.describe();
  }

  choose(what) {
    this.chosen = what;
    this.describe();
  }

  describe() {
    const { data, chosen } = this;
    let anchor = null, arrow = null;
    if (chosen && chosen.anchor !== undefined) anchor = chosen.anchor;
    if (chosen && chosen.arrow !== undefined) arrow = chosen.arrow;
    if (chosen && chosen.step) {
      anchor = chosen.step.anchor;
      arrow = data.arrows.findIndex((a) => a.pair === chosen.step.pair && a.to === chosen.step.to);
    }
    this.graph.mark(anchor, arrow);
    const seen = new Set(anchor === null ? [] : reached(data, this.depth, anchor));
    this.chips.forEach((chip, index) => chip.classList.toggle("reached", seen.has(index)));
    this.details.replaceChildren(...(chosen === null ? this.hint() : chosen.step ? this.stepFacts(chosen)
      : chosen.arrow !== undefined ? this.arrowFacts(chosen.arrow) : this.anchorFacts(chosen.anchor)));
    for (const step of this.transcript.querySelectorAll("li.chosen")) step.classList.remove("chosen");
    if (chosen && chosen.step && chosen.rollout === this.rollout) {
      const item = this.transcript.querySelector(`li[data-step="${chosen.step.step}"]`);
      if (item) item.classList.add("chosen");
    }
  }

  hint() {
    return [element("p", { class: "hint" }, "Choose an anchor, a transition or a step of a rollout to see " +
      "what was observed, what it is worth and why. Drag to move, Ctrl and wheel or the buttons to zoom.")];
  }

  anchorFacts(index) {
    const { data } = this, anchor = data.anchors[index], numbers = data.depths[this.depth];
    const seen = reached(data, this.depth, index).map((r) => String(data.rollouts[r].id));
    return [
      element("h4", null, `Anchor ${anchor.name}`),
      facts([["V", plain(numbers.v[index], 6)], ["visits", `${anchor.visits} by ${anchor.by.length} rollouts`],
        ["reachable rollouts", `${seen.length}: ${listedSome(seen, 16)}`],
        ["sigma (this run)", plain(anchor.sigma, 6)], ["gate", anchor.gate ? "open" : "closed: no step credit"]]),
      this.actions(index),
      logText("Observation", data.texts[anchor.text]),
      element("p", { class: "visits" }, "Visits: ", ...this.visitButtons(index)),
    ];
  }

  actions(index) {
    const { data } = this, numbers = data.depths[this.depth];
    const rows = data.pairs.map((pair, number) => ({ pair, number })).filter(({ pair }) => pair.anchor === index)
      .map(({ pair, number }) => [
        element("span", { class: "log" }, shortened(data.texts[pair.action], 60)), String(pair.count), plain(numbers.q[number]),
        this.credit(numbers.credit[number], numbers), plain(numbers.step_credit[number]),
        element("span", null, ...joined(data.arrows.map((arrow, at) => ({ arrow, at }))
          .filter(({ arrow }) => arrow.pair === number).map(({ arrow }) => this.goal(arrow))))]);
    return table("Actions here", ["action", "count", "Q", "credit", "A_S", "leads to"], rows);
  }

  goal(arrow) {
    if (arrow.to < 0) return `${arrow.to === -1 ? "SUCCESS" : "FAILURE"} ×${arrow.count}`;
    return element("span", null, this.link(arrow.to), ` ×${arrow.count}`);
  }

  link(anchor) {
    return element("button", { type: "button", class: "link", onclick: () => {
      this.choose({ anchor });
      this.graph.show(anchor);
    } }, this.data.anchors[anchor].name);
  }

  credit(value, numbers) {
    const largest = Math.max(0, ...numbers.credit.map(Math.abs)) || 1;
    return element("span", { class: "credit" }, signed(value), creditBar(value, largest));
  }

  visitButtons(index) {
    const all = this.data.rollouts.flatMap((rollout, number) => rollout.steps
      .filter((step) => step.anchor === index && step.carried_from === null).map((step) => ({ number, rollout, step })));
    const shown = all.slice(0, 40).map(({ number, rollout, step }) => element("button", { type: "button", class: "link",
      onclick: () => { this.read(number, true); this.open(number, step); } }, `${rollout.id}:${step.step}`));
    return [...joined(shown), all.length > 40 ? `, and ${all.length - 40} more` : ""];
  }

  arrowFacts(index) {
    const { data } = this, arrow = data.arrows[index], pair = data.pairs[arrow.pair];
    const numbers = data.depths[this.depth];
    return [
      element("h4", null, "Transition"),
      facts([["from", this.link(pair.anchor)], ["action", element("span", { class: "log" }, data.texts[pair.action] ?? "–")],
        ["to", this.goal(arrow)], ["Q", plain(numbers.q[arrow.pair], 6)],
        ["credit", signed(numbers.credit[arrow.pair], 6)], ["A_S", signed(numbers.step_credit[arrow.pair])]]),
      this.computation(pair.lines), ...evidenceTables(this, arrow.pair),
    ];
  }

  computation(lines) {
    const note = this.depth === this.data.run ? "" : ` (at this run's depth, K = ${this.data.options.depth})`;
    return element("div", { class: "computation" }, element("h5", null, `Computation${note}`),
      ...lines.map(([symbol, right]) => element("p", null, element("b", null, symbol), ` ${right}`)));
  }

  stepFacts({ rollout, step }) {
    const { data } = this, of = data.rollouts[rollout], options = data.options;
    const lines = step.pair === null ? [] : [...data.pairs[step.pair].lines];
    lines.push(step.group_advantage === of.group_advantage ? of.term : ["A_G", `= ${plain(step.group_advantage)}`]);
    if (step.advantage !== null) {
      const own = step.step_credit === null ? "" : ` + ${options.w_s} * ${bracketed(step.step_credit)}`;
      lines.push(["advantage", `= ${options.w_g} * ${bracketed(step.group_advantage)}${own} = ${plain(step.advantage)}`]);
    }
    const evidence = step.pair === null ? [] : evidenceTables(this, step.pair);
    return [
      element("h4", null, `Step ${of.id}:${step.step}`),
      facts([["anchor", step.anchor === null ? "none" : this.link(step.anchor)], ["row", `${step.row} of ${of.file}`],
        ...(step.reason ? [["reason", step.reason]] : []),
        ...(step.carried_from === null ? [] : [["a thought", `carries the numbers of step ${step.carried_from}`]])]),
      this.computation(lines),
      logText("Observation", data.texts[step.seen]), logText("Action", data.texts[step.did]), ...evidence,
    ];
  }

  read(index, pin = false) {
    this.rollout = index;
    this.pinned = pin && index !== null;
    this.chips.forEach((chip, at) => chip.setAttribute("aria-pressed", String(this.pinned && at === index)));
    this.graph.highlight(this.pinned ? index : null);
    this.transcript.replaceChildren(...(index === null ? [] : this.lines(index)));
  }

  lines(index) {
    const { data } = this, rollout = data.rollouts[index];
    const largest = Math.max(0, ...data.depths[data.run].credit.map(Math.abs)) || 1;
    return [
      element("h4", null, `Rollout ${rollout.id}: ${rollout.outcome}`),
      element("p", null, `${rollout.steps.length} steps, group advantage ${signed(rollout.group_advantage)}` +
        `${rollout.counts ? "" : " (it does not count)"}. Numbers are those of this run (K = ${data.options.depth}).`),
      element("ol", { class: "steps" }, ...rollout.steps.map((step) => this.line(index, step, largest))),
    ];
  }

  line(rollout, step, largest) {
    const { data } = this, anchor = step.anchor === null ? "no anchor" : data.anchors[step.anchor].name;
    const open = () => this.open(rollout, step);
    return element("li", { "data-step": step.step },
      element("div", { class: "said" },
        element("button", { type: "button", class: "step-name", onclick: open, "aria-label": `Step ${step.step}: explain` },
          `${step.step}`),
        element("div", { class: "words" }, folded(data.texts[step.seen]),
          element("p", { class: "did" }, element("span", { class: "unseen" }, "Action: "), data.texts[step.did] ?? "–"))),
      element("dl", { class: "numbers" },
        ...pairsOf([["credit", element("span", { class: "credit" }, signed(step.credit), creditBar(step.credit, largest))],
          ["step credit", signed(step.step_credit)], ["advantage", signed(step.advantage)], ["V → Q", `${plain(step.v)} → ${plain(step.q)}`],
          ["anchor", anchor], ...(step.reason ? [["reason", step.reason]] : [])])));
  }

  open(rollout, step) {
    this.choose({ rollout, step });
    if (step.anchor !== null) this.graph.show(step.anchor);
  }
}

const bracketed = (number) => (number !== null && number < 0 ? `(${plain(number)})` : plain(number));

function pairsOf(entries) {
  return entries.map(([name, value]) => element("div", null, element("dt", null, name), element("dd", null, value)));
}

const facts = (entries) => element("dl", { class: "facts" }, ...pairsOf(entries));

function creditBar(value, largest) {
  const share = value === null ? 0 : Math.min(Math.abs(value) / largest, 1) * 29;
  return drawn("svg", { class: "bar", viewBox: "0 0 60 10", "aria-hidden": "true" },
    drawn("line", { x1: 30, x2: 30, y1: 0, y2: 10 }),
    drawn("rect", { x: value < 0 ? 30 - share : 30, y: 2, width: share, height: 6, fill: creditColour(value, largest) }));
}

function logText(name, text) {
  return element("div", null, element("h5", null, name), element("pre", { class: "log", tabindex: "0", "aria-label": name }, text ?? "–"));
}

function folded(text) { // long observations start closed
  const whole = text ?? "–";
  if (whole.length <= 360 && whole.split("\n").length <= 8) return element("pre", { class: "log" }, whole);
  return element("details", null, element("summary", null, shortened(whole, 160)), element("pre", { class: "log" }, whole));
}

function joined(nodes) {
  return nodes.flatMap((node, index) => (index ? [", ", node] : [node]));
}

function listedSome(names, most) {
  return names.length > most ? `${names.slice(0, most).join(", ")} and ${names.length - most} more` : names.join(", ");
}

function evidenceTables(view, pair) {
  const { data } = view, evidence = data.pairs[pair].evidence;
  if (!evidence) return [];
  const cells = ([, used, ofV, ofQ, adds, ofA]) =>
    [percent(used), percent(ofV), percent(ofQ), signed(adds, 6), percent(ofA)];
  const heads = ["used", "of V", "of Q", "adds to A", "of A"];
  const way = (which) => {
    const [from, text] = Array.isArray(which) ? [which[0], "own returns"] : [data.arrows[which].pair, null];
    return element("span", null, view.link(data.pairs[from].anchor), " ",
      element("span", { class: "log" }, shortened(data.texts[data.pairs[from].action], 40)), " → ",
      text ?? view.goal(data.arrows[which]));
  };
  const rollouts = [...evidence.rollouts].sort((a, b) => b[5] - a[5] || b[1] - a[1]);
  return [
    element("h5", null, "Evidence"),
    element("p", null, "used: share of what the numbers rest on; of V, Q, A: share of each that was earned there."),
    table("By rollout", ["rollout", ...heads], rollouts.map((part) => [String(data.rollouts[part[0]].id), ...cells(part)])),
    table(`By transition${evidence.more ? `, ${evidence.more} smaller ones left out` : ""}`, ["transition", ...heads],
      evidence.transitions.map((part) => [way(part[0]), ...cells(part)])),
  ];
}
