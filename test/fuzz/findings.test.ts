/** What the fuzzers have found, each with its cause; mended where it was. */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { parseEndpoint } from '../../src/base/environment/network.js';
import { ArgumentError, ConfigError, ProtocolError } from '../../src/base/errors.js';
import { DISK_MIN_BYTES, MEMBERS_MAX_COUNT, RPC_FRAME_MAX_BYTES } from '../../src/base/limits.js';
import { parseConfiguration, readConfiguration } from '../../src/cli/settings/configuration.js';
import { isStatus, readDrainProgress } from '../../src/cli/status/cluster-query.js';
import { nodeRow, statusResult } from '../../src/cli/status/status-report.js';
import { formatStatus } from '../../src/cli/status/status-text.js';
import { CommandFailure } from '../../src/command/context.js';
import { MeshCacheConfig } from '../../src/config.js';
import { KeyEncoder } from '../../src/core/index.js';
import { keyFields } from '../../src/directory/messages/wire.js';
import { decodeNode } from '../../src/discovery/messages/member-table.js';
import { decodeAnswer, encodeRoster, rosterAfter } from '../../src/discovery/messages/wire.js';
import { DiskStore } from '../../src/disk/disk-store.js';
import { encodeHeader, JournalDamage, RecordWriter, Replay } from '../../src/disk/journal/journal-format.js';
import { readSecretsFile } from '../../src/net/credentials/secured-environment.js';
import { readTlsIdentity } from '../../src/net/credentials/tls-files.js';
import { drainTimeoutMs } from '../../src/node/leaving/drain.js';
import { ClusterReporter } from '../../src/node/reporting/cluster-reporter.js';
import { PageDrops } from '../../src/node/upkeep/page-drops.js';
import type { RpcClient } from '../../src/rpc/client.js';
import { encodeHello } from '../../src/rpc/frame.js';
import { MessageCodec } from '../../src/rpc/message.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { DataLocation, NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { freshCore } from '../_support/core/binaries.js';
import { entryOf, STORE_ID } from '../_support/disk/journals.js';
import { rawConnection, startServer, testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';
import { Handlers } from './handlers.js';
import { CA, CERT, KEY } from './tls-seeds.js';

/** A map of a message, or an object of a file, that `String()` throws for. */
const UNPRINTABLE = { toString: 0 };

function storeFolder(t: ExecutionContext, files: Readonly<Record<string, string | Uint8Array>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-findings-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return folder;
}

async function openStore(t: ExecutionContext, folder: string): Promise<DiskStore> {
  const env = systemEnvironment({ log: silentLogger });
  const store = await DiskStore.open(folder, DISK_MIN_BYTES, { nodeId: 'n', env, mode: 'buffered' });
  t.teardown(() => store.close());
  return store;
}

// The refusal itself failed: its message was made with String(), a TypeError for such a value. A peer's record then was
// a failure of the handler, with a warning in the log each time, and not a refusal.
test('fuzz: a record with a value that cannot be printed is refused like any other', (t) => {
  const node = { node_id: 'n', control_host: 'h', control_port: UNPRINTABLE };
  t.throws(() => NodeInfo.fromDict(node), { instanceOf: ProtocolError });
  const location = { node_id: 'n', rdma_endpoint: 'h:1', remote_addr: UNPRINTABLE, rkey: 1, length: 1 };
  t.throws(() => DataLocation.fromDict(location), { instanceOf: ProtocolError });
  const answer = { status: UNPRINTABLE, master_id: 'm', version: 0, age_ms: 0 };
  t.throws(() => decodeAnswer(new MessageCodec(), answer), { instanceOf: ProtocolError });
});

// As above: such a store was neither opened nor set aside.
test('fuzz: a disk tier whose store.json has such a value is set aside', async (t) => {
  const folder = storeFolder(t, { 'store.json': JSON.stringify({ format: UNPRINTABLE, store_id: STORE_ID }) });
  const store = await openStore(t, folder);
  t.is(store.info().entries, 0);
  t.true(existsSync(join(folder, 'set-aside')));
});

// Words were looked up in an object, which has inherited names too; the flag was a function then. Anything was made
// text first.
test('fuzz: a flag is true or false, whatever objects inherit', (t) => {
  for (const word of ['constructor', '__proto__', UNPRINTABLE, [true]]) {
    const mapping = { discovery_addr: 'h:1', verify_reads: word };
    t.throws(() => MeshCacheConfig.fromExtraConfig(mapping), { instanceOf: ConfigError });
  }
  const mapping = { discovery_addr: 'h:1', device_names: [UNPRINTABLE] };
  t.throws(() => MeshCacheConfig.fromExtraConfig(mapping), { instanceOf: ConfigError });
});

// Between brackets anything was a host; shown again, without brackets where it has no colon, it was not an endpoint any
// more.
test('fuzz: no host has white space in it', (t) => {
  t.is(parseEndpoint('[a b]:1'), undefined);
  t.is(parseEndpoint('[a\r\nb]:1'), undefined);
  t.deepEqual(parseEndpoint('[fe80::1%eth0]:1'), { host: 'fe80::1%eth0', port: 1 });
});

// The message was made with JSON.stringify, a TypeError for bigints and for objects with circles.
test('fuzz: a key that is no text is refused, of whatever kind it is', (t) => {
  const namespace = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
  const encoder = new KeyEncoder(namespace, { core: freshCore() });
  for (const key of [1n, Symbol('key'), UNPRINTABLE, undefined]) {
    t.throws(() => encoder.encode([key as unknown as string]), { instanceOf: ArgumentError });
  }
});

// Keys were decoded with replacements: two became one, and their space was counted by other lengths than their records
// have.
test('fuzz: a record of the disk index whose key is no UTF-8 is none', (t) => {
  const put = Buffer.from('01060000000000000000000010000000000000706167652df5', 'hex');
  t.throws(() => new Replay().apply(put, 0, 1), { instanceOf: JournalDamage });
});

// It was handed to the allocator, which takes none: the ArgumentError came out of the start of the node.
test('fuzz: a page of the disk index that lies where none can be is dropped, and the others are there', async (t) => {
  const records = new RecordWriter(4096);
  records.put(entryOf(0));
  records.put({ key: 'askew', offset: 4097, length: 10, checksum: 0 });
  records.put(entryOf(2));
  const folder = storeFolder(t, {
    'store.json': JSON.stringify({ format: 1, store_id: STORE_ID }),
    index: Buffer.concat([encodeHeader(STORE_ID), ...records.take()]),
    pages: Buffer.alloc(64 * 1024),
  });
  const store = await openStore(t, folder);
  t.deepEqual(store.keys().toSorted(), ['page-0', 'page-2']);
});

// A connection that was dropped with half a frame received was counted once more, as one that its peer had broken off.
test('fuzz: a connection that is dropped within a frame is counted once', async (t) => {
  const env = testEnvironment();
  const { server, endpoint } = await startServer(t, env);
  const raw = await rawConnection(t, endpoint.port);
  const header = Buffer.alloc(9);
  header.writeUInt32LE(RPC_FRAME_MAX_BYTES + 1, 0);
  raw.socket.write(Buffer.concat([encodeHello(), header.subarray(0, 5)]));
  await until(() => raw.received().length === 12);
  raw.socket.write(header.subarray(5));
  await raw.closed;
  await until(() => server.stats().connections === 0);
  t.deepEqual(server.stats().errors, { oversized: 1 });
});

const OTHER = new NodeInfo({ nodeId: 'other', controlHost: 'h', controlPort: 9 });

/** How a member that answers so is shown by another node. */
async function shownState(answer: unknown): Promise<string> {
  const reporter = new ClusterReporter({
    nodeId: 'me',
    vnodes: 1,
    heartbeatInterval: 2,
    memberTtl: 6,
    history: () => undefined,
    members: () => new Map([['other', OTHER]]),
    ownReport: () => Promise.reject(new Error('not asked')),
    rpc: { call: async () => answer } as unknown as RpcClient,
    clock: new ManualClock(),
  });
  const { nodes } = await reporter.report();
  return (nodes[0] as { state: string }).state;
}

// Of a member's report only that JSON can say it was looked at: a list that was none, or a text that String() throws
// for, ended the dashboard's drawing of all nodes, and `meshcache status` for all nodes.
test('fuzz: a report whose fields are of another kind is that of a member that cannot be reached', async (t) => {
  const report = { pool: {}, latency: {}, health: { reasons: [] }, events: [] };
  t.is(await shownState(report), 'up');
  const odd = [
    { ...report, latency: { bounds_s: 'often' } },
    { ...report, latency: { read: { local: { buckets: {} } } } },
    { ...report, metrics_endpoint: UNPRINTABLE },
    { ...report, transport: { reason: UNPRINTABLE } },
    { ...report, events: [{ message: UNPRINTABLE, fields: {} }] },
    { ...report, events: [{ message: 'm', fields: { a: UNPRINTABLE } }] },
  ];
  for (const answer of odd) t.is(await shownState(answer), 'unreachable', JSON.stringify(answer));
  t.false(isStatus({ node_id: 'n', data_endpoint: UNPRINTABLE }));
});

// The field decided whether there was a status, and its value was shown as the reason, whatever it was.
test('fuzz: a status with an error in it is none', (t) => {
  t.true(isStatus({ node_id: 'n' }));
  t.false(isStatus({ node_id: 'n', error: UNPRINTABLE }));
});

// Only the cells of the table were made printable: neither what is wrong with nodes, nor the blocks of a narrow
// terminal.
test('fuzz: what nodes say of themselves does not steer the terminal', (t) => {
  const steering = '\u001b[2Jgone';
  const status = { node_id: 'n', health: { status: 'degraded', reasons: [steering] }, data_endpoint: steering };
  t.true(isStatus(status));
  const row = nodeRow(OTHER, status as never, { ringShare: 1, isHere: true });
  for (const columns of [10, 10_000]) {
    const shown = formatStatus(statusResult([row], { discoveryAddr: 'h:1', timeMs: 0 }), { columns });
    t.true(shown.includes('?[2Jgone'), 'still to be read');
    t.false(shown.includes('\u001b'));
  }
});

// Nodes of other versions may leave out any field, and sums were made of one within another.
test('fuzz: a status whose recent figures lack lookups is shown without them', (t) => {
  const status = { node_id: 'n', recent: {}, lookups: { asked: 4, found: 1 } };
  t.true(isStatus(status));
  const row = nodeRow(OTHER, status as never, { ringShare: 1, isHere: true });
  const result = statusResult([row], { discoveryAddr: 'h:1', timeMs: 0 });
  t.is(result.totals.recent_lookups.asked, 0);
  t.regex(formatStatus(result, { columns: 10_000 }), /25%|25\.0 ?%|25 %/);
});

// Two fields were looked at: the counts were printed whatever they were, and words for a state were looked up in an
// object, which has inherited names too.
test('fuzz: what is no progress of a drained node is not shown as one', (t) => {
  const counts = { wanted_pages: 3, handed_pages: 2, left_pages: 1, disk_queue_bytes: 0 };
  const progress = { node_id: 'n', state: 'leaving', ...counts };
  const endpoint = { host: 'h', port: 9 };
  t.is(readDrainProgress(progress, endpoint).handed_pages, 2);
  const odd = [{ state: 'constructor' }, { handed_pages: UNPRINTABLE }, { left_pages: -1 }, { node_id: '' }];
  for (const field of [...odd, { disk_queue_bytes: null }]) {
    t.throws(() => readDrainProgress({ ...progress, ...field }, endpoint), { instanceOf: CommandFailure });
  }
});

// As with the records above: the order was a failure of the handler, with a warning in the log each time, and not a
// refusal.
test('fuzz: an order to drain within a time that cannot be printed is refused like any other', (t) => {
  for (const time of [UNPRINTABLE, [1], 'soon', -1, Number.NaN]) {
    t.throws(() => drainTimeoutMs(time), { instanceOf: ArgumentError });
  }
});

// Every master keeps a member's record and spreads it to all others: one had room for as many names of protocols as fit
// in a frame, and for a host name of any length.
test('fuzz: a record of a member names each protocol once, and no host of any length', (t) => {
  const node = { node_id: 'n', control_host: 'h', control_port: 1 };
  const info = decodeNode({ ...node, protocols: ['tcp', 'rdma', 'smoke', ...new Array<string>(1000).fill('tcp')] });
  t.deepEqual(info.protocols, ['rdma', 'tcp']);
  t.throws(() => decodeNode({ ...node, metrics_host: 'h'.repeat(256) }), { instanceOf: ProtocolError });
});

// The limit was that of one message: with changes upon changes a master could make the list of its members ever longer.
test('fuzz: changes of the list of members do not make it longer than a list may be', (t) => {
  const membersOf = (from: number, count: number) =>
    new Map(
      Array.from({ length: count }, (_, i) => `n${from + i}`).map((nodeId) => [
        nodeId,
        new NodeInfo({ nodeId, controlHost: 'h', controlPort: 1 }),
      ]),
    );
  const full = { members: membersOf(0, MEMBERS_MAX_COUNT), gone: [] };
  const change = { gone: [], base: 1, removed: [] };
  t.is(rosterAfter(full, { ...change, members: membersOf(0, 1) }, 1)?.members.size, MEMBERS_MAX_COUNT);
  t.is(rosterAfter(full, { ...change, members: membersOf(MEMBERS_MAX_COUNT, 1) }, 1), undefined);
  const codec = new MessageCodec();
  const gone = Array.from({ length: MEMBERS_MAX_COUNT + 1 }, () => ({ nodeId: 'n', incarnation: 1 }));
  const roster = encodeRoster(codec, { members: new Map(), gone }, 'rows');
  const answer = { status: 'ok', master_id: 'm', version: 1, age_ms: 0, roster };
  t.throws(() => decodeAnswer(codec, answer), { instanceOf: ProtocolError });
});

// Keys were put into an object, whose prototype it became: with keys in it that were neither checked nor told of.
test('fuzz: __proto__ in a configuration file is a key that there is not', async (t) => {
  const folder = storeFolder(t, { 'node.json': '{"__proto__": {"discovery_addr": "h:1"}, "vnodes": 8}' });
  const read = await readConfiguration({ config: join(folder, 'node.json') }, {});
  t.is(read.mapping.discovery_addr, undefined);
  t.throws(() => parseConfiguration(read), {
    instanceOf: ConfigError,
    message: /unknown configuration key "__proto__"/,
  });
});

// Random bytes were decoded with replacements: files of other bytes were the same secret, most of whose letters were
// one.
test('fuzz: a file of secrets that is no text is refused', (t) => {
  const folder = storeFolder(t, { text: 'geheim-grün-0123\n', bytes: Buffer.from('8e9fa0b1c2d3e4f5', 'hex') });
  t.deepEqual(readSecretsFile(join(folder, 'text'), systemFiles).reveal(), ['geheim-grün-0123']);
  t.throws(() => readSecretsFile(join(folder, 'bytes'), systemFiles), { instanceOf: ConfigError, message: /no text/ });
  const zeros = storeFolder(t, { zeros: Buffer.alloc(64) });
  t.throws(() => readSecretsFile(join(zeros, 'zeros'), systemFiles), { instanceOf: ConfigError, message: /no text/ });
});

// Its times were compared so that one which is none was neither too early nor too late.
test('fuzz: a certificate whose end is no time is not valid', (t) => {
  const [header, ...lines] = CERT.trim().split('\n');
  const bytes = Buffer.from(lines.slice(0, -1).join(''), 'base64');
  bytes.write('21269928', bytes.indexOf('21261028'), 'latin1');
  const odd = [header, bytes.toString('base64'), lines.at(-1), ''].join('\n');
  const folder = storeFolder(t, { cert: CERT, odd, key: KEY, ca: CA });
  const files = { certFile: join(folder, 'cert'), keyFile: join(folder, 'key'), caFile: join(folder, 'ca') };
  const wallMs = Date.UTC(2030, 0, 1);
  t.notThrows(() => readTlsIdentity(files, { files: systemFiles, wallMs }));
  const expired = { instanceOf: ConfigError, message: /tls_cert_file.*expired/ };
  t.throws(() => readTlsIdentity({ ...files, certFile: join(folder, 'odd') }, { files: systemFiles, wallMs }), expired);
});

// It was looked up as it came: a name that every list has was a reason, and not one that any node knows.
test('fuzz: a reason to drop pages that is no number is refused', async (t) => {
  const handlers = new Handlers();
  const options = {
    nodeId: 'me',
    rpc: {} as RpcClient,
    endpointOf: () => undefined,
    joinMs: 0,
    env: testEnvironment(),
  };
  const told: string[] = [];
  const drop = async (_keys: readonly string[], _voidBelow: readonly number[], reason: string) => told.push(reason);
  new PageDrops(options).handle(handlers.asServer(), drop, () => {});
  const fields = { ...keyFields(['k']), void_below: new Uint8Array(8) };
  for (const reason of ['toString', 'length', -1, 3, 0.5, null, undefined]) {
    t.is(await handlers.call('pages.drop', { ...fields, reason }), undefined, String(reason));
  }
  t.deepEqual(told, []);
  t.not(await handlers.call('pages.drop', { ...fields, reason: 1 }), undefined);
  t.deepEqual(told, ['deleted']);
});
