import { once } from 'node:events';
import net from 'node:net';
import { DESCRIPTOR_SOCKET_SUFFIX } from '../../clients/wire/messages.js';
import { redisCommand } from '../resp/redis-connection.js';
import { forEver, type HostileKind, passed, type Target } from './target.js';

const MIB = 2 ** 20;

/** Hostile clients of the door for Redis clients and of the metrics server. */
export const DOOR_KINDS: Readonly<Record<string, HostileKind>> = {
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

/** Connects again and again, 64 at a time; what is sent to each connection is `record`. */
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

/** A connection to the metrics server or to the door for Redis clients. */
async function connected(port: number): Promise<net.Socket> {
  const socket = net.connect({ port, host: '127.0.0.1' });
  socket.on('error', () => {});
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  return socket;
}

/** A Redis client that has given the password. */
async function redis({ respPort, respPassword }: Target): Promise<net.Socket> {
  const socket = await connected(respPort);
  socket.write(redisCommand('AUTH', respPassword));
  await once(socket, 'data');
  return socket;
}

/** Sends bytes; resolves when the node has taken enough of them. */
async function written(socket: net.Socket, bytes: Buffer): Promise<void> {
  if (socket.destroyed) throw new Error('the node has ended the connection');
  if (!socket.write(bytes)) await Promise.race([once(socket, 'drain'), once(socket, 'close')]);
  // A node that takes everything at once leaves no turn to this process otherwise.
  else await new Promise((resolve) => setImmediate(resolve));
}

/** A process that computes only: what the machine's other processes feel of any neighbour. */
export const SPIN: HostileKind = {
  what: 'computes, and leaves the node alone',
  async run() {
    setInterval(() => {
      for (const untilMs = performance.now() + 50; performance.now() < untilMs; );
    }, 1);
    await forEver();
  },
};
