import { join } from 'node:path';
import { namesIn, textOf } from '../../native/devices/kernel-files.js';
import type { Finding } from './finding.js';

const subject = 'NUMA';

/** A network or RDMA device, and the NUMA node that it is attached to. */
interface PlacedDevice {
  readonly name: string;
  readonly node: number;
}

/**
 * Checks that this process runs on the NUMA node of its network device: otherwise pages cross between the processors'
 * memories on their way. `root` has `sys` and `proc` of Linux.
 */
export function checkNuma(root = '/'): Finding {
  const nodes = numbersOf(textOf(join(root, 'sys/devices/system/node/online')));
  if (nodes.length < 2) return { subject, state: 'n/a', detail: 'all memory is equally near to all processors' };
  const own = nodes.filter((node) => runsOn(root, node));
  const devices = placedDevices(root);
  const places = devices.map(({ name, node }) => `${name} is on node ${node}`).join(', ') || 'no device names its node';
  const detail = `${nodes.length} nodes; this process may run on ${own.join(', ')}; ${places}`;
  const [first] = devices;
  const isNear = own.length === 1 && (first === undefined || devices.some(({ node }) => node === own[0]));
  if (isNear) return { subject, state: 'ok', detail };
  const wanted = first?.node ?? (nodes[0] as number);
  const advice = `start the node near its device: numactl --cpunodebind=${wanted} --preferred=${wanted} meshcache node …`;
  return { subject, state: 'warning', detail, advice };
}

/** RDMA devices; where there are none, network devices. Virtual ones are attached to no node. */
function placedDevices(root: string): PlacedDevice[] {
  for (const kind of ['infiniband', 'net']) {
    const folder = join(root, 'sys/class', kind);
    const devices = namesIn(folder).flatMap((name) => {
      const node = Number(textOf(join(folder, name, 'device/numa_node')) || -1);
      return node >= 0 ? [{ name, node }] : [];
    });
    if (devices.length > 0) return devices;
  }
  return [];
}

function runsOn(root: string, node: number): boolean {
  const allowed = /^Cpus_allowed_list:\s*(.*)$/m.exec(textOf(join(root, 'proc/self/status')))?.[1] ?? '';
  const own = new Set(numbersOf(allowed));
  return numbersOf(textOf(join(root, `sys/devices/system/node/node${node}/cpulist`))).some((cpu) => own.has(cpu));
}

/** The numbers of a list such as `0-3,8`. */
function numbersOf(list: string): number[] {
  return list.split(',').flatMap((range) => {
    const [first, last = first] = range.split('-');
    if (!first) return [];
    return Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) => Number(first) + i);
  });
}
