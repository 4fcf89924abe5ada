import test, { type ExecutionContext } from 'ava';
import type { Clock } from '../../src/base/environment/clock.js';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { systemClock } from '../../src/system/system-clock.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { type TcpLimits, tcpLimits } from '../../src/transport/tcp/protocol/limits.js';
import { type Registration, registrationOf } from '../../src/transport/tcp/serving/registrations.js';
import { ServingThread } from '../../src/transport/tcp/serving/serving-thread.js';
import { content, until } from '../_support/support.js';
import { HELLO, RawReader, RESPONSE_BYTES, requestFrame, responseHeader } from '../_support/transport/raw-peer.js';

const LENGTH = 1000;
const RESTART_DELAY_MS = 1;
const [GOOD, BROKEN, LATER] = [1, 2, 3] as const;
const ANSWER_BYTES = HELLO.length + RESPONSE_BYTES + LENGTH;

/** A serving thread with memory that it can serve, and one registration that makes it fail when it is read. */
class Served {
  readonly records: string[] = [];
  readonly counts: string[] = [];
  readonly region = HostRegion.allocate(LENGTH);
  /** Added to the clock. */
  skewMs = 0;
  /** Threads that have been started, or tried to, after the first one. */
  restarts = 0;
  thread!: ServingThread;

  static async start(t: ExecutionContext, limits: Partial<TcpLimits> = {}): Promise<Served> {
    const served = new Served();
    served.region.bytes().set(content(1, LENGTH));
    const clock: Clock = {
      ...systemClock,
      nowMs: () => systemClock.nowMs() + served.skewMs,
      after: (delayMs, fn, options) =>
        systemClock.after(
          delayMs,
          () => {
            fn();
            served.restarts++;
          },
          options,
        ),
    };
    const env = systemEnvironment({
      clock,
      // Why a thread could not be started again is of interest when a test fails.
      log: { log: (_level, message, fields) => served.records.push(`${message}${fields?.reason ?? ''}`) },
      metrics: { ...noMetrics, count: (name) => served.counts.push(name) },
    });
    served.thread = await ServingThread.start({
      host: '127.0.0.1',
      port: 0,
      limits: tcpLimits({ servingRestartDelayMs: RESTART_DELAY_MS, ...limits }),
      env,
    });
    t.teardown(async () => {
      await served.thread.close();
      served.region.free();
    });
    served.thread.register(served.registration(GOOD));
    // Its memory is missing, which the thread finds out by an error when it is to send it.
    const segments = [undefined as unknown as Uint8Array];
    served.thread.register({ ...served.registration(BROKEN), segments });
    return served;
  }

  registration(rkey: number): Registration {
    return registrationOf(this.region, rkey, this.region.start, LENGTH);
  }

  /** What the thread answers when it is asked for the memory, as far as it comes. */
  async read(t: ExecutionContext, rkey: number): Promise<Buffer> {
    const reader = await RawReader.connect(t, `127.0.0.1:${this.thread.port}`);
    reader.send(HELLO, requestFrame(7, [{ rkey, addr: this.region.addr, length: LENGTH }]));
    const received = await reader.receive(HELLO.length + RESPONSE_BYTES);
    const answer = received.readUInt8(HELLO.length + 24) === 1 ? await reader.receive(ANSWER_BYTES) : received;
    reader.socket.destroy();
    return answer;
  }

  async fail(t: ExecutionContext): Promise<void> {
    const before = this.records.length;
    const reader = await RawReader.connect(t, `127.0.0.1:${this.thread.port}`);
    reader.send(HELLO, requestFrame(7, [{ rkey: BROKEN, addr: this.region.addr, length: LENGTH }]));
    await reader.closed();
    await until(() => this.records.length > before);
  }

  async listensAgain(): Promise<void> {
    const isAgain = (): boolean => this.records.at(-1) === 'serving thread restarted';
    await until(isAgain).catch(() => {
      throw new Error(`not started again: ${this.records.join('; ')}`);
    });
  }
}

function granted(region: HostRegion): Buffer {
  return Buffer.concat([HELLO, responseHeader(7, 1, { payloadBytes: LENGTH }), region.bytes()]);
}

const REFUSED = Buffer.concat([HELLO, responseHeader(7, 1, { grantedOps: 0 })]);

// A thread that failed was only logged: the node stayed a member that nobody could read from.
test('serving thread: one that fails is followed by another on the same port with the same registrations', async (t) => {
  const served = await Served.start(t);
  const { thread, region } = served;
  const idle = await RawReader.connect(t, `127.0.0.1:${thread.port}`);
  await idle.receive(HELLO.length);
  const { port } = thread;
  await served.fail(t);
  await idle.closed();
  thread.register(served.registration(LATER));
  await served.listensAgain();

  t.is(thread.port, port);
  t.deepEqual(await served.read(t, GOOD), granted(region));
  t.deepEqual(await served.read(t, LATER), granted(region));
  await thread.deregister(LATER);
  t.deepEqual(await served.read(t, LATER), REFUSED);
  t.deepEqual(served.counts, ['meshcache_transport_serving_restarts_total']);
  t.is(served.records[0], 'serving thread failed; restarting it');
  await until(() => thread.counters.value('connections') === 0);
});

test('serving thread: what was deregistered before or while it was down is not served afterwards', async (t) => {
  const served = await Served.start(t);
  await served.thread.deregister(GOOD);
  served.thread.register(served.registration(LATER));
  await served.fail(t);
  await served.thread.deregister(LATER);
  await served.listensAgain();
  t.deepEqual(await served.read(t, GOOD), REFUSED);
  t.deepEqual(await served.read(t, LATER), REFUSED);
});

test('serving thread: one that fails again and again is given up, one that has lasted counts anew', async (t) => {
  const served = await Served.start(t, { servingRestartsMaxCount: 2 });
  for (let i = 0; i < 2; i++) {
    await served.fail(t);
    await served.listensAgain();
  }
  served.skewMs += tcpLimits().servingLastsMs;
  for (let i = 0; i < 2; i++) {
    await served.fail(t);
    await served.listensAgain();
  }
  await served.fail(t);
  t.is(served.records.at(-1), 'serving thread failed; peers cannot read from this node any more');
  t.is(served.counts.length, 4);
  await served.thread.deregister(GOOD);
  await served.thread.close();
});

test('serving thread: close ends it also while it is down or starting', async (t) => {
  for (const moment of ['down', 'starting'] as const) {
    const served = await Served.start(t, { servingRestartDelayMs: moment === 'down' ? 60_000 : RESTART_DELAY_MS });
    const before = served.thread.port;
    await served.fail(t);
    if (moment === 'starting') await until(() => served.restarts > 0);
    await served.thread.close();
    const next = await ServingThread.start({
      host: '127.0.0.1',
      port: before,
      limits: tcpLimits(),
      env: systemEnvironment(),
    });
    t.is(next.port, before, moment);
    await next.close();
  }
});
