import { once } from 'node:events';
import net from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { patientClock } from '../_support/patient-clock.js';
import { until } from '../_support/support.js';
import { HELLO, type RawOp, requestFrame } from '../_support/transport/raw-peer.js';

const POOL_BYTES = 64 * 2 ** 20;
const NEVER_MS = 3_600_000;

async function serve(t: ExecutionContext) {
  const region = HostRegion.allocate(POOL_BYTES);
  const transport = await TcpTransport.create({ host: '127.0.0.1', env: systemEnvironment({ clock: patientClock }) });
  t.teardown(async () => {
    await transport.close();
    region.free();
  });
  const { rkey } = transport.registerMr(region.addr, region.length);
  const [, port] = transport.localEndpoint().split(':');
  return { region, transport, rkey, port: Number(port), endpoint: transport.localEndpoint() };
}

/** Sends many large requests at once; `isReading`: takes the answers and throws them away. */
async function greedyReader(t: ExecutionContext, port: number, op: RawOp, { isReading = false, requests = 64 } = {}) {
  const socket = net.connect({ host: '127.0.0.1', port, noDelay: true });
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  let bytes = 0;
  let id = 0;
  const ask = (count: number): void => {
    socket.write(Buffer.concat(Array.from({ length: count }, () => requestFrame(id++, [op]))));
  };
  socket.on('error', () => {});
  if (isReading) {
    socket.on('data', (chunk: Buffer) => {
      const before = Math.floor(bytes / op.length);
      bytes += chunk.length;
      // As many more as have been answered.
      ask(Math.max(1, Math.floor(bytes / op.length) - before));
    });
  } else {
    socket.pause();
  }
  socket.write(HELLO);
  ask(requests);
  return { bytes: () => bytes, end: () => socket.destroy() };
}

test.serial(
  'tcp overload: memory stays flat while readers ask many times what can be sent and read nothing',
  async (t) => {
    const { region, transport, rkey, port } = await serve(t);
    const op = { rkey, addr: region.addr, length: POOL_BYTES / 4 };
    const one = await greedyReader(t, port, op, { requests: 1 });
    await until(() => transport.stats().servedOps >= 1);
    one.end();
    const beforeBytes = process.memoryUsage().rss;
    const readers = 64;
    for (let i = 0; i < readers; i++) await greedyReader(t, port, op);
    await until(() => transport.stats().servedOps >= readers);
    const grownMib = (process.memoryUsage().rss - beforeBytes) / 2 ** 20;
    t.log(`${(readers * 64 * op.length) / 2 ** 30} GiB asked for, ${grownMib.toFixed(0)} MiB more memory`);
    t.true(grownMib < 96, `${grownMib.toFixed(0)} MiB more memory`);
    t.true(transport.stats().servedOps <= readers + 1, 'one answer a connection at a time');
  },
);

test.serial('tcp overload: a polite reader has its share beside greedy ones', async (t) => {
  const { region, rkey, port, endpoint } = await serve(t);
  const reader = await TcpTransport.create({
    host: '127.0.0.1',
    env: systemEnvironment({ clock: patientClock }),
    // However busy the machine is: no answer is overdue.
    limits: { patienceMinMs: NEVER_MS, stallTimeoutMs: NEVER_MS },
  });
  const target = HostRegion.allocate(2 ** 16);
  t.teardown(async () => {
    await reader.close();
    target.free();
  });
  const read = { remoteEndpoint: endpoint, localAddr: target.addr, remoteAddr: region.addr, rkey, length: 2 ** 16 };
  const msPerRead = async (count: number): Promise<number> => {
    const startMs = patientClock.nowMs();
    for (let i = 0; i < count; i++) t.deepEqual(await reader.batchRead([read]), [true]);
    return (patientClock.nowMs() - startMs) / count;
  };
  await msPerRead(100);
  const aloneMs = await msPerRead(300);
  const op = { rkey, addr: region.addr, length: 2 ** 20 };
  const greedy = await Promise.all(
    Array.from({ length: 4 }, () => greedyReader(t, port, op, { isReading: true, requests: 100 })),
  );
  await until(() => greedy.every(({ bytes }) => bytes() > 10 * op.length));
  const besideMs = await msPerRead(300);
  const greedyBytes = greedy.reduce((sum, { bytes }) => sum + bytes(), 0);
  t.log(`alone ${aloneMs.toFixed(2)} ms a page of 64 KiB, beside four greedy readers ${besideMs.toFixed(2)} ms`);
  t.log(`greedy readers got ${(greedyBytes / 2 ** 20).toFixed(0)} MiB`);
  // Each greedy reader has at most an answer of 1 MiB in front of a page of the polite one.
  t.true(besideMs < 100, `${besideMs.toFixed(1)} ms`);
});
