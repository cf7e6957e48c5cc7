// Runs the search of a built site without a browser: node search_check.js SITE < QUESTIONS
const fs = require("node:fs");
const vm = require("node:vm");

const site = process.argv[2];
const script = (name) => fs.readFileSync(`${site}/${name}`, "utf8");
const page = new Proxy(
  { getElementById: () => null, addEventListener: () => {} },
  { get: (own, name) => own[name] ?? {} },
);
const world = { document: page, console, URLSearchParams };
world.window = world;
vm.createContext(world);
// What other scripts of the site declare; the search itself starts with a page, which is not here.
const before = "const _ready = () => {}; const _ = (text) => text; const SPHINX_HIGHLIGHT_ENABLED = false;";
// The order of search.html.
const scripts = ["_static/searchtools.js", "_static/language_data.js", "searchindex.js"].map(script);
scripts[2] = scripts[2].replace("Search.setIndex(", "Search._index = (");
const ask = "world_ask = (query) => Search._performSearch(...Search._parseQuery(query));";
vm.runInContext([before, ...scripts, ask].join("\n"), world);
const questions = JSON.parse(fs.readFileSync(0, "utf8"));
const pages = questions.map((question) => [
  ...new Set(world.world_ask(question).reverse().map((result) => result[0])),
]);
console.log(JSON.stringify(pages));
