import net from 'node:net';
import { ClusterSecrets } from '../../base/environment/credentials.js';
import { type AuthPlane, CHALLENGE_BYTES, ClientHandshake } from '../../net/auth.js';
import { LOOPBACK } from '../../processes/free-port.js';
import * as rpc from '../../rpc/frame.js';
import { rpcTarget } from '../../rpc/service.js';
import { systemRandom } from '../../system/system-random.js';
import * as data from '../../transport/tcp/protocol/protocol.js';

/** What unauthenticated peers do once they are connected. */
export type FloodKind = 'silent' | 'wrong secret' | 'truncated' | 'replayed';

export const FLOOD_KINDS: readonly FloodKind[] = ['silent', 'wrong secret', 'truncated', 'replayed'];

/** A port, and the protocol that its server speaks. */
export interface FloodTarget {
  readonly plane: 'rpc' | 'data';
  readonly port: number;
}

export interface FloodOptions {
  readonly kind: FloodKind;
  readonly targets: readonly FloodTarget[];
  readonly ratePerS: number;
  /** The correct secret. Only `replayed` uses it, to record a handshake; the other kinds do not know it. */
  readonly secret: string;
}

export interface FloodStats {
  readonly attempts: number;
  readonly elapsedMs: number;
  /** Connections that received more than the server's greeting. If it is not 0, authentication is broken. */
  readonly answered: number;
}

/** Milliseconds after which an open connection is reset to make room for the next ones. */
const LIFETIME_MS = 20;
const OPEN_MAX_COUNT = 1000;
const TICK_MS = 2;
const GREETING_TIMEOUT_MS = 5_000;
const RECORD_ATTEMPTS = 100;
const RECORD_PAUSE_MS = 50;

const PLANES = {
  rpc: { hello: () => rpc.encodeHello({ authentication: true }), greetingBytes: rpc.HELLO_BYTES + CHALLENGE_BYTES },
  data: { hello: () => data.encodeHello({ authentication: true }), greetingBytes: data.HELLO_BYTES + CHALLENGE_BYTES },
} as const;

interface Attempt {
  readonly socket: net.Socket;
  readonly untilMs: number;
}

/** Opens unauthenticated connections at a given rate until it is stopped. */
export class Flood {
  readonly #options: FloodOptions;
  readonly #recordings: readonly (readonly Buffer[])[];
  readonly #startMs = performance.now();
  readonly #timer: NodeJS.Timeout;
  /** Connections in progress, oldest first. */
  readonly #open = new Set<Attempt>();
  #attempts = 0;
  #answered = 0;

  static async start(options: FloodOptions): Promise<Flood> {
    const recordings: Buffer[][] = [];
    if (options.kind === 'replayed') {
      for (const target of options.targets) recordings.push(await recordSoon(target, options.secret));
    }
    return new Flood(options, recordings);
  }

  private constructor(options: FloodOptions, recordings: readonly (readonly Buffer[])[]) {
    this.#options = options;
    this.#recordings = recordings;
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
    for (const { socket } of this.#open) socket.destroy();
  }

  /** Counts since the start. */
  stats(): FloodStats {
    return { attempts: this.#attempts, elapsedMs: performance.now() - this.#startMs, answered: this.#answered };
  }

  #tick(): void {
    const nowMs = performance.now();
    for (const attempt of this.#open) {
      if (attempt.untilMs > nowMs) break;
      this.#open.delete(attempt);
      attempt.socket.resetAndDestroy();
    }
    const dueCount = ((nowMs - this.#startMs) / 1000) * this.#options.ratePerS;
    // If this process is too slow, the connections that are still due are left to the next ticks.
    const untilMs = nowMs + TICK_MS * 4;
    while (this.#attempts < dueCount && this.#open.size < OPEN_MAX_COUNT && performance.now() < untilMs)
      this.#attempt();
  }

  #attempt(): void {
    const { targets, kind } = this.#options;
    const targetIndex = this.#attempts % targets.length;
    const { plane, port } = targets[targetIndex] as FloodTarget;
    this.#attempts++;
    const socket = net.connect({ host: LOOPBACK, port });
    const attempt = { socket, untilMs: performance.now() + LIFETIME_MS };
    this.#open.add(attempt);
    socket.on('error', () => {});
    socket.on('close', () => this.#open.delete(attempt));
    if (kind === 'silent') {
      socket.resume();
      return;
    }
    const { hello, greetingBytes } = PLANES[plane];
    let received = Buffer.alloc(0);
    let hasProved = false;
    const recording = this.#recordings[targetIndex];
    const secrets = ClusterSecrets.of(['a wrong secret']) as ClusterSecrets;
    const target = targetOf(plane, port);
    const handshake = new ClientHandshake({ plane, secrets, random: systemRandom, hello: hello(), target });
    socket.on('connect', () => socket.write(recording?.[0] ?? handshake.greeting));
    socket.on('data', (bytes) => {
      received = Buffer.concat([received, bytes]);
      if (received.length > greetingBytes) this.#answered++;
      if (hasProved || received.length < greetingBytes) return;
      hasProved = true;
      const proofs = recording?.[1] ?? (handshake.prove(received.subarray(0, greetingBytes)) as Buffer);
      if (kind === 'truncated') socket.end(proofs.subarray(0, proofs.length / 2));
      else socket.write(proofs);
    });
  }
}

/** Records a handshake, with retries, as the previous flood may have used up this address's allowance. */
async function recordSoon(target: FloodTarget, secret: string): Promise<Buffer[]> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await record(target, secret);
    } catch (error) {
      if (attempt === RECORD_ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, RECORD_PAUSE_MS));
    }
  }
}

/** Records the client's side of a successful handshake: greeting and proofs. */
function record({ plane, port }: FloodTarget, secret: string): Promise<Buffer[]> {
  const { hello, greetingBytes } = PLANES[plane];
  const secrets = ClusterSecrets.of([secret]) as ClusterSecrets;
  const target = targetOf(plane, port);
  const handshake = new ClientHandshake({ plane, secrets, random: systemRandom, hello: hello(), target });
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host: LOOPBACK, port });
    const timer = setTimeout(() => socket.destroy(), GREETING_TIMEOUT_MS);
    let received = Buffer.alloc(0);
    let proofs: Buffer | undefined;
    socket.on('error', () => {});
    socket.on('close', () => {
      clearTimeout(timer);
      reject(new Error('no handshake could be recorded'));
    });
    socket.write(handshake.greeting);
    socket.on('data', (bytes) => {
      received = Buffer.concat([received, bytes]);
      if (received.length < greetingBytes) return;
      if (proofs === undefined) {
        proofs = handshake.prove(received.subarray(0, greetingBytes)) as Buffer;
        socket.write(proofs);
      } else if (received.length > greetingBytes) {
        resolve([handshake.greeting, proofs]);
        socket.destroy();
      }
    });
  });
}

function targetOf(plane: AuthPlane, port: number): string {
  const endpoint = { host: LOOPBACK, port };
  return plane === 'rpc' ? rpcTarget('control', endpoint) : data.dataTarget(endpoint);
}
