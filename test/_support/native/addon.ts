import test from 'ava';
import type { NativeAddon } from '../../../src/native/addon/contract.js';
import { loadNative } from '../../../src/native/addon/loader.js';

/** What the addon exports beside the contract, for tests and benchmarks. */
export interface TestedAddon extends NativeAddon {
  /** Every way that this processor has to take a checksum; with `target` the bytes are copied there in the same pass. */
  readonly checksumPaths: Readonly<Record<string, (view: Uint8Array, seed: number, target?: Uint8Array) => number>>;
}

const { addon: loaded, reason } = loadNative();

// Where the addon must be there, its tests fail rather than skip.
if (process.env.MESHCACHE_TEST_ADDON === 'required' && loaded === null) throw new Error(`no addon: ${reason}`);

/** The addon that is built, for tests of {@link withAddon}. */
export const addon = loaded as TestedAddon;

/** Runs the test, or skips it where the addon is not built. */
export const withAddon = loaded === null ? test.skip : test;

/** The same, alone in its file while it runs. */
export const serialWithAddon = loaded === null ? test.serial.skip : test.serial;

/** To be put at the end of titles. */
export const suffix = loaded === null ? ` (skipped: ${reason})` : '';
