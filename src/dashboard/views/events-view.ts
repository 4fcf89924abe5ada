import type { LoggedEvent } from '../data/event-log.js';
import { isolated, make } from './dom.js';
import { formatMoment } from './format.js';

const LEVEL_WORDS = { info: 'info', warn: 'warning', error: 'error' } as const;
/** Names that fit beside an event. If there are more nodes, the first one and the number of others are shown. */
const NAMES_MAX_COUNT = 2;

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

function itemOf({ timeMs, level, nodeIds, text, times }: LoggedEvent): HTMLElement {
  const time = make('time', { text: formatMoment(timeMs) });
  const date = new Date(timeMs);
  if (!Number.isNaN(date.getTime())) time.dateTime = date.toISOString();
  const names = make('span', { class: 'event-node' });
  const isMany = nodeIds.length > NAMES_MAX_COUNT;
  names.append(
    ...nodeIds
      .slice(0, isMany ? 1 : NAMES_MAX_COUNT)
      .flatMap((id, i) => (i === 0 ? [isolated(id)] : [', ', isolated(id)])),
  );
  if (isMany) {
    names.append(` and ${nodeIds.length - 1} more`);
    names.title = nodeIds.join(', ');
  }
  return make(
    'li',
    { attributes: { 'data-level': level } },
    time,
    make('span', { class: 'level', text: LEVEL_WORDS[level] }),
    names,
    make(
      'span',
      { class: 'event-text' },
      isolated(text),
      ...(times > 1 ? [make('span', { class: 'note', text: ` ${times} times` })] : []),
    ),
  );
}
