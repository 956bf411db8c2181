// The icons that pages use, by their Tabler name; `webapp/runs/tests/test_icons.py` compares them with the templates.
export const ICONS = [
  "alert-triangle", "arrow-left", "ban", "bolt", "books", "brand-speedtest", "check", "chevron-down",
  "chevron-left", "chevron-right", "circle-dashed", "clock", "code", "copy", "cpu", "device-desktop", "download",
  "external-link", "file-code", "flask", "hammer", "hourglass", "info-circle", "loader", "logout", "menu-2", "minus", "moon", "pencil",
  "player-play", "player-stop", "plus", "refresh", "route", "search", "server-2", "shield-check", "shield-off",
  "sun", "upload", "user", "x",
];
