import { MeshCacheError } from '../../base/errors.js';
import { type CoreExports, checkConstants } from './exports.js';
import { KeyArea } from './key-area.js';
import { SharedRingPoints } from './ring-points.js';

/**
 * Source of a core for {@link loadCore}: the bytes of `meshcache.wasm`, a response with them, or the compiled module.
 */
export type CoreSource = ArrayBuffer | ArrayBufferView | FetchResponse | WasmModule;

/** Option of all constructors in `meshcache/core`. */
export interface CoreOptions {
  /** The instance of the WASM module to use; default: {@link defaultCore}. */
  readonly core?: Core;
}

/**
 * One instance of the WASM module with its memory. Rings, pools and encoders created with it live in that memory and
 * are independent of each other. All calls are synchronous and must come from one thread.
 */
export class Core {
  /** @internal */
  readonly exports: CoreExports;
  /** @internal Input and output of calls, shared by all objects of this core. */
  readonly area: KeyArea;
  /** @internal */
  readonly ringPoints: SharedRingPoints;
  private readonly abandoned: FinalizationRegistry<() => void>;

  /** Wraps a fresh instance of `meshcache.wasm`. Throws `ERR_CORE` if it has another version. */
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
   * @internal Calls `free` after `owner` was collected, unless {@link forget} was called first. `free` must not
   * reference the owner.
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

/** The first core loaded. If there is none, Node, Deno and Bun load it now; elsewhere throws `ERR_CORE`. */
export function defaultCore(): Core {
  fallback ??= loadFile();
  return fallback;
}

/**
 * The default core, the only state of this module: a constructor cannot wait, so it needs a core that is already
 * loaded.
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

/** The bytes of the module's file; undefined if there is no file system, or this code was not loaded from one. */
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

/** Instance type of the global constructor `Name`; `object` if the host's declarations lack it. */
type Made<Scope, Name extends string> = Scope extends { [N in Name]: infer Constructor }
  ? Constructor extends abstract new (
      ...args: never
    ) => infer Made
    ? Made
    : object
  : object;

type WebAssemblyScope = typeof globalThis extends { WebAssembly: infer Scope } ? Scope : object;

/**
 * `WebAssembly.Module`, taken from the host's own declarations, like the two types below: a program compiled only for
 * Node has no `lib: dom`, and this package's declarations must work there, too.
 */
export type WasmModule = Made<WebAssemblyScope, 'Module'>;
/** `WebAssembly.Instance`; see {@link WasmModule}. */
export type WasmInstance = Made<WebAssemblyScope, 'Instance'>;
/** `Response`; see {@link WasmModule}. */
export type FetchResponse = Made<typeof globalThis, 'Response'>;
