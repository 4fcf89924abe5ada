import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/** Verbs objects that exist on this machine, of all devices and processes. */
export interface VerbsObjects {
  readonly pd: number;
  readonly cq: number;
  readonly qp: number;
  readonly cm_id: number;
  readonly mr: number;
  readonly ctx: number;
}

/** Counts by `rdma resource show`. */
export function verbsObjects(): VerbsObjects {
  const counts = { pd: 0, cq: 0, qp: 0, cm_id: 0, mr: 0, ctx: 0 };
  const shown = execFileSync('rdma', ['resource', 'show'], { encoding: 'latin1' });
  for (const [, name, count] of shown.matchAll(/\b(pd|cq|qp|cm_id|mr|ctx) (\d+)/g)) {
    counts[name as keyof VerbsObjects] += Number(count);
  }
  return counts;
}

/** Packets that a Soft-RoCE device has sent since its creation, also to itself. */
export function sentPackets(device: string): number {
  return Number(readFileSync(`/sys/class/infiniband/${device}/ports/1/hw_counters/sent_pkts`, 'latin1'));
}

/** File descriptors that this process has open. */
export function openFiles(): number {
  // The listing itself has one file open.
  return readdirSync('/proc/self/fd').length - 1;
}
