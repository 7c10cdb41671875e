// The scales that the program passes along, mixed here as it mixes them.

const scales = embedded("scales");

function mixed(stops, share) {
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const parts = stops[low].map((a, i) => Math.round(a + (stops[low + 1][i] - a) * (at - low)));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

const valueColour = (value, top) => (value === null ? "#9a9a9a" : mixed(scales.value, value / top));
const inkOn = (value, top) => (value !== null && value / top < 0.5 ? "#ffffff" : "#111111");
const creditColour = (credit, largest) =>
  mixed(scales.credit, largest ? 0.5 + (0.5 * (credit || 0)) / largest : 0.5);

function strength(credit, largest, aside) {
  const share = largest ? Math.min(Math.abs(credit || 0) / largest, 1) : 0;
  const least = aside ? 0.3 : 0.6;
  return least + (1 - least) * share;
}
