// Which branches conflict with which, as a person is told. Pure.
import type { Agent } from './nouns.ts'

/** By the names of worktrees; `other` may be the branch that the work goes into. */
export interface Pair { one: string; other: string; files: string[] }
export interface ConflictList { conflicts: Pair[]; compared: number; again_seconds: number }
/** `agent`: whose worktree it is; null: a branch. */
export interface Side { name: string; agent: Agent | null }
export interface Clash { one: Side; other: Side; files: string[] }

const MOST_FILES = 3

/** Those of agents, each with its agent. `isLive`: one of the two has to run. */
export function clashes(pairs: Pair[], agents: Record<string, Agent>, isLive: boolean): Clash[] {
  const byTree = new Map(Object.values(agents).map(agent => [agent.worktree?.name, agent]))
  const side = (name: string): Side => ({ name: byTree.get(name)?.name ?? name, agent: byTree.get(name) ?? null })
  return pairs.map(({ one, other, files }) => ({ one: side(one), other: side(other), files }))
    .filter(({ one, other }) => !isLive || one.agent?.running || other.agent?.running)
}

/** The first few by name, the rest by number. */
export function fileNames(files: string[]): string {
  const rest = files.length - MOST_FILES
  return rest > 1 ? `${files.slice(0, MOST_FILES).join(', ')} and ${rest} more` : files.join(', ')
}

/** The last event of an agent with a branch: since then its branch may be another. */
export function lastOnBranches({ agents, touched, loaded }: { agents: Record<string, Agent>; touched: Record<string, number>; loaded: number }): number {
  return Math.max(loaded, ...Object.values(agents).filter(agent => agent.worktree).map(agent => touched[agent.name] ?? 0))
}
