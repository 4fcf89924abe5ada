/** Requirements of a kind of fault, and how random scenarios draw it. */
interface FaultKindShape {
  /** Group of the kind. A node has at most one fault of each group at a time, and so does the source of addresses. */
  readonly group: 'process' | 'network' | 'disk' | 'clock' | 'source';
  /** Relative frequency in random scenarios. */
  readonly weight: number;
  readonly durationMs: readonly [least: number, most: number];
  /** Range of `amount`, drawn evenly on a logarithmic scale. */
  readonly amount?: readonly [least: number, most: number];
  /** Peers of the fault: all `others`, or `some` of them; undefined: it has none. */
  readonly peers?: 'others' | 'some';
  readonly needs?: 'disk' | 'source';
}

/** All kinds of faults. Each comment names the unit of `amount`. */
export const FAULT_KINDS = {
  /** The process is killed, and restarted at the end with the same name, ports and disk. */
  kill: { group: 'process', weight: 4, durationMs: [200, 8_000] },
  /** The host loses power with all of its processes: unflushed data of its disk is lost, torn or reordered. */
  power: { group: 'process', weight: 3, durationMs: [500, 8_000] },
  /** The host is replaced: it starts again with empty disks. */
  replace: { group: 'process', weight: 1, durationMs: [500, 8_000] },
  /** Several hosts lose power at once. */
  rack: { group: 'process', weight: 1, durationMs: [500, 6_000], peers: 'some' },
  /** The store is closed as a program closes it, and restarted. */
  restart: { group: 'process', weight: 2, durationMs: [50, 2_000] },
  /** The node is drained as by `meshcache drain` with a timeout of `amount` milliseconds, closed, and restarted. */
  drain: { group: 'process', weight: 1, durationMs: [50, 2_000], amount: [500, 4_000] },
  /** The process is frozen, for shorter or for longer than other members wait. */
  freeze: { group: 'process', weight: 3, durationMs: [200, 9_000] },
  /** The host is frozen with its kernel and its monotonic clock, like a virtual machine that is migrated. */
  sleep: { group: 'process', weight: 1, durationMs: [200, 9_000] },
  /** Each event of the host's programs takes `amount` microseconds. */
  busy: { group: 'process', weight: 1, durationMs: [1_000, 5_000], amount: [100, 5_000] },
  /** The host has no memory for the pool of a new process. The process is killed, and can start again at the end. */
  memory: { group: 'process', weight: 1, durationMs: [500, 4_000] },
  /** No messages pass between the host and all others. */
  isolate: { group: 'network', weight: 2, durationMs: [300, 6_000] },
  /** No messages pass between these hosts and the others. */
  partition: { group: 'network', weight: 3, durationMs: [500, 9_000], peers: 'others' },
  /** The host receives nothing from some others, but can send to them. */
  oneway: { group: 'network', weight: 2, durationMs: [500, 6_000], peers: 'some' },
  /** `amount` percent of the messages to and from the host are late, because TCP retransmits lost ones. */
  loss: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [1, 25] },
  /** All messages to and from the host are `amount` milliseconds late. */
  delay: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [5, 800] },
  /** The host's network carries `amount` bytes per second. */
  slow: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [200, 200_000] },
  /** The host's open connections stay open, but nothing passes through them. */
  stall: { group: 'network', weight: 2, durationMs: [500, 6_000] },
  /** The host's open connections are reset after `amount` bytes. */
  reset: { group: 'network', weight: 2, durationMs: [300, 3_000], amount: [1, 100_000] },
  /** The host refuses new connections. */
  refuse: { group: 'network', weight: 1, durationMs: [300, 3_000] },
  /** The disk is full. */
  diskfull: { group: 'disk', weight: 2, durationMs: [1_000, 6_000], needs: 'disk' },
  /** Reads and writes of the disk take `amount` times as long. */
  diskslow: { group: 'disk', weight: 2, durationMs: [1_000, 6_000], amount: [10, 3_000], needs: 'disk' },
  /** `amount` percent of the disk's reads, writes and flushes fail. */
  diskerror: { group: 'disk', weight: 1, durationMs: [500, 4_000], amount: [5, 100], needs: 'disk' },
  diskreadonly: { group: 'disk', weight: 1, durationMs: [500, 4_000], needs: 'disk' },
  /** `amount` bits of the disk's files flip. */
  bitrot: { group: 'disk', weight: 2, durationMs: [0, 0], amount: [1, 200], needs: 'disk' },
  /**
   * The wall clock jumps back or forward by `amount` milliseconds and stays there. Even several jumps together are not
   * so far that the node is refused.
   */
  clockjump: { group: 'clock', weight: 2, durationMs: [0, 0], amount: [500, 60_000] },
  /** Both clocks run fast or slow by `amount` parts per million. */
  clockdrift: { group: 'clock', weight: 1, durationMs: [2_000, 20_000], amount: [10, 50_000] },
  /** The wall clock stops. */
  clockstop: { group: 'clock', weight: 1, durationMs: [500, 10_000] },
  /** DNS answers with an error; the port of etcd refuses connections, and its watches end. */
  sourcedown: { group: 'source', weight: 3, durationMs: [500, 12_000], needs: 'source' },
  /** DNS or etcd does not answer. */
  sourcesilent: { group: 'source', weight: 3, durationMs: [500, 12_000], needs: 'source' },
  /** DNS has no records; etcd loses all its data at the beginning. */
  sourcewipe: { group: 'source', weight: 2, durationMs: [500, 8_000], needs: 'source' },
  /** DNS has only records of dead hosts; etcd is restarted at the end with the data that it had at the beginning. */
  sourceold: { group: 'source', weight: 2, durationMs: [500, 12_000], needs: 'source' },
} as const satisfies Record<string, FaultKindShape>;

/** Name of a kind of fault. */
export type FaultKind = keyof typeof FAULT_KINDS;

/** The shape of a kind, including its optional parts. */
export function shapeOf(kind: FaultKind): FaultKindShape {
  return FAULT_KINDS[kind];
}

/** Kinds of faults of nodes and their hosts. */
export const NODE_FAULT_KINDS = (Object.keys(FAULT_KINDS) as FaultKind[]).filter(
  (kind) => shapeOf(kind).group !== 'source',
);

/** Faults after which a node runs as another process. */
export const RESTARTS: ReadonlySet<FaultKind> = new Set([
  'kill',
  'power',
  'replace',
  'rack',
  'restart',
  'drain',
  'memory',
]);

/**
 * A fault from `atMs` on. Nodes are numbers from 1. A fault of hosts affects the hosts of these nodes, and a fault of
 * the source has no nodes.
 */
export interface Fault {
  readonly kind: FaultKind;
  readonly atMs: number;
  readonly durationMs: number;
  readonly nodes: readonly number[];
  /** The other side of a fault between nodes; otherwise empty. */
  readonly peers: readonly number[];
  readonly amount: number;
}

/** Nodes that start later than the others. */
export interface Join {
  readonly atMs: number;
  readonly nodes: readonly number[];
}
