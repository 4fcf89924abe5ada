import type { Member } from './data/members.js';
import { make, setText } from './views/dom.js';

const CLUSTER = 'cluster';
const NODE_PREFIX = 'node=';

/**
 * The selected node; null is the whole cluster. It stands in the page's address, so that it can be reloaded and passed
 * on.
 */
export class Scope {
  readonly #select: HTMLSelectElement;
  readonly #options = new Map<string, HTMLOptionElement>();
  #nodeId: string | null = nodeIdOf(location.hash);

  constructor(select: HTMLSelectElement, onChange: () => void) {
    this.#select = select;
    select.append(make('option', { text: 'The whole cluster', attributes: { value: CLUSTER } }));
    select.addEventListener('change', () => {
      this.choose(select.value === CLUSTER ? null : select.value.slice(NODE_PREFIX.length));
      onChange();
    });
    addEventListener('hashchange', () => {
      this.#nodeId = nodeIdOf(location.hash);
      this.#showChoice();
      onChange();
    });
  }

  get nodeId(): string | null {
    return this.#nodeId;
  }

  choose(nodeId: string | null): void {
    this.#nodeId = nodeId;
    const hash = nodeId === null ? '' : `#${NODE_PREFIX}${encodeURIComponent(nodeId)}`;
    history.replaceState(null, '', `${location.pathname}${hash}`);
    this.#showChoice();
  }

  /** Updates the choice of nodes; the selected one stays in it, known or not. */
  update(members: readonly Member[]): void {
    const labels = new Map(members.map((member) => [member.nodeId, labelOf(member)]));
    if (this.#nodeId !== null && !labels.has(this.#nodeId)) labels.set(this.#nodeId, `${this.#nodeId} (not known)`);
    for (const [nodeId, option] of this.#options) {
      if (labels.has(nodeId)) continue;
      option.remove();
      this.#options.delete(nodeId);
    }
    for (const [nodeId, label] of labels) {
      let option = this.#options.get(nodeId);
      if (option === undefined) {
        option = make('option', { attributes: { value: `${NODE_PREFIX}${nodeId}` } });
        this.#options.set(nodeId, option);
        this.#select.append(option);
      }
      setText(option, label);
    }
    this.#showChoice();
  }

  #showChoice(): void {
    const value = this.#nodeId === null ? CLUSTER : `${NODE_PREFIX}${this.#nodeId}`;
    if (this.#select.value !== value) this.#select.value = value;
  }
}

function labelOf({ nodeId, state, isThis }: Member): string {
  if (state !== 'up') return `${nodeId} (${state === 'unreachable' ? 'does not answer' : state})`;
  return isThis ? `${nodeId} (this node)` : nodeId;
}

function nodeIdOf(hash: string): string | null {
  if (!hash.startsWith(`#${NODE_PREFIX}`)) return null;
  try {
    return decodeURIComponent(hash.slice(NODE_PREFIX.length + 1));
  } catch {
    return null;
  }
}
