// When events are asked for again and again instead of streamed, and how often. Pure.
import type { Agent } from '../model/nouns.ts'

/** A stream begins with a sign of life at once; one that does not is held back on its way. */
export const FIRST_MS = 8_000
/** Signs of life come every 15 s. */
export const SILENT_MS = 28_000
/** An answer to a poll that takes longer is none. */
export const POLL_TIMEOUT_MS = 10_000
/** So many streams in a row that fail at once: what lies between lets none through. */
export const MOST_FAILURES = 3
/** How often a page that has no stream, because other tabs have them all, looks whether one is free. */
export const SLOT_MS = 3_000
/** One that went on for so long was not held back. */
export const SOUND_MS = 60_000

const BUSY = ['starting', 'working', 'draining']

/** How long until the next poll: shorter while anybody works. */
export function pollMs(agents: Agent[]): number {
  return agents.some(agent => BUSY.includes(agent.state.state)) ? 1_000 : 5_000
}

/** How long until a task is asked again what it has said. The answer is made of all that it ever
 *  said: the longer that took, the rarer it is asked. */
export function taskPollMs(isWorking: boolean, tookMs: number): number {
  return Math.max(isWorking ? 1_000 : 5_000, 5 * tookMs)
}

/** How long until a stream is tried again, after so many in a row that were held back. The first
 *  may have been a laptop that slept. */
export function againMs(heldBack: number): number {
  return heldBack < 2 ? 0 : Math.min(600_000, 30_000 * 2 ** (heldBack - 2))
}

/** How long until a stream is tried again that failed. */
export function failedMs(failures: number): number {
  return Math.min(5_000, 250 * 2 ** Math.min(failures, 5)) * (0.75 + Math.random() / 2)
}
