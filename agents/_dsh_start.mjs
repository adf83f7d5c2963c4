// Start DeepSeek Harness with its task from standard input: as an argument it could have 128 KiB at most, and every
// process list would show it.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [node, , program, ...words] = process.argv;
process.argv = [node, program, ...words, readFileSync(0, "utf8")];
await import(pathToFileURL(program).href);
