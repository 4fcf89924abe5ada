/** Records that travel between nodes. Unknown fields are ignored, so that versions can be mixed. */

import { ProtocolError } from './base/errors.js';
import { shown } from './base/shown.js';

/** How pages are read from another node. */
export type DataProtocol = 'rdma' | 'tcp';
/** Better ones first: the order in which a record has them. */
const DATA_PROTOCOLS: readonly DataProtocol[] = ['rdma', 'tcp'];
/** Where the owner has the page. */
export type Tier = 'memory' | 'disk';
/**
 * What a key stands for. `named`: one content at a time, the newest that was set. `computed`: a page that several nodes
 * may compute, each with bytes of its own, all of them right.
 */
export type EntryKind = 'named' | 'computed';
/**
 * What a node is for. `peer`: it serves the programs that use it. `storage`: it also takes pages of peers that place
 * them there.
 */
export type NodeRole = 'peer' | 'storage';

/** Largest stamp or tail of a page: both are six bytes. */
export const STAMP_MAX = 2 ** 48 - 1;

/** Where one page is: on which node, at which address of its pool, and what it must hash to. */
export interface DataLocationInit {
  readonly nodeId: string;
  /** `host:port` of the owner's data plane. */
  readonly rdmaEndpoint: string;
  readonly remoteAddr: bigint;
  readonly rkey: number;
  /** Bytes. */
  readonly length: number;
  /** CRC-32 (IEEE) of the page. */
  readonly checksum?: number;
  /** The owner's start (see {@link NodeInfo}); a restarted owner's older locations are void. */
  readonly incarnation?: number;
  /** Order of this node's own statements on its keys; 0: not stated yet. */
  readonly generation?: number;
  readonly tier?: Tier;
  /**
   * What stands in the pool in place of the page's last bytes (see `memory/page-stamp.ts`); 0: nothing, the page lies
   * there as it is.
   */
  readonly stamp?: number;
  /** The page's last bytes, in whose place the stamp stands, as a number. */
  readonly tail?: number;
  /** When the content was set, by the hybrid clock of the cluster; 0: not known, and not compared. */
  readonly version?: number;
  readonly kind?: EntryKind;
  /**
   * A copy: the origin of the node that has set the content, a number below 2^32 (see `originOf`); 0: the node of the
   * location has set it.
   */
  readonly setBy?: number;
  /** Time of the cluster's hybrid clock from which on the page is expired; 0: never. */
  readonly expires?: number;
}

/** Where one page is; see {@link DataLocationInit}. Immutable. */
export class DataLocation {
  readonly nodeId: string;
  readonly rdmaEndpoint: string;
  readonly remoteAddr: bigint;
  readonly rkey: number;
  readonly length: number;
  readonly checksum: number;
  readonly incarnation: number;
  readonly generation: number;
  readonly tier: Tier;
  readonly stamp: number;
  readonly tail: number;
  readonly version: number;
  readonly kind: EntryKind;
  readonly setBy: number;
  readonly expires: number;

  constructor(init: DataLocationInit) {
    this.nodeId = init.nodeId;
    this.rdmaEndpoint = init.rdmaEndpoint;
    this.remoteAddr = init.remoteAddr;
    this.rkey = init.rkey;
    this.length = init.length;
    this.checksum = init.checksum ?? 0;
    this.incarnation = init.incarnation ?? 0;
    this.generation = init.generation ?? 0;
    this.tier = init.tier ?? 'memory';
    this.stamp = init.stamp ?? 0;
    this.tail = init.tail ?? 0;
    this.version = init.version ?? 0;
    this.kind = init.kind ?? 'computed';
    this.setBy = init.setBy ?? 0;
    this.expires = init.expires ?? 0;
  }

  /** A plain snake_case object that survives JSON and msgpack. */
  toDict(): Record<string, unknown> {
    return {
      node_id: this.nodeId,
      rdma_endpoint: this.rdmaEndpoint,
      remote_addr: this.remoteAddr.toString(),
      rkey: this.rkey,
      length: this.length,
      checksum: this.checksum,
      incarnation: this.incarnation,
      generation: this.generation,
      tier: this.tier,
      stamp: this.stamp,
      tail: this.tail,
      version: this.version,
      kind: this.kind,
      set_by: this.setBy,
      expires: this.expires,
    };
  }

  /** Throws {@link ProtocolError} when a required field is missing or out of its range. */
  static fromDict(dict: Readonly<Record<string, unknown>>): DataLocation {
    const read = new RecordReader('location', dict);
    return new DataLocation({
      nodeId: read.text('node_id'),
      rdmaEndpoint: read.text('rdma_endpoint'),
      remoteAddr: read.address('remote_addr'),
      rkey: read.integer('rkey', 0, 0xffffffff),
      length: read.integer('length', 0, Number.MAX_SAFE_INTEGER),
      checksum: read.integer('checksum', 0, 0xffffffff, 0),
      incarnation: read.integer('incarnation', 0, Number.MAX_SAFE_INTEGER, 0),
      generation: read.integer('generation', 0, Number.MAX_SAFE_INTEGER, 0),
      tier: dict.tier === 'disk' ? 'disk' : 'memory',
      stamp: read.integer('stamp', 0, STAMP_MAX, 0),
      tail: read.integer('tail', 0, STAMP_MAX, 0),
      version: read.integer('version', 0, Number.MAX_SAFE_INTEGER, 0),
      kind: dict.kind === 'named' ? 'named' : 'computed',
      setBy: read.integer('set_by', 0, 0xffffffff, 0),
      expires: read.integer('expires', 0, Number.MAX_SAFE_INTEGER, 0),
    });
  }
}

/** The fingerprint of a namespace. As text it is `<namespace>:<value>`. */
export class NamespaceFingerprint {
  /**
   * `namespace`: 32 hexadecimal characters that identify the rest of the namespace. `value`: what its nodes must agree
   * in.
   */
  constructor(
    readonly namespace: string,
    readonly value: string,
  ) {}

  /** Undefined for empty text. Throws {@link ProtocolError} for other text. */
  static parse(text: string): NamespaceFingerprint | undefined {
    if (text === '') return undefined;
    const [, namespace, value] = /^([0-9a-f]{32}):([\x21-\x7e]{1,128})$/.exec(text) ?? [];
    if (namespace !== undefined && value !== undefined) return new NamespaceFingerprint(namespace, value);
    throw new ProtocolError(`node: fingerprint ${shown(text)}`);
  }

  /** Whether both are of one namespace and disagree. */
  differsFrom(other: NamespaceFingerprint): boolean {
    return this.namespace === other.namespace && this.value !== other.value;
  }

  /** The text that `parse` takes. */
  toString(): string {
    return `${this.namespace}:${this.value}`;
  }
}

/** What members know of one another. */
export interface NodeInfoInit {
  readonly nodeId: string;
  readonly controlHost: string;
  readonly controlPort: number;
  /** Data plane over RDMA; port 0: none. */
  readonly rdmaHost?: string;
  readonly rdmaPort?: number;
  /** Data plane over TCP; port 0: none. */
  readonly tcpHost?: string;
  readonly tcpPort?: number;
  readonly protocols?: readonly DataProtocol[];
  /** HTTP server of metrics and dashboard; port 0: none. */
  readonly metricsHost?: string;
  readonly metricsPort?: number;
  /** Wall-clock milliseconds of the node's start: tells a restarted node from its former self. */
  readonly incarnation?: number;
  /** Whether the node's host is that of a listed discovery address. */
  readonly isListed?: boolean;
  /** `host:port` of the discovery master that its host has when it has a seat; empty: not said. */
  readonly masterAddr?: string;
  /**
   * Rack or zone of its host; empty: none; undefined: the node, or a master that has passed its record on, does not
   * know zones.
   */
  readonly zone?: string | undefined;
  /** Fingerprint of the node's own namespace; undefined: it has none. */
  readonly fingerprint?: NamespaceFingerprint | undefined;
  /** Default: `peer`. */
  readonly role?: NodeRole;
  /** Bytes of the pool of a storage node: its weight among them. 0: a peer, or not said. */
  readonly poolBytes?: number;
  /** Whether the node's disk does not answer: its pages that are on disk cannot be read. Default: false. */
  readonly isDiskHung?: boolean;
}

/** A member of the cluster as discovery spreads it. */
export class NodeInfo {
  readonly nodeId: string;
  readonly controlHost: string;
  readonly controlPort: number;
  readonly rdmaHost: string;
  readonly rdmaPort: number;
  readonly tcpHost: string;
  readonly tcpPort: number;
  readonly protocols: readonly DataProtocol[];
  readonly metricsHost: string;
  readonly metricsPort: number;
  readonly incarnation: number;
  readonly isListed: boolean;
  readonly masterAddr: string;
  readonly zone: string | undefined;
  readonly fingerprint: NamespaceFingerprint | undefined;
  readonly role: NodeRole;
  readonly poolBytes: number;
  readonly isDiskHung: boolean;

  constructor(init: NodeInfoInit) {
    this.nodeId = init.nodeId;
    this.controlHost = init.controlHost;
    this.controlPort = init.controlPort;
    this.rdmaHost = init.rdmaHost ?? '';
    this.rdmaPort = init.rdmaPort ?? 0;
    this.tcpHost = init.tcpHost ?? init.controlHost;
    this.tcpPort = init.tcpPort ?? 0;
    this.protocols = init.protocols ?? ['tcp'];
    this.metricsHost = init.metricsHost ?? '';
    this.metricsPort = init.metricsPort ?? 0;
    this.incarnation = init.incarnation ?? 0;
    this.isListed = init.isListed ?? false;
    this.masterAddr = init.masterAddr ?? '';
    this.zone = init.zone;
    this.fingerprint = init.fingerprint;
    this.role = init.role ?? 'peer';
    this.poolBytes = init.poolBytes ?? 0;
    this.isDiskHung = init.isDiskHung ?? false;
  }

  /** A plain snake_case object that survives JSON and msgpack. */
  toDict(): Record<string, unknown> {
    return {
      node_id: this.nodeId,
      control_host: this.controlHost,
      control_port: this.controlPort,
      rdma_host: this.rdmaHost,
      rdma_port: this.rdmaPort,
      tcp_host: this.tcpHost,
      tcp_port: this.tcpPort,
      protocols: [...this.protocols],
      metrics_host: this.metricsHost,
      metrics_port: this.metricsPort,
      incarnation: this.incarnation,
      is_listed: this.isListed,
      master_addr: this.masterAddr,
      ...(this.zone === undefined ? {} : { zone: this.zone }),
      ...(this.fingerprint === undefined ? {} : { fingerprint: String(this.fingerprint) }),
      ...(this.role === 'peer' ? {} : { role: this.role, pool_bytes: this.poolBytes }),
      ...(this.isDiskHung ? { disk_hung: true } : {}),
    };
  }

  /** Throws {@link ProtocolError} when a required field is missing or out of its range. */
  static fromDict(dict: Readonly<Record<string, unknown>>): NodeInfo {
    const read = new RecordReader('node', dict);
    const protocols = Array.isArray(dict.protocols) ? dict.protocols : ['tcp'];
    return new NodeInfo({
      nodeId: read.text('node_id'),
      controlHost: read.text('control_host'),
      controlPort: read.integer('control_port', 0, 65535),
      rdmaHost: read.text('rdma_host', ''),
      rdmaPort: read.integer('rdma_port', 0, 65535, 0),
      tcpHost: read.text('tcp_host', read.text('control_host')),
      tcpPort: read.integer('tcp_port', 0, 65535, 0),
      protocols: DATA_PROTOCOLS.filter((name) => protocols.includes(name)),
      metricsHost: read.text('metrics_host', ''),
      metricsPort: read.integer('metrics_port', 0, 65535, 0),
      incarnation: read.integer('incarnation', 0, Number.MAX_SAFE_INTEGER, 0),
      isListed: dict.is_listed === true,
      masterAddr: read.text('master_addr', ''),
      zone: dict.zone === undefined || dict.zone === null ? undefined : read.text('zone'),
      fingerprint: NamespaceFingerprint.parse(read.text('fingerprint', '')),
      role: dict.role === 'storage' ? 'storage' : 'peer',
      poolBytes: read.integer('pool_bytes', 0, Number.MAX_SAFE_INTEGER, 0),
      isDiskHung: dict.disk_hung === true,
    });
  }
}

class RecordReader {
  constructor(
    private readonly what: string,
    private readonly dict: Readonly<Record<string, unknown>>,
  ) {
    if (typeof dict !== 'object' || dict === null) throw new ProtocolError(`${what}: not a record`);
  }

  text(name: string, fallback?: string): string {
    const value = this.dict[name] ?? fallback;
    if (typeof value === 'string') return value;
    throw new ProtocolError(`${this.what}: ${name} must be text, got ${typeof value}`);
  }

  integer(name: string, min: number, max: number, fallback?: number): number {
    const given = this.dict[name] ?? fallback;
    const value = typeof given === 'bigint' ? Number(given) : given;
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value;
    throw new ProtocolError(`${this.what}: ${name} must be an integer of ${min} to ${max}, got ${shown(given)}`);
  }

  address(name: string): bigint {
    const value = this.dict[name];
    const isInteger = typeof value === 'bigint' || Number.isSafeInteger(value);
    if (isInteger || (typeof value === 'string' && /^\d{1,20}$/.test(value))) {
      const address = BigInt(value as string | number | bigint);
      if (address >= 0n && address < 1n << 64n) return address;
    }
    throw new ProtocolError(`${this.what}: ${name} must be a 64-bit address as decimal text, got ${shown(value)}`);
  }
}
