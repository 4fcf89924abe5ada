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
