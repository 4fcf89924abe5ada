import type { LinkTrouble } from './network/link.js';
import type { SimConnection } from './network/sim-connection.js';
import type { SimHost } from './sim-host.js';
import type { World } from './world.js';

/** One fault as plain data. A list of faults is a plan that can be stored, shortened and run again. */
export interface Fault {
  /** Virtual milliseconds at which the fault begins. */
  readonly atMs: number;
  readonly kind: FaultKind;
  /** Names of hosts; `rack:NAME` is every host of a rack. Unknown names are ignored. */
  readonly targets: readonly string[];
  /** The other side of a network fault; default: all other hosts. */
  readonly peers?: readonly string[];
  /** Milliseconds until the fault ends; undefined: it does not end. */
  readonly durationMs?: number;
  /** Amount in the unit given in {@link FAULT_KINDS}. */
  readonly amount?: number;
}

/** Kinds of faults. Each value is the unit and the default of `amount`, and is empty for a kind without one. */
export const FAULT_KINDS = {
  /** Processes are killed, and restarted at the end. */
  kill: '',
  /** The power fails; at the end the hosts restart with the data that their disks have kept. */
  crash: '',
  /** The power fails; at the end the hosts restart with empty disks. */
  replace: '',
  /** Processes are stopped while their kernels continue. */
  stop: '',
  /** Hosts are frozen, including their kernels. */
  freeze: '',
  /** Hosts are frozen like in `freeze`, and so are their monotonic clocks. */
  sleep: '',
  /** Every event of a program takes longer. */
  slow: 'milliseconds (1)',
  /** No messages pass between targets and peers, in either direction. */
  partition: '',
  /** The targets receive nothing from the peers, but can send. */
  deaf: '',
  /** The targets send nothing to the peers, but can receive. */
  mute: '',
  /** Messages between targets and peers take longer. */
  delay: 'milliseconds (20)',
  /** Messages are lost with this probability, and retransmitted later. */
  loss: 'probability (0.05)',
  /** A link between a target and a peer has this bandwidth. */
  throttle: 'bytes a second (1 MiB)',
  /** Nothing more arrives on the open connections. */
  stall: '',
  /** The open connections end with a reset, after this many more bytes in one direction. */
  reset: 'bytes (0: at once)',
  /** Targets refuse new connections. */
  refuse: '',
  /** Wall clocks jump forward or back. */
  'clock-jump': 'milliseconds (60000)',
  /** Clocks run fast or slow. */
  'clock-drift': 'parts in a million (500)',
  /** Wall clocks stop. */
  'clock-stop': '',
  'disk-full': '',
  'disk-read-only': '',
  'disk-slow': 'factor (100)',
  /** Reads and writes fail with this probability. */
  'disk-errors': 'probability (0.1)',
  /** Flushes fail with this probability, and a crash then loses their data. */
  'disk-flush-errors': 'probability (0.5)',
  /** Bits of the disk's data flip. */
  'disk-rot': 'bits (8)',
  /** Memory for pages is limited to this amount. */
  memory: 'bytes (0)',
  /** The name service answers with an error (`names-silent`: not at all), whatever the targets. */
  'names-down': '',
  'names-silent': '',
  /** The port of etcd refuses connections (`etcd-silent`: etcd does not answer), whatever the targets. */
  'etcd-down': '',
  'etcd-silent': '',
  /** etcd loses its data. */
  'etcd-wipe': '',
} as const;

export type FaultKind = keyof typeof FAULT_KINDS;

interface Scene {
  readonly world: World;
  readonly hosts: readonly SimHost[];
  readonly peers: readonly SimHost[];
}

/** Begins the fault, and returns a function that ends it, if it can end. */
type Effect = (scene: Scene, amount: number | undefined) => (() => void) | undefined;

const MEBIBYTE = 2 ** 20;

const EFFECTS: Readonly<Record<FaultKind, Effect>> = {
  'names-down': ({ world: { names } }) => names.fail('down'),
  'names-silent': ({ world: { names } }) => names.fail('silent'),
  'etcd-down': ({ world: { etcd } }) => etcd.fail('down'),
  'etcd-silent': ({ world: { etcd } }) => etcd.fail('silent'),
  'etcd-wipe': ({ world: { etcd } }) => {
    etcd.restart();
    return undefined;
  },
  kill: ({ hosts }) => {
    for (const host of hosts) host.killAll();
    return () => {
      for (const host of hosts) if (host.isUp && host.processes.size === 0) host.boot();
    };
  },
  crash: ({ hosts }) => crash(hosts, true),
  replace: ({ hosts }) => crash(hosts, false),
  stop: ({ hosts }) =>
    onEach(
      hosts,
      (host) => host.stopAll(),
      (host) => host.continueAll(),
    ),
  freeze: ({ hosts }) =>
    onEach(
      hosts,
      (host) => host.freeze(),
      (host) => host.thaw(),
    ),
  sleep: ({ hosts }) =>
    onEach(
      hosts,
      (host) => host.freeze({ isAsleep: true }),
      (host) => host.thaw(),
    ),
  slow: ({ hosts }, ms = 1) =>
    onEach(
      hosts,
      (host) => host.setEventCost(ms),
      (host) => host.setEventCost(0),
    ),
  partition: (scene) => troubled(scene, { isBlocked: true }),
  deaf: (scene) => troubled(scene, { isBlocked: true }, 'in'),
  mute: (scene) => troubled(scene, { isBlocked: true }, 'out'),
  delay: (scene, addedLatencyMs = 20) => troubled(scene, { addedLatencyMs }),
  loss: (scene, lossProbability = 0.05) => troubled(scene, { lossProbability }),
  throttle: (scene, bytesPerS = MEBIBYTE) => troubled(scene, { bytesPerS }),
  stall: (scene) => {
    const connections = connectionsOf(scene);
    for (const connection of connections) connection.setStalled(true);
    return () => {
      for (const connection of connections) connection.setStalled(false);
    };
  },
  reset: (scene, bytes = 0) => {
    for (const connection of connectionsOf(scene)) connection.cutAfter(bytes);
    return undefined;
  },
  refuse: ({ hosts }) =>
    onEach(
      hosts,
      ({ network }) => (network.isRefusing = true),
      ({ network }) => (network.isRefusing = false),
    ),
  'clock-jump': ({ hosts }, ms = 60_000) => {
    for (const { time } of hosts) time.jump(ms);
    return undefined;
  },
  'clock-drift': ({ hosts }, ppm = 500) =>
    onEach(
      hosts,
      ({ time }) => time.setDrift(ppm),
      ({ time }) => time.setDrift(0),
    ),
  'clock-stop': ({ hosts }) =>
    onEach(
      hosts,
      ({ time }) => time.stopWall(),
      ({ time }) => time.startWall(),
    ),
  'disk-full': ({ hosts }) =>
    onEach(
      hosts,
      ({ disk }) => (disk.isFull = true),
      ({ disk }) => (disk.isFull = false),
    ),
  'disk-read-only': ({ hosts }) =>
    onEach(
      hosts,
      ({ disk }) => (disk.isReadOnly = true),
      ({ disk }) => (disk.isReadOnly = false),
    ),
  'disk-slow': ({ hosts }, factor = 100) =>
    onEach(
      hosts,
      ({ disk }) => (disk.slowness = factor),
      ({ disk }) => (disk.slowness = 1),
    ),
  'disk-errors': ({ hosts }, probability = 0.1) =>
    onEach(
      hosts,
      ({ disk }) => Object.assign(disk.errorProbability, { read: probability, write: probability }),
      ({ disk }) => Object.assign(disk.errorProbability, { read: 0, write: 0 }),
    ),
  'disk-flush-errors': ({ hosts }, probability = 0.5) =>
    onEach(
      hosts,
      ({ disk }) => (disk.errorProbability.flush = probability),
      ({ disk }) => (disk.errorProbability.flush = 0),
    ),
  'disk-rot': ({ hosts }, bits = 8) => {
    for (const { disk } of hosts) disk.rot(bits);
    return undefined;
  },
  memory: ({ hosts }, bytes = 0) =>
    onEach(
      hosts,
      (host) => host.limitMemory(bytes),
      (host) => host.limitMemory(undefined),
    ),
};

/**
 * Begins a fault now, regardless of its `atMs`, and ends it when its duration is over. If faults of one kind with the
 * same targets and peers overlap, all of them last until the last one ends.
 */
export function applyFault(world: World, fault: Fault): void {
  const hosts = hostsOf(world, fault.targets);
  const peers = fault.peers === undefined ? othersThan(world, hosts) : hostsOf(world, fault.peers);
  const isLast = overlaps(world, fault, hosts);
  const end = EFFECTS[fault.kind]({ world, hosts, peers }, fault.amount);
  if (end === undefined || fault.durationMs === undefined) return;
  world.at(world.nowMs + fault.durationMs, () => {
    if (isLast()) end();
  });
}

/** Schedules every fault of a plan. */
export function scheduleFaults(world: World, faults: readonly Fault[]): void {
  for (const fault of faults) world.at(fault.atMs, () => applyFault(world, fault));
}

/**
 * Counts a fault as active. The returned function ends that, and tells whether it was the last of its kind and targets.
 */
function overlaps(world: World, { kind, targets, peers = [] }: Fault, hosts: readonly SimHost[]): () => boolean {
  // Rules between hosts add up, and each is removed separately.
  if (hosts.length === 0 || kind in TROUBLES) return () => true;
  const key = [kind, ...targets, ...peers].join(' ');
  const { faultsUnderWay } = world;
  faultsUnderWay.set(key, (faultsUnderWay.get(key) ?? 0) + 1);
  return () => {
    const count = (faultsUnderWay.get(key) ?? 1) - 1;
    faultsUnderWay.set(key, count);
    return count === 0;
  };
}

const TROUBLES = { partition: true, deaf: true, mute: true, delay: true, loss: true, throttle: true };

function crash(hosts: readonly SimHost[], keepsDisks: boolean): () => void {
  for (const host of hosts) host.crash();
  return () => {
    for (const host of hosts) if (!host.isUp) host.restart({ keepsDisks });
  };
}

function onEach(
  hosts: readonly SimHost[],
  begin: (host: SimHost) => unknown,
  end: (host: SimHost) => unknown,
): () => void {
  for (const host of hosts) begin(host);
  return () => {
    for (const host of hosts) end(host);
  };
}

function troubled(
  { world, hosts, peers }: Scene,
  trouble: LinkTrouble,
  direction: 'in' | 'out' | 'both' = 'both',
): () => void {
  const [own, others] = [hosts, peers].map((sides) => new Set(sides.map(({ network }) => network)));
  if (own === undefined || others === undefined) return () => {};
  const ends: (() => void)[] = [];
  if (direction !== 'in') ends.push(world.fabric.addRule({ from: own, to: others, trouble }));
  if (direction !== 'out') ends.push(world.fabric.addRule({ from: others, to: own, trouble }));
  return () => {
    for (const end of ends) end();
  };
}

function connectionsOf({ hosts, peers }: Scene): SimConnection[] {
  const others = new Set(peers.map(({ network }) => network));
  return hosts.flatMap(({ network }) =>
    [...network.connections].filter(({ peerNetwork }) => peerNetwork !== undefined && others.has(peerNetwork)),
  );
}

function hostsOf(world: World, names: readonly string[]): SimHost[] {
  const all = [...world.hosts.values()];
  return all.filter(({ name, rack }) => names.includes(name) || names.includes(`rack:${rack}`));
}

function othersThan(world: World, hosts: readonly SimHost[]): SimHost[] {
  return [...world.hosts.values()].filter((host) => !hosts.includes(host));
}
