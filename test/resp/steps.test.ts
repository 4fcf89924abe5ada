import test from 'ava';
import { CLIENT_STEP_KEY_BYTES, CLIENT_STEP_KEYS } from '../../src/base/limits.js';
import type { RespSession } from '../../src/resp/commands/command.js';
import { VALUE_COMMANDS } from '../../src/resp/commands/value-commands.js';
import { RespPages } from '../../src/resp/values/resp-pages.js';
import type { StoredPages } from '../../src/store/namespace/namespace-pages.js';
import { systemClock } from '../../src/system/system-clock.js';

/** Sends one command with these arguments; `session` is what it needs of a connection. */
async function run(name: string, args: readonly Buffer[], session: Partial<RespSession>): Promise<void> {
  const spec = VALUE_COMMANDS.find((command) => command.name === name);
  if (spec?.batch === undefined) throw new Error(`${name} is no command that is carried out with others`);
  const whole = { signal: new AbortController().signal, protocol: 2, count() {}, ...session } as unknown as RespSession;
  await spec.batch.run([{ spec, args, sentAfterMs: 0 }], whole);
}

test('resp steps: MGET is worked on in steps of a few keys, and of fewer long ones', async (t) => {
  // Cause: a step was bounded by its keys, and not by their bytes.
  for (const [count, bytes] of [
    [3 * CLIENT_STEP_KEYS, 8],
    [20, CLIENT_STEP_KEY_BYTES / 4],
  ] as const) {
    const keys = Array.from({ length: count }, (_, i) => `${i}`.padEnd(bytes, 'x'));
    const sent: string[][] = [];
    let turns = 0;
    await run(
      'mget',
      keys.map((key) => Buffer.from(key)),
      { goOn: () => void turns++, send: async (reads) => void sent.push(reads.map(({ key }) => key)) },
    );
    t.deepEqual(sent.flat(), keys);
    t.is(turns, sent.length - 1);
    t.is(sent.length, Math.max(count / CLIENT_STEP_KEYS, (count * bytes) / CLIENT_STEP_KEY_BYTES));
  }
});

test('resp steps: DEL counts a key once, however far apart its mentions are', async (t) => {
  const values = new Set(Array.from({ length: 2_000 }, (_, i) => `key ${i % 700}`));
  const left = values.size;
  const calls: number[] = [];
  const store = {
    exists: async (keys: readonly string[]) => keys.map((key) => values.has(key)),
    delete: async (keys: readonly string[]) => {
      calls.push(keys.length);
      return keys.map((key) => values.delete(key) || true);
    },
  } as unknown as StoredPages;
  const answers: string[] = [];
  let turns = 0;
  await run(
    'del',
    Array.from({ length: 2_000 }, (_, i) => Buffer.from(`key ${i % 700}`)),
    {
      goOn: () => void turns++,
      pages: new RespPages(store, undefined as never, systemClock),
      timeOf: () => ({ askedMs: 0, wallMs: 0, dateMs: 0, isOver: () => false }),
      addBytes: (bytes) => void answers.push(Buffer.from(bytes).toString()),
    },
  );
  t.deepEqual(answers, [`:${left}\r\n`]);
  t.is(values.size, 0);
  t.true(calls.every((count) => count <= CLIENT_STEP_KEYS));
  t.is(turns, calls.length);
});
