import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { encodePin } from '../../clients/wire/care-messages.js';
import { encodeEvents } from '../../clients/wire/events.js';
import { encodeExists, encodeLookups } from '../../clients/wire/lookup-messages.js';
import {
  DESCRIPTOR_SOCKET_SUFFIX,
  encodeKeyRequest,
  encodePools,
  encodeRegionRequest,
  encodeSetBytes,
  RequestType,
} from '../../clients/wire/messages.js';
import { HostRegion } from '../../memory/host-region.js';
import { redisCommand } from '../measuring/redis.js';
import {
  forEver,
  frameOf,
  type HostileKind,
  numberBody,
  passed,
  RawClient,
  sendRecord,
  type Target,
} from './raw-client.js';

const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;
const MANY = 65_536;

/** Hostile clients of the Redis port and of the metrics server. */
const DOOR_KINDS: Readonly<Record<string, HostileKind>> = {
  'redis-promises': {
    what: 'Redis: eight SETs of 256 MiB each, of which no more than their beginning comes',
    async run(target) {
      for (let i = 0; i < 8; i++) {
        const socket = await redis(target);
        socket.write(`*3\r\n$3\r\nSET\r\n$3\r\nk-${i}\r\n$${256 * MIB}\r\n`);
        socket.write(Buffer.alloc(4 * MIB));
      }
      await passed(12_000);
    },
  },
  'redis-unread': {
    what: 'Redis: GETs of values of 1 MiB whose answers are never read',
    async run(target) {
      const socket = await redis(target);
      socket.write(redisCommand('SET', 'large', Buffer.alloc(MIB)));
      await passed(50);
      socket.pause();
      const gets = Buffer.concat(Array.from({ length: 256 }, () => redisCommand('GET', 'large')));
      for (;;) await written(socket, gets);
    },
  },
  'redis-mget': {
    what: 'Redis: MGET and EXISTS of 50,000 keys, pipelined',
    async run(target) {
      const socket = await redis(target);
      const keys = Array.from({ length: 50_000 }, (_, i) => `key-${i}`);
      const commands = Buffer.concat([redisCommand('MGET', ...keys), redisCommand('EXISTS', ...keys)]);
      socket.resume();
      for (;;) await written(socket, commands);
    },
  },
  'redis-mset': {
    what: 'Redis: MSET of 20,000 small values, pipelined',
    async run(target) {
      const socket = await redis(target);
      const pairs = Array.from({ length: 20_000 }, (_, i) => [`key-${i}`, 'value']).flat();
      const command = redisCommand('MSET', ...pairs);
      socket.resume();
      for (;;) await written(socket, command);
    },
  },
  'redis-pings': {
    what: 'Redis: pipelines of 10,000 PINGs',
    async run(target) {
      const socket = await redis(target);
      const commands = Buffer.from('*1\r\n$4\r\nPING\r\n'.repeat(10_000));
      socket.resume();
      for (;;) await written(socket, commands);
    },
  },
  passwords: {
    what: 'Redis: wrong passwords on 16 connections',
    async run({ respPort }) {
      const guess = async (i: number): Promise<void> => {
        for (let n = 0; ; n++) {
          const socket = await connected(respPort);
          socket.end(redisCommand('AUTH', `guess-${i}-${n}`));
          socket.resume();
          await once(socket, 'close');
        }
      };
      await Promise.all(Array.from({ length: 16 }, (_, i) => guess(i)));
    },
  },
  'http-post': {
    what: 'Redis: HTTP POSTs with commands in their bodies',
    async run({ respPort }) {
      const body = 'FLUSHALL\r\n'.repeat(10_000);
      for (;;) {
        const socket = await connected(respPort);
        socket.end(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
        socket.resume();
        await once(socket, 'close');
      }
    },
  },
  'http-idle': {
    what: 'metrics: 500 connections that send half a request, or read no answer',
    async run({ metricsPort }) {
      const sockets = await Promise.all(Array.from({ length: 500 }, () => connected(metricsPort)));
      for (const [i, socket] of sockets.entries()) {
        socket.pause();
        socket.write(
          i % 2 === 0 ? 'GET /metrics HTTP/1.1\r\nHost:' : 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(20),
        );
      }
      await passed(3_000);
      for (const socket of sockets) socket.destroy();
    },
  },
  'connects-client': {
    what: 'client socket: connections without a pause, each of which says nothing and ends',
    run: ({ clientSocket }) => connects({ path: clientSocket }),
  },
  'connects-descriptors': {
    what: 'socket of descriptors: connections without a pause, each with a record of no client',
    run: ({ clientSocket }) => connects({ path: clientSocket + DESCRIPTOR_SOCKET_SUFFIX }, Buffer.alloc(48, 1)),
  },
  'connects-redis': {
    what: 'Redis: connections without a pause, each of which says nothing and ends',
    run: ({ respPort }) => connects({ port: respPort, host: '127.0.0.1' }),
  },
  'connects-metrics': {
    what: 'metrics: connections without a pause, each of which says nothing and ends',
    run: ({ metricsPort }) => connects({ port: metricsPort, host: '127.0.0.1' }),
  },
  'http-unread': {
    what: 'metrics: 300 connections that ask for /metrics as often as they can, and read no answer',
    async run({ metricsPort }) {
      const requests = Buffer.from('GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(1_000));
      const reader = async (): Promise<void> => {
        for (;;) {
          const socket = await connected(metricsPort);
          socket.pause();
          while (!socket.destroyed) await written(socket, requests).catch(() => {});
        }
      };
      await Promise.all(Array.from({ length: 300 }, reader));
    },
  },
  scrapes: {
    what: 'metrics: /metrics and /api/node without a pause',
    async run({ metricsPort }) {
      const ask = async (path: string): Promise<void> => {
        for (;;) await (await fetch(`http://127.0.0.1:${metricsPort}${path}`)).arrayBuffer();
      };
      await Promise.all([ask('/metrics'), ask('/metrics'), ask('/api/node'), ask('/healthz')]);
    },
  },
};

/** Connects again and again, 64 connections at a time. Sends `record` on each of them, or closes them at once. */
async function connects(to: net.NetConnectOpts, record?: Buffer): Promise<void> {
  const one = async (): Promise<void> => {
    for (;;) {
      const socket = net.connect(to);
      socket.on('error', () => {});
      if (record !== undefined) socket.resume().write(record);
      else socket.once('connect', () => socket.destroy());
      await once(socket, 'close').catch(() => {});
    }
  };
  await Promise.all(Array.from({ length: 64 }, one));
}

/** Connects to the metrics server or to the Redis port. */
async function connected(port: number): Promise<net.Socket> {
  const socket = net.connect({ port, host: '127.0.0.1' });
  socket.on('error', () => {});
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  return socket;
}

/** Connects to the Redis port and sends the password. */
async function redis({ respPort, respPassword }: Target): Promise<net.Socket> {
  const socket = await connected(respPort);
  socket.write(redisCommand('AUTH', respPassword));
  await once(socket, 'data');
  return socket;
}

/** Sends bytes; resolves when the socket can take more. */
async function written(socket: net.Socket, bytes: Buffer): Promise<void> {
  if (socket.destroyed) throw new Error('the node has ended the connection');
  if (!socket.write(bytes)) await Promise.race([once(socket, 'drain'), once(socket, 'close')]);
  // If the node takes everything at once, this process would otherwise never leave its microtasks.
  else await new Promise((resolve) => setImmediate(resolve));
}

/** A process that only computes. It shows what any busy neighbour costs other processes. */
const SPIN: HostileKind = {
  what: 'computes, and leaves the node alone',
  async run() {
    setInterval(() => {
      for (const untilMs = performance.now() + 50; performance.now() < untilMs; );
    }, 1);
    await forEver();
  },
};

/** Kinds of hostile clients by name. Each runs in a process of its own. */
export const HOSTILE_KINDS: Readonly<Record<string, HostileKind>> = {
  spin: SPIN,
  'regions-64g': {
    what: 'registers and drops a sparse region of 64 GiB',
    run: (target) => registers(target, 64 * GIB),
  },
  'regions-1t': {
    what: 'registers and drops a sparse region of 1 TiB',
    run: (target) => registers(target, 1024 * GIB),
  },
  'all-regions': {
    what: 'registers as many regions on as many connections as it may',
    async run({ clientSocket }) {
      const memory = HostRegion.allocate(MIB, { shared: true });
      for (let count = 0; count < 128; count++) {
        const client = await RawClient.attach(clientSocket);
        for (let id = 1; id <= 64; id++) await client.register(id, memory);
      }
    },
  },
  holes: {
    what: 'sets 256 MiB of holes, each time others',
    async run({ clientSocket }) {
      const client = await RawClient.attach(clientSocket);
      const memory = HostRegion.allocate(64 * GIB, { shared: true });
      await client.register(1, memory);
      for (let at = 0; at + 256 * MIB <= memory.length; at += 256 * MIB) {
        await client.request(RequestType.set, regionBody(64, 4 * MIB, { at }));
      }
    },
  },
  'large-sets': {
    what: 'sets 256 MiB of its memory in a request',
    run: (target) => moves(target, RequestType.set, 64, 4 * MIB),
  },
  'many-pieces': {
    what: 'sets and gets 65,536 pages of 256 bytes in a request',
    async run(target) {
      await Promise.all([moves(target, RequestType.set, MANY, 256), moves(target, RequestType.get, MANY, 256)]);
    },
  },
  exists: {
    what: 'EXISTS of 65,536 keys of 900 bytes',
    async run({ clientSocket }) {
      const body = encodeExists({ pool: '', wantsFlags: true, suffixes: [], keys: keysOf(MANY, 900) });
      await (await RawClient.attach(clientSocket)).keepAsking(RequestType.exists, 4, () => body);
    },
  },
  deletes: {
    what: 'DELETE of 65,536 keys',
    async run({ clientSocket }) {
      const body = encodeKeyRequest('', keysOf(MANY, 64), { hasFlags: false });
      await (await RawClient.attach(clientSocket)).keepAsking(RequestType.delete, 4, () => body);
    },
  },
  'set-bytes': {
    what: 'SET_BYTES and GET_BYTES of 50,000 pages of 1 KiB on the socket',
    async run({ clientSocket }) {
      const client = await RawClient.attach(clientSocket);
      const keys = keysOf(50_000, 64);
      const page = Buffer.alloc(KIB);
      const set = encodeSetBytes({ pool: '', isNamed: true, keys, pages: keys.map(() => page) });
      const get = encodeKeyRequest('', keys, { hasFlags: true });
      await Promise.all([
        client.keepAsking(RequestType.setBytes, 2, () => set),
        client.keepAsking(RequestType.getBytes, 2, () => get),
      ]);
    },
  },
  'huge-keys': {
    what: 'EXISTS and GET_BYTES of keys of 65,535 bytes',
    async run({ clientSocket }) {
      const client = await RawClient.attach(clientSocket);
      const keys = keysOf(1_000, 65_535);
      const exists = encodeExists({ pool: '', wantsFlags: true, suffixes: [], keys });
      const get = encodeKeyRequest('', keys, { hasFlags: true });
      await Promise.all([
        client.keepAsking(RequestType.exists, 2, () => exists),
        client.keepAsking(RequestType.getBytes, 2, () => get),
      ]);
    },
  },
  promises: {
    what: 'promises 40 bodies of 64 MiB, of which no more than their beginning comes',
    async run({ clientSocket }) {
      for (let i = 0; i < 40; i++) {
        const { socket } = await RawClient.attach(clientSocket);
        const promised = frameOf(RequestType.setBytes, 9);
        promised.writeUInt32LE(64 * MIB - 16, 0);
        socket.write(promised);
        socket.write(Buffer.alloc(MIB));
      }
      await passed(12_000);
    },
  },
  unread: {
    what: 'asks for pages on 32 connections and reads no answer',
    async run({ clientSocket }) {
      const keys = keysOf(16, 64);
      const set = encodeSetBytes({ pool: '', isNamed: true, keys, pages: keys.map(() => Buffer.alloc(MIB)) });
      const get = encodeKeyRequest('', keys, { hasFlags: true });
      for (let i = 0; i < 32; i++) {
        const client = await RawClient.attach(clientSocket);
        await client.request(RequestType.setBytes, set);
        client.socket.pause();
        for (let n = 0; n < 64; n++) client.send(RequestType.getBytes, get);
      }
      await passed(5_000);
    },
  },
  connections: {
    what: 'attaches as often as it may, and connects without HELLO',
    async run({ clientSocket }) {
      const silent = async (): Promise<void> => {
        for (;;) {
          const socket = net.connect({ path: clientSocket });
          socket.on('error', () => {});
          await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
          await passed(1);
        }
      };
      const attaches = async (): Promise<void> => {
        for (;;) await RawClient.attach(clientSocket).catch(() => passed(1));
      };
      await Promise.all([silent(), attaches()]);
    },
  },
  reconnects: {
    what: 'sends frames that are none, and connects again',
    async run({ clientSocket }) {
      const garbage = randomBytes(64 * KIB);
      const one = async (): Promise<void> => {
        for (;;) {
          const socket = net.connect({ path: clientSocket });
          socket.on('error', () => {});
          socket.end(garbage);
          socket.resume();
          await once(socket, 'close');
        }
      };
      await Promise.all([one(), one(), one(), one()]);
    },
  },
  descriptors: {
    what: 'sends records to the socket of descriptors that are refused',
    async run({ clientSocket }) {
      const one = async (): Promise<void> => {
        for (;;) await sendRecord(clientSocket, randomBytes(48));
      };
      await Promise.all([one(), one(), one(), one()]);
    },
  },
  staging: {
    what: 'takes staging memory on as many connections as it may',
    async run({ clientSocket }) {
      for (let i = 0; i < 64; i++) await (await RawClient.attach(clientSocket)).takeStaging(clientSocket, 256 * MIB);
      await forEver();
    },
  },
  pins: {
    what: 'sets and pins as many pages as it may',
    async run({ clientSocket }) {
      const client = await RawClient.attach(clientSocket);
      for (let n = 0; ; n++) {
        const keys = keysOf(64, 64, `pin ${n}`);
        const pages = keys.map(() => Buffer.alloc(64 * KIB));
        await client.request(RequestType.setBytes, encodeSetBytes({ pool: '', isNamed: true, keys, pages }));
        await client.request(RequestType.pin, encodePin({ pool: '', forMs: 60_000, keys }));
      }
    },
  },
  namespaces: {
    what: 'attaches with a new tag each time, and sets a page',
    async run({ clientSocket }) {
      for (let n = 0; ; n++) {
        const client = await RawClient.attach(clientSocket, `hostile-${process.pid}-${n}`);
        const set = encodeSetBytes({ pool: '', isNamed: true, keys: ['key'], pages: [Buffer.alloc(KIB)] });
        await client.request(RequestType.setBytes, set);
        client.socket.destroy();
      }
    },
  },
  clears: {
    what: 'sets 1,000 pages and clears them',
    async run({ clientSocket }) {
      const client = await RawClient.attach(clientSocket);
      const keys = keysOf(1_000, 64);
      const set = encodeSetBytes({ pool: '', isNamed: true, keys, pages: keys.map(() => Buffer.alloc(KIB)) });
      for (;;) {
        await client.request(RequestType.setBytes, set);
        await client.request(RequestType.clear, encodePools([]));
      }
    },
  },
  events: {
    what: 'subscribes to events on 64 connections, and reads none of them',
    async run({ clientSocket }) {
      const writer = await RawClient.attach(clientSocket);
      for (let i = 0; i < 64; i++) {
        const client = await RawClient.attach(clientSocket);
        client.socket.pause();
        client.send(RequestType.events, encodeEvents({ position: '', pools: [''] }));
      }
      await writer.keepAsking(RequestType.setBytes, 2, (n) => {
        const keys = keysOf(1_000, 64, `event ${n % 16}`);
        return encodeSetBytes({ pool: '', isNamed: true, keys, pages: keys.map(() => Buffer.alloc(KIB)) });
      });
    },
  },
  lookups: {
    what: 'floods of LOOKUPS, PING and STATS',
    async run({ clientSocket }) {
      const client = await RawClient.attach(clientSocket);
      const body = encodeLookups({ asked: 2 ** 40, found: 2 ** 39 });
      for (;;) {
        for (let i = 0; i < 1_000; i++) client.send(RequestType.lookups, body);
        for (let i = 0; i < 1_000; i++) client.send(RequestType.ping);
        for (let i = 0; i < 100; i++) client.send(RequestType.stats);
        await client.request(RequestType.ping);
      }
    },
  },
  cancels: {
    what: 'EXISTS of 1,000 keys, each followed by CANCEL',
    async run({ clientSocket }) {
      const client = await RawClient.attach(clientSocket);
      const body = encodeExists({ pool: '', wantsFlags: true, suffixes: [], keys: keysOf(1_000, 64) });
      for (;;) {
        for (let i = 0; i < 100; i++)
          client.send(RequestType.cancel, numberBody(client.send(RequestType.exists, body)));
        await client.request(RequestType.ping);
      }
    },
  },
  frozen: {
    what: 'stops while 1,000 requests are under way',
    async run({ clientSocket }) {
      const client = await RawClient.attach(clientSocket);
      const body = encodeExists({ pool: '', wantsFlags: true, suffixes: [], keys: keysOf(1_000, 64) });
      for (let i = 0; i < 1_000; i++) client.send(RequestType.exists, body);
      await passed(100);
      process.kill(process.pid, 'SIGSTOP');
    },
  },
  ...DOOR_KINDS,
};

/** Registers and drops a sparse region again and again. */
async function registers({ clientSocket }: Target, length: number): Promise<void> {
  const client = await RawClient.attach(clientSocket);
  const memory = HostRegion.allocate(length, { shared: true });
  for (let id = 1; ; id++) {
    await client.register(id, memory);
    await client.request(RequestType.unregion, numberBody(id)).catch(() => {});
  }
}

/** Sets or gets the same pages again and again, in memory that has been touched. */
async function moves({ clientSocket }: Target, type: number, pages: number, pageBytes: number): Promise<void> {
  const client = await RawClient.attach(clientSocket);
  const memory = HostRegion.allocate(pages * pageBytes, { shared: true });
  memory.touch(0, memory.length);
  await client.register(1, memory);
  const body = regionBody(pages, pageBytes, { isNamed: type === RequestType.set });
  await client.keepAsking(type, 2, () => body);
}

/** Body of a GET or SET of adjacent pages in region 1, from offset `at` on. */
function regionBody(pages: number, pageBytes: number, { at = 0, isNamed = true } = {}): Buffer {
  const offsets = Array.from({ length: pages }, (_, i) => at + i * pageBytes);
  const [lengths, regionIds] = [offsets.map(() => pageBytes), offsets.map(() => 1)];
  const pieces = { pieceCount: 1, offsets, lengths, regionIds };
  return encodeRegionRequest({ pool: '', isNamed, keys: keysOf(pages, 64), pieces });
}

/** Distinct keys of `bytes` characters each. */
function keysOf(count: number, bytes: number, name = 'key'): string[] {
  return Array.from({ length: count }, (_, i) => `${name} ${i} `.padEnd(bytes, 'x'));
}
