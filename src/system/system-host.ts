import dgram from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { availableParallelism, homedir, hostname, networkInterfaces } from 'node:os';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { Host, HostAddress, LoopObservation } from '../base/environment/host.js';
import type { Endpoint } from '../base/environment/network.js';
import { EVENT_LOOP_SAMPLE_MS } from '../base/limits.js';
import { ownMemory } from './memory-limit.js';

/** The real machine and this process. */
export const systemHost: Host = {
  get name() {
    return hostname();
  },
  processId: process.pid,
  get memoryBytes() {
    return ownMemory().totalBytes;
  },
  get parallelism() {
    return availableParallelism();
  },
  get homePath() {
    return homedir();
  },
  variable: (name) => process.env[name],
  hasDevices: true,
  // The native addon provides memory for pages, and this layer does not know the addon.
  allocate: () => undefined,
  observeLoop,
  freeMemoryBytes: () => ownMemory().freeBytes,
  residentBytes: () => process.memoryUsage.rss(),
  async resolve(name) {
    try {
      return (await lookup(name, { all: true })).map(({ address }) => address);
    } catch {
      return [];
    }
  },
  addresses,
  addressTowards,
};

function addresses(): HostAddress[] {
  const entries = Object.values(networkInterfaces()).flatMap((some) => some ?? []);
  return entries.map(({ address, family, internal, scopeid }) => ({
    address,
    family,
    isInternal: internal,
    isLinkLocal: Boolean(scopeid),
  }));
}

/** Finds the local address by connecting a datagram socket, which consults the routing table and sends nothing. */
function addressTowards({ host, port }: Endpoint): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = dgram.createSocket(host.includes(':') ? 'udp6' : 'udp4');
    const fail = (error: Error): void => {
      socket.close();
      reject(error);
    };
    socket.once('error', fail);
    socket.connect(port, host, ((error?: Error) => {
      // Without a route, the socket is not connected and is bound to every address.
      if (error !== undefined) return fail(error);
      const own = socket.address().address;
      socket.close();
      resolve(own);
    }) as () => void);
  });
}

function observeLoop(): LoopObservation {
  const delays = monitorEventLoopDelay({ resolution: EVENT_LOOP_SAMPLE_MS });
  delays.enable();
  let begun = performance.eventLoopUtilization();
  return {
    get count() {
      return delays.count;
    },
    // The histogram has the times between two samples in nanoseconds. The delay is the excess over the sampling
    // interval.
    delayS: (percent) => Math.max(0, delays.percentile(percent) / 1e9 - EVENT_LOOP_SAMPLE_MS / 1e3),
    utilization: () => performance.eventLoopUtilization(begun).utilization,
    beginAnew() {
      delays.reset();
      begun = performance.eventLoopUtilization();
    },
    end: () => delays.disable(),
  };
}
