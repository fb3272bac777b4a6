// Other machines: what each says of itself, as the hub's `/fleet` has it.
import type { StateName } from './nouns.ts'
import { type Look, lookOf } from './states.ts'

export interface HostAgent { name: string; role: string; state: StateName; words: string; since: number; running: boolean }
export interface Host {
  state: { name: string; version: string; labels: Record<string, string>; agents: HostAgent[]; at: number }
  reachable: boolean
  last_heard: number
}
export interface Fleet {
  link: 'none' | 'connecting' | 'connected' | 'away' | 'refused'
  name: string
  url: string
  why: string
  since: number | null
  hosts: Host[]
}

/** Those that are not this one: its own agents are in the list of agents. */
export function others(fleet: Fleet): Host[] {
  return fleet.hosts.filter(host => host.state.name !== fleet.name)
}

/** Whoever needs somebody comes first, then those that run; what has ended is counted, not shown. */
export function shownAgents(host: Host): HostAgent[] {
  const rank = (agent: HostAgent) => (agent.state === 'blocked' ? 0 : 1)
  return host.state.agents.filter(agent => agent.running).sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name))
}

export function agentLook(agent: HostAgent, isNow: boolean): Look {
  return isNow ? lookOf({ state: agent.state }) : 'dark'
}

export function labelsText(host: Host): string {
  return Object.entries(host.state.labels).sort().map(([key, value]) => `${key}=${value}`).join(', ')
}

/** Why this machine is alone, or what the server does not do; nothing where all is well. */
export function trouble(fleet: Fleet): string {
  if (fleet.link === 'none') return ''
  if (fleet.link === 'connected') return fleet.why && `Connected to ${fleet.url}, but ${fleet.why}.`
  const state = fleet.link === 'connecting' ? 'Connecting to' : 'Not connected to'
  return `${state} ${fleet.url}${fleet.why ? `: ${fleet.why}` : ''}. This machine goes on by itself.`
}
