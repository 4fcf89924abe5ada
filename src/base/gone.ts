/** Whether a peer has answered that it does not have a page that was to be read from it. */
export const Gone = {
  no: 0,
  /** The memory is not registered, or the page has been freed. */
  freed: 1,
  /** The bytes did not match their checksum. */
  damaged: 2,
} as const;
