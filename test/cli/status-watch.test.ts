import { stripVTControlCharacters } from 'node:util';
import type { ExecutionContext } from 'ava';
import { hasTerminals, runInTerminal, startInTerminal } from '../_support/cli/in-terminal.js';
import { collect, firstLine, runCli, startCli, until } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const inTerminal = unless(hasTerminals ? '' : 'no python3 for a terminal');
const ESC = '\u001b[';
/** What begins and ends the terminal's second screen, and each frame there. */
const [ENTER, LEAVE] = [`${ESC}?1049h${ESC}?25l`, `${ESC}?25h${ESC}?1049l`];
const [FRAME, FRAME_END] = [`${ESC}?2026h${ESC}H`, `${ESC}J${ESC}?2026l`];

async function startNode(t: ExecutionContext): Promise<{ readonly addr: string; kill(): void }> {
  const addr = `127.0.0.1:${await freePort()}`;
  const args = ['--no-client-socket', '--pool', '1mb', '-o', 'metrics_port=0', '-o', 'node_id=watched'];
  const child = startCli(['node', '--discovery-addr', addr, ...args]);
  t.teardown(() => child.kill('SIGKILL'));
  await firstLine(child);
  return { addr, kill: () => void child.kill('SIGKILL') };
}

inTerminal('status, --watch: a terminal is drawn over in place, and given back as it was on Ctrl-C', async (t) => {
  const { addr, kill } = await startNode(t);
  const size = { columns: 60, rows: 12 };
  const watch = startInTerminal(['status', '--discovery-addr', addr, '--watch'], size);
  t.teardown(() => watch.kill('SIGKILL'));
  let seen = '';
  watch.stdout.on('data', (text) => {
    seen += text;
  });
  const ended = collect(watch);
  await until(() => seen.split(FRAME_END).length > 2);
  kill();
  await until(() => seen.includes('no discovery master answers'));
  watch.kill('SIGTERM');
  const { status, stdout } = await ended;
  t.is(status, 0);
  const [before, shown, after, ...rest] = stdout.split(new RegExp(`${escaped(ENTER)}|${escaped(LEAVE)}`));
  t.deepEqual([before, rest], ['', []]);
  t.notRegex(shown as string, new RegExp(escaped(`${ESC}2J`)), 'a terminal that is cleared flickers');
  const frames = (shown as string).split(FRAME_END).slice(0, -1);
  for (const frame of frames) {
    t.true(frame.startsWith(FRAME), frame);
    const lines = stripVTControlCharacters(frame).split('\r\n');
    t.true(lines.length <= size.rows, frame);
    for (const line of lines) t.true(line.length <= size.columns, line);
  }
  t.regex(stripVTControlCharacters(frames[0] as string), /1 member at .*: 1 up\r\n {2}prefix hits +- since the nodes/);
  t.regex(after as string, /^\S+Z {2}no discovery master answers/, 'the last text stays');
});

inTerminal('status: a terminal that reports 0 columns gets a table in colours', async (t) => {
  const { addr } = await startNode(t);
  const { status, shown } = await runInTerminal(['status', '--discovery-addr', addr], { columns: 0 });
  t.is(status, 0);
  t.regex(stripVTControlCharacters(shown), /^node +state +[a-z0-9 ]+\n-+ .*\nwatched +up +/m);
  t.true(shown.includes(`${ESC}32mup`));
  const piped = await runCli(['status', '--discovery-addr', addr]);
  t.true(piped.stdout.split('\n').every((line) => line.length <= 100 && !line.includes('\u001b')));
});

function escaped(text: string): string {
  return text.replace(/[[?]/g, '\\$&');
}
