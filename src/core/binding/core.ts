import { MeshCacheError } from '../../base/errors.js';
import { type CoreExports, checkConstants } from './exports.js';
import { KeyArea } from './key-area.js';
import { SharedRingPoints } from './ring-points.js';

/**
 * The source of a core for {@link loadCore}: the bytes of `meshcache.wasm`, a response with them, or the compiled
 * module.
 */
export type CoreSource = ArrayBuffer | ArrayBufferView | FetchResponse | WasmModule;

/** Option that all constructors of `meshcache/core` have. */
export interface CoreOptions {
  /** The instance of the WASM module to use; by default the one of {@link defaultCore}. */
  readonly core?: Core;
}

/**
 * One instance of the WASM module and its memory. Rings, pools and encoders created with it live in that memory and are
 * independent of each other. Everything is synchronous and belongs to one thread.
 */
export class Core {
  /** @internal */
  readonly exports: CoreExports;
  /** @internal Input and output of calls, shared by all objects of this core. */
  readonly area: KeyArea;
  /** @internal */
  readonly ringPoints: SharedRingPoints;
  private readonly abandoned: FinalizationRegistry<() => void>;

  /** Takes a fresh instance of `meshcache.wasm`. Throws `ERR_CORE` if it is of another version. */
  constructor(instance: WasmInstance) {
    this.exports = instance.exports as unknown as CoreExports;
    checkConstants(this.exports);
    this.area = new KeyArea(this.exports);
    this.ringPoints = new SharedRingPoints(this.exports, this.area);
    this.abandoned = new FinalizationRegistry((free) => free());
  }

  /** Bytes of WASM memory. It grows and never shrinks; freed memory is used again. */
  get memoryBytes(): number {
    return this.exports.memory.buffer.byteLength;
  }

  /**
   * @internal Calls `free` after `owner` was collected, unless {@link forget} was called first. `free` must not hold
   * the owner.
   */
  freeWhenCollected(owner: object, free: () => void): void {
    this.abandoned.register(owner, free, owner);
  }

  /** @internal Cancels {@link freeWhenCollected} for an owner. */
  forget(owner: object): void {
    this.abandoned.unregister(owner);
  }
}

/**
 * Loads the WASM module: from `source`, or from the file beside this code (read in Node, Deno and Bun, fetched
 * elsewhere). The first core loaded becomes the default of all constructors. Rejects with `ERR_CORE`.
 */
export async function loadCore(source?: CoreSource): Promise<Core> {
  try {
    const core = new Core(await instantiate(source ?? readModuleFile() ?? (await fetch(moduleUrl()))));
    fallback ??= core;
    return core;
  } catch (error) {
    if (error instanceof MeshCacheError) throw error;
    throw new MeshCacheError('ERR_CORE', `meshcache.wasm could not be loaded: ${String(error)}`, { cause: error });
  }
}

/** The first core loaded; in Node, Deno and Bun it is loaded now if there is none. Throws `ERR_CORE` elsewhere. */
export function defaultCore(): Core {
  fallback ??= loadFile();
  return fallback;
}

/**
 * The default core, the only state of this module: a constructor cannot wait, so it must find a core that was loaded
 * before.
 */
let fallback: Core | undefined;

function moduleUrl(): URL {
  return new URL('../wasm/meshcache.wasm', import.meta.url);
}

function loadFile(): Core {
  const file = readModuleFile();
  if (file === undefined) {
    throw new MeshCacheError('ERR_CORE', 'meshcache.wasm is not loaded: call `await loadCore()` first');
  }
  return new Core(new WebAssembly.Instance(new WebAssembly.Module(file)));
}

interface FileSystem {
  readFileSync(url: URL): Uint8Array<ArrayBuffer>;
}

/** The bytes of the module's file; undefined where there is no file system, or this code was not loaded from one. */
function readModuleFile(): Uint8Array<ArrayBuffer> | undefined {
  const host = globalThis as { process?: { getBuiltinModule?(name: string): FileSystem | undefined } };
  const url = moduleUrl();
  if (url.protocol !== 'file:') return undefined;
  return host.process?.getBuiltinModule?.('node:fs')?.readFileSync(url);
}

async function instantiate(source: CoreSource): Promise<WebAssembly.Instance> {
  if (source instanceof WebAssembly.Module) return WebAssembly.instantiate(source);
  if (typeof Response === 'undefined' || !(source instanceof Response)) {
    return (await WebAssembly.instantiate(source as BufferSource)).instance;
  }
  if (!source.ok) throw new MeshCacheError('ERR_CORE', `meshcache.wasm: ${source.url} answered ${source.status}`);
  return (await WebAssembly.instantiate(await source.arrayBuffer())).instance;
}

/** Instance type of the global constructor `Name`; `object` where the host's declarations lack it. */
type Made<Scope, Name extends string> = Scope extends { [N in Name]: infer Constructor }
  ? Constructor extends abstract new (
      ...args: never
    ) => infer Made
    ? Made
    : object
  : object;

type WebAssemblyScope = typeof globalThis extends { WebAssembly: infer Scope } ? Scope : object;

/**
 * `WebAssembly.Module`, taken from the host's own declarations, like the two types below: a program that is compiled
 * for Node alone has no `lib: dom`, and the declarations of this package must work there too.
 */
export type WasmModule = Made<WebAssemblyScope, 'Module'>;
/** `WebAssembly.Instance`; see {@link WasmModule}. */
export type WasmInstance = Made<WebAssemblyScope, 'Instance'>;
/** `Response`; see {@link WasmModule}. */
export type FetchResponse = Made<typeof globalThis, 'Response'>;
