/**
 * The life of an accepted connection. It may skip states, and is closed from each of those before.
 *
 *     greeting -> opening -> open -> finishing -> ending -> closed -> ended
 *
 *     greeting   the peer has not said who it is, and has a time for that
 *     opening    the peer has greeted, and the door decides about it
 *     finishing  nothing more is received; what is in progress is answered
 *     ending     everything is answered, and the peer has not taken all of it
 *     closed     nothing is sent any more; what is in progress ends
 *     ended      nothing is in progress any more
 */
export const SERVED_STATES = ['greeting', 'opening', 'open', 'finishing', 'ending', 'closed', 'ended'] as const;
export type ServedState = (typeof SERVED_STATES)[number];

/**
 * What an event does: the state that follows; `told`: the protocol is told; `ignored`: it comes too late to matter;
 * `never`: this program has a bug, and the connection is closed.
 */
export type ServedStep = ServedState | 'told' | 'ignored' | 'never';

// biome-ignore format: a table
const TABLE = {
  //           greeting     opening      open         finishing   ending     closed     ended
  received:  ['told',      'told',      'told',      'ignored',  'ignored', 'ignored', 'ignored'], // bytes have come
  drained:   ['told',      'told',      'told',      'told',     'ignored', 'ignored', 'ignored'], // all is taken
  peerEnded: ['told',      'told',      'told',      'told',     'told',    'ignored', 'ignored'], // no more comes
  slow:      ['told',      'told',      'told',      'never',    'never',   'never',   'never'], // a message stalls
  greeted:   ['opening',   'never',     'never',     'never',    'never',   'never',   'never'], // the peer said who
  opened:    ['open',      'open',      'ignored',   'ignored',  'ignored', 'ignored', 'ignored'], // it is accepted
  finish:    ['finishing', 'finishing', 'finishing', 'ignored',  'ignored', 'ignored', 'ignored'], // the door asks
  end:       ['ending',    'ending',    'ending',    'ending',   'ignored', 'ignored', 'ignored'], // the last word
  idle:      ['ignored',   'ignored',   'ignored',   'ending',   'ignored', 'ended',   'never'], // all is answered
  sent:      ['never',     'never',     'never',     'never',    'closed',  'ignored', 'ignored'], // it has everything
  late:      ['closed',    'never',     'never',     'never',    'never',   'never',   'never'], // no greeting in time
  stuck:     ['closed',    'closed',    'closed',    'closed',   'closed',  'never',   'never'], // it takes nothing
  flooded:   ['closed',    'closed',    'closed',    'closed',   'closed',  'never',   'never'], // too much waits for it
  replaced:  ['closed',    'closed',    'closed',    'closed',   'closed',  'never',   'never'], // another takes its place
  failed:    ['closed',    'closed',    'closed',    'closed',   'closed',  'ignored', 'ignored'], // the socket fails
  gone:      ['closed',    'closed',    'closed',    'closed',   'closed',  'ignored', 'ignored'], // it is closed
  close:     ['closed',    'closed',    'closed',    'closed',   'closed',  'ignored', 'ignored'], // the door asks
} as const satisfies Readonly<Record<string, readonly ServedStep[]>>;

/** What can happen to a connection. */
export type ServedEvent = keyof typeof TABLE;

export const SERVED_EVENTS = Object.keys(TABLE) as readonly ServedEvent[];

/** The steps from each state, by event. */
export const STEPS_FROM = Object.fromEntries(
  SERVED_STATES.map((state, i) => [state, Object.fromEntries(SERVED_EVENTS.map((each) => [each, TABLE[each][i]]))]),
) as Readonly<Record<ServedState, Readonly<Record<ServedEvent, ServedStep>>>>;
