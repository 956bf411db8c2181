// Life on top of pages that work without it: copying, ticking clocks, files dropped into the op form, menus.

// Copy: the exact bytes of a download, or a text given in place.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const label = button.querySelector("[data-copy-label]") ?? button;
  const before = (label.dataset.before ??= label.textContent);
  try {
    const response = await fetch(button.dataset.copy);
    if (!response.ok) throw new Error(String(response.status));
    await navigator.clipboard.writeText(await response.text());
    label.textContent = "Copied";
  } catch {
    label.textContent = "Could not copy: use Download";
  }
  setTimeout(() => (label.textContent = before), 2500);
});

// Clocks: `<time data-since="ISO time">` counts up between two polls.
function elapsed(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
function tick() {
  for (const clock of document.querySelectorAll("time[data-since]")) {
    clock.textContent = elapsed(Math.max(0, (Date.now() - Date.parse(clock.dataset.since)) / 1000));
  }
}
tick();
setInterval(tick, 1000);
document.addEventListener("htmx:after:swap", tick);

// Menus made of <details>: a click elsewhere or Escape closes them.
function closeMenus(except) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (menu !== except) menu.open = false;
  }
}
document.addEventListener("click", (event) => closeMenus(event.target.closest("details.menu")));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeMenus();
  const typing = event.target.closest("input, textarea, select, [contenteditable]") || event.target.shadowRoot;
  if (event.key === "/" && !typing) {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

// A form goes up once: a double click starts one run, not two. After a while, or back on the page, it may go again.
const sent = new Set();
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (sent.has(form)) event.preventDefault();
  sent.add(form);
  setTimeout(() => sent.delete(form), 5000);
});
window.addEventListener("pageshow", () => sent.clear());

// Op form: text files go into the editor, where they can be read and changed; others go up as they are,
// so that the server says what they are.
const form = document.querySelector("[data-op-form]");
if (form) {
  const area = form.querySelector("textarea[name=source]");
  const input = form.querySelector("input[type=file]");
  const name = form.querySelector("input[name=name]");
  const zone = form.querySelector("[data-drop]");
  const note = form.querySelector("[data-file-note]");

  // A text that met the sign-in page on its way up comes back: this tab keeps it until another page shows.
  form.addEventListener("submit", () => sessionStorage.setItem("draft", JSON.stringify([name.value, area.value])));
  const [draftName, draft] = JSON.parse(sessionStorage.getItem("draft") ?? "[]");
  if (draft && !area.value) {
    [name.value, area.value] = [draftName, draft];
    note.textContent = "You were signed out when you sent this, so it is not uploaded yet.";
  }

  const take = async (file) => {
    const limit = Number(form.dataset.maxBytes);
    let text = null;
    if (file.size <= limit) {
      try {
        text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      } catch {
        text = null;
      }
    }
    if (text === null || text.includes("\0")) {
      note.textContent = `${file.name} goes up as it is.`;
      return;
    }
    area.value = text;
    area.dispatchEvent(new Event("warpsmith:set"));
    if (!name.value) name.value = file.name.replace(/\.[^.]*$/, "").slice(0, 120);
    input.value = "";
    note.textContent = `${file.name} is in the editor.`;
  };

  input.addEventListener("change", () => input.files[0] && take(input.files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    zone.addEventListener(kind, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      event.stopPropagation();
      zone.classList.toggle("is-over", kind === "dragover");
      if (kind !== "drop" || !event.dataTransfer.files[0]) return;
      if (event.dataTransfer.files.length > 1) {
        note.textContent = "One file at a time, please.";
        return;
      }
      input.files = event.dataTransfer.files;
      take(event.dataTransfer.files[0]);
    }, true);
  }
}
if (!form && !document.querySelector("form [name=password]")) sessionStorage.removeItem("draft");
