import { Lane } from '../kernel/lane.js';
import { chance, fraction } from '../kernel/seeds.js';
import type { HostNetwork } from './host-network.js';

/** How the network is when nothing is wrong. */
export interface NetworkShape {
  /** From one host to another, one way; may be said for each pair, by their names and racks. */
  readonly latencyMs: number | ((from: HostNetwork, to: HostNetwork) => number);
  /** Part of the latency that comes on top of it, uniformly from 0 up to this. */
  readonly jitter: number;
  /** So often a message takes longer: at least `tailFactor` times, and ten times that in one case of ten, up to 100 times. */
  readonly tailProbability: number;
  readonly tailFactor: number;
  /** Of every host in each direction, unless it has its own. */
  readonly bytesPerS: number;
  readonly loopbackLatencyMs: number;
  readonly loopbackBytesPerS: number;
  /** Bytes that one direction of a connection has under way, the receiver's buffer included. */
  readonly windowBytes: number;
  /** What travels as one message at most. */
  readonly chunkBytes: number;
  /** So often received bytes are handed over in two pieces. */
  readonly splitProbability: number;
  /** A write to the data plane that is longer than `ofWritesAbove` counts as so many times its length. */
  readonly bytesScale: number;
  readonly ofWritesAbove: number;
}

/** A network of one rack, where nothing else is said. */
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

/** What is wrong between two hosts, in one direction. */
export interface LinkTrouble {
  readonly isBlocked?: boolean;
  /** So often a message comes late, as TCP sends it again. */
  readonly lossProbability?: number;
  readonly latencyFactor?: number;
  readonly addedLatencyMs?: number;
  /** The link alone has no more than this. */
  readonly bytesPerS?: number;
}

/** A message that is lost is sent again after so long at the least. */
const RESEND_MS = 200;
/** Of every message: headers of TCP, IP and Ethernet. */
const OVERHEAD_BYTES = 66;

/** One direction between two hosts. */
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

  /** Whether messages get through now, as far as the network goes. */
  get isOpen(): boolean {
    return !this.#isBlocked;
  }

  /** Of all the troubles that there are on this link. */
  setTroubles(troubles: readonly LinkTrouble[]): void {
    this.#isBlocked = troubles.some((trouble) => trouble.isBlocked === true);
    this.#latencyFactor = troubles.reduce((factor, trouble) => factor * (trouble.latencyFactor ?? 1), 1);
    this.#addedLatencyMs = troubles.reduce((sum, trouble) => sum + (trouble.addedLatencyMs ?? 0), 0);
    this.#lossProbability = Math.max(0, ...troubles.map((trouble) => trouble.lossProbability ?? 0));
    if (this.from === this.to) return;
    const bytesPerS = Math.min(...troubles.map((trouble) => trouble.bytesPerS ?? Number.POSITIVE_INFINITY));
    this.#lane = bytesPerS === Number.POSITIVE_INFINITY ? undefined : new Lane(bytesPerS);
  }

  /** Of a message of no size, without its tail. */
  get latencyMs(): number {
    return this.#baseLatencyMs * this.#latencyFactor + this.#addedLatencyMs;
  }

  /** When a small message that leaves now is there. */
  arrivalOfSmallMs(nowMs: number): number {
    return nowMs + this.#drawnLatencyMs();
  }

  /** When a message that leaves now is there, behind all that is on the same way. */
  arrivalMs(nowMs: number, bytes: number): number {
    const chargedBytes = bytes + OVERHEAD_BYTES;
    const latencyMs = this.#drawnLatencyMs();
    if (this.from === this.to) return (this.#lane as Lane).send(nowMs, chargedBytes) + latencyMs;
    const sentMs = this.from.uplink.send(nowMs, chargedBytes);
    // What is late by itself, by a tail or a link that is slow, holds up nothing else on its way to the host.
    const receivedMs = this.to.downlink.pass(sentMs + this.#baseLatencyMs, chargedBytes);
    const throttledMs = this.#lane === undefined ? 0 : this.#lane.send(nowMs, chargedBytes) + this.#baseLatencyMs;
    return Math.max(receivedMs, throttledMs) + latencyMs - this.#baseLatencyMs;
  }

  #drawnLatencyMs(): number {
    const { jitter, tailProbability, tailFactor } = this.#shape;
    const { random } = this.from;
    let latencyMs = this.latencyMs * (1 + jitter * fraction(random));
    if (chance(random, tailProbability)) {
      latencyMs *= tailFactor * Math.min(100, 1 / (1 - fraction(random)));
    }
    if (chance(random, this.#lossProbability)) latencyMs += RESEND_MS + 2 * this.latencyMs;
    return latencyMs;
  }
}
