/** What a fault needs, and how it is drawn by chance. */
interface FaultKindShape {
  /** A node has at most one fault of each group at a time. */
  readonly group: 'process' | 'network' | 'disk' | 'clock';
  /** How often it is drawn, beside the others. */
  readonly weight: number;
  readonly durationMs: readonly [least: number, most: number];
  /** What `amount` is drawn from, evenly on a logarithmic scale. */
  readonly amount?: readonly [least: number, most: number];
  /** It happens between `nodes` and `peers`, or to a node and all others. */
  readonly peers?: 'others' | 'some';
  readonly needs?: 'disk';
}

/** All kinds of faults. `amount` is in the unit that the comment names. */
export const FAULT_KINDS = {
  /** The process is killed; it is started again at the end, with the same name, ports and disk. */
  kill: { group: 'process', weight: 4, durationMs: [200, 8_000] },
  /** The host loses power with all of its processes: what its disk had not flushed is lost, torn or in another order. */
  power: { group: 'process', weight: 3, durationMs: [500, 8_000] },
  /** The host is replaced: it starts again with empty disks. */
  replace: { group: 'process', weight: 1, durationMs: [500, 8_000] },
  /** Several hosts lose power at once. */
  rack: { group: 'process', weight: 1, durationMs: [500, 6_000], peers: 'some' },
  /** Closed as a program closes it, and started again. */
  restart: { group: 'process', weight: 2, durationMs: [50, 2_000] },
  /** Drained as by `meshcache drain`, closed when it has left or after `amount` milliseconds, and started again. */
  drain: { group: 'process', weight: 1, durationMs: [50, 2_000], amount: [500, 4_000] },
  /** The process stands still, for shorter and for longer than members are waited for. */
  freeze: { group: 'process', weight: 3, durationMs: [200, 9_000] },
  /** The host stands still, its kernel and its monotonic clock too, as a virtual machine that is moved. */
  sleep: { group: 'process', weight: 1, durationMs: [200, 9_000] },
  /** Microseconds that each event of the host's programs takes. */
  busy: { group: 'process', weight: 1, durationMs: [1_000, 5_000], amount: [100, 5_000] },
  /** The host cannot give memory for a pool to a process that is started; the process is killed, and tries again at the end. */
  memory: { group: 'process', weight: 1, durationMs: [500, 4_000] },
  /** Nothing goes between the host and all others. */
  isolate: { group: 'network', weight: 2, durationMs: [300, 6_000] },
  /** Nothing goes between these hosts and the others. */
  partition: { group: 'network', weight: 3, durationMs: [500, 9_000], peers: 'others' },
  /** The host does not hear some others, which do hear it. */
  oneway: { group: 'network', weight: 2, durationMs: [500, 6_000], peers: 'some' },
  /** Percent of the messages to and from the host come late, as TCP repeats what is lost. */
  loss: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [1, 25] },
  /** Milliseconds that all messages to and from the host are late. */
  delay: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [5, 800] },
  /** Bytes a second of the host. */
  slow: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [200, 200_000] },
  /** The connections that the host has stay open, but nothing goes through. */
  stall: { group: 'network', weight: 2, durationMs: [500, 6_000] },
  /** The connections that the host has are reset after so many bytes. */
  reset: { group: 'network', weight: 2, durationMs: [300, 3_000], amount: [1, 100_000] },
  /** The host refuses new connections. */
  refuse: { group: 'network', weight: 1, durationMs: [300, 3_000] },
  /** The disk has no room. */
  diskfull: { group: 'disk', weight: 2, durationMs: [1_000, 6_000], needs: 'disk' },
  /** Reads and writes of the disk take so many times as long. */
  diskslow: { group: 'disk', weight: 2, durationMs: [1_000, 6_000], amount: [10, 3_000], needs: 'disk' },
  /** Percent of the disk's reads, writes and flushes fail. */
  diskerror: { group: 'disk', weight: 1, durationMs: [500, 4_000], amount: [5, 100], needs: 'disk' },
  diskreadonly: { group: 'disk', weight: 1, durationMs: [500, 4_000], needs: 'disk' },
  /** So many bits of the disk's files turn over. */
  bitrot: { group: 'disk', weight: 2, durationMs: [0, 0], amount: [1, 200], needs: 'disk' },
  /** The wall clock jumps so many milliseconds, back or forth, and stays so. */
  clockjump: { group: 'clock', weight: 2, durationMs: [0, 0], amount: [500, 86_400_000] },
  /** Both clocks are fast or slow by so many parts in a million. */
  clockdrift: { group: 'clock', weight: 1, durationMs: [2_000, 20_000], amount: [10, 50_000] },
  /** The wall clock stands still. */
  clockstop: { group: 'clock', weight: 1, durationMs: [500, 10_000] },
} as const satisfies Record<string, FaultKindShape>;

/** Name of a kind of fault. */
export type FaultKind = keyof typeof FAULT_KINDS;

/** A kind's shape, its optional parts included. */
export function shapeOf(kind: FaultKind): FaultKindShape {
  return FAULT_KINDS[kind];
}

/** A node is another process after these. */
export const RESTARTS: ReadonlySet<FaultKind> = new Set([
  'kill',
  'power',
  'replace',
  'rack',
  'restart',
  'drain',
  'memory',
]);

/** Something that happens to nodes (numbers from 1 on; to their hosts, where a fault is the host's) from `atMs` on. */
export interface Fault {
  readonly kind: FaultKind;
  readonly atMs: number;
  readonly durationMs: number;
  readonly nodes: readonly number[];
  /** The other side of what lies between nodes; for others it is empty. */
  readonly peers: readonly number[];
  readonly amount: number;
}

/** Nodes that start later than the others do. */
export interface Join {
  readonly atMs: number;
  readonly nodes: readonly number[];
}
