import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import type { ExecutionContext, TestFn } from 'ava';
import { ClusterSecrets } from '../../src/base/environment/cluster-secrets.js';
import type { Environment } from '../../src/base/environment/environment.js';
import { UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT, UNAUTHENTICATED_PER_ADDRESS_PER_S } from '../../src/base/limits.js';
import type { AuthPlane } from '../../src/net/auth.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { patientClock } from '../_support/patient-clock.js';
import { until } from '../_support/support.js';

const NONCE_BYTES = 32;
const PROOFS_BYTES = 64;
const SECRET = 'the secret of the cluster 7f3a';
const OTHER = 'the secret of another one 91cc';

/** An environment whose log and counters can be read. */
export class RecordingEnvironment {
  /** Every record whole, as one text. */
  readonly lines: string[] = [];
  readonly counts = new Map<string, number>();
  readonly env: Environment;

  constructor(secrets: readonly string[] = []) {
    this.env = systemEnvironment({
      clock: patientClock,
      log: { log: (level, message, fields) => this.lines.push(JSON.stringify({ level, message, ...fields })) },
      metrics: {
        count: (name, amount = 1, labels = {}) => {
          const key = [name, ...Object.values(labels)].join(' ');
          this.counts.set(key, (this.counts.get(key) ?? 0) + amount);
        },
        setGaugeProvider() {},
        setCounterProvider() {},
      },
      secrets: ClusterSecrets.of(secrets),
    });
  }

  failures(plane: AuthPlane, reason: string): number {
    return this.counts.get(`meshcache_auth_failures_total ${plane} ${reason}`) ?? 0;
  }
}

export interface AuthServer {
  readonly port: number;
  /** Requests that have been answered. */
  answered(): number;
  connections(): number;
}

export interface AuthCase {
  readonly plane: AuthPlane;
  /** As the protocol's document has it. */
  hello(flags: number): Buffer;
  /** A request that the server answers where it answers any. */
  request(): Buffer;
  serve(t: ExecutionContext, recording: RecordingEnvironment): Promise<AuthServer>;
  /** Whether a well-behaved client of this environment is answered; it says why not in its log. */
  isAnswered(t: ExecutionContext, port: number, recording: RecordingEnvironment): Promise<boolean>;
}

/** The proof of PROTOCOL.md, written down a second time, from the document. */
function proof(secret: string, plane: string, role: 'client' | 'server', ...greetings: Buffer[]): Buffer {
  const message = Buffer.concat([Buffer.from(`meshcache auth 1 ${plane} ${role}\0`), ...greetings]);
  return createHmac('sha256', secret).update(message).digest();
}

class RawClient {
  readonly socket: net.Socket;
  #chunks: Buffer[] = [];
  #isClosed = false;

  static async connect(t: ExecutionContext, port: number): Promise<RawClient> {
    const client = new RawClient(net.connect({ port, host: '127.0.0.1', noDelay: true }));
    t.teardown(() => client.socket.destroy());
    await once(client.socket, 'connect');
    return client;
  }

  private constructor(socket: net.Socket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => this.#chunks.push(chunk));
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#isClosed = true;
    });
  }

  get received(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  async receive(bytes: number): Promise<Buffer> {
    await until(() => this.received.length >= bytes || this.#isClosed);
    return this.received.subarray(0, bytes);
  }

  closed(): Promise<void> {
    return until(() => this.#isClosed);
  }
}

/** The promises of authentication, on every plane; registers one test for each. */
export function authContract(test: TestFn, subject: AuthCase): void {
  const { plane } = subject;
  // One after the other: a flood takes the thread for itself, and deadlines are real ones here.
  const define = test.serial;
  const greetingBytes = subject.hello(1).length + NONCE_BYTES;
  const newGreeting = (): Buffer => Buffer.concat([subject.hello(1), randomBytes(NONCE_BYTES)]);

  /** Opens a connection as a peer that knows `secret` does, up to its proofs. */
  async function prove(client: RawClient, secret: string, greeting = newGreeting()) {
    client.socket.write(greeting);
    const serverGreeting = await client.receive(greetingBytes);
    const right = proof(secret, plane, 'client', greeting, serverGreeting);
    return { greeting, serverGreeting, proofs: Buffer.concat([right, randomBytes(32)]) };
  }

  define(
    `${plane} authentication: who knows the secret is answered, and the server has proved itself before`,
    async (t) => {
      const server = await subject.serve(t, new RecordingEnvironment([SECRET]));
      const client = await RawClient.connect(t, server.port);
      const { greeting, serverGreeting, proofs } = await prove(client, SECRET);
      t.deepEqual(serverGreeting.subarray(0, subject.hello(1).length), subject.hello(1));
      client.socket.write(proofs);
      const answer = (await client.receive(greetingBytes + 32)).subarray(greetingBytes);
      t.deepEqual(answer, proof(SECRET, plane, 'server', greeting, serverGreeting));
      client.socket.write(subject.request());
      await until(() => client.received.length > greetingBytes + 32 && server.answered() === 1);
    },
  );

  const pairs: readonly (readonly [string, readonly string[], readonly string[], string])[] = [
    ['the same secret', [SECRET], [SECRET], ''],
    ['no secret on either side', [], [], ''],
    ['a client that has the new one first', [SECRET], [OTHER, SECRET], ''],
    ['a server that has the new one first', [OTHER, SECRET], [SECRET], ''],
    ['both while it is being changed', [OTHER, SECRET], [SECRET, OTHER], ''],
    ['a client that has the next one already', [OTHER, SECRET], [OTHER], ''],
    ['another secret', [SECRET], [OTHER], 'wrong refused'],
    ['two secrets, both others', [SECRET], [OTHER, 'and a third'], 'wrong refused'],
    ['a client without a secret', [SECRET], [], 'missing unexpected'],
    ['a server without a secret', [], [SECRET], 'unexpected missing'],
  ];
  for (const [name, ofServer, ofClient, reasons] of pairs) {
    define(`${plane} authentication: ${name}`, async (t) => {
      const atServer = new RecordingEnvironment(ofServer);
      const atClient = new RecordingEnvironment(ofClient);
      const server = await subject.serve(t, atServer);
      t.is(await subject.isAnswered(t, server.port, atClient), reasons === '');
      t.is(server.answered(), Number(reasons === ''));
      const [serverReason = '', clientReason = ''] = reasons.split(' ');
      if (reasons !== '') {
        await until(() => atServer.failures(plane, serverReason) === 1 && atClient.failures(plane, clientReason) === 1);
        for (const { lines } of [atServer, atClient]) {
          t.is(lines.filter((line) => line.includes('authentication failed')).length, 1, lines.join('\n'));
        }
      }
      const all = [...atServer.lines, ...atClient.lines].join('\n');
      for (const secret of [SECRET, OTHER]) t.false(all.includes(secret));
    });
  }

  define(`${plane} authentication: nothing is answered to who sends requests without a proof`, async (t) => {
    const recording = new RecordingEnvironment([SECRET]);
    const server = await subject.serve(t, recording);
    const request = subject.request();
    const openings = {
      'no secret': [subject.hello(0), request],
      'no proofs': [newGreeting(), request, request, request],
      zeros: [newGreeting(), Buffer.alloc(PROOFS_BYTES), request],
      noise: [newGreeting(), randomBytes(PROOFS_BYTES), request],
      'a long one': [newGreeting(), randomBytes(4 * 2 ** 20)],
      'requests at once': [request, request],
      'unknown flags': [subject.hello(3), randomBytes(NONCE_BYTES), request],
    };
    for (const [name, parts] of Object.entries(openings)) {
      const client = await RawClient.connect(t, server.port);
      client.socket.write(Buffer.concat(parts));
      await client.closed();
      t.true(client.received.length <= greetingBytes, `${name}: ${client.received.length} bytes`);
    }
    t.is(server.answered(), 0);
    await until(() => server.connections() === 0);
    t.true(await subject.isAnswered(t, server.port, new RecordingEnvironment([SECRET])));
  });

  define(`${plane} authentication: a recorded handshake gets nothing`, async (t) => {
    const server = await subject.serve(t, new RecordingEnvironment([SECRET]));
    const client = await RawClient.connect(t, server.port);
    const { greeting, proofs } = await prove(client, SECRET);
    client.socket.write(Buffer.concat([proofs, subject.request()]));
    await until(() => server.answered() === 1);
    for (const recorded of [
      [greeting, proofs, subject.request()],
      [greeting, proofs],
    ]) {
      const replaying = await RawClient.connect(t, server.port);
      replaying.socket.write(Buffer.concat(recorded));
      await replaying.closed();
      t.is(replaying.received.length, greetingBytes);
    }
    t.is(server.answered(), 1);
  });

  define(
    `${plane} authentication: a handshake that is broken off anywhere gets nothing, and nothing of it stays`,
    async (t) => {
      const server = await subject.serve(t, new RecordingEnvironment([SECRET]));
      for (let cut = 1; cut < greetingBytes + PROOFS_BYTES; cut += 7) {
        const client = await RawClient.connect(t, server.port);
        if (cut <= greetingBytes) {
          client.socket.end(newGreeting().subarray(0, cut));
        } else {
          const { proofs } = await prove(client, SECRET);
          client.socket.end(proofs.subarray(0, cut - greetingBytes));
        }
        await client.closed();
        t.true(client.received.length <= greetingBytes);
      }
      t.is(server.answered(), 0);
      await until(() => server.connections() === 0);
    },
  );

  define(
    `${plane} authentication: proofs of the other side, of another plane or of other flags are none`,
    async (t) => {
      const recording = new RecordingEnvironment([SECRET]);
      const server = await subject.serve(t, recording);
      const wrong = [
        (client: Buffer, ofServer: Buffer) => proof(SECRET, plane, 'server', client, ofServer),
        (client: Buffer, ofServer: Buffer) => proof(SECRET, plane, 'client', ofServer, client),
        (client: Buffer, ofServer: Buffer) =>
          proof(SECRET, plane === 'rpc' ? 'data' : 'rpc', 'client', client, ofServer),
        (client: Buffer, ofServer: Buffer) => {
          const changed = Buffer.from(ofServer);
          changed[6] = 0;
          return proof(SECRET, plane, 'client', client, changed);
        },
      ];
      for (const make of wrong) {
        const client = await RawClient.connect(t, server.port);
        const { greeting, serverGreeting } = await prove(client, SECRET);
        client.socket.write(Buffer.concat([make(greeting, serverGreeting), randomBytes(32), subject.request()]));
        await client.closed();
        t.is(client.received.length, greetingBytes);
      }
      t.is(server.answered(), 0);
      await until(() => recording.failures(plane, 'wrong') === wrong.length);
      const said = recording.lines.filter((line) => line.includes('authentication failed'));
      t.is(said.length, 1, 'the log has one record for all of them');
    },
  );

  define(`${plane} authentication: a client believes nobody who sends its own challenge and proofs back`, async (t) => {
    let received = 0;
    const mirror = net.createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (chunk) => {
        received += chunk.length;
        socket.write(chunk);
      });
    });
    t.teardown(() => mirror.close());
    await new Promise<void>((resolve) => mirror.listen(0, '127.0.0.1', resolve));
    const { port } = mirror.address() as net.AddressInfo;
    const recording = new RecordingEnvironment([SECRET]);
    t.false(await subject.isAnswered(t, port, recording));
    t.is(recording.failures(plane, 'wrong'), 1);
    t.is(received, greetingBytes + PROOFS_BYTES, 'it has sent its handshake, and no request');
  });

  define(
    `${plane} authentication: a flood from one address is bounded and leaves room for members at others`,
    async (t) => {
      const server = await subject.serve(t, new RecordingEnvironment([SECRET]));
      const startMs = performance.now();
      const strangers: net.Socket[] = [];
      t.teardown(() => {
        for (const socket of strangers) socket.destroy();
      });
      const flood = async (): Promise<void> => {
        const socket = net.connect({ port: server.port, host: '127.0.0.1', localAddress: '127.0.0.9' });
        strangers.push(socket);
        socket.on('error', () => {}).resume();
        await once(socket, 'connect').catch(() => {});
      };
      while (strangers.filter((socket) => socket.destroyed).length < 100) await flood();
      const allowed =
        UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT +
        ((performance.now() - startMs) / 1000) * UNAUTHENTICATED_PER_ADDRESS_PER_S;
      t.true(server.connections() <= allowed + 1, `${server.connections()} connections`);
      t.true(await subject.isAnswered(t, server.port, new RecordingEnvironment([SECRET])));
      t.is(server.answered(), 1);
    },
  );
}
