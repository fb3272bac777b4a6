// The hub's nouns, as its API sends them. Times are seconds since 1970.

export type StateName =
  | 'starting' | 'idle' | 'working' | 'blocked' | 'error' | 'draining'
  | 'exited' | 'lost' | 'ended' | 'unknown'

export interface State {
  state: StateName
  limited_until?: number | null
  failed?: string
  tool?: string
  doing?: string
  until?: number | null
  on?: 'permission' | 'question' | 'dialog'
  reason?: string
  missing?: string
  code?: number | null
  signal?: number | null
}

export interface Agent {
  name: string
  run: string
  role: string
  pod: string
  parent: string
  kind: 'interactive' | 'headless'
  engine: string
  model: string
  birth_branch: string
  is_sandboxed: boolean
  cwd: string
  worktree: { name: string; repo: string; path: string } | null
  created: string
  budget: { usd?: number | null; tokens?: number | null; minutes?: number | null }
  state: State
  words: string
  since: number
  running: boolean
  tokens: number
  usd: number
  messages: number
  summary: string
}

export interface Rule { rule: string; wider: string; why_not: string }
export interface Option { label: string; description: string }
export interface Question {
  question: string
  header: string
  options: Option[]
  multi_select: boolean
}

export type ApprovalState =
  | { status: 'waiting'; reachable: boolean; reviewing: boolean }
  | { status: 'answered'; decision: 'allow' | 'deny'; by: string; reason: string; always: string; at: number }
  | { status: 'closed'; why: string; at: number }

export interface Approval {
  id: number
  agent: string
  run: string
  tool: string
  text: string
  more: number
  rule: Rule
  questions: Question[]
  review: string
  asked: number
  state: ApprovalState
}

export interface WholeApproval extends Approval { input: Record<string, unknown> | null }

export type LandingState =
  | { state: 'waiting' | 'building' }
  | { state: 'verifying' | 'moving'; base: string; commit: string }
  | { state: 'came_back'; why: 'conflict' | 'verify'; base: string; files: string[]; problem: string; output: string; is_agent_told: boolean; is_agent_running: boolean; at: number }
  | { state: 'landed'; commit: string; base: string; is_there: boolean; verified_seconds: number | null; checkout: string; at: number }
  | { state: 'refused'; message: string; hint: string; files: string[]; at: number }
  | { state: 'cancelled'; reason: string; at: number }

export interface Landing {
  id: string
  name: string
  branch: string
  target: string
  tip: string
  verify: string
  strategy: string
  by: string
  created: number
  status: LandingState
}

export interface Task {
  task_id: string
  state: 'queued' | 'working' | 'idle' | 'completed' | 'failed' | 'cancelling' | 'cancelled'
  agent: string | null
  session_id: string
  prompt: string
  created_at: number
  started_at: number | null
  completed_at: number | null
  duration_seconds: number | null
  output: string | null
  error: { type: string; message: string } | null
  token_usage: { input: number; output: number } | null
  cost_usd: number | null
  directory: string | null
  turns: number
  doing: string | null
  limited_until: number | null
  commits: string[]
  commit_count: number
  warnings: string[]
}

export interface RunLog { number: number; stdout: string; stderr: string }
export interface WholeTask extends Task {
  logs: RunLog[]
  changes: { log: string; committed: string; uncommitted: string; staged: string } | null
  diff: string | null
}

export interface Message {
  id: string
  sender: string
  to: string
  text: string
  priority: string
  created: number
  status: 'queued' | 'sent' | 'delivered' | 'read'
  why: string
}

export interface Entry {
  kind: 'prompt' | 'answer' | 'tool' | 'result'
  at: number
  text: string
  tool: string
  key: string
  /** A tool and its result have the same; may be empty. */
  call: string
  input: Record<string, unknown> | null
}
export interface Transcript { conversation: string; entries: Entry[]; offset: number; more: boolean }

export interface Explained {
  state: State
  words: string
  since: number
  decided_by: string
  evidence: { source: string; says: string; at: number }[]
  messages: number
  messages_wait: string
}

export interface Totals {
  input: number
  output: number
  cache_read: number
  cache_write: number
  usd: number
  requests: number
  tool_calls: number
  work_seconds: number
}
export interface UsageReport { by: string; since: string; rows: { name: string; used: Totals }[]; total: Totals }

export interface UsageLine { name: string; tokens: number[]; usd: number[] }
export interface UsageSeries {
  by: string
  step: '15m' | '1h' | '1d'
  starts: string[]
  lines: UsageLine[]
  rest: UsageLine | null
}

export interface Timeline { since: number; tracks: { agent: string; changes: { at: number; state: State }[] }[] }

export interface Component {
  name: string
  kind: string
  url: string
  version: string
  state: string | null
  health: 'healthy' | 'warning' | 'unreachable'
  own: boolean
  registered: boolean
}

export interface JournalEntry { time: number; level: string; message: string; [field: string]: unknown }
export interface Trouble { about: string; reason: string; hint: string; failures: number; at: number; wait_seconds: number; is_given_up: boolean }
export interface ScheduledEntry {
  name: string
  cron: string | null
  timezone: string | null
  last: { state: string; reason: string | null; completed_at: number | null; task_id?: string | null } | null
  running: string[] | null
}
export interface Director {
  name: string
  state: 'starting' | 'idle' | 'working' | 'draining' | 'error' | 'running' | 'restarting' | 'gone' | 'stopped'
  since: number | null
  problem: string
  restarts: number
  again_at: number | null
  pid: number | null
  file_problem: string
  says: {
    type: string
    version: string
    current_task: { id: string; prompt_preview: string } | null
    log: JournalEntry[]
    tasks: Record<string, unknown>[]
    problems: Trouble[]
    agents: Record<string, unknown>[]
    last_poll: number | null
    next_runs: { at: number; name: string }[]
    over: OverRow[]
    schedule: ScheduledEntry[]
  } | null
}

/** Something of a director's that is over; types of directors add keys of their own. */
export interface OverRow {
  id: string
  state: string
  task_id: string
  completed_at: number
  reason: string
  report?: string
  branch?: string | null
  commit_count?: number
  [key: string]: unknown
}

export interface HubEvent {
  id: number
  time: number
  kind: string
  agent: string
  data: Record<string, unknown>
}

export interface Problem {
  error: string
  message: string
  hint: string | null
  details: Record<string, unknown>
}
