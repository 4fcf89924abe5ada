import { createCipheriv, createHash, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import type { ExecutionContext, TestFn } from 'ava';
import { ClusterSecrets } from '../../src/base/environment/credentials.js';
import type { Environment } from '../../src/base/environment/environment.js';
import { UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT, UNAUTHENTICATED_PER_ADDRESS_PER_S } from '../../src/base/limits.js';
import type { AuthPlane } from '../../src/net/auth.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { systemNetwork } from '../../src/system/system-network.js';
import { patientClock } from '../_support/patient-clock.js';
import { listenAlone, until } from '../_support/support.js';
import { rerouted } from '../_support/transport/rerouted.js';

const NONCE_BYTES = 32;
const TARGET_BYTES = 32;
const PROOFS_BYTES = 64;
const SECRET = 'the secret of the cluster 7f3a';
const OTHER = 'the secret of another one 91cc';

/** An environment whose log and counters can be read. */
export class RecordingEnvironment {
  /** Every record whole, as one text. */
  readonly lines: string[] = [];
  readonly counts = new Map<string, number>();
  readonly env: Environment;

  /** `reroute`: what connects to one port gets to another one, unawares. */
  constructor(secrets: readonly string[] = [], reroute?: { readonly from: number; readonly to: number }) {
    this.env = systemEnvironment({
      network: reroute === undefined ? systemNetwork : rerouted(systemNetwork, reroute),
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
  /** Whether a well-behaved client of this environment gets the right answer. */
  isBelieved(t: ExecutionContext, port: number, recording: RecordingEnvironment): Promise<boolean>;
  /** Whether a well-behaved client of this environment is answered; it says why not in its log. */
  isAnswered(t: ExecutionContext, port: number, recording: RecordingEnvironment): Promise<boolean>;
}

/** The proof of PROTOCOL.md, written down a second time, from the document. */
function proof(secret: string, plane: string, role: 'client' | 'server', ...greetings: Buffer[]): Buffer {
  const message = Buffer.concat([Buffer.from(`meshcache auth 1 ${plane} ${role}\0`), ...greetings]);
  return createHmac('sha256', secret).update(message).digest();
}

/** The digest of what is at a port, as PROTOCOL.md has it. */
function targetDigest(plane: string, port: number): Buffer {
  const target = `${plane === 'rpc' ? 'control' : 'data'} 127.0.0.1:${port}`;
  return createHash('sha256').update(`meshcache target 1 ${target}`).digest();
}

/** The key of one direction, as PROTOCOL.md has it. */
function sessionKey(secret: string, plane: string, sender: 'client' | 'server', ...greetings: Buffer[]): Buffer {
  const salt = createHash('sha256').update(Buffer.concat(greetings)).digest();
  return Buffer.from(hkdfSync('sha256', secret, salt, `meshcache keys 1 ${plane} ${sender}`, 32));
}

/** A frame with its tag, as PROTOCOL.md has it; `number` is that of the frame. */
function tagged(key: Buffer, number: number, frame: Buffer): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeBigUInt64BE(BigInt(number), 0);
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(frame);
  cipher.final();
  return Buffer.concat([frame, cipher.getAuthTag()]);
}

/** What an attacker between client and server has: both connections, and what has passed. */
class Relay {
  readonly port: number;
  readonly #pairs: { readonly client: net.Socket; readonly server: net.Socket; sent: Buffer; received: number }[] = [];

  /**
   * Passes on what comes to a port of its own to `serverPort`, both ways. Of what the server sends, it changes what
   * `isToChange` says.
   */
  static async start(
    t: ExecutionContext,
    serverPort: number,
    isToChange: (received: number) => boolean = () => false,
  ): Promise<Relay> {
    const pairs: Relay['pairs'] = [];
    const server = net.createServer((client) => {
      const onward = net.connect({ port: serverPort, host: '127.0.0.1' });
      const pair = { client, server: onward, sent: Buffer.alloc(0), received: 0 };
      pairs.push(pair);
      client.on('data', (chunk: Buffer) => {
        pair.sent = Buffer.concat([pair.sent, chunk]);
        onward.write(chunk);
      });
      onward.on('data', (chunk: Buffer) => {
        for (const [i, byte] of chunk.entries()) if (isToChange(pair.received++)) chunk[i] = byte ^ 1;
        client.write(chunk);
      });
      for (const [one, other] of [
        [client, onward],
        [onward, client],
      ] as const) {
        one.on('error', () => {}).on('close', () => other.destroy());
      }
    });
    const port = await listenAlone(server);
    t.teardown(() => {
      server.close();
      for (const { client } of pairs) client.destroy();
    });
    return new Relay(port, pairs);
  }

  private constructor(port: number, pairs: Relay['pairs']) {
    this.port = port;
    this.#pairs = pairs;
  }

  get pairs() {
    return this.#pairs;
  }
}

class RawClient {
  readonly port: number;
  readonly socket: net.Socket;
  #chunks: Buffer[] = [];
  #isClosed = false;

  static async connect(t: ExecutionContext, port: number): Promise<RawClient> {
    const client = new RawClient(net.connect({ port, host: '127.0.0.1', noDelay: true }), port);
    t.teardown(() => client.socket.destroy());
    await once(client.socket, 'connect');
    return client;
  }

  private constructor(socket: net.Socket, port: number) {
    this.port = port;
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
  const greetingBytes = subject.hello(1).length + NONCE_BYTES + TARGET_BYTES;
  const newGreeting = (port: number): Buffer =>
    Buffer.concat([subject.hello(1), randomBytes(NONCE_BYTES), targetDigest(plane, port)]);

  /** Opens a connection as a peer that knows `secret` does, up to its proofs. */
  async function prove(client: RawClient, secret: string, greeting = newGreeting(client.port)) {
    client.socket.write(greeting);
    const serverGreeting = await client.receive(greetingBytes);
    const right = proof(secret, plane, 'client', greeting, serverGreeting);
    const key = sessionKey(secret, plane, 'client', greeting, serverGreeting);
    return { greeting, serverGreeting, key, proofs: Buffer.concat([right, randomBytes(32)]) };
  }

  define(
    `${plane} authentication: who knows the secret is answered, and the server has proved itself before`,
    async (t) => {
      const server = await subject.serve(t, new RecordingEnvironment([SECRET]));
      const client = await RawClient.connect(t, server.port);
      const { greeting, serverGreeting, key, proofs } = await prove(client, SECRET);
      t.deepEqual(serverGreeting.subarray(0, subject.hello(1).length), subject.hello(1));
      client.socket.write(proofs);
      const answer = (await client.receive(greetingBytes + 32)).subarray(greetingBytes);
      t.deepEqual(answer, proof(SECRET, plane, 'server', greeting, serverGreeting));
      client.socket.write(tagged(key, 0, subject.request()));
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
      'no proofs': [newGreeting(server.port), request, request, request],
      zeros: [newGreeting(server.port), Buffer.alloc(PROOFS_BYTES), request],
      noise: [newGreeting(server.port), randomBytes(PROOFS_BYTES), request],
      'a long one': [newGreeting(server.port), randomBytes(4 * 2 ** 20)],
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
    const { greeting, key, proofs } = await prove(client, SECRET);
    const request = tagged(key, 0, subject.request());
    client.socket.write(Buffer.concat([proofs, request]));
    await until(() => server.answered() === 1);
    for (const recorded of [
      [greeting, proofs, request],
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
          client.socket.end(newGreeting(server.port).subarray(0, cut));
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
        const { greeting, serverGreeting, key } = await prove(client, SECRET);
        const request = tagged(key, 0, subject.request());
        client.socket.write(Buffer.concat([make(greeting, serverGreeting), randomBytes(32), request]));
        await client.closed();
        t.is(client.received.length, greetingBytes);
      }
      t.is(server.answered(), 0);
      await until(() => recording.failures(plane, 'wrong') === wrong.length);
      const said = recording.lines.filter((line) => line.includes('authentication failed'));
      t.is(said.length, 1, 'the log has one record for all of them');
    },
  );

  define(
    `${plane} authentication: who means to reach another server is refused, and both sides know why`,
    async (t) => {
      const atServer = new RecordingEnvironment([SECRET]);
      const atClient = new RecordingEnvironment([SECRET]);
      const server = await subject.serve(t, atServer);
      const relay = await Relay.start(t, server.port);
      t.false(await subject.isAnswered(t, relay.port, atClient));
      t.is(atClient.failures(plane, 'misdirected'), 1);
      const [{ sent }] = relay.pairs as [Relay['pairs'][number]];
      t.is(sent.length, greetingBytes, 'it has proved nothing');

      // One that does not look at what the server says it is.
      const client = await RawClient.connect(t, server.port);
      const { proofs, key } = await prove(client, SECRET, newGreeting(relay.port));
      client.socket.write(Buffer.concat([proofs, tagged(key, 0, subject.request())]));
      await client.closed();
      t.is(client.received.length, greetingBytes);
      await until(() => atServer.failures(plane, 'misdirected') === 1);
      t.is(server.answered(), 0);
    },
  );

  define(
    `${plane} authentication: a relay at the server's own address cannot make, change or repeat a request`,
    async (t) => {
      const atServer = new RecordingEnvironment([SECRET]);
      const server = await subject.serve(t, atServer);
      const request = subject.request();
      const changed = (frame: Buffer, at: number): Buffer => {
        const copy = Buffer.from(frame);
        copy[at] = (copy[at] as number) ^ 1;
        return copy;
      };
      // What comes after a first request that the server has answered.
      const further: Record<string, (key: Buffer, first: Buffer) => Buffer> = {
        'a request without a tag': () => Buffer.concat([request, randomBytes(64)]),
        'the same once more': (_, first) => first,
        'a tag of zeros': () => Buffer.concat([request, Buffer.alloc(16)]),
        'a changed request': (key) => changed(tagged(key, 1, request), request.length - 1),
        'a changed tag': (key) => changed(tagged(key, 1, request), request.length),
        'a request that has come too early': (key) => tagged(key, 2, request),
        'a tag under another key': () => tagged(randomBytes(32), 1, request),
      };
      let answered = 0;
      for (const [name, make] of Object.entries(further)) {
        const relay = await Relay.start(t, server.port);
        const client = await RawClient.connect(t, relay.port);
        const { key, proofs } = await prove(client, SECRET, newGreeting(server.port));
        const first = tagged(key, 0, request);
        client.socket.write(Buffer.concat([proofs, first]));
        answered++;
        await until(() => server.answered() === answered);
        const [pair] = relay.pairs as [Relay['pairs'][number]];
        pair.server.write(make(key, first));
        await client.closed();
        t.is(server.answered(), answered, name);
      }
      t.true(await subject.isAnswered(t, server.port, new RecordingEnvironment([SECRET])));
    },
  );

  define(`${plane} authentication: a client believes no answer that was changed on its way`, async (t) => {
    const server = await subject.serve(t, new RecordingEnvironment([SECRET]));
    const opening = greetingBytes + 32;
    const answerBytes = await lengthOfAnswer();
    for (const at of [0, 4, 8, Math.floor(answerBytes / 3), answerBytes - 20, answerBytes - 1]) {
      t.false(await isBelieved((received) => received === opening + at), `byte ${at} of ${answerBytes}`);
    }
    t.true(await isBelieved(() => false));

    /**
     * Whether a client is content with the answer, of which one byte is another: the one before which so many have
     * come.
     */
    async function isBelieved(isToChange: (received: number) => boolean): Promise<boolean> {
      const relay = await Relay.start(t, server.port, isToChange);
      const reroute = { from: server.port, to: relay.port };
      return subject.isBelieved(t, server.port, new RecordingEnvironment([SECRET], reroute));
    }

    async function lengthOfAnswer(): Promise<number> {
      const relay = await Relay.start(t, server.port);
      const reroute = { from: server.port, to: relay.port };
      t.true(await subject.isBelieved(t, server.port, new RecordingEnvironment([SECRET], reroute)));
      return (relay.pairs[0]?.received ?? 0) - opening;
    }
  });

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
    const port = await listenAlone(mirror);
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
