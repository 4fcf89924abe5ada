import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { VirtualMachine, type VirtualMachineOptions } from './virtual-machine.js';

/** A machine that has a processor to itself takes ten. */
const BOOT_TIMEOUT_MS = 180_000;
const PAIR_MEMORY_MIB = 1536;
const NETWORK_CARD = 'virtio-net-pci';

/** The project's folder, on the host and in every guest. */
export const projectFolder = fileURLToPath(new URL('../..', import.meta.url));

/**
 * One machine with two Soft-RoCE devices: rxe0 over eth0 (10.77.0.1, fd77::1) and rxe1 over eth1 (10.77.1.1, fd78::1).
 */
export function startMachine(options: { readonly memoryMiB: number }): Promise<VirtualMachine> {
  return start('machine', {
    memoryMiB: options.memoryMiB,
    network: [...['-nic', `user,model=${NETWORK_CARD}`], ...['-nic', `user,model=${NETWORK_CARD}`]],
    setup: `${deviceSetup(0, '10.77.0.1', 'fd77::1')}\n${deviceSetup(1, '10.77.1.1', 'fd78::1')}`,
  });
}

/** Two machines on a network of their own, each with rxe0 over eth0. */
export interface MachinePair {
  /** 10.77.0.1, fd77::1. */
  readonly reader: VirtualMachine;
  /** 10.77.0.2, fd77::2. */
  readonly server: VirtualMachine;
  close(): Promise<void>;
}

export async function startMachinePair(): Promise<MachinePair> {
  const folder = await mkdtemp(join(tmpdir(), 'meshcache-net-'));
  const startOne = (name: string, own: number, other: number): Promise<VirtualMachine> => {
    const socket = (side: string, number: number) => `${side}.type=unix,${side}.path=${join(folder, String(number))}`;
    // Datagrams: either may start first, and one that is gone is silence to the other.
    const wire = `dgram,id=wire,${socket('local', own)},${socket('remote', other)}`;
    return start(name, {
      memoryMiB: PAIR_MEMORY_MIB,
      network: ['-netdev', wire, '-device', `${NETWORK_CARD},netdev=wire,mac=52:54:00:77:00:0${own}`],
      setup: deviceSetup(0, `10.77.0.${own}`, `fd77::${own}`),
    });
  };
  const started = await Promise.allSettled([startOne('reader', 1, 2), startOne('server', 2, 1)]);
  const machines = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const close = async () => {
    await Promise.all(machines.map((machine) => machine.close()));
    await rm(folder, { recursive: true, force: true });
  };
  const [reader, server] = machines;
  if (reader !== undefined && server !== undefined) return { reader, server, close };
  await close();
  throw started.find((one) => one.status === 'rejected')?.reason;
}

function start(
  name: string,
  options: Pick<VirtualMachineOptions, 'memoryMiB' | 'network' | 'setup'>,
): Promise<VirtualMachine> {
  return VirtualMachine.start({
    ...options,
    name,
    setup: `ip link set lo up\n${options.setup}`,
    cacheFolder: process.env.MESHCACHE_VM_CACHE ?? `${projectFolder}build/rdma-vm`,
    guestFolder: `${projectFolder}test/rdma-vm/guest`,
    bootTimeoutMs: BOOT_TIMEOUT_MS,
  });
}

/** Both addresses can be used at once. With that MTU a packet of RDMA has up to 4,096 bytes of payload. */
function deviceSetup(index: number, address: string, address6: string): string {
  return `ip addr add ${address}/24 dev eth${index}
ip addr add ${address6}/64 dev eth${index} nodad
ip link set eth${index} mtu 9000 up
rdma link add rxe${index} type rxe netdev eth${index}`;
}
