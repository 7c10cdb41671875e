// Groups are stored deflated and are unpacked when one is looked at.

const unpacked = new Map();

async function groupData(number) {
  if (!unpacked.has(number)) {
    const holder = byId(`group-${number}`);
    if (!holder) return null;
    const bytes = Uint8Array.from(atob(holder.textContent.trim()), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    if (unpacked.size > 20) unpacked.clear();
    unpacked.set(number, JSON.parse(await new Response(stream).text()));
  }
  return unpacked.get(number);
}

async function holdsText(number, words) {
  const data = await groupData(number);
  return data !== null && data.texts.some((text) => text !== null && text.toLowerCase().includes(words));
}
