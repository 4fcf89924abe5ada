import test, { type ExecutionContext } from 'ava';
import { CLEAR_MAX_PREFIXES, CLEARS_REQUEST_MAX_COUNT, DROP_WAIT_MAX_MS } from '../../src/base/limits.js';
import { KnownClears } from '../../src/directory/shard/known-clears.js';
import { originOf } from '../../src/directory/shard/removals.js';
import { Clears } from '../../src/node/upkeep/clears.js';
import type { RpcClient } from '../../src/rpc/client.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { Handlers } from '../fuzz/handlers.js';

const SETTLE_MS = 1_000;
/** Versions from here on are too far ahead. */
const FAR = 1e9;
const OTHER = originOf('elsewhere');

/** Nodes that tell each other of clears, by their ids; `dropped` has what each one has dropped. */
function network(t: ExecutionContext, ids: readonly string[]) {
  const clock = new ManualClock();
  const dropped: string[] = [];
  const silent = new Set<string>();
  const failing = new Set<string>();
  let members = new Map<string, NodeInfo>();
  const handlers = new Map<string, Handlers>();
  const requests: (readonly unknown[])[] = [];
  const rpc = {
    async call({ host }: { host: string }, method: string, params: { clears: unknown[] }) {
      if (silent.has(host)) throw new Error('no answer');
      requests.push(params.clears);
      const answer = await (handlers.get(host) as Handlers).call(method, params);
      if (answer === undefined) throw new Error('refused');
      return answer.value;
    },
  } as unknown as RpcClient;
  const nodes = new Map<string, Clears>();
  const add = (nodeId: string): Clears => {
    const clears = new Clears({
      nodeId,
      known: new KnownClears(),
      rpc,
      env: testEnvironment({ clock }),
      endpointOf: (id) => (members.has(id) ? { host: id, port: 1 } : undefined),
      members: () => members,
      see: () => {},
      isAhead: (version) => version >= FAR,
      dropUndated: async () => {},
      settleMs: SETTLE_MS,
    });
    const answers = new Handlers();
    clears.handle(answers.asServer(), async (some) => {
      if (failing.has(nodeId)) throw new Error('disk');
      dropped.push(...some.map(({ origin, voidBelow }) => `${nodeId}: ${origin === OTHER ? 'o' : ''}${voidBelow}`));
    });
    handlers.set(nodeId, answers);
    nodes.set(nodeId, clears);
    t.teardown(() => {
      clears.verify();
      clears.stop();
    });
    return clears;
  };
  /** Makes these the members; `isHeard`: of which nodes know that. */
  const become = (after: readonly string[], isHeard: (nodeId: string) => boolean = () => true): void => {
    const before = members;
    members = new Map(after.map((nodeId) => [nodeId, before.get(nodeId) ?? infoOf(nodeId)]));
    const change = { before, after: members, changed: [...new Set([...before.keys(), ...after])] };
    for (const [nodeId, clears] of nodes) if (members.has(nodeId) && isHeard(nodeId)) clears.membersChanged(change);
  };
  for (const id of ids) add(id);
  members = new Map(ids.map((nodeId) => [nodeId, infoOf(nodeId)]));
  const pass = async (ms: number): Promise<void> => {
    for (let left = ms; left >= 0; left -= 250) {
      for (let i = 0; i < 20; i++) await clock.yield();
      if (left > 0) clock.advance(250);
    }
  };
  const of = (nodeId: string): Clears => nodes.get(nodeId) as Clears;
  return { add, become, pass, of, dropped, silent, failing, requests, handlers };
}

let starts = 0;
function infoOf(nodeId: string): NodeInfo {
  return new NodeInfo({ nodeId, controlHost: '192.0.2.9', controlPort: 9, incarnation: ++starts });
}

/** Ends when the call has. */
async function ended(call: Promise<void>, pass: (ms: number) => Promise<void>): Promise<number> {
  let isDone = false;
  void call.then(() => (isDone = true));
  for (let ms = 0; ; ms += 250) {
    await pass(0);
    if (isDone || ms > 10_000) return ms;
    await pass(250);
  }
}

test('clears: all members drop their copies before the call returns', async (t) => {
  const { of, pass, dropped } = network(t, ['a', 'b', 'c']);
  t.is(await ended(of('a').clear(10, undefined), pass), 0);
  t.deepEqual(dropped.sort(), ['b: 10', 'c: 10']);
  for (const id of ['a', 'b', 'c']) t.true(of(id).known.isVoid('k', 9, originOf('a')), id);
});

test('clears: a member that does not answer is not waited for longer than a second, and told until it does', async (t) => {
  const { of, pass, dropped, silent, become } = network(t, ['a', 'b', 'c', 'd']);
  silent.add('b').add('d');
  t.true((await ended(of('a').clear(10, undefined), pass)) <= DROP_WAIT_MAX_MS);
  t.deepEqual(dropped.splice(0), ['c: 10']);
  become(['a', 'b', 'c']);
  silent.clear();
  await pass(2_000);
  t.deepEqual(dropped, ['b: 10'], 'one that has left is told nothing');
});

test('clears: what cannot be recorded is dropped again, until it is', async (t) => {
  const { of, pass, dropped, failing } = network(t, ['a', 'b']);
  failing.add('b');
  await ended(of('a').clear(10, undefined), pass);
  await pass(2_000);
  t.deepEqual(dropped, []);
  failing.clear();
  await pass(2_000);
  t.deepEqual(dropped, ['b: 10']);
});

test('clears: a node that joins is told of all by every member, also of those of nodes that have left', async (t) => {
  const { add, become, of, pass, dropped, requests } = network(t, ['a', 'b']);
  await ended(of('a').clear(10, ['x/']), pass);
  await ended(of('b').clear(20, undefined), pass);
  become(['b']);
  dropped.length = 0;
  add('c');
  become(['b', 'c']);
  t.true(of('b').owes('c', starts), 'it has yet to hear of them');
  await pass(500);
  t.false(of('b').owes('c', starts));
  t.deepEqual(dropped.sort(), ['c: 10', 'c: 20']);
  t.true(of('c').known.isVoid('x/k', 9, originOf('a')));
  const told = requests.length;
  add('d');
  become(['b', 'c', 'd']);
  await pass(500);
  t.is(requests.length, told + 2, 'a request of each');
});

test('clears: what is heard is passed on to those of whom the clearing node may not know yet', async (t) => {
  const { add, become, pass, dropped, handlers } = network(t, ['a', 'b', 'c']);
  add('d');
  become(['a', 'b', 'c', 'd'], (nodeId) => nodeId === 'b');
  const tell = async (voidBelow: number): Promise<void> => {
    await (handlers.get('b') as Handlers).call('pages.clear', { clears: [[OTHER, voidBelow, null]] });
  };
  await ended(tell(10), pass);
  t.deepEqual(dropped.splice(0).sort(), ['b: o10', 'd: o10']);
  await pass(3 * SETTLE_MS);
  await ended(tell(20), pass);
  t.deepEqual(dropped, ['b: o20'], 'by then all know of it');
});

test('clears: many are told in several requests, and beyond a limit all that are known', async (t) => {
  const { add, become, of, pass, dropped, requests } = network(t, ['a']);
  const known = of('a').known;
  const count = 3 * CLEARS_REQUEST_MAX_COUNT;
  for (let i = 1; i <= count; i++) known.note({ origin: i, voidBelow: i, prefixes: undefined });
  const prefixes = Array.from({ length: CLEAR_MAX_PREFIXES }, (_, i) => `${i}/`);
  known.note({ origin: OTHER, voidBelow: 5_000, prefixes: prefixes.slice(0, 600) });
  known.note({ origin: OTHER, voidBelow: 5_001, prefixes: prefixes.slice(600) });
  add('b');
  become(['a', 'b']);
  await pass(2_000);
  t.is(new Set(dropped).size, count + 2);
  t.true(requests.every(({ length }) => length <= CLEARS_REQUEST_MAX_COUNT));
  await ended(of('a').clear(9_000, [...prefixes, 'more']), pass);
  t.true(of('b').known.isVoid('any', 8_999, originOf('a')), 'with too many prefixes all pages go');
});

test('clears: what is malformed is refused as a whole, and a version that is far ahead by itself', async (t) => {
  const { handlers, dropped, of } = network(t, ['a']);
  const call = (clears: unknown) => (handlers.get('a') as Handlers).call('pages.clear', { clears });
  const good = [7, 10, null];
  for (const bad of [
    [],
    [7, 10],
    [-1, 10, null],
    [2 ** 32, 10, null],
    [7, -1, null],
    [7, 10, 'x'],
    [7, 10, [1]],
    [7, 10, new Array<string>(CLEAR_MAX_PREFIXES + 1).fill('x')],
    'text',
  ])
    t.is(await call([good, bad]), undefined, JSON.stringify(bad).slice(0, 40));
  t.is(await call(new Array(CLEARS_REQUEST_MAX_COUNT + 1).fill(good)), undefined);
  t.true(of('a').known.isEmpty);
  t.is(await call([good, [7, FAR, null]]), undefined);
  t.deepEqual(dropped, ['a: 10']);
});
