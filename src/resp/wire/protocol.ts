/** Version of the protocol that a connection speaks: 2, unless its client has asked for 3. */
export type Protocol = 2 | 3;
