import test from 'ava';
import { rdmaSupport } from '../../../src/native/devices/rdma-support.js';
import { knownHost } from './known-host.js';

/** An RDMA device of this machine that tests may use. */
export interface TestDevice {
  readonly name: string;
  readonly address: string;
  /** Global IPv6 address; undefined if it has none. */
  readonly address6: string | undefined;
}

/** Devices with an active port and an IPv4 address, by name. */
export const devices: readonly TestDevice[] = knownHost.devices().flatMap(({ name, ports }) => {
  const gids = ports[0]?.state === 'ACTIVE' ? ports[0].gids.filter(({ type }) => type === 'RoCE v2') : [];
  const addresses = gids.map(({ address }) => address);
  const address = addresses.find((each) => !each.includes(':'));
  const address6 = addresses.find((each) => each.includes(':') && !/^fe[89ab]/i.test(each));
  return address === undefined ? [] : [{ name, address, address6 }];
});

const support = rdmaSupport({ host: knownHost });
const missing = support.usable ? (devices.length > 1 ? '' : 'fewer than two RDMA devices') : support.reason;

/**
 * Declares tests that need two devices, which `npm run test:rdma` provides. They count objects of the whole machine, so
 * they run one at a time.
 */
export const rdmaTest = missing === '' ? test.serial : test.serial.skip;

/** Suffix of the titles. */
export const suffix = missing === '' ? '' : ` (skipped: ${missing})`;
