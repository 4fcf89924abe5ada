import type { ExecutionContext, TestFn } from 'ava';
import type { Clock } from '../../src/base/environment/clock.js';
import type { Files } from '../../src/base/environment/files.js';
import {
  type Connection,
  type ConnectOptions,
  listenAt,
  type Network,
  portOf,
  type Server,
} from '../../src/base/environment/network.js';
import { content } from '../_support/support.js';

/** A network, and where servers listen in it. */
export interface NetworkPlace {
  readonly network: Network;
  readonly clock: Clock;
  /** An address to listen at. */
  readonly host: string;
  /** Another address, which is not this host's. */
  readonly foreignHost: string;
  readonly files: Files;
  /** An empty folder with a short path, for Unix sockets. */
  readonly folder: string;
}

/** What happened to a connection, in order. */
class Watched {
  readonly connection: Connection;
  readonly events: string[] = [];
  bytes = Buffer.alloc(0);
  readonly closed: Promise<void>;

  constructor(connection: Connection, { reads = true } = {}) {
    this.connection = connection;
    for (const event of ['connect', 'drain', 'end'] as const) connection.on(event, () => this.events.push(event));
    connection.on('error', (error) => this.events.push(error.code ?? error.message));
    this.closed = new Promise((resolve) => {
      connection.on('close', () => {
        this.events.push('close');
        resolve();
      });
    });
    if (reads) connection.on('data', (bytes) => (this.bytes = Buffer.concat([this.bytes, bytes])));
  }
}

/** What all implementations of {@link Network} have in common; `begin` gives each test a place of its own. */
export function networkContract(test: TestFn, name: string, begin: (t: ExecutionContext) => NetworkPlace): void {
  /** A server, and the connections that it was handed. */
  async function listening(
    t: ExecutionContext,
    { network, host, clock }: NetworkPlace,
    onConnection?: (connection: Connection) => void,
  ) {
    const accepted: Connection[] = [];
    const server = network.createServer({ noDelay: true }, (connection) => {
      connection.on('error', () => {});
      accepted.push(connection);
      onConnection?.(connection);
    });
    await listenAt(server, { host, port: 0 }, () => {});
    t.teardown(() => {
      for (const connection of accepted) connection.destroy();
      server.close();
    });
    const next = async (): Promise<Connection> => {
      await waitFor(clock, () => accepted.length > 0);
      return accepted.shift() as Connection;
    };
    return { server, port: portOf(server), next };
  }

  function connecting(
    t: ExecutionContext,
    { network, host }: NetworkPlace,
    port: number,
    options: Partial<ConnectOptions> = {},
  ): Connection {
    const connection = network.connect({ host, port, noDelay: true, ...options } as ConnectOptions);
    connection.on('error', () => {});
    t.teardown(() => connection.destroy());
    return connection;
  }

  async function pair(t: ExecutionContext, place: NetworkPlace) {
    const server = await listening(t, place);
    const client = connecting(t, place, server.port);
    await new Promise<void>((resolve) => client.once('connect', resolve));
    return { ...server, client, peer: await server.next() };
  }

  test(`${name}: bytes come once and in order, both ways`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const [a, b] = [new Watched(client), new Watched(peer)];
    const [up, down] = [content(1, 300_000), content(2, 200_000)];
    for (let at = 0; at < up.length; at += 70_000) client.write(up.subarray(at, at + 70_000));
    for (let at = 0; at < down.length; at += 999) peer.write(down.subarray(at, at + 999));
    t.is(client.bytesWritten, up.length);
    await waitFor(place.clock, () => a.bytes.length >= down.length && b.bytes.length >= up.length);
    t.deepEqual(b.bytes, Buffer.from(up));
    t.deepEqual(a.bytes, Buffer.from(down));
    t.is(peer.remoteAddress, place.host);
    t.is(typeof peer.remotePort, 'number');
  });

  test(`${name}: what is written before the connection is there is sent`, async (t) => {
    const place = begin(t);
    const server = await listening(t, place);
    const client = connecting(t, place, server.port);
    client.write(Buffer.from('early'));
    t.is(client.writableLength, 5);
    const peer = new Watched(await server.next());
    await waitFor(place.clock, () => peer.bytes.length === 5);
    t.is(peer.bytes.toString(), 'early');
    t.is(client.writableLength, 0);
  });

  test(`${name}: an end is answered by an end, and both are closed`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const [a, b] = [new Watched(client), new Watched(peer)];
    let endings = 0;
    client.write(Buffer.from('last'));
    client.end(() => endings++);
    t.true(client.writableEnded);
    await Promise.all([a.closed, b.closed]);
    t.is(b.bytes.toString(), 'last');
    t.deepEqual(b.events, ['end', 'close']);
    t.deepEqual(a.events, ['end', 'close']);
    t.is(endings, 1);
    t.true(client.destroyed && peer.destroyed);
    t.is(client.remoteAddress, undefined);
  });

  test(`${name}: whoever has ended still reads`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const [a, b] = [new Watched(client), new Watched(peer)];
    peer.on('end', () => peer.write(Buffer.from('answer')));
    client.end(Buffer.from('question'));
    await Promise.all([a.closed, b.closed]);
    t.is(b.bytes.toString(), 'question');
    t.is(a.bytes.toString(), 'answer');
  });

  test(`${name}: writing after the end is an error`, async (t) => {
    const place = begin(t);
    const { client } = await pair(t, place);
    const watched = new Watched(client);
    client.end();
    t.false(client.write(Buffer.from('more')));
    await watched.closed;
    t.deepEqual(watched.events, ['ERR_STREAM_WRITE_AFTER_END', 'close']);
  });

  test(`${name}: where nobody listens a connection is refused: an error, then the close`, async (t) => {
    const place = begin(t);
    const { server, port } = await listening(t, place);
    await closed(server);
    const watched = new Watched(connecting(t, place, port));
    t.is(watched.events.length, 0);
    await watched.closed;
    t.deepEqual(watched.events, ['ECONNREFUSED', 'close']);
    t.true(watched.connection.destroyed);
  });

  test(`${name}: a port has one server, and is free when that has closed`, async (t) => {
    const place = begin(t);
    const first = await listening(t, place);
    t.true(first.port > 0);
    const second = place.network.createServer({}, () => {});
    await t.throwsAsync(
      listenAt(second, { host: place.host, port: first.port }, () => {}),
      { code: 'EADDRINUSE' },
    );
    t.is(second.address(), null);
    await closed(first.server);
    t.is(first.server.address(), null);
    const third = place.network.createServer({}, () => {});
    await listenAt(third, { host: place.host, port: first.port }, () => {});
    t.is(portOf(third), first.port);
    await closed(third);
  });

  test(`${name}: nobody listens at an address of another host`, async (t) => {
    const { network, foreignHost } = begin(t);
    const server = network.createServer({}, () => {});
    await t.throwsAsync(
      listenAt(server, { host: foreignHost, port: 0 }, () => {}),
      { code: 'EADDRNOTAVAIL' },
    );
  });

  test(`${name}: a server closes when its connections have ended, and touches none`, async (t) => {
    const place = begin(t);
    const { server, client, peer } = await pair(t, place);
    const watched = new Watched(peer);
    let isClosed = false;
    server.close(() => (isClosed = true));
    client.write(Buffer.from('still here'));
    await waitFor(place.clock, () => watched.bytes.length === 10);
    t.false(isClosed);
    client.destroy();
    await waitFor(place.clock, () => isClosed);
    t.deepEqual(watched.events.at(-1), 'close');
  });

  test(`${name}: a server that has closed can listen again, with connections of before`, async (t) => {
    const place = begin(t);
    const { server, port, client, next } = await pair(t, place);
    server.close();
    const refused = new Watched(connecting(t, place, port));
    await refused.closed;
    t.is(refused.events[0], 'ECONNREFUSED');
    let listenings = 0;
    server.on('listening', () => listenings++);
    server.listen({ host: place.host, port });
    await waitFor(place.clock, () => listenings === 1);
    t.is(portOf(server), port);
    connecting(t, place, port);
    await next();
    t.false(client.destroyed);
  });

  test(`${name}: whoever is not admitted is not handed out, and sees a reset`, async (t) => {
    const place = begin(t);
    const admit = (connection: Connection): boolean => {
      connection.on('error', () => {});
      connection.resetAndDestroy();
      return false;
    };
    const server = place.network.createServer({ admit }, () => t.fail('handed out'));
    await listenAt(server, { host: place.host, port: 0 }, () => {});
    t.teardown(() => server.close());
    const watched = new Watched(connecting(t, place, portOf(server)));
    await watched.closed;
    t.deepEqual(
      watched.events.filter((event) => event !== 'connect'),
      ['ECONNRESET', 'close'],
    );
  });

  test(`${name}: a small write is taken at once`, async (t) => {
    const place = begin(t);
    const { client } = await pair(t, place);
    t.true(client.write(new Uint8Array(1000)));
    t.is(client.writableLength, 0);
    t.false(client.writableNeedDrain);
    t.is(client.bytesWritten, 1000);
  });

  test(`${name}: a reader that does not read holds the writer up`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const [a, b] = [new Watched(client), new Watched(peer, { reads: false })];
    peer.pause();
    const bytes = content(3, 64 * 2 ** 20);
    t.false(client.write(bytes));
    t.true(client.writableNeedDrain);
    // The system takes what its buffers hold, and no more.
    await place.clock.yield();
    t.true(client.writableLength > 0);
    t.true(client.writableNeedDrain);
    t.deepEqual(a.events, []);
    const pieces: Buffer[] = [];
    peer.on('data', (piece) => pieces.push(piece));
    t.true(peer.isPaused());
    peer.resume();
    t.false(peer.isPaused());
    await waitFor(place.clock, () => pieces.reduce((sum, { length }) => sum + length, 0) === bytes.length);
    await waitFor(place.clock, () => a.events.length > 0);
    t.deepEqual(a.events, ['drain']);
    t.is(client.writableLength, 0);
    t.false(client.writableNeedDrain);
    t.true(Buffer.concat(pieces).equals(bytes));
    t.deepEqual(b.events, []);
  });

  test(`${name}: a paused connection hands over nothing, not even the end`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const watched = new Watched(peer);
    peer.pause();
    client.end(Buffer.from('later'));
    await place.clock.yield();
    await sleep(place.clock, 20);
    t.deepEqual([watched.bytes.length, watched.events], [0, []]);
    peer.resume();
    await watched.closed;
    t.is(watched.bytes.toString(), 'later');
    t.deepEqual(watched.events, ['end', 'close']);
  });

  test(`${name}: what is corked leaves together`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const watched = new Watched(peer);
    client.cork();
    client.cork();
    client.write(Buffer.from('one '));
    client.write(Buffer.from('two '));
    client.uncork();
    t.is(client.writableLength, 8);
    await sleep(place.clock, 20);
    t.is(watched.bytes.length, 0);
    client.write(Buffer.from('three'));
    client.uncork();
    t.is(client.writableLength, 0);
    await waitFor(place.clock, () => watched.bytes.length === 13);
    t.is(watched.bytes.toString(), 'one two three');
  });

  test(`${name}: bytes are received into the memory that was given`, async (t) => {
    const place = begin(t);
    const server = await listening(t, place);
    const memory = [new Uint8Array(7), new Uint8Array(13)];
    const pieces: Buffer[] = [];
    let asked = 0;
    const onread = {
      buffer: () => memory[asked++ % 2] as Uint8Array,
      callback: (count: number, buffer: Uint8Array) => {
        t.is(buffer, memory[(asked - 1) % 2] as Uint8Array);
        pieces.push(Buffer.from(buffer.subarray(0, count)));
        return true;
      },
    };
    const client = connecting(t, place, server.port, { onread });
    const watched = new Watched(client, { reads: false });
    client.resume();
    const peer = await server.next();
    const bytes = content(4, 1000);
    peer.end(bytes);
    await watched.closed;
    t.deepEqual(Buffer.concat(pieces), Buffer.from(bytes));
    t.deepEqual(watched.events.slice(-2), ['end', 'close']);
    t.is(asked, pieces.length + 1);
  });

  test(`${name}: who returns false from a receipt is not handed more until it resumes`, async (t) => {
    const place = begin(t);
    const server = await listening(t, place);
    const memory = new Uint8Array(10);
    let receivedBytes = 0;
    const onread = {
      buffer: () => memory,
      callback: (count: number) => {
        receivedBytes += count;
        return receivedBytes > 10;
      },
    };
    const client = connecting(t, place, server.port, { onread });
    const peer = await server.next();
    peer.write(new Uint8Array(25));
    await waitFor(place.clock, () => receivedBytes > 0);
    await sleep(place.clock, 20);
    t.is(receivedBytes, 10);
    client.resume();
    await waitFor(place.clock, () => receivedBytes === 25);
    t.pass();
  });

  test(`${name}: destroying ends both sides; the other sees an end`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const [a, b] = [new Watched(client), new Watched(peer)];
    client.destroy();
    t.true(client.destroyed);
    t.deepEqual(a.events, []);
    await Promise.all([a.closed, b.closed]);
    t.deepEqual(a.events, ['close']);
    t.deepEqual(b.events, ['end', 'close']);
  });

  test(`${name}: a reset is an error of the other side`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const [a, b] = [new Watched(client), new Watched(peer)];
    client.resetAndDestroy();
    await Promise.all([a.closed, b.closed]);
    t.deepEqual(a.events, ['close']);
    t.deepEqual(b.events, ['ECONNRESET', 'close']);
  });

  test(`${name}: bytes that are not read before the end are answered with a reset`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const watched = new Watched(client);
    peer.pause();
    // More than a paused socket takes from the system.
    client.write(new Uint8Array(1 << 20));
    await sleep(place.clock, 20);
    peer.destroy();
    await watched.closed;
    t.deepEqual(watched.events, ['ECONNRESET', 'close']);
  });

  test(`${name}: writing to a peer that goes ends in a close, with an error or without`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const watched = new Watched(client, { reads: false });
    peer.destroy();
    while (!client.destroyed) {
      client.write(Buffer.from('hello?'));
      await sleep(place.clock, 5);
    }
    await watched.closed;
    t.regex(watched.events.join(' '), /^(end|end EPIPE|end ECONNRESET|EPIPE|ECONNRESET) close$/);
  });

  test(`${name}: an end without bytes before it is noticed by who does not read`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const watched = new Watched(client, { reads: false });
    client.pause();
    peer.end();
    await watched.closed;
    t.deepEqual(watched.events, ['end', 'close']);
  });

  test(`${name}: a reset behind bytes that wait is an error, or an end when they are found together`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const watched = new Watched(client, { reads: false });
    client.pause();
    peer.write(Buffer.from('first'));
    await sleep(place.clock, 20);
    peer.resetAndDestroy();
    await sleep(place.clock, 20);
    client.resume();
    await watched.closed;
    t.regex(watched.events.join(' '), /^(ECONNRESET|end) close$/);
  });

  test(`${name}: destroySoon sends what was written first`, async (t) => {
    const place = begin(t);
    const { client, peer } = await pair(t, place);
    const [a, b] = [new Watched(client), new Watched(peer)];
    const bytes = content(5, 10 * 2 ** 20);
    client.write(bytes);
    client.destroySoon();
    await Promise.all([a.closed, b.closed]);
    t.true(b.bytes.equals(bytes));
    t.deepEqual(a.events.at(-1), 'close');
    t.false(a.events.includes('ECONNRESET'));
  });

  test(`${name}: a destroyed connection takes nothing, and says so once`, async (t) => {
    const place = begin(t);
    const { client } = await pair(t, place);
    const watched = new Watched(client);
    client.destroy();
    client.destroy();
    t.false(client.write(Buffer.from('x')));
    client.cork();
    client.uncork();
    client.pause();
    client.resume();
    await watched.closed;
    await sleep(place.clock, 20);
    t.deepEqual(watched.events, ['close']);
  });

  test(`${name}: an unknown name is an error of the connection`, async (t) => {
    const place = begin(t);
    const watched = new Watched(place.network.connect({ host: 'no-such-host.invalid', port: 1 }));
    await watched.closed;
    t.regex(watched.events[0] ?? '', /^(ENOTFOUND|EAI_AGAIN)$/);
    t.deepEqual(watched.events.slice(1), ['close']);
  });

  test(`${name}: Unix sockets are in the folders of the host`, async (t) => {
    const place = begin(t);
    const { network, files, folder } = place;
    const [path, moved] = [`${folder}/new`, `${folder}/moved`];
    const accepted: Connection[] = [];
    const server = network.createServer({}, (connection) => {
      connection.on('error', () => {});
      accepted.push(connection);
    });
    t.teardown(() => {
      for (const connection of accepted) connection.destroy();
    });
    const outcome = async (target: string): Promise<string | undefined> => {
      const client = network.connect({ path: target });
      const watched = new Watched(client);
      client.on('connect', () => client.destroy());
      await watched.closed;
      return watched.events[0];
    };
    t.is(await outcome(path), 'ENOENT');
    await listenAt(server, { path, exclusive: true }, () => {});
    t.is(server.address(), path);
    t.false((await files.status(path)).isFile);
    const other = network.createServer({}, () => {});
    await t.throwsAsync(
      listenAt(other, { path }, () => {}),
      { code: 'EADDRINUSE' },
    );
    t.is(await outcome(path), 'connect');
    await files.rename(path, moved);
    t.is(await outcome(path), 'ENOENT');
    t.is(await outcome(moved), 'connect');
    const client = new Watched(network.connect({ path: moved }));
    await waitFor(place.clock, () => accepted.length === 3);
    accepted[2]?.end(Buffer.from('hello'));
    await client.closed;
    t.is(client.bytes.toString(), 'hello');
    server.close();
    t.is(await outcome(moved), 'ECONNREFUSED');
    t.deepEqual(await files.readdir(folder), ['moved']);
    await files.rm(moved);
    t.is(await outcome(moved), 'ENOENT');
  });
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(resolve));
}

function sleep(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.after(ms, resolve, { keepAlive: true }));
}

/** Rejects after a minute. */
async function waitFor(clock: Clock, condition: () => boolean): Promise<void> {
  const giveUpAtMs = clock.nowMs() + 60_000;
  while (!condition()) {
    if (clock.nowMs() > giveUpAtMs) throw new Error(`not met: ${condition}`);
    await sleep(clock, 2);
  }
}
