import test, { type ExecutionContext } from 'ava';
import { ClusterSecrets } from '../../src/base/environment/credentials.js';
import { seededRandom } from '../../src/base/environment/random.js';
import type { ProtocolError } from '../../src/base/errors.js';
import {
  ClientOpening,
  type HelloFormat,
  type OpeningEvents,
  type OpeningSubject,
  ServerOpening,
} from '../../src/net/opening.js';
import { RPC_HELLO } from '../../src/rpc/frame.js';
import { DATA_HELLO } from '../../src/transport/tcp/protocol/protocol.js';

const SECRET = 'the secret of the cluster 7f3a';
const FORMATS: readonly HelloFormat[] = [RPC_HELLO, DATA_HELLO];

/** What one side has had its connection do. */
class Recorder implements OpeningEvents {
  readonly sent: Buffer[] = [];
  /** In words, one an event. */
  readonly ends: string[] = [];

  send(bytes: Buffer): void {
    this.sent.push(bytes);
  }

  opened(peerHello: Buffer): void {
    this.ends.push(`opened ${peerHello.length}`);
  }

  refused(reason: string, farewell?: Buffer): void {
    if (farewell !== undefined) this.sent.push(farewell);
    this.ends.push(reason);
  }

  foreign(error: ProtocolError): void {
    this.ends.push(error.name);
  }

  /** What has been sent since the last call. */
  taken(): Buffer {
    return Buffer.concat(this.sent.splice(0));
  }
}

function environment(seed: number, ...secrets: readonly string[]): OpeningSubject {
  const env = { random: seededRandom(seed), secrets: ClusterSecrets.of(secrets) };
  return { env, target: 'control 10.0.0.1:18500', isEncrypted: () => false };
}

interface Sides {
  readonly client: ClientOpening;
  readonly server: ServerOpening;
  readonly clientEvents: Recorder;
  readonly serverEvents: Recorder;
}

function sides(format: HelloFormat, client: OpeningSubject, server: OpeningSubject): Sides {
  const [clientEvents, serverEvents] = [new Recorder(), new Recorder()];
  return {
    client: new ClientOpening(format, client, clientEvents),
    server: new ServerOpening(format, server, serverEvents),
    clientEvents,
    serverEvents,
  };
}

/**
 * Hands each side what the other has sent, part by part, until nothing more comes; returns all bytes of client and
 * server.
 */
function run(format: HelloFormat, { client, server, clientEvents, serverEvents }: Sides): readonly [Buffer, Buffer] {
  const all: [Buffer, Buffer] = [Buffer.alloc(0), Buffer.alloc(0)];
  const waiting: [Buffer, Buffer] = [Buffer.alloc(0), Buffer.alloc(0)];
  let clientBytes = format.bytes;
  const move = (): void => {
    for (const [i, events] of [clientEvents, serverEvents].entries()) {
      const bytes = events.taken();
      all[i as 0 | 1] = Buffer.concat([all[i as 0 | 1], bytes]);
      waiting[i as 0 | 1] = Buffer.concat([waiting[i as 0 | 1], bytes]);
    }
  };
  client.greet();
  move();
  for (let isMoving = true; isMoving; ) {
    isMoving = false;
    if (server.nextBytes > 0 && waiting[0].length >= server.nextBytes) {
      const part = waiting[0].subarray(0, server.nextBytes);
      waiting[0] = waiting[0].subarray(part.length);
      server.take(part);
      isMoving = true;
    }
    move();
    if (clientBytes > 0 && waiting[1].length >= clientBytes) {
      const part = waiting[1].subarray(0, clientBytes);
      waiting[1] = waiting[1].subarray(part.length);
      clientBytes = client.take(part);
      isMoving = true;
    }
    move();
  }
  return all;
}

function agree(t: ExecutionContext, format: HelloFormat, secrets: readonly string[], greetsAtOnce: boolean): void {
  const both = sides(format, environment(1, ...secrets), environment(2, ...secrets));
  if (greetsAtOnce) both.server.greet();
  const [client, server] = run(format, both);
  t.deepEqual(both.clientEvents.ends, [`opened ${format.bytes}`]);
  t.deepEqual(both.serverEvents.ends, [`opened ${format.bytes}`]);
  t.true(both.server.isOpen);
  t.is(both.server.nextBytes, 0);
  t.is(client.length, format.bytes + (secrets.length > 0 ? 64 + 64 : 0));
  t.is(server.length, format.bytes + (secrets.length > 0 ? 64 + 32 : 0));
}

for (const format of FORMATS) {
  for (const greetsAtOnce of [false, true]) {
    const when = greetsAtOnce ? 'greets at once' : 'waits';
    test(`opening (${format.plane}): without secrets it is two hellos; the server ${when}`, (t) => {
      agree(t, format, [], greetsAtOnce);
    });

    test(`opening (${format.plane}): with a secret, or two, both sides prove it; the server ${when}`, (t) => {
      agree(t, format, [SECRET], greetsAtOnce);
      agree(t, format, ['another one', SECRET], greetsAtOnce);
    });
  }

  test(`opening (${format.plane}): a side without a secret and one with it refuse each other, and both know why`, (t) => {
    const bare = sides(format, environment(1), environment(2, SECRET));
    run(format, bare);
    t.deepEqual([bare.clientEvents.ends, bare.serverEvents.ends], [['unexpected'], ['missing']]);
    const secured = sides(format, environment(1, SECRET), environment(2));
    const [, farewell] = run(format, secured);
    t.deepEqual([secured.clientEvents.ends, secured.serverEvents.ends], [['missing'], ['unexpected']]);
    t.deepEqual(farewell, format.encode({ authentication: false }));
    t.false(secured.server.isOpen);
  });

  test(`opening (${format.plane}): a server that has greeted says nothing more to a client that it refuses`, (t) => {
    const both = sides(format, environment(1), environment(2, SECRET));
    both.server.greet();
    const [, sent] = run(format, both);
    t.deepEqual(both.serverEvents.ends, ['missing']);
    t.is(sent.length, format.bytes + 64);
  });

  test(`opening (${format.plane}): a wrong secret is refused without a word, and the client knows that it waits for a proof`, (t) => {
    const both = sides(format, environment(1, 'a wrong one'), environment(2, SECRET));
    const [, sent] = run(format, both);
    t.deepEqual(both.serverEvents.ends, ['wrong']);
    t.is(sent.length, format.bytes + 64);
    t.deepEqual(both.clientEvents.ends, []);
    t.true(both.client.awaitsProof);
  });

  test(`opening (${format.plane}): a server that cannot prove itself is refused`, (t) => {
    const events = new Recorder();
    const client = new ClientOpening(format, environment(1, SECRET), events);
    client.greet();
    t.false(client.awaitsProof);
    const greeting = events.taken();
    t.is(client.take(format.encode({ authentication: true })), 64);
    t.is(client.take(Buffer.concat([Buffer.alloc(32), greeting.subarray(-32)])), 32);
    t.true(client.awaitsProof);
    t.is(client.take(Buffer.alloc(32)), 0);
    t.deepEqual(events.ends, ['wrong']);
    t.is(client.take(Buffer.alloc(32)), 0);
    t.deepEqual(events.ends, ['wrong']);
  });

  test(`opening (${format.plane}): bytes of another protocol are foreign to both sides, once`, (t) => {
    const other = Buffer.alloc(format.bytes, 'GET / HTTP/1.1');
    const both = sides(format, environment(1), environment(2));
    t.is(both.client.take(other), 0);
    t.is(both.server.take(other), 0);
    t.is(both.server.take(other), 0);
    for (const { ends } of [both.clientEvents, both.serverEvents]) {
      t.is(ends.length, 1);
      t.regex(ends[0] as string, /^(Protocol|Frame)Error$/);
    }
  });

  test(`opening (${format.plane}): the start of the right hello is never foreign`, (t) => {
    const hello = format.encode({ authentication: true });
    for (let length = 0; length < format.bytes; length++) {
      const { server, serverEvents } = sides(format, environment(1), environment(2, SECRET));
      server.examine(hello.subarray(0, length));
      t.deepEqual([server.nextBytes, serverEvents.ends], [format.bytes, []]);
    }
  });
}

test('opening (data): the first wrong byte ends it, and so does a flag that does not fit', (t) => {
  const hello = DATA_HELLO.encode({ authentication: false });
  for (let at = 0; at < 8; at++) {
    const { server, serverEvents } = sides(DATA_HELLO, environment(1), environment(2));
    const wrong = Buffer.from(hello.subarray(0, at + 1));
    wrong[at] = (wrong[at] as number) ^ 0x82;
    server.examine(wrong);
    t.deepEqual([server.nextBytes, serverEvents.ends], [0, ['ProtocolError']], `byte ${at}`);
  }
  const { server, serverEvents } = sides(DATA_HELLO, environment(1), environment(2, SECRET));
  server.greet();
  server.examine(hello.subarray(0, 7));
  t.deepEqual([server.nextBytes, serverEvents.ends], [0, ['missing']]);
});

test('opening: between a hello and its challenge, the greeting has not come whole', (t) => {
  const { server } = sides(DATA_HELLO, environment(1), environment(2, SECRET));
  t.false(server.isWithinGreeting);
  t.is(server.take(DATA_HELLO.encode({ authentication: true })), 64);
  t.true(server.isWithinGreeting);
  t.is(server.take(Buffer.alloc(64)), 64);
  t.false(server.isWithinGreeting);
});

test('opening: a mistake of a hello’s format is no word of the peer', (t) => {
  const format: HelloFormat = {
    ...RPC_HELLO,
    wantsAuthentication() {
      throw new TypeError('a mistake');
    },
  };
  const { server, serverEvents } = sides(format, environment(1), environment(2));
  t.throws(() => server.take(Buffer.alloc(12)), { instanceOf: TypeError });
  t.deepEqual(serverEvents.ends, []);
});
