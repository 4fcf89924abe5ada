/** Protocol version of a connection: 2, unless the client has asked for 3. */
export type Protocol = 2 | 3;
