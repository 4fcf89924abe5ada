import { seededRandom, shuffled } from '../../base/environment/random.js';
import { formatSize } from '../../base/sizes.js';
import { HostRegion } from '../../memory/host-region.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { ReadOp } from '../../transport/contract/transport.js';
import { TcpTransport } from '../../transport/tcp/tcp-transport.js';
import { PeerProcess } from '../measuring/peer-process.js';
import { type BenchOptions, type BenchReport, type Contender, race } from '../measuring/report.js';
import { isStamped } from '../measuring/store-pages.js';
import {
  BATCH_PAGES,
  batchesOf,
  checksums,
  type ServedPool,
  type TcpPeerAnswer,
  type TcpPeerCommand,
} from './tcp-peer.js';

const PAGE_SIZES_BYTES = [64 * 2 ** 10, 2 ** 20, 4 * 2 ** 20] as const;
const FULL_WORK_BYTES = 2 ** 30;
const QUICK_WORK_BYTES = 16 * 2 ** 20;

/** The memory that the transports of all numbers of threads read into and out of. */
interface Memory {
  readonly target: HostRegion;
  readonly addr: bigint;
}

/**
 * Compares numbers of threads: verified reads of pages in another process's pool, both processes with so many receiving
 * and so many serving threads, interleaved in one run. Pages are read in random order.
 */
export async function tcpThreadsBench(options: BenchOptions, threads: readonly number[]): Promise<BenchReport> {
  options.progress('starting the serving process');
  const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
  const peer = new PeerProcess<TcpPeerCommand, TcpPeerAnswer>('tcp');
  const target = HostRegion.allocate(workBytes);
  const transports: TcpTransport[] = [];
  try {
    const { served, addr } = (await peer.call({
      kind: 'start',
      poolBytes: workBytes,
      threads,
    })) as Required<TcpPeerAnswer>;
    await target.prefault();
    for (const count of threads) {
      transports.push(await TcpTransport.create({ host: '127.0.0.1', env: systemEnvironment(), threads: count }));
    }
    const rows: BenchReport['rows'][number][] = [];
    for (const pageBytes of PAGE_SIZES_BYTES) {
      await peer.call({ kind: 'stamp', pageBytes });
      const contenders = transports.map((transport, i) => {
        const pool = served[i] as ServedPool;
        return contender(`${threads[i]} threads`, transport, pool, pageBytes, { target, addr: BigInt(addr) });
      });
      const raced = await race(contenders, {
        rounds: options.rounds,
        totalBytes: Math.floor(workBytes / pageBytes) * pageBytes,
        clear: () => target.bytes().fill(0),
        progress: (round, name) =>
          options.progress(`${formatSize(pageBytes)}: round ${round} of ${options.rounds}, ${name}`),
      });
      rows.push(...raced.map((row) => ({ page: formatSize(pageBytes), ...row })));
    }
    return { title: 'tcp: receiving and serving threads, over loopback', rows, notes: notes(options, workBytes) };
  } finally {
    await Promise.all(transports.map((transport) => transport.close()));
    target.free();
    peer.end();
  }
}

function notes({ rounds }: BenchOptions, workBytes: number): string[] {
  return [
    `Batches of ${BATCH_PAGES} pages with checksums, one batch at a time; pool and destination of ${formatSize(workBytes)}, touched before; medians of ${rounds} interleaved rounds.`,
    `Two processes with so many receiving and so many serving threads each, on ${systemEnvironment().host.parallelism} processors.`,
    'ratio: to the first number of threads.',
  ];
}

function contender(
  name: string,
  transport: TcpTransport,
  { endpoint, rkey }: ServedPool,
  pageBytes: number,
  { target, addr }: Memory,
): Contender {
  const pages = Math.floor(target.length / pageBytes);
  const order = shuffled(
    Array.from({ length: pages }, (_, page) => page),
    seededRandom(1),
  );
  const sums = checksums(pages, pageBytes);
  const batches = batchesOf(
    order.map((page, slot): ReadOp => {
      return {
        remoteEndpoint: endpoint,
        remoteAddr: addr + BigInt(page * pageBytes),
        rkey,
        localAddr: target.addr + BigInt(slot * pageBytes),
        length: pageBytes,
        checksum: sums[page] as number,
      };
    }),
  );
  return {
    name,
    isRight: () => order.every((page, slot) => isStamped(target.bytes(slot * pageBytes, pageBytes), page)),
    async read() {
      for (const batch of batches) {
        const results = await transport.batchRead(batch);
        if (!results.every(Boolean)) throw new Error('batchRead: a page did not come');
      }
    },
  };
}
