import test from 'ava';
import { collect, startCli, until } from '../_support/cli/run-cli.js';

/** Says when it hears signals. */
const HOOK = `process.on("newListener", (event) => event === "SIGTERM" && process.stderr.write("hears\\n"))`;

for (const args of [
  ['cluster', '--duration', '1000000'],
  ['cluster', '--seeds', '1000000'],
  ['growth', '--nodes', '100', '--rest', '86400'],
]) {
  test(`sim ${args.join(' ')}: ends with a signal`, async (t) => {
    const env = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(HOOK)}` };
    const child = startCli(['sim', ...args], { env });
    t.teardown(() => child.kill('SIGKILL'));
    const run = collect(child);
    let hears = false;
    child.stderr?.on('data', (text: string) => {
      hears ||= text.includes('hears');
    });
    await until(() => hears);
    child.kill('SIGTERM');
    const { status, stderr } = await run;
    t.is(status, 130);
    t.regex(stderr, /error: interrupted/);
  });
}
