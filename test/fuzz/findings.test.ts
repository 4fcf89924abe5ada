/** What the fuzzers have found, each with its cause; mended where it was. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { systemEnvironment } from '../../src/base/environment.js';
import { ArgumentError, ConfigError, ProtocolError } from '../../src/base/errors.js';
import { DISK_MIN_BYTES, RPC_FRAME_MAX_BYTES } from '../../src/base/limits.js';
import { silentLogger } from '../../src/base/log.js';
import { parseEndpoint } from '../../src/base/network.js';
import { MeshCacheConfig } from '../../src/config.js';
import { KeyEncoder } from '../../src/core/index.js';
import { decodeAnswer } from '../../src/discovery/wire.js';
import { DiskStore } from '../../src/disk/disk-store.js';
import { encodeHeader, JournalDamage, RecordWriter, Replay } from '../../src/disk/journal-format.js';
import { encodeHello } from '../../src/rpc/frame.js';
import { MessageCodec } from '../../src/rpc/message.js';
import { DataLocation, NodeInfo } from '../../src/types.js';
import { freshCore } from '../core/binaries.js';
import { entryOf, STORE_ID } from '../disk/journal-support.js';
import { rawConnection, startServer, testEnvironment } from '../rpc/support.js';
import { until } from '../support.js';

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

// The refusal itself failed: its message was made with String(), a TypeError for such a value. A peer's record then was a
// failure of the handler, with a warning in the log each time, and not a refusal.
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

// Words were looked up in an object, which has inherited names too; the flag was a function then. Anything was made text first.
test('fuzz: a flag is true or false, whatever objects inherit', (t) => {
  for (const word of ['constructor', '__proto__', UNPRINTABLE, [true]]) {
    const mapping = { discovery_addr: 'h:1', verify_reads: word };
    t.throws(() => MeshCacheConfig.fromExtraConfig(mapping), { instanceOf: ConfigError });
  }
  const mapping = { discovery_addr: 'h:1', device_names: [UNPRINTABLE] };
  t.throws(() => MeshCacheConfig.fromExtraConfig(mapping), { instanceOf: ConfigError });
});

// Between brackets anything was a host; shown again, without brackets where it has no colon, it was not an endpoint any more.
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

// Keys were decoded with replacements: two became one, and their space was counted by other lengths than their records have.
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
