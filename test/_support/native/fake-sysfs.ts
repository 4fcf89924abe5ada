import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { ExecutionContext } from 'ava';

export interface FakePort {
  readonly state?: string;
  readonly linkLayer?: string;
  /** GIDs by index. An entry without a type is unused, and its type cannot be read. */
  readonly gids?: readonly { readonly gid: string; readonly type?: string; readonly netdev?: string }[];
}

const UNUSED = '0000:0000:0000:0000:0000:0000:0000:0000';

/**
 * A folder like the kernel's /sys/class/infiniband: devices with their ports, from port 1 on. Removed with the test.
 */
export function fakeSysfs(t: ExecutionContext, devices: Readonly<Record<string, readonly FakePort[]>>): string {
  const root = mkdtempSync(join(tmpdir(), 'meshcache-sysfs-'));
  t.teardown(() => rmSync(root, { recursive: true }));
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), `${text}\n`);
  };
  for (const [name, ports] of Object.entries(devices)) {
    mkdirSync(join(root, name, 'ports'), { recursive: true });
    for (const [i, { state = '4: ACTIVE', linkLayer = 'Ethernet', gids = [] }] of ports.entries()) {
      const port = `${name}/ports/${i + 1}`;
      write(`${port}/state`, state);
      write(`${port}/link_layer`, linkLayer);
      write(`${port}/rate`, '100 Gb/sec (4X EDR)');
      for (const [index, { gid, type, netdev = '' }] of [...gids, { gid: UNUSED }].entries()) {
        write(`${port}/gids/${index}`, gid);
        if (type !== undefined) write(`${port}/gid_attrs/types/${index}`, type);
        if (type !== undefined) write(`${port}/gid_attrs/ndevs/${index}`, netdev);
      }
    }
  }
  return root;
}

/** GIDs of a port with a link-local, an IPv4 and a global IPv6 address, for both versions of RoCE. */
export function usualGids(lastByte: number, netdev = 'eth0'): NonNullable<FakePort['gids']> {
  const hex = lastByte.toString(16).padStart(2, '0');
  const addresses = [
    `fe80:0000:0000:0000:5054:00ff:fe12:34${hex}`,
    `0000:0000:0000:0000:0000:ffff:0a4d:00${hex}`,
    `2001:0db8:0000:0000:0000:0000:0000:00${hex}`,
  ];
  return addresses.flatMap((gid) => [
    { gid, type: 'IB/RoCE v1', netdev },
    { gid, type: 'RoCE v2', netdev },
  ]);
}
