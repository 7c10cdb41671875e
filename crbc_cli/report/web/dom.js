// Elements from plain values. Log text only ever becomes text nodes or attribute values.

function element(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const byId = (id) => document.getElementById(id);

function embedded(id) {
  return JSON.parse(byId(id).textContent);
}

const fixed = (number, digits) => {
  const text = number.toFixed(digits);
  return Number(text) === 0 ? (0).toFixed(digits) : text; // never "-0.00"
};

const plain = (number, digits = 4) => (number === null ? "–" : fixed(number, digits));

const signed = (number, digits = 4) => {
  if (number === null) return "–";
  const text = fixed(number, digits);
  return Number(text) > 0 ? `+${text}` : text.replace("-", "−");
};

const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);

function table(caption, heads, rows, left = 1) {
  const cell = (tag, value, index, scope) =>
    element(tag, { class: index < left ? null : "number", scope }, value);
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element(
      "table",
      null,
      element("caption", null, caption),
      element("thead", null, element("tr", null, ...heads.map((h, i) => cell("th", h, i, "col")))),
      element("tbody", null, ...rows.map((row) => element("tr", null, ...row.map((v, i) => cell("td", v, i))))),
    ),
  );
}
