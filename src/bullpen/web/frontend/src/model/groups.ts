// Agents in the order in which a person wants to see them. Pure.
import type { Agent } from './nouns.ts'
import { isEnded, lookOf } from './states.ts'

export type Grouping = 'state' | 'pod' | 'tree'
export const GROUPINGS: Grouping[] = ['state', 'pod', 'tree']
/** Which agents are listed, and how: what the address says of it. */
export interface Listing { filter: string; by: Grouping }
export interface Row { agent: Agent; depth: number }
export interface Section { key: string; title: string; rows: Row[] }

export function readListing(search: string): Listing {
  const words = new URLSearchParams(search)
  return { filter: words.get('filter') ?? '', by: GROUPINGS.find(each => each === words.get('by')) ?? 'state' }
}

/** The end of an address; nothing for all of them by state. */
export function listingSearch({ filter, by }: Listing): string {
  const words = new URLSearchParams({ ...(filter ? { filter } : {}), ...(by === 'state' ? {} : { by }) })
  return words.size ? `?${words}` : ''
}

export function matches(agent: Agent, filter: string): boolean {
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean)
  const text = `${agent.name} ${agent.role} ${agent.pod} ${agent.engine} ${agent.birth_branch} ${agent.state.state} ${agent.state.tool ?? ''}`.toLowerCase()
  return wanted.every(word => text.includes(word))
}

export function group(agents: Agent[], by: Grouping): Section[] {
  switch (by) {
    case 'tree': return [{ key: 'tree', title: 'Tree', rows: nested(agents) }]
    case 'pod': return byPod(agents)
    case 'state': return byState(agents)
  }
}

const SECTIONS: [string, string, (agent: Agent) => boolean][] = [
  ['blocked', 'Blocked', agent => agent.state.state === 'blocked'],
  ['bad', 'In trouble', agent => agent.running && !isPlain(agent) && ['bad', 'dark'].includes(lookOf(agent.state))],
  ['working', 'Working', agent => ['working', 'starting', 'draining'].includes(agent.state.state)],
  ['plain', 'Running', agent => agent.running && isPlain(agent)],
  ['idle', 'Idle', agent => !isEnded(agent.state)],
  ['ended', 'Ended', () => true],
]

/** A program that never says what it does is no trouble. */
function isPlain(agent: Agent): boolean {
  return agent.engine === 'command' && agent.state.state === 'unknown'
}

function byState(agents: Agent[]): Section[] {
  const left = new Set(agents)
  const sections: Section[] = []
  for (const [key, title, belongs] of SECTIONS) {
    const own = [...left].filter(belongs)
    for (const agent of own) left.delete(agent)
    if (own.length) sections.push({ key, title, rows: nested(own) })
  }
  return sections
}

function byPod(agents: Agent[]): Section[] {
  const pods = [...new Set(agents.map(agent => agent.pod))].sort((a, b) => (a === '' ? 1 : b === '' ? -1 : a.localeCompare(b)))
  return pods.map(pod => ({ key: `pod:${pod}`, title: pod || 'Without a pod', rows: nested(agents.filter(agent => agent.pod === pod)) }))
}

/** Children under their parents, as far as these are among them; by name. */
function nested(agents: Agent[]): Row[] {
  const names = new Set(agents.map(agent => agent.name))
  const children = new Map<string, Agent[]>()
  for (const agent of [...agents].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const under = names.has(agent.parent) && agent.parent !== agent.name ? agent.parent : ''
    children.set(under, [...(children.get(under) ?? []), agent])
  }
  const rows: Row[] = []
  const seen = new Set<string>()
  const walk = (under: string, depth: number) => {
    for (const agent of children.get(under) ?? []) {
      if (seen.has(agent.name)) continue
      seen.add(agent.name)
      rows.push({ agent, depth })
      walk(agent.name, depth + 1)
    }
  }
  walk('', 0)
  for (const agent of agents) if (!seen.has(agent.name)) rows.push({ agent, depth: 0 })  // a circle
  return rows
}
