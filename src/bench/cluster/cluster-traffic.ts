import type { Connection, Network } from '../../base/environment/network.js';
import { FRAME_HEADER_BYTES, type Frame, FrameReader, FrameType } from '../../rpc/frame.js';
import { MessageCodec } from '../../rpc/message.js';

/**
 * Control-plane traffic of one kind: calls, and the bytes of both directions with frame headers but without TCP and IP.
 */
export interface Traffic {
  readonly calls: number;
  readonly bytes: number;
}

export const TRAFFIC_KINDS = ['discovery', 'announcing', 'lookups', 'other'] as const;
export type TrafficKind = (typeof TRAFFIC_KINDS)[number];

/** A node's traffic by kind, as the caller and as the called side. */
export interface NodeTraffic {
  readonly client: Readonly<Record<TrafficKind, Traffic>>;
  readonly server: Readonly<Record<TrafficKind, Traffic>>;
}

const KIND_OF: Readonly<Record<string, TrafficKind>> = {
  'directory.put': 'announcing',
  'directory.delete': 'announcing',
  'directory.note': 'announcing',
  'directory.renounce': 'announcing',
  'directory.get': 'lookups',
  'directory.exists': 'lookups',
};

type Sums = Record<TrafficKind, { calls: number; bytes: number }>;

/** Reads the control connections of one node that has no secret, and adds up calls and bytes. */
export class TrafficCount {
  readonly #codec = new MessageCodec();
  readonly #client = noTraffic();
  readonly #server = noTraffic();

  /** Wraps `base` and counts control connections; data connections pass unchanged. */
  network(base: Network): Network {
    return {
      connect: (options) => {
        const socket = base.connect(options);
        if (!('onread' in options)) this.#readAlong(socket, this.#client);
        return socket;
      },
      createServer: (options, onConnection) =>
        base.createServer(options, (socket) => {
          this.#readAlong(socket, this.#server);
          onConnection(socket);
        }),
    };
  }

  /** Traffic since the start. */
  read(): NodeTraffic {
    return structuredClone({ client: this.#client, server: this.#server });
  }

  #readAlong(socket: Connection, sums: Sums): void {
    const kindOf = new Map<number, TrafficKind>();
    const frame = (seen: Frame): void => {
      if (seen.type === FrameType.call) kindOf.set(seen.requestId, this.#kindOf(seen.message));
      const sum = sums[kindOf.get(seen.requestId) ?? 'other'];
      if (seen.type === FrameType.call) sum.calls++;
      sum.bytes += FRAME_HEADER_BYTES + seen.message.length;
      if (seen.type === FrameType.answer || seen.type === FrameType.error) kindOf.delete(seen.requestId);
    };
    const sink = { opening: () => 0, frame };
    const received = new FrameReader(sink);
    const sent = new FrameReader(sink);
    socket.on('data', (chunk: Buffer) => received.push(chunk));
    const write = socket.write.bind(socket);
    socket.write = (bytes: Buffer) => {
      sent.push(bytes);
      return write(bytes);
    };
  }

  #kindOf(message: Uint8Array): TrafficKind {
    const [method] = this.#codec.decode(message) as [string];
    return KIND_OF[method] ?? (method.startsWith('discovery.') ? 'discovery' : 'other');
  }
}

function noTraffic(): Sums {
  return {
    discovery: { calls: 0, bytes: 0 },
    announcing: { calls: 0, bytes: 0 },
    lookups: { calls: 0, bytes: 0 },
    other: { calls: 0, bytes: 0 },
  };
}

/** The difference between two readings. */
export function trafficSince(before: Traffic, after: Traffic): Traffic {
  return { calls: after.calls - before.calls, bytes: after.bytes - before.bytes };
}
