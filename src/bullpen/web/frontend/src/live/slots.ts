// Which pages of this browser hold a stream. It opens six connections to a host, over all its tabs:
// with a stream in each, the seventh tab would wait for ever. A page that gets no slot polls.

export const MOST_STREAMS = 4

/** What gives the slot back; null: all are taken. */
export async function takeSlot(): Promise<(() => void) | null> {
  if (!('locks' in navigator)) return () => {}
  for (let number = 0; number < MOST_STREAMS; number++) {
    const release = await tryLock(`bullpen-stream-${number}`)
    if (release) return release
  }
  return null
}

function tryLock(name: string): Promise<(() => void) | null> {
  return new Promise((resolve, reject) => {
    navigator.locks.request(name, { ifAvailable: true }, lock => lock && new Promise<void>(release => resolve(release)))
      .then(() => resolve(null), reject)
  })
}
