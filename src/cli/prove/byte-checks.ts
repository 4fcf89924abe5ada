import { names } from '../../base/settings/fields.js';
import { formatSize } from '../../base/sizes.js';
import { formatRate } from '../../command/table.js';
import { systemRdmaHost } from '../../native/devices/rdma-devices.js';
import { rdmaSupport } from '../../native/devices/rdma-support.js';
import type { Configuration } from '../settings/configuration.js';
import { failedTrip, provenTrips, roundPages, withNodes } from './own-nodes.js';
import { failed, notRun, passed, type Step, type Verdict } from './proof.js';

const AREA = 'Every byte';
/** Small pages come with the answer of the directory, large ones are read from memory in several pieces. */
const PAGE_SIZES_BYTES = [4 * 2 ** 10, 64 * 2 ** 10, 4 * 2 ** 20] as const;
const ADVICE = 'the nodes of this check could not start or end; the detail has the end of their log';
/** Keys of the configuration that say how RDMA is used. */
const RDMA_KEYS = ['ib_port', 'gid_index'] as const;

/** A way of pages between two nodes of this machine. */
interface Path {
  readonly name: string;
  readonly protocol: 'rdma' | 'tcp';
  readonly config: Readonly<Record<string, unknown>>;
}

/** Pages of every size over every transport and RDMA device of this machine, or over those that are configured. */
export function byteSteps(
  configuration: Configuration,
  how: { readonly signal: AbortSignal; readonly quick: boolean },
): Step[] {
  const paths: Path[] = [{ name: 'TCP', protocol: 'tcp', config: { protocol: 'tcp' } }, ...rdmaPaths(configuration)];
  const steps = paths.flatMap((path) =>
    PAGE_SIZES_BYTES.map(
      (pageBytes): Step => ({
        area: AREA,
        check: `${path.name}, pages of ${formatSize(pageBytes)}`,
        advice: ADVICE,
        run: () => pagesOver(path, pageBytes, how),
      }),
    ),
  );
  return paths.length > 1 ? steps : [...steps, withoutRdma(configuration)];
}

function rdmaPaths({ mapping }: Configuration): Path[] {
  if (mapping.protocol === 'tcp' || !rdmaSupport().usable) return [];
  const settings = Object.fromEntries(RDMA_KEYS.flatMap((key) => (key in mapping ? [[key, mapping[key]]] : [])));
  return wantedDevices(mapping).map((device) => ({
    name: `RDMA by ${device}`,
    protocol: 'rdma',
    config: { ...settings, protocol: 'rdma', device_name: device },
  }));
}

/** Names of the configured devices; without them, those of this machine with an active port. */
export function wantedDevices(mapping: Configuration['mapping']): string[] {
  const given = names().parse(mapping.device_names ?? mapping.device_name) as string[] | undefined;
  if (given !== undefined) return given;
  const devices = systemRdmaHost.devices();
  return devices.filter(({ ports }) => ports.some(({ state }) => state === 'ACTIVE')).map(({ name }) => name);
}

function withoutRdma({ mapping }: Configuration): Step {
  const isAsked =
    mapping.protocol === 'rdma' || mapping.device_name !== undefined || mapping.device_names !== undefined;
  const run = async (): Promise<Verdict> => {
    if (mapping.protocol === 'tcp') return notRun('protocol is tcp');
    const { step, reason, advice } = rdmaSupport();
    const detail = `RDMA cannot be used; step "${step}" fails: ${reason}`;
    return isAsked ? failed(`the settings ask for RDMA. ${detail}`, advice) : notRun(detail, advice);
  };
  return { area: AREA, check: 'RDMA', advice: ADVICE, run };
}

async function pagesOver(
  { protocol, config }: Path,
  pageBytes: number,
  { signal, quick }: Parameters<typeof byteSteps>[1],
): Promise<Verdict> {
  return withNodes({ nodes: 2, pageBytes, config, signal }, async (cluster) => {
    const other = cluster.agents.find((agent) => agent.protocol !== protocol);
    if (other !== undefined) {
      const advice = 'see the checks of this machine above: name, port and address of the device';
      return failed(`a node uses ${other.protocol} instead of ${protocol}: ${other.transportReason}`, advice);
    }
    const { trip, isComplete } = await provenTrips(cluster, roundPages(pageBytes, quick));
    if (!isComplete) return failedTrip(trip, pageBytes);
    const { pages, readBytesPerS } = trip;
    const detail = `${pages} pages each way, every byte right; ${formatRate(readBytesPerS)} read and checked`;
    return passed(detail, { pages, wrong_bytes: 0, checksum_failures: 0, read_bytes_per_s: Math.round(readBytesPerS) });
  });
}
