import type { LoggedEvent } from '../data/event-log.js';
import { isolated, make } from './dom.js';
import { formatClock } from './format.js';

const LEVEL_WORDS = { info: 'info', warn: 'warning', error: 'error' } as const;

/** The list of events, newest first. */
export class EventsView {
  readonly #list = make('ol', { class: 'events' });
  readonly #empty = make('p', { class: 'note', text: 'Nothing has happened yet.' });

  constructor(section: HTMLElement) {
    const scroll = { role: 'region', tabindex: '0', 'aria-label': 'Events, newest first' };
    section.append(make('div', { class: 'card scroll event-scroll', attributes: scroll }, this.#empty, this.#list));
  }

  show(events: readonly LoggedEvent[]): void {
    this.#empty.hidden = events.length > 0;
    this.#list.hidden = events.length === 0;
    this.#list.replaceChildren(...events.map(itemOf));
  }
}

function itemOf({ timeMs, level, nodeId, text }: LoggedEvent): HTMLElement {
  const time = make('time', { text: formatClock(timeMs) });
  const date = new Date(timeMs);
  if (!Number.isNaN(date.getTime())) time.dateTime = date.toISOString();
  return make(
    'li',
    { attributes: { 'data-level': level } },
    time,
    make('span', { class: 'level', text: LEVEL_WORDS[level] }),
    make('span', { class: 'event-node' }, isolated(nodeId)),
    make('span', { class: 'event-text' }, isolated(text)),
  );
}
