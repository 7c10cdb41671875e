// The merged process as SVG: zoom, pan, a depth, a highlighted rollout, a chosen anchor.

class Graph {
  constructor(data, chosen) {
    this.data = data;
    this.chosen = chosen;
    this.most = Math.max(1, ...data.arrows.map((arrow) => arrow.count));
    this.heads = new Map();
    this.defs = drawn("defs");
    this.arrows = data.arrows.map((arrow, index) => this.arrow(arrow, index));
    this.nodes = data.anchors.map((anchor, index) => this.anchor(anchor, index));
    this.boundaries = data.boundaries.map((boundary) => this.boundary(boundary));
    this.view = drawn("g", null, ...this.arrows.map((a) => a.shape), ...this.arrows.map((a) => a.label),
      ...this.boundaries, ...this.nodes.map((n) => n.shape));
    this.svg = drawn("svg", { class: "graph", role: "group", "aria-label":
      "Merged process. Arrow keys move between anchors, Enter opens one, plus and minus zoom, 0 fits." },
      this.defs, this.view);
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.grab(event));
    this.current = 0;
    if (this.nodes.length) this.nodes[0].shape.setAttribute("tabindex", "0");
  }

  arrow(arrow, index) {
    const data = this.data;
    const line = drawn("path", { d: arrow.path, class: "line",
      "stroke-width": 1 + 2.5 * Math.sqrt(arrow.count / this.most) });
    const tip = drawn("title");
    const shape = drawn("g", { class: "arrow" }, line,
      drawn("path", { d: arrow.path, class: "catch" }, tip));
    shape.addEventListener("click", () => this.chosen({ arrow: index }));
    const action = data.texts[data.pairs[arrow.pair].action];
    const name = shortened(action, 22);
    const label = drawn("text", { x: arrow.at[0], y: arrow.at[1] - 4, class: "action" },
      `${name} ×${arrow.count}`);
    if (data.arrows.length > 40) label.classList.add("busy");
    return { shape, line, tip, label, name: shortened(action, 200) };
  }

  anchor(anchor, index) {
    const circle = drawn("circle", { r: anchor.r });
    const number = drawn("text", { y: 3.5, class: "value" });
    const shape = drawn("g", { class: "anchor", role: "button", tabindex: "-1",
      transform: `translate(${anchor.x} ${anchor.y})` }, circle, number,
      drawn("text", { y: anchor.r + 12, class: "name" }, shortened(anchor.name, 18)));
    shape.addEventListener("click", () => { this.focus(index); this.chosen({ anchor: index }); });
    return { shape, circle, number };
  }

  boundary({ node, x, y, r }) {
    const success = node === -1;
    return drawn("g", { class: success ? "boundary success" : "boundary failure",
      transform: `translate(${x} ${y})`, role: "img",
      "aria-label": success ? "SUCCESS, worth 1" : "FAILURE, worth 0" },
      drawn("rect", { x: -r, y: -r, width: 2 * r, height: 2 * r, rx: 4 }),
      drawn("text", { y: 4, class: "value" }, success ? "1" : "0"),
      drawn("text", { y: r + 12, class: "name" }, success ? "SUCCESS" : "FAILURE"));
  }

  head(colour) {
    if (!this.heads.has(colour)) {
      const id = `head-${colour.slice(1)}`;
      this.heads.set(colour, `url(#${id})`);
      this.defs.append(drawn("marker", { id, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7,
        markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" },
        drawn("path", { d: "M0,0L8,4L0,8z", fill: colour })));
    }
    return this.heads.get(colour);
  }

  setDepth(depth) {
    const data = this.data, numbers = data.depths[depth];
    const largest = Math.max(0, ...numbers.credit.map(Math.abs));
    this.nodes.forEach(({ shape, circle, number }, index) => {
      const value = numbers.v[index], anchor = data.anchors[index];
      circle.setAttribute("fill", valueColour(value, data.top));
      number.setAttribute("fill", inkOn(value, data.top));
      number.textContent = plain(value, 2);
      const reach = reached(data, depth, index).length;
      shape.setAttribute("aria-label", `Anchor ${anchor.name}: V ${plain(value)}, ` +
        `${anchor.visits} visits, ${reach} reachable rollouts`);
    });
    this.arrows.forEach(({ line, tip, name }, index) => {
      const arrow = data.arrows[index], credit = numbers.credit[arrow.pair];
      const colour = creditColour(credit, largest);
      line.setAttribute("stroke", colour);
      line.setAttribute("stroke-opacity", strength(credit, largest, arrow.aside).toFixed(2));
      line.setAttribute("marker-end", this.head(colour));
      tip.textContent = `${name}: ${arrow.count}×, Q ${plain(numbers.q[arrow.pair])}, ` +
        `credit ${signed(credit)}`;
    });
  }

  highlight(rollout) {
    const data = this.data;
    this.svg.classList.toggle("dim", rollout !== null);
    const steps = rollout === null ? [] : data.rollouts[rollout].steps;
    const anchors = new Set(steps.map((step) => step.anchor));
    const ways = new Set(steps.map((step) => `${step.pair}>${step.to}`));
    const ends = new Set(steps.map((step) => step.to));
    this.nodes.forEach(({ shape }, index) => shape.classList.toggle("on", anchors.has(index)));
    this.arrows.forEach(({ shape, label }, index) => {
      const arrow = data.arrows[index], on = ways.has(`${arrow.pair}>${arrow.to}`);
      shape.classList.toggle("on", on);
      label.classList.toggle("on", on);
    });
    this.boundaries.forEach((shape, index) =>
      shape.classList.toggle("on", ends.has(data.boundaries[index].node)));
  }

  mark(anchor, arrow) {
    this.nodes.forEach(({ shape }, index) => shape.classList.toggle("chosen", index === anchor));
    this.arrows.forEach(({ shape }, index) => shape.classList.toggle("chosen", index === arrow));
    this.arrows.forEach(({ shape, label }, index) => {
      const near = anchor !== null && anchor !== undefined &&
        (this.data.pairs[this.data.arrows[index].pair].anchor === anchor ||
          this.data.arrows[index].to === anchor);
      shape.classList.toggle("near", near);
      label.classList.toggle("near", near || index === arrow);
    });
  }

  focus(index) {
    this.nodes[this.current].shape.setAttribute("tabindex", "-1");
    this.current = index;
    this.nodes[index].shape.setAttribute("tabindex", "0");
    this.nodes[index].shape.focus();
  }

  key(event) {
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const inside = event.target.classList.contains("anchor");
    if (ways[event.key] && inside) this.step(...ways[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && inside) this.chosen({ anchor: this.current });
    else if (event.key === "+" || event.key === "=") this.zoom(1.3);
    else if (event.key === "-") this.zoom(1 / 1.3);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  step(dx, dy) {
    const from = this.data.anchors[this.current];
    let best = -1, least = Infinity;
    this.data.anchors.forEach((anchor, index) => {
      const x = anchor.x - from.x, y = anchor.y - from.y;
      const ahead = x * dx + y * dy, aside = Math.abs(x * dy + y * dx);
      if (index !== this.current && ahead > 4 && ahead + 2 * aside < least) {
        best = index;
        least = ahead + 2 * aside;
      }
    });
    if (best >= 0) { this.focus(best); this.show(best); }
  }

  show(index) { // brings an anchor into view
    const { x, y } = this.data.anchors[index], [left, top, width, height] = this.box;
    if (x < left || y < top || x > left + width || y > top + height)
      this.look(x - width / 2, y - height / 2, width, height);
  }

  look(...box) {
    this.box = box;
    this.svg.setAttribute("viewBox", box.map((side) => side.toFixed(1)).join(" "));
    const width = this.svg.clientWidth || 800;
    this.svg.classList.toggle("far", box[2] / width > 2.2);
  }

  fit() { // whole, but small graphs not blown up
    const [width, height] = this.data.size;
    const wide = this.svg.clientWidth || 800, high = this.svg.clientHeight || 480;
    const scale = Math.max(width / wide, height / high, 0.75);
    this.look((width - wide * scale) / 2, (height - high * scale) / 2, wide * scale, high * scale);
  }

  zoom(factor, x, y) {
    const [left, top, width, height] = this.box;
    const cx = x === undefined ? left + width / 2 : x, cy = y === undefined ? top + height / 2 : y;
    this.look(cx - (cx - left) / factor, cy - (cy - top) / factor, width / factor, height / factor);
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // scrolling goes on scrolling the page
    event.preventDefault();
    const frame = this.svg.getBoundingClientRect(), [left, top, width, height] = this.box;
    this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2,
      left + (width * (event.clientX - frame.left)) / frame.width,
      top + (height * (event.clientY - frame.top)) / frame.height);
  }

  grab(event) {
    if (event.button !== 0) return;
    const [left, top, width, height] = this.box;
    const scale = width / this.svg.clientWidth, { clientX, clientY } = event;
    const move = (next) => {
      if (Math.hypot(next.clientX - clientX, next.clientY - clientY) < 4) return;
      this.look(left - (next.clientX - clientX) * scale, top - (next.clientY - clientY) * scale, width, height);
    };
    const stop = () => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", stop);
      window.removeEventListener("pointercancel", stop);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", stop);
    window.addEventListener("pointercancel", stop);
  }
}

function shortened(text, most) {
  const line = (text === null ? "–" : text).replace(/\s+/g, " ").trim();
  const letters = Array.from(line);
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : line;
}

function reached(data, depth, anchor) { // indices of the rollouts whose evidence reaches an anchor
  const bits = BigInt(`0x${data.depths[depth].reach[anchor]}`);
  return data.taking_part.filter((_, index) => (bits >> BigInt(index)) & 1n);
}
