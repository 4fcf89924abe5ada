import test, { type ExecutionContext } from 'ava';
import { hasTerminals, runInTerminal } from '../_support/cli/in-terminal.js';
import { collect, firstLine, runCli, startCli } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const inTerminal = unless(hasTerminals ? '' : 'no python3 for a terminal');

interface LogRecord {
  readonly ts: string;
  readonly level: string;
  readonly msg: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** The records of a log; fails for a line that is none. */
function recordsOf(t: ExecutionContext, text: string): LogRecord[] {
  return text
    .trimEnd()
    .split('\n')
    .map((line) => {
      const record = JSON.parse(line) as LogRecord;
      t.deepEqual(Object.keys(record), ['ts', 'level', 'msg', 'fields'], line);
      t.is(new Date(record.ts).toISOString(), record.ts);
      t.true(['debug', 'info', 'warn', 'error'].includes(record.level), line);
      return record;
    });
}

test('log format: with json all that a node writes is records, from its warnings to its end', async (t) => {
  const addr = `127.0.0.1:${await freePort()}`;
  const args = ['--no-client-socket', '--pool', '1mb', '-o', 'metrics_port=0', '-o', 'node_id=recorded'];
  const env = { MESHCACHE_LOG: 'debug', MESHCACHE_VNODE: '3' };
  const child = startCli(['node', '--discovery-addr', addr, ...args, '--log-format', 'json'], { env });
  t.teardown(() => void child.kill('SIGKILL'));
  const ended = collect(child);
  await firstLine(child);
  child.kill('SIGTERM');
  const { status, stdout, stderr } = await ended;
  t.is(status, 0);
  const [ready, ...others] = recordsOf(t, stdout);
  t.deepEqual(others, []);
  t.like(ready, { level: 'info', msg: 'node ready', fields: { node_id: 'recorded', is_joined: true } });
  const records = recordsOf(t, stderr);
  t.true(records.some(({ msg, level }) => level === 'warn' && msg.startsWith('MESHCACHE_VNODE in the environment')));
  const started = records.find(({ msg }) => msg === 'node started');
  t.like(started, { level: 'info', fields: { node_id: 'recorded', is_meta: true } });
});

test('log format: the environment gives it too, also to the processes that a command starts; the option wins', async (t) => {
  const env = { MESHCACHE_LOG_FORMAT: 'json', MESHCACHE_LOG: 'info' };
  const demo = ['demo', '--nodes', '2', '--conversations', '2', '--page-bytes', '4kb', '--json'];
  const { stderr, stdout } = await runCli(demo, { env });
  t.is(JSON.parse(stdout).wrong_bytes, 0);
  t.is(recordsOf(t, stderr).filter(({ msg }) => msg === 'node started').length, 2);
  const failed = await runCli(['node'], { env });
  t.is(failed.status, 2);
  t.like(recordsOf(t, failed.stderr), [{ level: 'error' }]);
  t.regex((await runCli(['node', '--log-format', 'text'], { env })).stderr, /^error: --discovery-addr is missing/);
});

test('log format: with json a wrong command line is one record, with the advice', async (t) => {
  const calls: readonly (readonly [args: string[], said: RegExp])[] = [
    [['node', '--bogus', '--log-format', 'json'], /^unknown option '--bogus'\nSee: meshcache node --help$/],
    [['drain', '--log-format=json'], /^missing required argument 'node'\nSee: meshcache drain --help$/],
    [['nodee', '--log-format', 'json'], /^unknown command 'nodee'\n\(Did you mean node\?\)\nSee: meshcache --help$/],
    [['sim', 'trac', '--log-format', 'json'], /^unknown command 'trac'/],
    [['--log-format', 'json'], /^unknown option '--log-format'/],
    [['demo', '--nodes', '0', '--log-format', 'json'], /argument '0' is invalid\. Allowed is a whole number/],
  ];
  for (const [args, said] of calls) {
    const { status, stderr } = await runCli(args);
    t.is(status, 2, args.join(' '));
    const [record, ...others] = recordsOf(t, stderr);
    t.deepEqual(others, []);
    t.is(record?.level, 'error');
    t.regex(record?.msg ?? '', said);
  }
  const ofEnvironment = await runCli([], { env: { MESHCACHE_LOG_FORMAT: 'json' } });
  t.regex(recordsOf(t, ofEnvironment.stderr)[0]?.msg ?? '', /^Usage: meshcache/);
});

test('log format: with json a crash, a warning of Node and a stack for debugging are records', async (t) => {
  const crash = async (code: string, option = ''): Promise<LogRecord[]> => {
    const env = { NODE_OPTIONS: `${option} --import data:text/javascript,${code}` };
    const { status, stderr } = await runCli(['status', '--discovery-addr', '127.0.0.1:1', '--log-format', 'json'], {
      env: { ...env, MESHCACHE_LOG: 'debug' },
    });
    t.is(status, 1);
    return recordsOf(t, stderr);
  };
  // The code is loaded before the program, and waits for its listeners.
  const once = (what: string): string =>
    `const%20t=setInterval(()=>{if(process.listenerCount('uncaughtException')){clearInterval(t);${what}}})`;
  const thrown = await crash(once("throw(Error('planted'))"));
  t.like(thrown[0], { level: 'error', msg: 'the process ends, as nobody caught an error: planted' });
  t.regex(String(thrown[0]?.fields.stack), /^Error: planted\n +at /);
  const rejected = await crash(once("Promise.reject(Error('planted'))"));
  t.like(rejected[0], { level: 'error', msg: 'the process ends, as nobody caught an error: planted' });
  const warned = await crash(once("process.emitWarning('planted')"));
  t.like(warned[0], { level: 'warn', msg: 'Warning: planted' });
  const unwanted = await crash(once("process.emitWarning('planted')"), '--no-warnings');
  t.false(unwanted.some(({ msg }) => msg.includes('planted')));
  t.regex(String(warned.at(-1)?.fields.stack), /no discovery master answers/);
});

inTerminal('colours: a terminal gets them, a pipe and NO_COLOR do not, FORCE_COLOR wins', async (t) => {
  const red = '\u001b[31merror:\u001b[39m --discovery-addr';
  t.true((await runInTerminal(['node'], { columns: 80 })).shown.startsWith(red));
  const plain = await runInTerminal(['node'], { columns: 80, env: { NO_COLOR: '1' } });
  t.true(plain.shown.startsWith('error: --discovery-addr'), plain.shown);
  const dumb = await runInTerminal(['node'], { columns: 80, env: { TERM: 'dumb' } });
  t.true(dumb.shown.startsWith('error: --discovery-addr'), dumb.shown);
  t.true((await runCli(['node'])).stderr.startsWith('error: --discovery-addr'));
  t.true((await runCli(['node'], { env: { FORCE_COLOR: '1' } })).stderr.startsWith(red));
});

inTerminal('colours: the level of a log line has one', async (t) => {
  const args = ['--no-client-socket', '--pool', '1mb', '-o', 'metrics_port=0', '-o', 'local_hostname=127.0.0.1'];
  const addr = `127.0.0.9:${await freePort()}`;
  const run = await runInTerminal(['node', '--discovery-addr', addr, ...args, '--wait-joined', '0'], { columns: 80 });
  t.is(run.status, 1);
  t.true(run.shown.includes('Z \u001b[33mwarn\u001b[39m meshcache: no discovery master is reachable'), run.shown);
});
