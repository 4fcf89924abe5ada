import type { Clock } from '../base/environment/clock.js';

/** A change of a page in a stream of page events. `tier` is null if this node no longer has the page. */
interface StreamedChange {
  readonly key: string;
  readonly tier: 'memory' | 'disk' | null;
}

/** An event of a node's pages; `PageEvent` of the store explains each kind. */
export interface StreamedEvent {
  readonly kind: 'reset' | 'listed' | 'complete' | 'changed';
  readonly position?: string;
  readonly atMs?: number;
  readonly changes?: readonly StreamedChange[];
}

/** The page events of a node. */
export interface PageEventSource {
  readonly nodeId: string;
  /** Yields the events after a position, or a list of all pages and then changes. Ends when the signal is aborted. */
  follow(options: { readonly after?: string; readonly signal: AbortSignal }): AsyncIterator<StreamedEvent, void>;
  /**
   * Returns the settings behind the 32 hexadecimal characters that begin an object key; undefined if they are unknown
   * here.
   */
  describe(namespace: string): Readonly<Record<string, unknown>> | undefined;
}

/** Silence after which something is sent on a stream, so that both ends notice a dead connection. */
const KEEP_ALIVE_MS = 3_000;
const KEEP_ALIVE = ': nothing new\n\n';
/** Names of the tiers in the KV events of vLLM and SGLang. */
const MEDIUMS = { memory: 'CPU', disk: 'DISK' } as const;

/**
 * Streams the page events of a node as server-sent events (WHATWG HTML, section 9.2). Changes have the form of the KV
 * events of vLLM and SGLang: `BlockStored` and `BlockRemoved` with `block_hashes`. Ends when the signal is aborted.
 */
export async function* eventStream(
  source: PageEventSource,
  { after, signal, clock }: { readonly after?: string; readonly signal: AbortSignal; readonly clock: Clock },
): AsyncGenerator<string, void> {
  const events = source.follow(after === undefined ? { signal } : { after, signal });
  const known = new Set<string>();
  try {
    let next = events.next();
    for (;;) {
      const result = await orKeepAlive(next, clock);
      if (result === undefined) {
        yield KEEP_ALIVE;
      } else if (result.done) {
        return;
      } else {
        for (const namespace of namespacesOf(result.value)) {
          if (known.has(namespace)) continue;
          known.add(namespace);
          const described = source.describe(namespace);
          if (described !== undefined) yield message('namespace', { namespace, ...described });
        }
        yield textOf(result.value, source.nodeId);
        next = events.next();
      }
    }
  } finally {
    // A reader that has stalled and then gone must no longer count as a reader. A pending `next` ends with the signal.
    void events.return?.();
  }
}

/** Resolves with the result, or with undefined if it takes longer than {@link KEEP_ALIVE_MS}. */
async function orKeepAlive<T>(result: Promise<T>, clock: Clock): Promise<T | undefined> {
  let cancel = (): void => {};
  const silence = new Promise<undefined>((resolve) => {
    cancel = clock.after(KEEP_ALIVE_MS, () => resolve(undefined));
  });
  try {
    return await Promise.race([result, silence]);
  } finally {
    cancel();
  }
}

function textOf({ kind, position, atMs, changes = [] }: StreamedEvent, nodeId: string): string {
  // The empty id keeps a reader that reconnects before the list is complete from resuming at an earlier position.
  if (kind === 'reset') return message('reset', { node_id: nodeId }, '');
  if (kind === 'complete') return message('complete', { node_id: nodeId }, position);
  const ts = atMs === undefined ? {} : { ts: atMs / 1000 };
  return message('kv', { node_id: nodeId, ...ts, events: blockEvents(changes) }, position);
}

function message(event: string, data: object, id?: string): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** A change of several blocks, with the field names of vLLM's KV events. */
interface BlockEvent {
  readonly type: 'BlockStored' | 'BlockRemoved';
  readonly namespace: string;
  readonly medium?: 'CPU' | 'DISK';
  readonly block_hashes: string[];
}

/** Returns one event per namespace and tier. An object key is the namespace, a slash and the block's hash. */
function blockEvents(changes: readonly StreamedChange[]): BlockEvent[] {
  const blocks = new Map<string, BlockEvent>();
  for (const { key, tier } of changes) {
    const slash = key.indexOf('/');
    const namespace = key.slice(0, slash);
    const group = `${namespace} ${tier}`;
    let event = blocks.get(group);
    if (event === undefined) {
      event =
        tier === null
          ? { type: 'BlockRemoved', namespace, block_hashes: [] }
          : { type: 'BlockStored', namespace, medium: MEDIUMS[tier], block_hashes: [] };
      blocks.set(group, event);
    }
    event.block_hashes.push(key.slice(slash + 1));
  }
  return [...blocks.values()];
}

function namespacesOf({ changes = [] }: StreamedEvent): Set<string> {
  return new Set(changes.map(({ key }) => key.slice(0, key.indexOf('/'))));
}
