// What the page knows, and how events change it. Pure.
import type { Agent, Approval, HubEvent, Landing, State, Task } from '../model/nouns.ts'
import { askingInTerminal, isEnded } from '../model/states.ts'
import { type News, newsOf } from './news.ts'

/** What is fetched as a whole, and fetched again when an event says that it has changed. */
export type Part = 'agents' | 'approvals' | 'landings' | 'tasks' | 'usage'

/** How the page hears of changes. `since`: when it heard the last time. */
export type Link =
  | { is: 'connecting' }
  | { is: 'live'; isPolled: boolean }
  | { is: 'behind'; since: number; why: string }
  | { is: 'logged out' }

export interface World {
  link: Link
  isLoaded: boolean
  agents: Record<string, Agent>
  broken: Record<string, string>
  approvals: Approval[]
  landings: Landing[]
  tasks: Task[]
  usdToday: number | null
  news: News[]
  lastEvent: number
  /** The last event of which all that was fetched first knows. */
  loaded: number
  /** How often something of it has changed that only its own page shows: messages, work, tasks. */
  touched: Record<string, number>
  /** How often it was behind and came back: what no event speaks of is then fetched again. */
  returns: number
}

export const NOTHING: World = {
  link: { is: 'connecting' },
  isLoaded: false,
  agents: {},
  broken: {},
  approvals: [],
  landings: [],
  tasks: [],
  usdToday: null,
  news: [],
  lastEvent: 0,
  loaded: 0,
  touched: {},
  returns: 0,
}

const MOST_NEWS = 60

/** How many wait for a person: in the inbox, or in terminals of their own. */
export function waitingIn(world: World): number {
  return world.approvals.length + askingInTerminal(world.agents, world.approvals).length
}

/** The world after events, and what has to be fetched again. An event that it has had is nothing. */
export function take(world: World, events: HubEvent[]): { world: World; stale: Set<Part> } {
  const stale = new Set<Part>()
  let agents = world.agents
  let news = world.news
  let lastEvent = world.lastEvent
  let touched = world.touched
  for (const event of events) {
    if (event.id <= lastEvent) continue
    lastEvent = event.id
    if (event.agent) touched = { ...touched, [event.agent]: event.id }
    const item = newsOf(event)
    if (item) news = [item, ...news].slice(0, MOST_NEWS)
    if (event.kind === 'agent.state') {
      const known = agents[event.agent]
      const next = known && withState(known, event)
      if (next === undefined) stale.add('agents')
      else if (next !== known) agents = { ...agents, [event.agent]: next }
    }
    for (const part of partsOf(event.kind)) stale.add(part)
  }
  return { world: { ...world, agents, news, lastEvent, touched }, stale }
}

/** The agent in the state of the event; the same if that is older, undefined if it is not its run. */
function withState(agent: Agent, event: HubEvent): Agent | undefined {
  const { run, state, since } = event.data as { run?: string; state?: State; since?: number }
  if (run !== agent.run || !state || since === undefined) return undefined
  if (since < agent.since) return agent
  return { ...agent, state, since, words: state.state, running: !isEnded(state) }
}

function partsOf(kind: string): Part[] {
  const [noun, what] = kind.split('.')
  switch (noun) {
    case 'agent': return what === 'state' ? [] : ['agents']
    case 'approval': case 'permission': return ['approvals']
    case 'landing': return ['landings']
    case 'task': return ['tasks']
    case 'message': return ['agents']
    case 'child': case 'spawn': case 'pod': case 'budget': return ['agents']
    case 'hub': return ['agents', 'approvals', 'landings', 'tasks', 'usage']
    default: return []
  }
}

/** The list as it was fetched, without states that are older than those that events told. */
export function mergeAgents(world: World, fetched: Agent[]): Record<string, Agent> {
  const agents: Record<string, Agent> = {}
  for (const agent of fetched) {
    const known = world.agents[agent.name]
    if (known && known.run === agent.run && known.since > agent.since) {
      const { state, since, words, running } = known
      agents[agent.name] = { ...agent, state, since, words, running }
    } else if (known && isSame(known, agent)) {
      agents[agent.name] = known  // the same object: its row need not be drawn again
    } else {
      agents[agent.name] = agent
    }
  }
  return agents
}

function isSame(a: Agent, b: Agent): boolean {
  return a.run === b.run && a.since === b.since && a.tokens === b.tokens && a.model === b.model && a.usd === b.usd
    && a.messages === b.messages && a.running === b.running && a.parent === b.parent && a.pod === b.pod
    && JSON.stringify(a.state) === JSON.stringify(b.state)
}
