import type { Connection } from '../../../src/base/environment/network.js';
import type { ServedEvent, ServedState } from '../../../src/net/served/connection-states.js';
import { ServedConnection, type ServedPeer, type ServedProtocol } from '../../../src/net/served/served-connection.js';
import {
  NO_SERVED_LIMITS,
  ServedConnections,
  type ServedFairness,
  type ServedLimits,
} from '../../../src/net/served/served-connections.js';
import { MemorySocket } from '../../fuzz/memory-socket.js';
import { ManualClock } from '../clock.js';

export const SERVED_LIMITS: ServedLimits = {
  ...NO_SERVED_LIMITS,
  greetingMaxCount: 2,
  greetingTimeoutMs: 1_000,
  lateReason: 'late',
  replacedReason: 'replaced',
  stallTimeoutMs: 500,
  receivingWindowMs: 200,
  inFlightMaxCount: 4,
  inFlightMaxBytes: 100,
};

/** A protocol that does nothing, and knows what it was told. */
export class PlainProtocol implements ServedProtocol {
  readonly served: ServedConnection;
  readonly socket: Connection;
  readonly told: string[] = [];
  readonly receivedBytes: Buffer[] = [];
  mustWait = false;
  /** Called with each state that is entered. */
  onEntered: (state: ServedState) => void = () => {};

  constructor(socket: Connection, all: ServedConnections, peer: ServedPeer = { origin: '' }) {
    this.socket = socket;
    this.served = new ServedConnection(socket, all, this, peer);
  }

  received(bytes: Buffer): void {
    this.receivedBytes.push(bytes);
  }

  drained(): void {
    this.told.push('drained');
  }

  peerEnded(): void {
    this.told.push('peerEnded');
  }

  slow(awaited: 'rate' | 'end'): void {
    this.told.push(`slow: ${awaited}`);
  }

  entered(state: ServedState, event: ServedEvent): void {
    this.told.push(`${event}: ${state}`);
    this.onEntered(state);
  }

  finish(reason: string): void {
    this.served.finish(reason);
  }

  verify(): void {}
}

/** A connection over a socket in memory, the only one of its door. */
export function servedByItself(limits: Partial<ServedLimits> = {}, fairness?: ServedFairness) {
  const clock = new ManualClock();
  const connections = new ServedConnections<PlainProtocol>(clock, { ...SERVED_LIMITS, ...limits }, fairness);
  const socket = new MemorySocket();
  const protocol = new PlainProtocol(socket, connections);
  connections.add(protocol);
  return { clock, connections, socket, protocol, served: protocol.served };
}
