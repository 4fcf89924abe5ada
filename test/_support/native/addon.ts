import test from 'ava';
import type { NativeAddon } from '../../../src/native/addon/contract.js';
import { loadNative } from '../../../src/native/addon/loader.js';

/** Exports of the addon beside the contract, for tests and benchmarks. */
export interface TestedAddon extends NativeAddon {
  /**
   * Every way in which this processor can compute a checksum; with `target` the bytes are copied there in the same
   * pass.
   */
  readonly checksumPaths: Readonly<Record<string, (view: Uint8Array, seed: number, target?: Uint8Array) => number>>;
}

const { addon: loaded, reason } = loadNative();

// If the addon is required, its tests must fail rather than skip.
if (process.env.MESHCACHE_TEST_ADDON === 'required' && loaded === null) throw new Error(`no addon: ${reason}`);

/** The addon that is built, for tests of {@link withAddon}. */
export const addon = loaded as TestedAddon;

/** Runs the test, or skips it if the addon is not built. */
export const withAddon = loaded === null ? test.skip : test;

/** Runs the test alone in its file, or skips it if the addon is not built. */
export const serialWithAddon = loaded === null ? test.serial.skip : test.serial;

/** Suffix of the titles of tests that need the addon. */
export const suffix = loaded === null ? ` (skipped: ${reason})` : '';
