import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { endianness } from 'node:os';
import { fileURLToPath } from 'node:url';
import {
  ACCESS_LOCAL_WRITE,
  ACCESS_REMOTE_READ,
  CONTRACT_VERSION,
  DESCRIPTOR_RECORD_MAX_BYTES,
  DESCRIPTOR_REPLY_MAX_BYTES,
  MEMORY_HUGE_PAGES,
  MEMORY_SHARED,
  type NativeAddon,
  OP_COLUMNS,
  OP_STATUS,
  RDMA_EVENT_CAUSES,
  RDMA_EVENT_KINDS,
  RDMA_STATS,
} from './contract.js';
import { prebuiltAddons } from './prebuilt.js';

/** The addon, or a one-line reason why there is none. */
export type NativeLoad =
  | { readonly addon: NativeAddon; readonly reason: '' }
  | { readonly addon: null; readonly reason: string };

/** Functions that an addon must export. */
const FUNCTIONS = [
  'memoryAllocate',
  'memoryMap',
  'memoryIsDamaged',
  'memoryViews',
  'memoryFree',
  'memoryPrefault',
  'memoryAbsent',
  'addressOf',
  'crc32',
  'copyPagesSync',
  'copyPages',
  'createFrameTagger',
  'waitForInput',
  'preallocate',
  'readAt',
  'writeAt',
  'createDescriptorListener',
  'closeReceived',
  'duplicate',
  'setDscp',
  'peerCredentials',
  'rdmaProbe',
  'createRdmaEngine',
] as const satisfies readonly (keyof NativeAddon)[];

/** Constants that both sides define. The addon exports its own as `constants`, and the two are compared. */
const CONSTANTS: Readonly<Record<string, number | string>> = {
  memoryHugePages: MEMORY_HUGE_PAGES,
  memoryShared: MEMORY_SHARED,
  accessRemoteRead: ACCESS_REMOTE_READ,
  accessLocalWrite: ACCESS_LOCAL_WRITE,
  descriptorRecordMaxBytes: DESCRIPTOR_RECORD_MAX_BYTES,
  descriptorReplyMaxBytes: DESCRIPTOR_REPLY_MAX_BYTES,
  opColumns: OP_COLUMNS,
  opStatus: OP_STATUS.join(),
  rdmaEventKinds: RDMA_EVENT_KINDS.join(),
  rdmaEventCauses: RDMA_EVENT_CAUSES.join(),
  rdmaStats: RDMA_STATS.join(),
};

/** Values of `e_machine` in an ELF header, by architecture. */
const ELF_MACHINES: Readonly<Record<string, number>> = { x64: 62, arm64: 183 };
const ELF_HEADER_BYTES = 64;
const ELF_MACHINE_OFFSET = 18;

/** The result of the first load in this thread. A second load would return the same library. */
let loaded: NativeLoad | null = null;

/**
 * Returns the addon of this package, or one of a package for this platform, loaded on the first call; none with
 * `MESHCACHE_NATIVE=off` in the environment. Does not throw.
 */
export function loadNative(): NativeLoad {
  loaded ??= process.env.MESHCACHE_NATIVE === 'off' ? none('MESHCACHE_NATIVE=off') : loadFirst();
  return loaded;
}

/** The addon that was built here, else the first of an installed package that loads. */
function loadFirst(): NativeLoad {
  const built = loadAddon(fileURLToPath(new URL('../native/meshcache.node', import.meta.url)));
  if (built.addon !== null) return built;
  const reasons = [built.reason];
  for (const { path, refusal } of prebuiltAddons()) {
    const prebuilt = refusal === '' ? loadAddon(path) : none(refusal);
    if (prebuilt.addon !== null) return prebuilt;
    reasons.push(prebuilt.reason);
  }
  return none(reasons.join('; '));
}

/**
 * Loads the addon at `path`. The file `<path>.sha256` must contain its SHA-256 in hexadecimal. This is checked first,
 * because the dynamic linker kills the process if a file was truncated. An addon that does not match the contract is
 * refused with a reason. Does not throw.
 */
export function loadAddon(path: string): NativeLoad {
  if (process.platform !== 'linux') return none(`there is no native addon for ${process.platform}`);
  try {
    const refusal = refusalOfFile(path);
    if (refusal !== '') return none(refusal);
    const exported = open(path);
    const mismatch = mismatchOf(exported);
    return mismatch === '' ? { addon: exported as NativeAddon, reason: '' } : none(`${path}: ${mismatch}`);
  } catch (error) {
    return none(`${path}: ${oneLine(error)}`);
  }
}

function refusalOfFile(path: string): string {
  const bytes = fileOrNull(path);
  if (bytes === null) return `no native addon at ${path}: \`npm run build:native\` builds it`;
  const stated = fileOrNull(`${path}.sha256`)?.toString('latin1').trim().split(/\s/)[0] ?? '';
  if (stated === '') return `${path}.sha256 is missing or empty: the native addon is not loaded unchecked`;
  if (createHash('sha256').update(bytes).digest('hex') !== stated) {
    return `${path} is damaged: it does not have the SHA-256 that ${path}.sha256 states`;
  }
  const mismatch = elfMismatch(bytes);
  return mismatch === '' ? '' : `${path}: ${mismatch}`;
}

/** Returns why this process cannot load the file, according to its header; empty if it can. */
function elfMismatch(bytes: Buffer): string {
  if (bytes.length < ELF_HEADER_BYTES || bytes.readUInt32BE(0) !== 0x7f454c46) return 'not an ELF file';
  const isLittleEndian = bytes[5] === 1;
  if (bytes[4] !== 2 || isLittleEndian !== (endianness() === 'LE')) {
    return `not a 64-bit library in the byte order of ${process.arch}`;
  }
  const machine = isLittleEndian ? bytes.readUInt16LE(ELF_MACHINE_OFFSET) : bytes.readUInt16BE(ELF_MACHINE_OFFSET);
  const wanted = ELF_MACHINES[process.arch];
  if (machine === wanted) return isLittleEndian && isCutShort(bytes) ? 'cut short' : '';
  const built = Object.keys(ELF_MACHINES).find((arch) => ELF_MACHINES[arch] === machine) ?? `ELF machine ${machine}`;
  return `built for ${built}, this process is ${process.arch}`;
}

/** Whether the program headers name a part beyond the end of the file; mapping it would kill the process. */
function isCutShort(bytes: Buffer): boolean {
  const at = Number(bytes.readBigUInt64LE(32));
  const [entryBytes, count] = [bytes.readUInt16LE(54), bytes.readUInt16LE(56)];
  if (entryBytes < 56 || at + entryBytes * count > bytes.length) return true;
  for (let header = at; header < at + entryBytes * count; header += entryBytes) {
    const end = bytes.readBigUInt64LE(header + 8) + bytes.readBigUInt64LE(header + 32);
    if (end > BigInt(bytes.length)) return true;
  }
  // The section headers are at the end of a file, so they reveal truncation after the last segment.
  return Number(bytes.readBigUInt64LE(40)) + bytes.readUInt16LE(58) * bytes.readUInt16LE(60) > bytes.length;
}

function open(path: string): unknown {
  const module = { exports: {} as unknown };
  process.dlopen(module, path);
  return module.exports;
}

/** Returns the first mismatch between the exports and the contract; empty if there is none. */
function mismatchOf(exported: unknown): string {
  if (typeof exported !== 'object' || exported === null) return 'exports nothing';
  const addon = exported as Partial<NativeAddon> & { readonly constants?: Record<string, unknown> };
  if (addon.contractVersion !== CONTRACT_VERSION) {
    return `has contract version ${String(addon.contractVersion)}, this meshcache needs ${CONTRACT_VERSION}`;
  }
  const missing = FUNCTIONS.filter((name) => typeof addon[name] !== 'function');
  if (missing.length > 0) return `does not export ${missing.join(', ')}`;
  if (typeof addon.hasRdma !== 'boolean' || typeof addon.checksumPath !== 'string') {
    return 'does not say what was built into it';
  }
  const different = Object.keys(CONSTANTS).filter((name) => addon.constants?.[name] !== CONSTANTS[name]);
  return different.length > 0 ? `has other values of ${different.join(', ')}` : '';
}

function fileOrNull(path: string): Buffer | null {
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

function none(reason: string): NativeLoad {
  return { addon: null, reason };
}

function oneLine(error: unknown): string {
  return String(error instanceof Error ? error.message : error)
    .replaceAll(/\s*\n\s*/g, ' ')
    .trim();
}
