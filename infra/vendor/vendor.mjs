// Writes webapp/static/vendor/ from the locked packages: copies, one icon sprite, one editor bundle, and VENDORED.md.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { ICONS } from "./icons.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const packages = join(here, "node_modules");
const target = join(here, "../../webapp/static/vendor");
const rows = [];
const used = new Set();

const facts = (name) => JSON.parse(readFileSync(join(packages, name, "package.json"), "utf8"));

function write(file, content, names) {
  writeFileSync(join(target, file), content);
  names.forEach((name) => used.add(name));
  const made = names.map((name) => `${name} ${facts(name).version} (${facts(name).license})`).join(", ");
  rows.push({ file, made, sha256: createHash("sha256").update(content).digest("hex") });
}

// Source maps are not shipped, and a static files manifest would look for them.
const withoutMap = (text) => text.replace(/\n?(\/\*|\/\/)# sourceMappingURL=[^\n]*\n?/g, "\n");

function copy(name, path, file) {
  write(file, withoutMap(readFileSync(join(packages, name, path), "utf8")), [name]);
}

function sprite() {
  const symbols = ICONS.map((icon) => {
    const svg = readFileSync(join(packages, "@tabler/icons/icons/outline", `${icon}.svg`), "utf8");
    const body = svg.replace(/<!--[\s\S]*?-->/g, "").match(/<svg[^>]*>([\s\S]*)<\/svg>/)[1];
    const shapes = body.replace(/\s*\n\s*/g, "");
    return `<symbol id="${icon}" viewBox="0 0 24 24">${shapes}</symbol>`;
  });
  const text = `<svg xmlns="http://www.w3.org/2000/svg">\n${symbols.join("\n")}\n</svg>\n`;
  write("icons.svg", text, ["@tabler/icons"]);
}

async function editor() {
  const result = await build({
    entryPoints: [join(here, "editor.js")],
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2022",
    legalComments: "none",
    metafile: true,
    write: false,
  });
  const inside = Object.keys(result.metafile.inputs)
    .map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1])
    .filter(Boolean);
  write("editor.min.js", result.outputFiles[0].text, [...new Set(inside)].sort());
}

function licences() {
  const texts = [...used].sort().map((name) => {
    const folder = join(packages, name);
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file ? readFileSync(join(folder, file), "utf8").trim() : `${facts(name).license}, by ${JSON.stringify(facts(name).author)}`;
    return `${name} ${facts(name).version}\n\n${text}\n`;
  });
  writeFileSync(join(target, "LICENSES.txt"), texts.join(`\n${"-".repeat(80)}\n\n`));
}

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
copy("htmx.org", "dist/htmx.min.js", "htmx.min.js");
copy("htmx.org", "dist/ext/hx-ptag.min.js", "hx-ptag.min.js");
copy("@tabler/core", "dist/css/tabler.min.css", "tabler.min.css");
sprite();
await editor();
licences();
writeFileSync(
  join(target, "VENDORED.md"),
  [
    "# Vendored front-end files",
    "",
    "Written by `infra/vendor/vendor.mjs` (`npm ci && npm run vendor` there): change versions there, never these files.",
    "Licence texts: LICENSES.txt.",
    "",
    "| file | made of (licence) | sha256 |",
    "|---|---|---|",
    ...rows.map((row) => `| ${row.file} | ${row.made} | \`${row.sha256}\` |`),
    "",
  ].join("\n"),
);
