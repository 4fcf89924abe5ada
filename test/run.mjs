// Runs ava with the given arguments, and says at the end what was left out: one line for each reason, with the number of tests. Where
// nothing is written for long, it names the processes of tests that are left, and ends them: ava itself waits for ever once a test has
// set a time limit of its own.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';

const AVA = fileURLToPath(new URL('../node_modules/ava/entrypoints/cli.mjs', import.meta.url));
/** A skipped test as ava's reporter writes it, with the reason at the end of its title. */
const SKIPPED = /^\s*- \[skip\] (.*?)(?: \(skipped: (.*)\))?$/;

/** Longer than any test may go without a line. */
const SILENCE_MS = Number(process.env.MESHCACHE_TEST_SILENCE_MS ?? 600_000);

/** Reason -> number of tests that were skipped for it. */
const leftOut = new Map();

// What ava writes passes through as it comes, in colours if this terminal has them.
const isTerminal = process.stdout.isTTY === true;
const env = isTerminal ? { FORCE_COLOR: '1', COLUMNS: String(process.stdout.columns), ...process.env } : process.env;
const ava = spawn(process.execPath, [AVA, ...process.argv.slice(2)], { stdio: ['inherit', 'pipe', 'inherit'], env });
// A signal of the terminal reaches ava as well, which then says what it was doing.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => ava.kill(signal));
ava.stdout.pipe(process.stdout, { end: false });
const silence = setTimeout(endWhatIsLeft, SILENCE_MS);
ava.stdout.on('data', () => silence.refresh());
createInterface({ input: ava.stdout }).on('line', (line) => {
  const [, title, reason = `no reason given by "${title}"`] = SKIPPED.exec(stripVTControlCharacters(line)) ?? [];
  if (title !== undefined) leftOut.set(reason, (leftOut.get(reason) ?? 0) + 1);
});
ava.on('close', (status, signal) => {
  clearTimeout(silence);
  for (const [reason, count] of leftOut) console.log(`left out: ${count} ${count === 1 ? 'test' : 'tests'}, ${reason}`);
  process.exitCode = signal === null ? (status ?? 1) : 1;
});

/**
 * Kills the children of ava, each named by `exits.mjs` after its file, so that ava reports them and ends; ava itself if it has none.
 */
function endWhatIsLeft() {
  const pids = readFileSync(`/proc/${ava.pid}/task/${ava.pid}/children`, 'utf8').match(/\d+/g) ?? [ava.pid];
  const titles = pids.map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim());
  console.error(`Tests have written nothing for ${SILENCE_MS} ms. Killed: ${titles.join('; ')}.`);
  for (const pid of pids) process.kill(Number(pid), 'SIGKILL');
}
