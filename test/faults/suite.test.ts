import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { freePort, listenAlone, until } from '../_support/support.js';
import { CallWatch, DEADLINE_MS } from './call-watch.js';
import {
  disagreements,
  ORDER_BOUND_MS,
  type OrderEvent,
  OrderJudge,
  OrderLog,
  type OrderOptions,
  orderEvents,
  sharedMs,
} from './order.js';
import {
  hasFixedLength,
  keyText,
  lengthOf,
  NAMED,
  PAGE_MAX_BYTES,
  PageHistory,
  parseKey,
  SHARED,
  versionOf,
} from './pages.js';
import { TcpProxy } from './proxy.js';
import { FAULT_KINDS, KINDS, scheduleOf } from './schedule.js';
import { SoakSamples } from './soak.js';
import { SOURCE_TROUBLES } from './source.js';

const OPTIONS = { seconds: 600, nodes: 5, kinds: FAULT_KINDS, gapMs: 500 };

function histories(t: ExecutionContext): [PageHistory, PageHistory] {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-history-'));
  const both = [1, 2].map((writer) => new PageHistory(folder, { seed: 5, writer })) as [PageHistory, PageHistory];
  t.teardown(() => {
    for (const history of both) history.close();
    rmSync(folder, { recursive: true });
  });
  return both;
}

test('faults: a seed gives the same schedule again, another seed another one', (t) => {
  for (const seed of [0, 1, 2 ** 32 - 1]) t.deepEqual(scheduleOf(seed, OPTIONS), scheduleOf(seed, OPTIONS));
  t.notDeepEqual(scheduleOf(1, OPTIONS), scheduleOf(2, OPTIONS));
});

test('faults: a schedule has every kind, within its time, and one process fault a node at a time', (t) => {
  const { faults, proxied, disks } = scheduleOf(3, OPTIONS);
  t.deepEqual([...new Set(faults.map(({ kind }) => kind))].sort(), [...FAULT_KINDS].sort());
  const downUntil = new Map<number, number>();
  for (const { kind, atMs, durationMs, nodes, peers } of faults) {
    t.true(atMs + durationMs <= OPTIONS.seconds * 1000);
    t.true(nodes.length > 0 && peers.every((peer) => !nodes.includes(peer)));
    if (kind === 'drip') t.true(proxied.includes(nodes[0] as number));
    if (kind === 'diskfull') t.true(disks.includes(nodes[0] as number));
    if (KINDS[kind].group !== 'process') continue;
    for (const node of nodes) {
      t.true(atMs > (downUntil.get(node) ?? -1));
      downUntil.set(node, atMs + durationMs);
    }
  }
  const mortal = scheduleOf(3, { ...OPTIONS, mortal: [4] }).faults.filter(({ kind }) => kind === 'kill');
  t.true(mortal.length > 0 && mortal.every(({ nodes }) => nodes.join() === '4'));
});

test('faults: only the very bytes of a version that was begun are right', (t) => {
  const [own, other] = histories(t);
  const page = new Uint8Array(PAGE_MAX_BYTES);
  for (let index = 0; index < 16; index++) {
    const key = { writer: 1, index };
    t.deepEqual(parseKey(keyText(key)), key);
    const unset = page.subarray(0, own.fill(page, key, 1_000)).slice();
    t.regex(other.problemOf(key, unset) ?? '', /never set/);
    const version = own.begin(key);
    const right = page.subarray(0, own.fill(page, key, version)).slice();
    t.is(right.length, lengthOf(key, version));
    t.is(hasFixedLength(key), lengthOf(key, 0) === lengthOf(key, 1));
    t.is(other.problemOf(key, right), undefined);
    for (const at of [0, 5, 23, 24, Math.floor(right.length / 2), right.length - 1]) {
      const wrong = right.slice();
      (wrong as { [at: number]: number })[at] = (wrong[at] as number) ^ 0x80;
      t.not(other.problemOf(key, wrong), undefined, `byte ${at} of ${right.length}`);
    }
    t.not(other.problemOf({ ...key, index: index + 1 }, right), undefined);
    t.not(other.problemOf(key, right.subarray(0, -1)), undefined);
  }
});

test('faults: versions go on after a restart, those of before stay right', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-history-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const key = { writer: 1, index: 3 };
  const before = new PageHistory(folder, { seed: 5, writer: 1 });
  const [first, second] = [before.begin(key), before.begin(key)];
  const page = new Uint8Array(PAGE_MAX_BYTES);
  const bytes = page.subarray(0, before.fill(page, key, second)).slice();
  before.close();
  const after = new PageHistory(folder, { seed: 5, writer: 1 });
  t.is(after.begin(key), second + 1);
  t.is(first, 0);
  t.is(after.problemOf(key, bytes), undefined);
  after.close();
});

test('faults: shared pages are the same from every writer', (t) => {
  const [own, other] = histories(t);
  const key = { writer: SHARED, index: 2 };
  const pages = [own, other].map((history) => {
    const page = new Uint8Array(PAGE_MAX_BYTES);
    return page.slice(0, history.fill(page, key, history.begin(key)));
  });
  t.deepEqual(pages[0], pages[1]);
  t.is(other.problemOf(key, pages[0] as Uint8Array), undefined);
});

test('faults: named pages of two writers have versions of their own, and only those that were begun are right', (t) => {
  const both = histories(t);
  const key = { writer: NAMED, index: 5 };
  t.deepEqual(parseKey(keyText(key)), key);
  const page = new Uint8Array(PAGE_MAX_BYTES);
  const versions = both.map((history) => history.begin(key));
  t.is(new Set(versions).size, 2);
  for (const history of both) {
    for (const version of versions) {
      const bytes = page.slice(0, history.fill(page, key, version));
      t.is(history.problemOf(key, bytes), undefined);
      t.is(versionOf(bytes), version);
      t.regex(history.problemOf({ ...key, index: 6 }, bytes) ?? '', /never set/);
      t.regex(history.problemOf({ writer: 1, index: 5 }, bytes) ?? '', /never set/);
    }
    const unset = page.slice(0, history.fill(page, key, Math.max(...versions) + 16));
    t.regex(history.problemOf(key, unset) ?? '', /never set/);
  }
});

/** Of one key; nodes are processes, and versions are times. */
function event(kind: OrderEvent['kind'], node: number, times: [number, number], content = -1): OrderEvent {
  const [beginMs, endMs] = times;
  const versions = { lowVersion: beginMs * 2048, highVersion: endMs * 2048 };
  return {
    kind,
    node,
    process: node,
    key: kind === 'clear' ? -1 : 7,
    content,
    beginMs,
    endMs,
    isTrue: true,
    ...versions,
  };
}

/** Which of `reads` were too old; a read is of a node, at a time, of a content. */
function tooOld(
  events: readonly OrderEvent[],
  reads: readonly (readonly [node: number, atMs: number, content: number])[],
  options?: OrderOptions,
): number[] {
  const judge = new OrderJudge(events, options);
  return reads.flatMap(([node, atMs, content], i) => {
    return judge.problemOf(event('read', node, [atMs, atMs + 1], content)) === undefined ? [] : [i];
  });
}

test('order: a node reads nothing older than what it has set, from the moment on that its set was true', (t) => {
  const events = [event('set', 1, [100, 110], 0), event('set', 2, [200, 210], 1)];
  const reads = [
    [2, 205, 0],
    [2, 211, 0],
    [2, 211, 1],
    [1, 211, 0],
    [3, 211, 0],
  ] as const;
  t.deepEqual(tooOld(events, reads), [1]);
  t.deepEqual(tooOld([events[0] as OrderEvent, { ...(events[1] as OrderEvent), isTrue: false }], reads), []);
  // Those at the same time may come in any order.
  t.deepEqual(tooOld([event('set', 1, [100, 205], 0), events[1] as OrderEvent], reads), []);
  // What was cut off has not ended.
  t.deepEqual(tooOld([events[1] as OrderEvent], reads), []);
});

test('order: other nodes may read what is older until the bound has passed without faults', (t) => {
  const events = [event('set', 1, [100, 110], 0), event('set', 2, [200, 210], 1)];
  const dueMs = 210 + ORDER_BOUND_MS;
  const reads = [dueMs - 1, dueMs + 1, dueMs + 3_000].map((atMs) => [3, atMs, 0] as const);
  t.deepEqual(tooOld(events, reads), [1, 2]);
  t.deepEqual(tooOld(events, reads, { faults: [[0, 2_000]] }), [2]);
  t.deepEqual(tooOld(events, reads, { faults: [[0, Number.POSITIVE_INFINITY]] }), []);
  t.deepEqual(tooOld(events, reads, { faults: [[dueMs + 2_000, dueMs + 2_500]] }), [1]);
});

test('order: without copies, what its only holder has overwritten, deleted or cleared is gone at once', (t) => {
  const set = event('set', 1, [100, 110], 0);
  const read = [[3, 211, 0]] as const;
  for (const end of [event('set', 1, [200, 210], 1), event('delete', 1, [200, 210]), event('clear', 1, [200, 210])]) {
    t.deepEqual(tooOld([set, end], read, { hasNoCopies: true }), [0], end.kind);
    t.deepEqual(tooOld([set, end], read), [], end.kind);
    t.deepEqual(tooOld([set, end], [[3, 211 + ORDER_BOUND_MS, 0]]), [0], end.kind);
  }
  t.deepEqual(tooOld([set, event('set', 2, [200, 210], 1)], read, { hasNoCopies: true }), []);
  t.deepEqual(tooOld([set, event('clear', 2, [200, 210])], [[3, 1e6, 0]], { hasNoCopies: true }), []);
});

test('order: with wall clocks that are wrong, versions decide and not the time', (t) => {
  const later = { ...event('set', 2, [200, 210], 1), lowVersion: 1, highVersion: 2 };
  const events = [event('set', 1, [100, 110], 0), later];
  t.deepEqual(tooOld(events, [[2, 211, 0]]), [0]);
  t.deepEqual(tooOld(events, [[2, 211, 0]], { hasClockFaults: true }), []);
  t.deepEqual(tooOld(events, [[1, 211, 1]], { hasClockFaults: true }), [0]);
});

test('order: what processes have noted is there, also of one that has not closed its log', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-order-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const log = new OrderLog(folder, 3);
  const { node: _node, process: _process, ...set } = event('set', 3, [1.25, 2.5], 11);
  const read = { ...set, kind: 'read' as const, lowVersion: 0, highVersion: 0 };
  log.note(read);
  log.note(set);
  const noted = [read, set].map((each) => ({ ...each, node: 3, process: process.pid }));
  t.deepEqual([...orderEvents(folder)], noted);
  for (let i = 0; i < 10_000; i++) log.note(read);
  log.close();
  t.is([...orderEvents(folder)].length, 10_002);
  t.true(sharedMs() > 0);
});

test('order: nodes that read different contents in the end disagree', (t) => {
  const reads = [event('read', 1, [5, 6], 0), event('read', 1, [15, 16], 1), event('read', 2, [15, 16], 2)];
  t.deepEqual([...(disagreements(reads, 10).get(7) ?? [])], [1, 2]);
  t.is(disagreements(reads.slice(0, 2), 10).size, 0);
});

test('faults: a call that does not end is told of once, one that ends in time never', async (t) => {
  const late: string[] = [];
  const watch = new CallWatch({ late: (detail) => late.push(detail), stall: () => {} });
  t.is(await watch.run('get', async () => 7), 7);
  const deadlines = DEADLINE_MS as Record<string, number>;
  const before = deadlines.set as number;
  deadlines.set = -900;
  const never = watch.run('set', () => new Promise((resolve) => setTimeout(resolve, 1_000)));
  await until(() => late.length > 0);
  await never;
  watch.stop();
  deadlines.set = before;
  t.is(late.length, 1);
  t.regex(late[0] as string, /^set: /);
});

/** A server that sends back what it gets, a proxy before it and a connection through that. */
async function throughProxy(t: ExecutionContext) {
  const server = net.createServer((socket) => socket.on('error', () => {}).pipe(socket));
  const behind = await listenAlone(server);
  const proxy = new TcpProxy({ host: '127.0.0.1', port: behind });
  const port = await proxy.listen(await freePort(), '127.0.0.1');
  const connect = () => {
    const socket = net.connect(port, '127.0.0.1');
    const seen = { bytes: Buffer.alloc(0), isClosed: false };
    socket.on('data', (bytes: Buffer) => {
      seen.bytes = Buffer.concat([seen.bytes, bytes]);
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      seen.isClosed = true;
    });
    return { socket, seen };
  };
  t.teardown(async () => {
    await proxy.close();
    server.close();
  });
  return { proxy, connect };
}

test('proxy: bytes pass whole and in order, and the end of a connection, too', async (t) => {
  const { connect } = await throughProxy(t);
  const { socket, seen } = connect();
  const sent = Buffer.alloc(3_000_000, 'some bytes that do not repeat in a power of two');
  socket.end(sent);
  await until(() => seen.isClosed);
  t.true(seen.bytes.equals(sent));
});

test('proxy: delayed bytes are late by the delay there and back', async (t) => {
  const { proxy, connect } = await throughProxy(t);
  const { socket, seen } = connect();
  proxy.setMode({ kind: 'delay', delayMs: 150 });
  const startMs = performance.now();
  socket.write('x');
  await until(() => seen.bytes.length > 0);
  t.true(performance.now() - startMs >= 290);
  socket.destroy();
});

test('proxy: dripping bytes come at the rate', async (t) => {
  const { proxy, connect } = await throughProxy(t);
  proxy.setMode({ kind: 'drip', bytesPerS: 10_000 });
  const { socket, seen } = connect();
  const startMs = performance.now();
  socket.write(Buffer.alloc(6_000));
  await until(() => seen.bytes.length === 6_000);
  const tookMs = performance.now() - startMs;
  t.true(tookMs >= 450, `${tookMs} ms`);
  socket.destroy();
});

test('proxy: a half-open connection carries nothing and is not closed; what it held back comes when it is healed', async (t) => {
  const { proxy, connect } = await throughProxy(t);
  const { socket, seen } = connect();
  socket.write('before');
  await until(() => seen.bytes.length === 6);
  proxy.setMode({ kind: 'halfopen' });
  const later = connect();
  await new Promise((resolve) => later.socket.once('connect', resolve));
  socket.write('after');
  later.socket.write('new');
  await new Promise((resolve) => setTimeout(resolve, 100));
  t.is(seen.bytes.toString(), 'before');
  t.false(seen.isClosed || later.seen.isClosed || later.seen.bytes.length > 0);
  proxy.setMode({ kind: 'pass' });
  await until(() => seen.bytes.length === 11 && later.seen.bytes.length === 3);
  socket.destroy();
  later.socket.destroy();
});

test('proxy: a reset cuts what there is, and new connections in the middle of what they carry', async (t) => {
  const { proxy, connect } = await throughProxy(t);
  const first = connect();
  first.socket.write('x');
  await until(() => first.seen.bytes.length === 1);
  proxy.setMode({ kind: 'reset', afterBytes: 10 });
  await until(() => first.seen.isClosed);
  const second = connect();
  second.socket.write(Buffer.alloc(100));
  await until(() => second.seen.isClosed);
  t.true(second.seen.bytes.length <= 10);
});

test('soak: what grows is found, what goes up and down is not', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-soak-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const samples = new SoakSamples(folder);
  const steady = { rssBytes: 1e8, heapBytes: 2e7, descriptors: 30, timers: 12, connections: 20, directoryKeys: 500 };
  for (let i = 0; i < 40; i++) {
    const wave = i % 5;
    const nodes = [
      { ...steady, rssBytes: 1e8 + 1e6 * wave, timers: 12 + wave },
      { ...steady, descriptors: 30 + i },
    ].map((sample, n) => ({ node: n + 1, pid: n + 1, isStopped: false, ask: async () => sample }));
    const cluster = { running: () => nodes } as unknown as Parameters<SoakSamples['take']>[0];
    await samples.take(cluster, i * 10_000);
  }
  t.is(samples.growths().length, 2);
  t.deepEqual(
    samples.violations().map(({ kind, node }) => ({ kind, node })),
    [{ kind: 'growth', node: 2 }],
  );
  t.regex(samples.violations()[0]?.detail ?? '', /^descriptors: /);
});

test('faults: the program refuses options that it does not understand', (t) => {
  const program = fileURLToPath(new URL('./faults-run.js', import.meta.url));
  for (const [args, message] of [
    [['--faults', 'flood'], /there is no flood/],
    [['--seed', '-1'], /--seed/],
    [['--nodes', '2'], /--nodes/],
    [['--source', 'zookeeper'], /--source: list, dns or etcd/],
  ] as const) {
    const { status, stderr, stdout } = spawnSync(process.execPath, [program, ...args], { encoding: 'utf8' });
    if (stdout.includes('SKIPPED')) return t.pass();
    t.not(status, 0);
    t.regex(stderr, message);
  }
});

test('faults: a source of addresses has troubles one after the other, and changes nothing else of a seed', (t) => {
  const plain = scheduleOf(3, OPTIONS);
  const { source, sourceFaults = [], ...others } = scheduleOf(3, { ...OPTIONS, source: 'etcd' });
  t.is(source, 'etcd');
  t.deepEqual(others, plain);
  t.deepEqual([...new Set(sourceFaults.map(({ trouble }) => trouble))].sort(), [...SOURCE_TROUBLES].sort());
  let freeMs = 0;
  for (const { atMs, durationMs } of sourceFaults) {
    t.true(atMs > freeMs);
    freeMs = atMs + durationMs;
    t.true(freeMs <= OPTIONS.seconds * 1000);
  }
});
