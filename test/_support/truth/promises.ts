import type { Read } from './calls.js';
import type { Protocol } from './protocol.js';
import { type Call, NODES, type State, supersedes } from './state.js';

/** The first promise that a state breaks, in words; undefined if it keeps all. */
export function brokenPromise(protocol: Protocol, state: State): string | undefined {
  if (state.calls.some(({ isMissed }) => isMissed))
    return 'a delete was done while a member still read what it deletes';
  for (const reader of NODES) {
    for (const key of state.keys) {
      for (const read of protocol.readable(state, reader, key)) {
        const fault = faultOf(state, reader, key, read);
        if (fault)
          return `node ${reader} reads version ${read.version} of key ${key} from node ${read.holder}: ${fault}`;
      }
    }
  }
  const settled = protocol.settled(state);
  const lost = settled.calls.find((call) => isToLast(settled, call) && !isKept(settled, call));
  if (lost)
    return `when all is told, node ${lost.node} does not have what it has set under key ${lost.key} at ${lost.version}`;
  for (const reader of NODES) {
    for (const key of state.keys) {
      for (const read of protocol.readable(settled, reader, key)) {
        const call = settled.calls.find((one) => one.done && one.knowers !== 0 && supersedes(one, key, read));
        if (call)
          return `when all is told, node ${reader} reads version ${read.version} of key ${key} from node ${read.holder}, after ${call.kind} at ${call.version}`;
      }
      const isHeld = NODES.some((holder) => settled.nodes[holder]!.pages[key]);
      if (isHeld && protocol.readable(settled, reader, key).length === 0)
        return `when all is told, node ${reader} does not find key ${key}, which is held`;
    }
  }
  return undefined;
}

/** Whether what a call has set is there for good: neither a later call nor anything else has taken it. */
function isToLast({ calls }: State, { kind, key, version, node, isNamed, done, isLasting }: Call): boolean {
  if (kind !== 'set' || !done || !isLasting) return false;
  return !calls.some((later) => supersedes(later, key, { version, origin: node, isNamed }));
}

function isKept({ nodes }: State, { node, key, version }: Call): boolean {
  return (nodes[node]!.pages[key]?.version ?? 0) >= version;
}

function faultOf(state: State, reader: number, key: number, read: Read): string | undefined {
  if (read.owner === -1 && state.nodes[reader]!.pages[key]!.isWronglyGood)
    return 'a page from before a start, which a node in touch knew to be void';
  for (const call of state.calls) {
    if (!call.done || !supersedes(call, key, read)) continue;
    const what = `${call.kind} at ${call.version} was done`;
    if (call.undisturbed) return `${what}, undisturbed`;
    const word = read.owner === -1 ? reader : read.owner;
    if (call.knowers & (1 << word)) return `${what}, and node ${word} knew`;
  }
  return undefined;
}

/**
 * Whether a set or delete that is done has a version below that of an earlier one, which an owner knew when it took it.
 */
export function isOvertaken(state: State): boolean {
  return state.calls.some((call) => call.done && call.isOvertaken);
}
