import net from 'node:net';
import test, { type ExecutionContext } from 'ava';
import type { Environment } from '../../src/base/environment/environment.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { Mr } from '../../src/transport/contract/transport.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { content, freePort, listenAlone, until } from '../_support/support.js';
import { requestFrame } from '../_support/transport/raw-peer.js';
import { authContract, RecordingEnvironment } from '../contract/auth-contract.js';

const BYTES = 1000;
const SECRET = 'the secret of the cluster 7f3a';
const region = HostRegion.allocate(BYTES);
region.bytes().fill(7);
test.after.always(() => region.free());
/** Of the server of each port. */
const registrations = new Map<number, Mr>();

/** Reads the region of the server at a port with a reader of its own. */
async function readFrom(t: ExecutionContext, port: number, env: Environment) {
  const reader = await TcpTransport.create({ host: '127.0.0.1', port: await freePort(), env });
  t.teardown(() => reader.close());
  const target = HostRegion.allocate(BYTES);
  t.teardown(() => target.free());
  const rkey = registrations.get(port)?.rkey ?? 1;
  const op = { remoteAddr: region.addr, rkey, localAddr: target.addr, length: BYTES };
  const [isRead = false] = await reader.batchRead([{ ...op, remoteEndpoint: `127.0.0.1:${port}` }]);
  return { reader, target, isRead };
}

authContract(test, {
  plane: 'data',
  hello: (flags) => Buffer.concat([Buffer.from('MCTP'), Buffer.from([1, 0, flags, 0]), Buffer.alloc(24)]),
  // Of an rkey that nobody has: it is answered, as not granted.
  request: () => requestFrame(1, [{ rkey: 1, addr: region.addr, length: BYTES }]),
  async serve(t, { env }) {
    const transport = await TcpTransport.create({ host: '127.0.0.1', port: await freePort(), env });
    t.teardown(() => transport.close());
    const { port } = transport.localEndpoints().tcp;
    registrations.set(port, transport.registerMr(region.addr, BYTES));
    return {
      port,
      answered: () => transport.stats().servedOps + transport.stats().refusedOps,
      connections: () => transport.stats().connections,
    };
  },
  async isBelieved(t, port, { env }) {
    const { target, isRead } = await readFrom(t, port, env);
    if (isRead) t.deepEqual(target.bytes(), region.bytes());
    return isRead;
  },
  async isAnswered(t, port, { env }) {
    const { reader, target, isRead } = await readFrom(t, port, env);
    t.is(target.bytes()[BYTES - 1], isRead ? 7 : 0);
    if (!isRead) t.false(reader.isReachable(`127.0.0.1:${port}`), 'it is not tried again at once');
    return isRead;
  },
});

const PAGE = 1000;
const PAGES = 4;
/** Of the server, up to its proof. */
const OPENING_BYTES = 32 + 64 + 32;
const TAG = 16;
const HEADER = 152;
const PAGES_AT = HEADER + TAG * (PAGES + 1);
const ANSWER_BYTES = PAGES_AT + PAGES * PAGE;

/**
 * What the attacker makes of an answer; `before` are those that he has seen. Shorter than it was: he ends the
 * connection behind it.
 */
type Edit = (answer: Buffer, before: readonly Buffer[]) => Buffer;

/** A relay at a port of its own that changes the second answer of each connection. */
async function editor(t: ExecutionContext, serverPort: number, edit: Edit): Promise<number> {
  const listener = net.createServer((client) => {
    const server = net.connect({ port: serverPort, host: '127.0.0.1' });
    const answers: Buffer[] = [];
    let held = Buffer.alloc(0);
    let openingBytes = OPENING_BYTES;
    client.on('data', (chunk) => server.write(chunk));
    server.on('data', (chunk: Buffer) => {
      client.write(chunk.subarray(0, openingBytes));
      held = Buffer.concat([held, chunk.subarray(openingBytes)]);
      openingBytes = Math.max(0, openingBytes - chunk.length);
      for (; held.length >= ANSWER_BYTES; held = held.subarray(ANSWER_BYTES)) {
        const answer = held.subarray(0, ANSWER_BYTES);
        const passed = answers.length === 1 ? edit(Buffer.from(answer), answers) : answer;
        answers.push(answer);
        if (passed.length < ANSWER_BYTES) client.end(passed);
        else client.write(passed);
      }
    });
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.on('error', () => {}).on('close', () => other.destroy());
    }
    t.teardown(() => client.destroy());
  });
  t.teardown(() => listener.close());
  return listenAlone(listener);
}

function flipped(bytes: Buffer, at: number): Buffer {
  bytes[at] = (bytes[at] as number) ^ 0x10;
  return bytes;
}

/** Exchanges two pieces of an answer. */
function swapped(answer: Buffer, [one, other]: readonly [number, number], length: number): Buffer {
  const kept = Buffer.from(answer.subarray(one, one + length));
  answer.copy(answer, one, other, other + length);
  kept.copy(answer, other);
  return answer;
}

const pageAt = (page: number): number => PAGES_AT + page * PAGE;
const tagAt = (page: number): number => HEADER + page * TAG;
const idOf = (from: Buffer, to: Buffer): Buffer => {
  from.copy(to, 4, 4, 8);
  return to;
};

/** What is read all the same, and whether the connection goes on. */
const edits: readonly (readonly [name: string, edit: Edit, read: readonly number[], goesOn?: 'goes on'])[] = [
  ['a bit of a page', (answer) => flipped(answer, pageAt(2) + 500), [0, 1, 3], 'goes on'],
  ['the last byte of the last page', (answer) => flipped(answer, ANSWER_BYTES - 1), [0, 1, 2], 'goes on'],
  ['two pages that have changed places', (answer) => swapped(answer, [pageAt(0), pageAt(3)], PAGE), [1, 2], 'goes on'],
  [
    'two pages that have changed places with their tags',
    (answer) => swapped(swapped(answer, [pageAt(0), pageAt(3)], PAGE), [tagAt(0), tagAt(3)], TAG),
    [],
  ],
  [
    'a page of the answer before',
    (answer, [first]) => Buffer.concat([answer.subarray(0, pageAt(3)), (first as Buffer).subarray(pageAt(3))]),
    [0, 1, 2],
    'goes on',
  ],
  ['the answer before', (_, [first]) => Buffer.from(first as Buffer), []],
  [
    'the answer before, under the number of this request',
    (answer, [first]) => idOf(answer, Buffer.from(first as Buffer)),
    [],
  ],
  ['a page that is not granted', (answer) => flipped(answer, 24), []],
  ['a tag of a page', (answer) => flipped(answer, tagAt(1)), []],
  ['the tag of the header', (answer) => flipped(answer, PAGES_AT - 1), []],
  ['a header that is cut short', (answer) => answer.subarray(0, PAGES_AT - 1), []],
  ['nothing behind the header', (answer) => answer.subarray(0, PAGES_AT), []],
  ['a page that is cut short', (answer) => answer.subarray(0, pageAt(2) + 1), [0, 1]],
  ['a last byte that is missing', (answer) => answer.subarray(0, ANSWER_BYTES - 1), [0, 1, 2]],
];

test('data tags: a relay can change, exchange or repeat nothing of an answer', async (t) => {
  const { env } = new RecordingEnvironment([SECRET]);
  const server = await TcpTransport.create({ host: '127.0.0.1', port: await freePort(), env });
  t.teardown(() => server.close());
  const source = HostRegion.allocate(2 * PAGES * PAGE);
  t.teardown(() => source.free());
  source.bytes().set(content(3, source.length));
  const { rkey } = server.registerMr(source.addr, source.length);
  const { port } = server.localEndpoints().tcp;
  for (const [name, edit, read, goesOn] of edits) {
    const reroute = { from: port, to: await editor(t, port, edit) };
    const recording = new RecordingEnvironment([SECRET], reroute);
    const reader = await TcpTransport.create({ host: '127.0.0.1', port: await freePort(), env: recording.env });
    t.teardown(() => reader.close());
    const target = HostRegion.allocate(PAGES * PAGE);
    t.teardown(() => target.free());
    // Without checksums and stamps: tags alone tell.
    const readFrom = (first: number) =>
      reader.batchRead(
        Array.from({ length: PAGES }, (_, page) => ({
          remoteEndpoint: server.localEndpoint(),
          remoteAddr: source.addr + BigInt((first + page) * PAGE),
          rkey,
          localAddr: target.addr + BigInt(page * PAGE),
          length: PAGE,
        })),
      );
    t.deepEqual(await readFrom(0), [true, true, true, true], name);
    t.deepEqual(
      await readFrom(PAGES),
      [0, 1, 2, 3].map((page) => read.includes(page)),
      name,
    );
    for (const page of read) {
      const wanted = source.bytes((PAGES + page) * PAGE, PAGE);
      t.deepEqual(target.bytes(page * PAGE, PAGE), wanted, `${name}: page ${page}`);
    }
    await until(() => reader.stats().connections === Number(goesOn !== undefined));
    if (goesOn === undefined) continue;
    t.is(reader.stats().checksumFailures, PAGES - read.length, name);
    t.deepEqual(await readFrom(0), [true, true, true, true], `${name}: the connection goes on`);
  }
});
