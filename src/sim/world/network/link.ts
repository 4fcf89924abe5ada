import { Lane } from '../kernel/lane.js';
import { chance, fraction } from '../kernel/seeds.js';
import type { HostNetwork } from './host-network.js';

/**
 * Longest time of a message in a healthy network, unless its latency alone is longer. Peers that answer later count as
 * silent.
 */
const TAIL_MAX_MS = 500;

/** Properties of a healthy network. */
export interface NetworkShape {
  /** One-way latency between two hosts, in milliseconds; may depend on the pair, by names and racks. */
  readonly latencyMs: number | ((from: HostNetwork, to: HostNetwork) => number);
  /** Share of the latency that is added at random, uniformly from 0 up to this. */
  readonly jitter: number;
  /**
   * Probability that a message takes longer: at least `tailFactor` times as long, and ten times that in one case of
   * ten, up to 100 times. The limit is TAIL_MAX_MS, because what takes longer in a real network is a fault.
   */
  readonly tailProbability: number;
  readonly tailFactor: number;
  /** Bandwidth of every host in each direction, in bytes per second, unless it has its own value. */
  readonly bytesPerS: number;
  readonly loopbackLatencyMs: number;
  readonly loopbackBytesPerS: number;
  /** Most bytes in flight in one direction of a connection, including the receiver's buffer. */
  readonly windowBytes: number;
  /** Most bytes of one message. */
  readonly chunkBytes: number;
  /** Probability that received bytes are delivered in two pieces. */
  readonly splitProbability: number;
  /** Factor for the length of data-plane writes of more than `ofWritesAbove` bytes. */
  readonly bytesScale: number;
  readonly ofWritesAbove: number;
}

/** A network of one rack, with all defaults. */
export const NETWORK_SHAPE: NetworkShape = {
  latencyMs: 0.05,
  jitter: 0.2,
  tailProbability: 0.001,
  tailFactor: 5,
  bytesPerS: 25e9 / 8,
  loopbackLatencyMs: 0.01,
  loopbackBytesPerS: 4e9,
  windowBytes: 4 * 2 ** 20,
  chunkBytes: 2 ** 20,
  splitProbability: 0.01,
  bytesScale: 1,
  // Longer than the headers of the data plane.
  ofWritesAbove: 192,
};

/** Trouble between two hosts, in one direction. */
export interface LinkTrouble {
  readonly isBlocked?: boolean;
  /** Probability that a message is late, because TCP must retransmit it. */
  readonly lossProbability?: number;
  readonly latencyFactor?: number;
  readonly addedLatencyMs?: number;
  /** Bandwidth of the link alone. */
  readonly bytesPerS?: number;
}

/** Shortest time after which a lost message is retransmitted, in milliseconds. */
const RESEND_MS = 200;
/** Bytes added to every message: headers of TCP, IP and Ethernet. */
const OVERHEAD_BYTES = 66;

/** One direction of the network between two hosts. */
export class Link {
  readonly from: HostNetwork;
  readonly to: HostNetwork;
  readonly #shape: NetworkShape;
  readonly #baseLatencyMs: number;
  #lane: Lane | undefined;
  #latencyFactor = 1;
  #addedLatencyMs = 0;
  #lossProbability = 0;
  #isBlocked = false;

  constructor(from: HostNetwork, to: HostNetwork, shape: NetworkShape) {
    this.from = from;
    this.to = to;
    this.#shape = shape;
    const { latencyMs, loopbackLatencyMs, loopbackBytesPerS } = shape;
    if (from === to) {
      this.#baseLatencyMs = loopbackLatencyMs;
      this.#lane = new Lane(loopbackBytesPerS);
    } else {
      this.#baseLatencyMs = typeof latencyMs === 'number' ? latencyMs : latencyMs(from, to);
    }
  }

  /** Whether the network lets messages through now; a host may still be down. */
  get isOpen(): boolean {
    return !this.#isBlocked;
  }

  /** Applies all troubles of this link. */
  setTroubles(troubles: readonly LinkTrouble[]): void {
    this.#isBlocked = troubles.some((trouble) => trouble.isBlocked === true);
    this.#latencyFactor = troubles.reduce((factor, trouble) => factor * (trouble.latencyFactor ?? 1), 1);
    this.#addedLatencyMs = troubles.reduce((sum, trouble) => sum + (trouble.addedLatencyMs ?? 0), 0);
    this.#lossProbability = Math.max(0, ...troubles.map((trouble) => trouble.lossProbability ?? 0));
    if (this.from === this.to) return;
    const bytesPerS = Math.min(...troubles.map((trouble) => trouble.bytesPerS ?? Number.POSITIVE_INFINITY));
    this.#lane = bytesPerS === Number.POSITIVE_INFINITY ? undefined : new Lane(bytesPerS);
  }

  /** Latency of an empty message, without jitter and tail. */
  get latencyMs(): number {
    return this.#baseLatencyMs * this.#latencyFactor + this.#addedLatencyMs;
  }

  /** Arrival time of a small message that leaves now. */
  arrivalOfSmallMs(nowMs: number): number {
    return nowMs + this.#drawnLatencyMs();
  }

  /** Arrival time of a message that leaves now, after all others on the same way. */
  arrivalMs(nowMs: number, bytes: number): number {
    const chargedBytes = bytes + OVERHEAD_BYTES;
    const latencyMs = this.#drawnLatencyMs();
    if (this.from === this.to) return (this.#lane as Lane).send(nowMs, chargedBytes) + latencyMs;
    const sentMs = this.from.uplink.send(nowMs, chargedBytes);
    // A message that is late by its tail or a slow link holds up nothing else on its way to the host.
    const receivedMs = this.to.downlink.pass(sentMs + this.#baseLatencyMs, chargedBytes);
    const throttledMs = this.#lane === undefined ? 0 : this.#lane.send(nowMs, chargedBytes) + this.#baseLatencyMs;
    return Math.max(receivedMs, throttledMs) + latencyMs - this.#baseLatencyMs;
  }

  #drawnLatencyMs(): number {
    const { jitter, tailProbability, tailFactor } = this.#shape;
    const { random } = this.from;
    let latencyMs = this.latencyMs * (1 + jitter * fraction(random));
    if (chance(random, tailProbability)) {
      const tailMs = latencyMs * tailFactor * Math.min(100, 1 / (1 - fraction(random)));
      latencyMs = Math.max(latencyMs, Math.min(tailMs, TAIL_MAX_MS));
    }
    if (chance(random, this.#lossProbability)) latencyMs += RESEND_MS + 2 * this.latencyMs;
    return latencyMs;
  }
}
