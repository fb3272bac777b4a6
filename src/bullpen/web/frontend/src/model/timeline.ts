// Who worked, waited, was blocked, when: stretches to draw. Pure.
import type { Agent, State, Timeline } from './nouns.ts'
import { type Look, isEnded, lookOf } from './states.ts'

export interface Stretch { from: number; to: number; look: Look; word: string }
export interface Track { name: string; stretches: Stretch[] }
interface Change { at: number; state: State }

/** Stretches of each agent between two times, by name. */
export function stretches(timeline: Timeline, agents: Agent[], from: number, to: number): Track[] {
  const changes = new Map<string, Change[]>(timeline.tracks.map(track => [track.agent, track.changes]))
  for (const agent of agents) {
    // One that has not changed in this time is as it is now.
    if (!changes.has(agent.name)) changes.set(agent.name, [{ at: agent.since, state: agent.state }])
  }
  return [...changes].map(([name, list]) => ({ name, stretches: stretchesOf(list, from, to) }))
    .filter(track => track.stretches.length > 0)
    .sort((a, b) => a.name.localeCompare(b.name))
}

function stretchesOf(list: Change[], from: number, to: number): Stretch[] {
  const found: Stretch[] = []
  list.forEach(({ at, state }, index) => {
    const end = Math.min(list[index + 1]?.at ?? to, to)
    const begin = Math.max(at, from)
    if (end <= begin || isEnded(state)) return
    const look = lookOf(state)
    const last = found.at(-1)
    if (last && last.look === look && last.word === state.state && begin - last.to < 0.001) last.to = end
    else found.push({ from: begin, to: end, look, word: state.state })
  })
  return found
}

/** How long of it somebody was in a state of that look. */
export function secondsOf(track: Track, look: Look): number {
  return track.stretches.filter(one => one.look === look).reduce((sum, one) => sum + one.to - one.from, 0)
}

/** Round times between two, for the line under the tracks. Seconds since 1970; `offset`: of local time. */
export function hours(from: number, to: number, offset: number): number[] {
  const step = [600, 3_600, 2 * 3_600, 4 * 3_600].find(each => (to - from) / each <= 7) ?? 6 * 3_600
  const found: number[] = []
  for (let at = Math.ceil((from + offset) / step) * step - offset; at <= to; at += step) found.push(at)
  return found
}
