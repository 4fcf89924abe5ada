/**
 * Life of an accepted connection. It may skip states, and can be closed from every state before `closed`.
 *
 *     greeting -> opening -> open -> finishing -> ending -> closed -> ended
 *
 *     greeting   the peer has not identified itself, and has limited time to do so
 *     opening    the peer has identified itself, and the door decides about it
 *     finishing  nothing more is received; requests in progress are answered
 *     ending     everything is answered, but the peer has not taken all of it
 *     closed     nothing is sent any more; requests in progress end
 *     ended      nothing is in progress any more
 */
export const SERVED_STATES = ['greeting', 'opening', 'open', 'finishing', 'ending', 'closed', 'ended'] as const;
export type ServedState = (typeof SERVED_STATES)[number];

/**
 * Effect of an event: the next state; `told`: only the protocol is told; `ignored`: it comes too late to matter;
 * `never`: this program has a bug, and the connection is closed.
 */
export type ServedStep = ServedState | 'told' | 'ignored' | 'never';

// biome-ignore format: a table
const TABLE = {
  //           greeting     opening      open         finishing   ending     closed     ended
  received:  ['told',      'told',      'told',      'ignored',  'ignored', 'ignored', 'ignored'], // bytes have arrived
  drained:   ['told',      'told',      'told',      'told',     'ignored', 'ignored', 'ignored'], // all is taken
  peerEnded: ['told',      'told',      'told',      'told',     'told',    'ignored', 'ignored'], // no more comes
  slow:      ['told',      'told',      'told',      'never',    'never',   'never',   'never'], // a message stalls
  greeted:   ['opening',   'never',     'never',     'never',    'never',   'never',   'never'], // identified
  opened:    ['open',      'open',      'ignored',   'ignored',  'ignored', 'ignored', 'ignored'], // it is accepted
  finish:    ['finishing', 'finishing', 'finishing', 'ignored',  'ignored', 'ignored', 'ignored'], // the door asks
  end:       ['ending',    'ending',    'ending',    'ending',   'ignored', 'ignored', 'ignored'], // last words follow
  idle:      ['ignored',   'ignored',   'ignored',   'ending',   'ignored', 'ended',   'never'], // all is answered
  sent:      ['never',     'never',     'never',     'never',    'closed',  'ignored', 'ignored'], // all output is sent
  late:      ['closed',    'never',     'never',     'never',    'never',   'never',   'never'], // no greeting in time
  stuck:     ['closed',    'closed',    'closed',    'closed',   'closed',  'never',   'never'], // it takes nothing
  flooded:   ['closed',    'closed',    'closed',    'closed',   'closed',  'never',   'never'], // too much waits
  replaced:  ['closed',    'closed',    'closed',    'closed',   'closed',  'never',   'never'], // makes room
  failed:    ['closed',    'closed',    'closed',    'closed',   'closed',  'ignored', 'ignored'], // the socket fails
  gone:      ['closed',    'closed',    'closed',    'closed',   'closed',  'ignored', 'ignored'], // it is closed
  close:     ['closed',    'closed',    'closed',    'closed',   'closed',  'ignored', 'ignored'], // the door asks
} as const satisfies Readonly<Record<string, readonly ServedStep[]>>;

/** All events that can happen to a connection. */
export type ServedEvent = keyof typeof TABLE;

export const SERVED_EVENTS = Object.keys(TABLE) as readonly ServedEvent[];

/** The steps from each state, by event. */
export const STEPS_FROM = Object.fromEntries(
  SERVED_STATES.map((state, i) => [state, Object.fromEntries(SERVED_EVENTS.map((each) => [each, TABLE[each][i]]))]),
) as Readonly<Record<ServedState, Readonly<Record<ServedEvent, ServedStep>>>>;
