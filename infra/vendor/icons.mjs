// The icons that pages use, by their Tabler name; `webapp/accounts/tests/test_pages.py` compares them with the templates.
export const ICONS = [
  "alert-triangle", "arrow-left", "ban", "bolt", "books", "check",
  "chevron-left", "chevron-right", "circle-dashed", "clock", "code", "copy", "device-desktop", "download",
  "file-code", "hammer", "hourglass", "info-circle", "loader", "logout", "minus", "moon", "pencil",
  "player-stop", "plus", "refresh", "route", "search", "shield-check", "shield-off",
  "sun", "upload", "user", "x",
];
