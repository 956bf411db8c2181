// The op editor: CodeMirror as an enhancement of `<textarea data-editor>`.
// It lives in a shadow root because there its styles are adopted sheets, which `style-src 'self'` allows.
import { python } from "@codemirror/lang-python";
import { HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { tags } from "@lezer/highlight";
import { basicSetup, EditorView } from "codemirror";

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.moduleKeyword], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.function(tags.variableName), tags.definition(tags.function(tags.variableName))], color: "var(--code-function)" },
  { tag: [tags.className, tags.definition(tags.className)], color: "var(--code-class)" },
  { tag: tags.meta, color: "var(--code-decorator)" },
]);

const look = EditorView.theme({
  "&": { color: "var(--code-text)", backgroundColor: "transparent", fontSize: "0.8125rem", height: "26rem" },
  ".cm-scroller": { fontFamily: "var(--tblr-font-monospace)", lineHeight: "1.55" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--code-line)", border: "none" },
  ".cm-content": { caretColor: "var(--code-text)" },
  ".cm-cursor": { borderLeftColor: "var(--code-text)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--code-active)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--code-selection) !important" },
  "&.cm-focused": { outline: "none" },
});

for (const area of document.querySelectorAll("textarea[data-editor]")) {
  const host = document.createElement("div");
  host.className = "editor form-control";
  area.after(host);
  const shadow = host.attachShadow({ mode: "open" });
  const label = document.querySelector(`label[for="${area.id}"]`);
  const view = new EditorView({
    doc: area.value,
    root: shadow,
    parent: shadow,
    extensions: [
      basicSetup,
      python(),
      indentUnit.of("    "),
      syntaxHighlighting(colours),
      look,
      EditorView.contentAttributes.of({ "aria-label": label ? label.textContent.trim() : "Source" }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) area.value = update.state.doc.toString();
      }),
    ],
  });
  area.hidden = true;
  area.addEventListener("warpsmith:set", () => {
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: area.value } });
  });
}
