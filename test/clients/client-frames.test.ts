import { readFileSync } from 'node:fs';
import test from 'ava';
import { askedRequest, encodeRequestHead } from '../../src/clients/wire/asked-instant.js';
import {
  decodeEndPins,
  decodePin,
  decodePrefetch,
  decodeTell,
  encodeEndPins,
  encodePin,
  encodePrefetch,
  encodeTell,
} from '../../src/clients/wire/care-messages.js';
import { decodeEvents, decodeEventsAnswer, encodeEvents, encodeEventsAnswer } from '../../src/clients/wire/events.js';
import {
  decodeFingerprint,
  decodeFingerprintNotice,
  encodeFingerprint,
  encodeFingerprintNotice,
} from '../../src/clients/wire/fingerprint-messages.js';
import { decodeLookups, encodeLookups } from '../../src/clients/wire/lookup-messages.js';
import {
  type BytesResult,
  decodeBytesAnswer,
  decodeDescriptorRequest,
  decodeExists,
  decodeFile,
  decodeHeader,
  decodeHello,
  decodeHelloAnswer,
  decodeKeyRequest,
  decodeNumber,
  decodePools,
  decodeRegionRequest,
  decodeSetBytes,
  encodeBytesAnswer,
  encodeDescriptorAnswer,
  encodeDescriptorRequest,
  encodeExists,
  encodeFile,
  encodeHeader,
  encodeHello,
  encodeHelloAnswer,
  encodeKeyRequest,
  encodePools,
  encodeRegionRequest,
  encodeSetBytes,
  FRAME_HEADER_BYTES,
  LENGTH_MISS,
  LENGTH_NO_ROOM,
  RequestType,
  type Status,
} from '../../src/clients/wire/messages.js';
import {
  decodeGetStaged,
  decodeStagedAnswer,
  encodeGetStaged,
  encodeStagedAnswer,
} from '../../src/clients/wire/page-messages.js';
import type { Tier } from '../../src/types.js';
import { ended, whole } from '../_support/clients/received.js';
import { numberBody } from '../_support/clients/test-client.js';

interface Entry {
  readonly name: string;
  readonly kind: 'request' | 'answer' | 'record' | 'record-answer';
  readonly type: string;
  readonly requestId: number;
  readonly status?: number;
  readonly deadlineMs?: number;
  readonly askedUs?: number;
  // biome-ignore lint/suspicious/noExplicitAny: each entry has fields of its own.
  readonly fields: any;
  readonly hex: string;
}

const entries: Entry[] = JSON.parse(readFileSync('test/data/client-frames.json', 'utf8'));
const TYPES: Readonly<Record<string, number>> = {
  HELLO: RequestType.hello,
  FILE: RequestType.file,
  UNREGION: RequestType.unregion,
  EXISTS: RequestType.exists,
  GET: RequestType.get,
  SET: RequestType.set,
  GET_BYTES: RequestType.getBytes,
  SET_BYTES: RequestType.setBytes,
  FENCE: RequestType.fence,
  CANCEL: RequestType.cancel,
  DELETE: RequestType.delete,
  CLEAR: RequestType.clear,
  STATS: RequestType.stats,
  PING: RequestType.ping,
  STAT: RequestType.stat,
  PIN: RequestType.pin,
  UNPIN: RequestType.unpin,
  EVENTS: RequestType.events,
  FINGERPRINT: RequestType.fingerprint,
  LOOKUPS: RequestType.lookups,
  GET_STAGED: RequestType.getStaged,
  TELL: RequestType.tell,
  PREFETCH: RequestType.prefetch,
  END_PINS: RequestType.endPins,
};
const NOTHING = Buffer.alloc(0);
const LIMITS = { maxKeys: 100, maxPieces: 100 };
const hex = (text: string): Buffer => Buffer.from(text, 'hex');
const flags = (all: readonly boolean[]): Buffer => Buffer.from(all.map(Number));

/** What the body is, as the fields say, and what is decoded of it; the latter is compared with `expected`. */
interface Case {
  readonly encoded: Buffer;
  readonly decoded: unknown;
  readonly expected: unknown;
}

function helloCase(body: Buffer, f: Entry['fields']): Case {
  const ns = f.namespace;
  const texts = ns && { modelName: ns.model, dtype: ns.dtype, layout: ns.layout, tag: ns.tag };
  const given = texts && Object.fromEntries(Object.entries(texts).filter(([, text]) => text !== null));
  const ranks = ns && { tpRank: ns.tpRank, tpSize: ns.tpSize, ppRank: ns.ppRank, ppSize: ns.ppSize };
  const printed = ns?.fingerprint === undefined ? {} : { fingerprint: ns.fingerprint };
  const namespace = ns ? { ...given, ...ranks, isMlaModel: ns.isMla, ...printed } : undefined;
  const { oldestVersion: minVersion, newestVersion: maxVersion, clientName: name, processId: pid, isTold } = f;
  const { comparesClocks = false } = f;
  const expected = { minVersion, maxVersion, name, pid, namespace, isTold, comparesClocks };
  return { encoded: encodeHello(expected), decoded: decodeHello(body), expected };
}

function regionCase(body: Buffer, f: Entry['fields']): Case {
  const rows = f.pages.flat();
  const pieces = {
    pieceCount: f.pages[0].length,
    offsets: rows.map((row: { offset: number }) => row.offset),
    lengths: rows.map((row: { length: number }) => row.length),
    regionIds: rows.map((row: { regionId: number }) => row.regionId),
  };
  const expected = { pool: f.pool, isNamed: f.named ?? false, ...told(f), keys: f.keys, pieces };
  return { encoded: encodeRegionRequest(expected), decoded: decodeRegionRequest(body, LIMITS), expected };
}

function told({ hint = 0, continues = false, expiresInMs, priority }: Entry['fields']) {
  const expires = expiresInMs === undefined ? {} : { expiresInMs };
  return { hint, continues, ...expires, ...(priority === undefined ? {} : { priority }) };
}

function keyCase(body: Buffer, f: Entry['fields'], hasFlags: boolean): Case {
  const { pool, keys } = f;
  const expected = { pool, keys, ...told(f) };
  return {
    encoded: encodeKeyRequest(pool, keys, { hasFlags, ...told(f) }),
    decoded: decodeKeyRequest(body, 100, { hasFlags }),
    expected,
  };
}

function requestCase(type: string, body: Buffer, f: Entry['fields']): Case {
  switch (type) {
    case 'HELLO':
      return helloCase(body, f);
    case 'FILE': {
      const expected = {
        regionId: f.regionId,
        isWritable: f.writable,
        length: f.length,
        pid: f.processId,
        fd: f.descriptor,
      };
      return { encoded: encodeFile(expected), decoded: decodeFile(body), expected };
    }
    case 'EXISTS': {
      const isUncounted = f.uncounted ?? false;
      const expected = { pool: f.pool, wantsFlags: f.perKey, isUncounted, suffixes: f.suffixes, keys: f.keys };
      return { encoded: encodeExists(expected), decoded: decodeExists(body, 100), expected };
    }
    case 'GET':
    case 'SET':
      return regionCase(body, f);
    case 'GET_BYTES':
      return keyCase(body, f, true);
    case 'GET_STAGED': {
      const { pool, hint, continues, offset, room: roomBytes, keys } = f;
      const expected = { pool, hint, continues, offset, roomBytes, keys };
      return { encoded: encodeGetStaged(expected), decoded: decodeGetStaged(body, 100), expected };
    }
    case 'DELETE':
    case 'STAT':
    case 'UNPIN':
      return keyCase(body, f, false);
    case 'SET_BYTES': {
      const expected = { pool: f.pool, isNamed: f.named, ...told(f), keys: f.keys, pages: f.pages.map(hex) };
      return { encoded: encodeSetBytes(expected), decoded: decodeSetBytes(body, 100), expected };
    }
    case 'PIN': {
      const { pool, name, keys } = f;
      const expected = name === undefined ? { pool, forMs: f.forMs, keys } : { pool, forMs: Infinity, name, keys };
      return { encoded: encodePin(expected), decoded: decodePin(body, 100), expected };
    }
    case 'TELL':
      return { encoded: encodeTell(f), decoded: decodeTell(body, 100), expected: { waitingMs: undefined, ...f } };
    case 'PREFETCH':
      return { encoded: encodePrefetch(f), decoded: decodePrefetch(body, 100), expected: f };
    case 'END_PINS':
      return { encoded: encodeEndPins(f.name), decoded: { name: decodeEndPins(body) }, expected: f };
    case 'FINGERPRINT':
      return { encoded: encodeFingerprint(f), decoded: decodeFingerprint(body), expected: f };
    case 'EVENTS':
      return { encoded: encodeEvents(f), decoded: decodeEvents(body), expected: f };
    case 'LOOKUPS':
      return { encoded: encodeLookups(f), decoded: decodeLookups(body), expected: f };
    case 'CLEAR':
      return { encoded: encodePools(f.pools), decoded: decodePools(body), expected: f.pools };
    case 'UNREGION':
    case 'FENCE':
    case 'CANCEL': {
      const expected = f.of ?? f.regionId;
      return { encoded: numberBody(expected), decoded: decodeNumber(body), expected };
    }
    default:
      return { encoded: NOTHING, decoded: {}, expected: f };
  }
}

function answerCase(type: string, body: Buffer, f: Entry['fields']): Case {
  if (f.message !== undefined)
    return { encoded: Buffer.from(f.message), decoded: body.toString(), expected: f.message };
  if (f.json !== undefined) {
    return { encoded: Buffer.from(JSON.stringify(f.json)), decoded: JSON.parse(body.toString()), expected: f.json };
  }
  if (f.results !== undefined)
    return { encoded: flags(f.results), decoded: [...body].map(Boolean), expected: f.results };
  if (type === 'HELLO') {
    const expected = {
      version: f.version,
      capabilities: f.capabilities,
      bootToken: hex(f.bootToken),
      attachToken: hex(f.attachToken),
      pid: f.processId,
      requestMaxKeys: f.maxKeys,
      bodyMaxBytes: f.maxBodyBytes,
      inFlightMaxCount: f.maxInFlight,
      pageMaxBytes: f.maxPageBytes,
      stagingMaxBytes: f.maxStagingBytes,
      nodeId: f.nodeId,
      packageVersion: f.packageVersion,
      instantUs: f.instantUs,
    };
    return { encoded: encodeHelloAnswer(expected), decoded: decodeHelloAnswer(body), expected };
  }
  if (f.clients !== undefined) {
    return { encoded: numberBody(f.clients), decoded: body.readUInt32LE(), expected: f.clients };
  }
  if (f.fingerprint !== undefined) {
    const decoded = decodeFingerprintNotice(body);
    return { encoded: encodeFingerprintNotice(f.fingerprint), decoded, expected: f.fingerprint };
  }
  if (type === 'EXISTS') {
    const encoded = Buffer.concat([numberBody(f.prefix), flags(f.flags ?? [])]);
    const decoded = [body.readUInt32LE(), [...body.subarray(4)].map(Boolean)];
    return { encoded, decoded, expected: [f.prefix, f.flags ?? []] };
  }
  if (type === 'GET_BYTES') {
    const expected = f.pages.map(
      (page: string): BytesResult => (page === 'miss' ? LENGTH_MISS : page === 'again' ? LENGTH_NO_ROOM : hex(page)),
    );
    return {
      encoded: Buffer.concat(ended(encodeBytesAnswer(expected))),
      decoded: decodeBytesAnswer(body, f.request.keys),
      expected,
    };
  }
  if (type === 'GET_STAGED') {
    const expected = f.pages.map((page: 'miss' | readonly [number | 'again', number]) => {
      if (page === 'miss') return null;
      const [offset, length] = page;
      return { offset: offset === 'again' ? undefined : offset, length };
    });
    return { encoded: encodeStagedAnswer(expected), decoded: decodeStagedAnswer(body, f.request.keys), expected };
  }
  if (type === 'EVENTS') {
    const { kind, position, atMs, groups } = f;
    const changes = groups.flatMap(({ pool, tier, keys }: { pool: number; tier: Tier | null; keys: string[] }) =>
      keys.map((key) => ({ pool, key, tier })),
    );
    const expected = { kind, position, atMs, changes };
    return { encoded: encodeEventsAnswer(expected), decoded: decodeEventsAnswer(body, f.request.pools), expected };
  }
  if (type === 'END_PINS')
    return { encoded: numberBody(f.pages), decoded: { pages: body.readUInt32LE() }, expected: f };
  if (type === 'PING') return { encoded: hex(f.bootToken), decoded: body.toString('hex'), expected: f.bootToken };
  return { encoded: NOTHING, decoded: {}, expected: f };
}

for (const { name, kind, type, requestId, status = 0, deadlineMs = 0, askedUs, fields, hex: text } of entries) {
  const bytes = hex(text);
  if (kind === 'record') {
    test(`client frames: record: ${name}`, (t) => {
      const { attachToken, regionId = 0, writable: isWritable = false, length } = fields;
      const record = {
        kind: type === 'REGION' ? ('region' as const) : ('staging' as const),
        attachToken: hex(attachToken),
        regionId,
        isWritable,
        length,
      };
      t.is(encodeDescriptorRequest(record).toString('hex'), text);
      t.deepEqual(decodeDescriptorRequest(bytes), record);
    });
    continue;
  }
  if (kind === 'record-answer') {
    test(`client frames: answer to a record: ${name}`, (t) => {
      t.is(encodeDescriptorAnswer(status as Status, fields.length).toString('hex'), text);
    });
    continue;
  }
  test(`client frames: ${kind}: ${name}`, (t) => {
    const header = decodeHeader(bytes);
    const received = bytes.subarray(FRAME_HEADER_BYTES);
    const { body, askedMs } = kind === 'request' ? askedRequest(header, received) : { body: received };
    t.is(askedMs, askedUs === undefined ? undefined : askedUs / 1000);
    // An answer to a header that cannot be right has neither the type nor the id of a request.
    if (requestId !== 0) t.is(header.type as number | undefined, TYPES[type]);
    t.like(header, { bodyBytes: received.length, requestId, status, deadlineMs });
    const sent = { ...header, bodyBytes: body.length };
    const head = kind === 'request' ? encodeRequestHead(sent, askedMs) : encodeHeader(header);
    t.is(head.toString('hex'), bytes.toString('hex', 0, head.length));
    const { encoded, decoded, expected } = (kind === 'request' ? requestCase : answerCase)(type, body, fields);
    t.is(encoded.toString('hex'), body.toString('hex'));
    t.deepEqual(whole(decoded), expected);
  });
}

test('client frames: every type of request has frames', (t) => {
  for (const type of Object.keys(TYPES))
    t.true(
      entries.some((entry) => entry.type === type && entry.kind === 'request'),
      type,
    );
});
