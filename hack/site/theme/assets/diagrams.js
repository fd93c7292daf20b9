// Draws the diagrams of a page, and again when the reader changes the theme. Pages without a diagram don't load the library.
const library = new URL("mermaid.tiny.js", document.currentScript.src);
const diagrams = [...document.querySelectorAll("pre.diagram")].map((pre) => ({ pre, source: pre.textContent }));

async function draw() {
  const dark = document.body.dataset.mdColorScheme === "slate";
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, theme: dark ? "dark" : "default" });
  for (const [number, { pre, source }] of diagrams.entries()) {
    pre.innerHTML = (await mermaid.render(`diagram-${number}`, source)).svg;
  }
}

if (diagrams.length > 0) {
  const script = document.createElement("script");
  script.src = library;
  script.onload = () => {
    draw();
    new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  };
  document.head.append(script);
}
