// What happens when the page opens.

function toggleTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  byId("theme").setAttribute("aria-pressed", String(!dark));
}

async function openGroup(number, focus) {
  const home = byId("group");
  const data = await groupData(number);
  if (data === null) return null;
  home.hidden = false;
  const view = new GroupView(data, home);
  if (focus) {
    byId("group-name").focus({ preventScroll: true });
    home.scrollIntoView({ block: "start" });
  }
  return view;
}

async function start() {
  byId("theme").addEventListener("click", toggleTheme);
  byId("theme").setAttribute("aria-pressed", String(matchMedia("(prefers-color-scheme: dark)").matches));
  const page = embedded("page");
  if (byId("list")) new GroupList(page.groups, byId("list"), (number) => openGroup(number, true));
  if (page.open === null) return;
  const view = await openGroup(page.open, false);
  if (view && page.step) {
    const rollout = page.step.rollout;
    const step = view.data.rollouts[rollout].steps.find((one) => one.step === page.step.step);
    view.read(rollout, true);
    view.open(rollout, step);
  }
}

start();
