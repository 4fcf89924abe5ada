/** Counters of the reading side of a transport. */
export class ReadCounters {
  readOps = 0;
  readBytes = 0;
  failedOps = 0;
  checksumFailures = 0;
  staleOps = 0;
  protocolErrors = 0;
  connections = 0;
  reconnects = 0;
  /** Times that a peer has begun not to be reachable. */
  unreachablePeers = 0;
}
