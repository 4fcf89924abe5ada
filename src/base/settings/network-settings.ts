import { DSCP_MAX, SPIN_MAX_US, SPIN_US, TCP_THREADS_MAX_COUNT } from '../limits.js';
import { type Field, integer, ownHost } from './fields.js';

/** Address and ports of a node, and how it uses the network between nodes. */
export interface NetworkSettings {
  readonly localHostname: string | undefined;
  readonly controlPort: number;
  readonly rdmaPort: number;
  readonly tcpPort: number;
  /** Threads that receive pages over TCP, and threads that serve them; undefined: what suits the processors. */
  readonly tcpThreads: number | undefined;
  /** Microseconds for which a node that waits for an answer looks for it without sleeping. */
  readonly spinUs: number;
  /** Differentiated services code point of reads; undefined: that of the system. */
  readonly dscp: number | undefined;
}

/** Parsers of these settings. */
export const NETWORK_FIELDS: Readonly<Record<string, Field>> = {
  local_hostname: ownHost(),
  control_port: integer(0, 65535, 0),
  rdma_port: integer(0, 65535, 0),
  tcp_port: integer(0, 65535, 0),
  tcp_threads: integer(1, TCP_THREADS_MAX_COUNT, undefined),
  spin_us: integer(0, SPIN_MAX_US, SPIN_US),
  dscp: integer(0, DSCP_MAX, undefined),
};
