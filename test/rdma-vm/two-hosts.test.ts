import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import type { ServedRegion, ServingOptions } from '../_support/rdma/serving-process.js';
import { OP_BYTES, type WatchEvent, type WatchOptions } from '../_support/rdma/watch-protocol.js';
import { type MachinePair, startMachinePair } from './machines.js';

const isAsked = process.env.MESHCACHE_TEST_MACHINES !== undefined;
const suffix = isAsked ? '' : ' (skipped: needs virtual machines, see npm run test:rdma)';
const hostTest = isAsked ? test.serial : test.serial.skip;

const REGION_BYTES = 256 * 1024;
const STALL_TIMEOUT_MS = 1_500;
/** Of a batch: as EngineReader gives it, with some room, for a machine that is slow as these are. */
const DEADLINE_MS = STALL_TIMEOUT_MS + 250 + 2_000;
const DELAY_MS = 4_000;
const EXEC_TIMEOUT_MS = 120_000;
const DSCP = 46;
/** Prints the sources of packets of RoCE v2 with this traffic class, and ends when both ends of the network have sent some. */
const MARKED_PACKETS = `
import socket
ETH_P_ALL, ROCE_PORT, TRAFFIC_CLASS = 3, 4791, ${DSCP << 2}
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
print("listening", flush=True)
seen = set()
while len(seen) < 2:
    packet = packets.recv(64)
    udp = packet[4 * (packet[0] & 15) :]
    if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_UDP or int.from_bytes(udp[2:4], "big") != ROCE_PORT: continue
    # The two lower bits are those of explicit congestion notification.
    if packet[1] & 0xFC == TRAFFIC_CLASS: seen.add(socket.inet_ntoa(packet[12:16]))
print(*sorted(seen), flush=True)
`;

let pair: MachinePair;

if (isAsked) {
  test.before(async (t) => {
    t.timeout(300_000);
    pair = await startMachinePair();
  });
  test.after.always(() => pair?.close());
}

function commandOf(program: string, options: object): string {
  const path = fileURLToPath(new URL(`./${program}`, import.meta.url));
  return `exec '${process.execPath}' '${path}' '${JSON.stringify(options)}'`;
}

/** Starts a serving process on the other host; it lives until its machine goes. */
async function serve(options: Omit<ServingOptions, 'length'>): Promise<ServedRegion> {
  const command = commandOf('rdma-serving-program.js', { ...options, length: REGION_BYTES });
  let said = '';
  return new Promise((resolve, reject) => {
    const onOutput = (text: string): void => {
      said += text;
      const [line] = /^\{.*\n/m.exec(said) ?? [];
      if (line !== undefined) resolve(JSON.parse(line) as ServedRegion);
    };
    const running = pair.server.exec(command, { timeoutMs: 10 * EXEC_TIMEOUT_MS, onOutput });
    running.then(({ output }) => reject(new Error(`the serving process ended: ${output}`)), reject);
  });
}

/** Runs the watching reader; what `on` has for an event is done when the first of its kind is told. */
async function watch(
  t: ExecutionContext,
  options: Omit<WatchOptions, 'stallTimeoutMs'> & { readonly stallTimeoutMs?: number },
  on: Partial<Record<WatchEvent['event'], () => Promise<unknown>>> = {},
): Promise<WatchEvent[]> {
  const command = commandOf('rdma-watching-program.js', { stallTimeoutMs: STALL_TIMEOUT_MS, ...options });
  const events: WatchEvent[] = [];
  const begun = new Map<string, Promise<unknown> | undefined>();
  let rest = '';
  const onOutput = (text: string): void => {
    const lines = `${rest}${text}`.split('\n');
    rest = lines.pop() as string;
    for (const line of lines.filter((each) => each.startsWith('{'))) {
      const event = JSON.parse(line) as WatchEvent;
      events.push(event);
      if (!begun.has(event.event)) begun.set(event.event, on[event.event]?.());
    }
  };
  const { status, output } = await pair.reader.exec(command, { timeoutMs: EXEC_TIMEOUT_MS, onOutput });
  await Promise.all(begun.values());
  t.log(output.trim());
  if (status !== 0) throw new Error(`the reading process ended with status ${status}: ${output}`);
  return events;
}

function readTimes(count: number) {
  return [{ event: 'first', wrong: 0 }, ...Array.from({ length: count }, () => ({ event: 'read', wrong: 0 }))];
}

async function onServer(command: string): Promise<void> {
  const { status, output } = await pair.server.exec(command, { timeoutMs: EXEC_TIMEOUT_MS });
  if (status !== 0) throw new Error(`${command}: ${output}`);
}

hostTest(`two hosts: bytes are right over IPv4 and IPv6${suffix}`, async (t) => {
  t.timeout(2 * EXEC_TIMEOUT_MS);
  for (const [seed, prefix] of ['10.77.0.', 'fd77::'].entries()) {
    const source = await serve({ bindHost: `${prefix}2`, seed });
    const events = await watch(t, { source, seed, bindHost: `${prefix}1`, watchMs: 0, batches: 3 });
    t.deepEqual(
      events.map(({ event, wrong }) => ({ event, wrong })),
      readTimes(3),
    );
  }
});

hostTest(`two hosts: packets of both directions have the traffic class of the one that reads${suffix}`, async (t) => {
  t.timeout(2 * EXEC_TIMEOUT_MS);
  const source = await serve({ bindHost: '10.77.0.2', seed: 2 });
  let hears = (): void => {};
  const listening = new Promise<void>((resolve) => {
    hears = resolve;
  });
  const marked = pair.reader.exec(`exec python3 -c '${MARKED_PACKETS}'`, {
    timeoutMs: EXEC_TIMEOUT_MS,
    onOutput: (text) => text.includes('listening') && hears(),
  });
  await listening;
  await watch(t, { source, seed: 2, bindHost: '10.77.0.1', watchMs: 0, batches: 3, dscp: DSCP });
  t.like(await marked, { status: 0, output: 'listening\n10.77.0.1 10.77.0.2\n' });
});

hostTest(`two hosts: a network that delays and loses packets costs time, not reads${suffix}`, async (t) => {
  t.timeout(2 * EXEC_TIMEOUT_MS);
  const source = await serve({ bindHost: '10.77.0.2', seed: 3 });
  await onServer('tc qdisc add dev eth0 root netem delay 2ms loss 5%');
  // Lost packets are sent again by the devices, after timeouts of theirs.
  const options = { source, seed: 3, bindHost: '10.77.0.1', watchMs: 0, batches: 5, stallTimeoutMs: 30_000 };
  const events = await watch(t, options);
  const { output } = await pair.server.exec('tc -s qdisc show dev eth0; tc qdisc del dev eth0 root', {
    timeoutMs: EXEC_TIMEOUT_MS,
  });
  t.true(Number(/\(dropped (\d+),/.exec(output)?.[1]) > 0, output);
  t.deepEqual(
    events.map(({ event, wrong }) => ({ event, wrong })),
    readTimes(5),
  );
});

hostTest(`two hosts: what comes after the deadline does not get into the buffer${suffix}`, async (t) => {
  t.timeout(2 * EXEC_TIMEOUT_MS);
  const source = await serve({ bindHost: '10.77.0.2', seed: 4 });
  const events = await watch(
    t,
    { source, seed: 4, bindHost: '10.77.0.1', watchMs: 2 * DELAY_MS, recovers: true },
    {
      read: () => onServer(`tc qdisc add dev eth0 root netem delay ${DELAY_MS}ms limit 100000`),
      lost: () => onServer('tc qdisc del dev eth0 root'),
    },
  );
  const lost = events.find((event) => event.event === 'lost');
  t.truthy(lost);
  if (lost?.event !== 'lost') return;
  t.is(lost.wrong, 0);
  t.true(lost.elapsedMs < DEADLINE_MS, `${lost.elapsedMs} ms`);
  // The delay may begin when a batch has all but its last operation.
  t.true(lost.falseOps > 0 && lost.lateBytes > (lost.falseOps * OP_BYTES) / 2, 'data came late');
  t.true(lost.isUntouched);
  t.like(events.at(-1), { event: 'recovered', wrong: 0 });
});

hostTest(`two hosts: a host that is lost in the middle of reads is false within the deadline${suffix}`, async (t) => {
  t.timeout(2 * EXEC_TIMEOUT_MS);
  const source = await serve({ bindHost: '10.77.0.2', seed: 5 });
  const events = await watch(
    t,
    { source, seed: 5, bindHost: '10.77.0.1', watchMs: DELAY_MS },
    {
      read: () => pair.server.kill(),
    },
  );
  const lost = events.at(-1);
  t.like(lost, { event: 'lost', wrong: 0, isUntouched: true });
  t.true(lost?.event === 'lost' && lost.falseOps > 0 && lost.elapsedMs < DEADLINE_MS);
  t.true(pair.reader.isRunning);
});
