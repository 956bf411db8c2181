// Runs before the first paint: the stored theme, else the system's.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  };
  const apply = () => {
    const choice = stored() ?? "system";
    const dark = choice === "dark" || (choice === "system" && system.matches);
    document.documentElement.dataset.bsTheme = dark ? "dark" : "light";
    document.documentElement.dataset.themeChoice = choice;
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-next]");
    if (!button) return;
    const order = ["system", "light", "dark"];
    const next = order[(order.indexOf(stored() ?? "system") + 1) % order.length];
    localStorage.setItem("theme", next);
    apply();
    button.setAttribute("aria-label", `Theme: ${next}. Change`);
  });
})();
