import { isolated, make, setText } from './dom.js';
import type { Member } from './members.js';

interface Trouble {
  readonly nodeId: string;
  readonly text: string;
}

/** What is wrong, plainly, or that nothing is. */
export class HealthView {
  readonly #verdict = make('p', { class: 'verdict' });
  readonly #list = make('ul', { class: 'troubles' });
  #shown = '';

  constructor(section: HTMLElement) {
    section.append(make('div', { class: 'card health' }, this.#verdict, this.#list));
  }

  /** Of these nodes; those that are gone are not ill. */
  update(members: readonly Member[]): void {
    const present = members.filter(({ state }) => state !== 'gone');
    const troubles = present.flatMap(troublesOf);
    const ill = new Set(troubles.map(({ nodeId }) => nodeId)).size;
    setText(this.#verdict, verdictOf(present.length, ill));
    this.#verdict.dataset.status = present.length === 0 ? 'unknown' : ill > 0 ? 'degraded' : 'ok';
    const key = JSON.stringify(troubles);
    if (key === this.#shown) return;
    this.#shown = key;
    this.#list.hidden = troubles.length === 0;
    this.#list.replaceChildren(
      ...troubles.map(({ nodeId, text }) =>
        make('li', {}, make('strong', {}, isolated(nodeId)), make('span', {}, isolated(text))),
      ),
    );
  }
}

function troublesOf({ nodeId, state, error, report }: Member): Trouble[] {
  if (state === 'unreachable') return [{ nodeId, text: `does not answer: ${error}` }];
  if (report?.health?.status !== 'degraded') return [];
  const reasons = report.health.reasons ?? [];
  return (reasons.length > 0 ? reasons : ['degraded, for a reason that it does not give']).map((reason) => {
    return { nodeId, text: String(reason) };
  });
}

function verdictOf(count: number, ill: number): string {
  if (count === 0) return 'Nothing is known of it now.';
  if (ill === 0) return count === 1 ? 'All is well.' : `All is well: ${count} nodes answer.`;
  return count === 1 ? 'Something is wrong:' : `${ill} of ${count} nodes ${ill === 1 ? 'has' : 'have'} trouble:`;
}
