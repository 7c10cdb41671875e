// All groups: sorted, filtered and searched; fifty at a time.

const PAGE = 50;

class GroupList {
  constructor(groups, home, open) {
    Object.assign(this, { groups, home, open, shown: PAGE, words: "", found: null, busy: 0 });
    const control = (id) => byId(id);
    for (const id of ["sort", "status", "outcomes"]) control(id).addEventListener("change", () => this.again());
    control("search").addEventListener("input", () => this.search());
    control("inside").addEventListener("change", () => this.search());
    this.render();
  }

  again() {
    this.shown = PAGE;
    this.render();
  }

  async search() {
    this.words = byId("search").value.trim().toLowerCase();
    this.found = null;
    const turn = ++this.busy;
    if (this.words && byId("inside").checked) {
      const found = new Set();
      for (const group of this.groups) {
        if (await holdsText(group.n, this.words)) found.add(group.n);
        if (turn !== this.busy) return; // other words meanwhile
      }
      this.found = found;
    }
    this.again();
  }

  matching() {
    const status = byId("status").value, outcomes = byId("outcomes").value, sort = byId("sort").value;
    const kept = this.groups.filter((group) => {
      const named = `${group.id} ${group.file} ${Object.values(group.key).join(" ")}`.toLowerCase();
      const mixed = group.successes > 0 && group.successes < group.rollouts - group.unscored;
      return (!this.words || named.includes(this.words) || (this.found && this.found.has(group.n)))
        && (!status || group.status === status)
        && (!outcomes || (outcomes === "mixed") === mixed);
    });
    const by = {
      interest: (a, b) => b.interest - a.interest || a.n - b.n,
      log: (a, b) => a.n - b.n,
      success: (a, b) => a.successes / a.rollouts - b.successes / b.rollouts || a.n - b.n,
      conflict: (a, b) => (b.conflict ?? -1) - (a.conflict ?? -1) || a.n - b.n,
      gain: (a, b) => (b.reach ?? 0) - (b.reach_0 ?? 0) - (a.reach ?? 0) + (a.reach_0 ?? 0) || a.n - b.n,
      size: (a, b) => b.rows - a.rows || a.n - b.n,
    };
    return kept.sort(by[sort]);
  }

  render() {
    const all = this.matching(), part = all.slice(0, this.shown);
    const name = (group) => {
      const keys = Object.entries(group.key).map(([k, v]) => `, ${k} ${v}`).join("");
      const text = `${group.id}${keys}`;
      return byId(`group-${group.n}`)
        ? element("button", { type: "button", class: "link", onclick: () => this.open(group.n) }, text)
        : element("span", { title: "not embedded in this page" }, `${text} (numbers only)`);
    };
    const rows = part.map((group) => [name(group), group.status, `${group.successes} of ${group.rollouts}`,
      String(group.rows), String(group.anchors), percent(group.credited),
      `${plain(group.reach_0, 2)} → ${plain(group.reach, 2)}`, percent(group.conflict), plain(group.interest)]);
    const more = all.length > part.length
      ? element("button", { type: "button", onclick: () => { this.shown += PAGE; this.render(); } }, `Show more (${all.length - part.length} left)`)
      : null;
    this.home.replaceChildren(...[
      element("p", { role: "status" }, `${all.length} of ${this.groups.length} groups`),
      table("Groups", ["group", "status", "successes", "steps", "anchors", "with credit", "rollouts reached", "conflict", "interest"], rows, 2),
      more].filter(Boolean));
  }
}
