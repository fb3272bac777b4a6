// Keeps the world true: one stream of events with resume, and what has to be fetched again.
import type { Agent, Approval, HubEvent, Landing, Task, UsageReport } from '../model/nouns.ts'
import { get, onLoggedOut, refusal } from './http.ts'
import { newsOf } from './news.ts'
import { SentReader } from './sse.ts'
import { change, current } from './store.ts'
import { type Link, mergeAgents, type Part, take } from './world.ts'

const SILENT_MS = 40_000  // signs of life come every 15 s
const FIGURES_MS = 10_000  // tokens and cost are no events
const NEWS_EVENTS = 200
const ALL: Part[] = ['agents', 'approvals', 'landings', 'tasks', 'usage']

let heard = Date.now()
let position: number | null = null
let attempt: AbortController | null = null
let wake: (() => void) | null = null
let isHubAway = false
let hasNews = false

export function connect(): void {
  onLoggedOut(() => setLink({ is: 'logged out' }))
  void follow()
  // After sleep, or in another network, a dead connection may look alive for minutes.
  setInterval(check, 2_000)
  addEventListener('online', restart)
  addEventListener('offline', () => lose('this device is offline'))
  document.addEventListener('visibilitychange', check)
  setInterval(() => {
    if (document.visibilityState === 'visible' && current().link.is === 'live') refresh(['agents', 'usage'])
  }, FIGURES_MS)
}

export function restart(): void {
  attempt?.abort()
  wake?.()
}

function check(): void {
  if (Date.now() - heard > SILENT_MS && current().link.is === 'live') {
    lose('nothing was heard for a while')
    restart()
  }
}

function setLink(link: Link): void {
  change(world => (world.link.is === 'logged out' ? world : { ...world, link }))
}

function lose(why: string): void {
  const { link, isLoaded } = current()
  if (link.is === 'behind') {
    if (link.why !== why) setLink({ ...link, why })
  } else if (isLoaded) {
    setLink({ is: 'behind', since: heard / 1000, why })
  }
}

async function follow(): Promise<void> {
  for (let failures = 0; current().link.is !== 'logged out';) {
    const began = Date.now()
    try {
      await stream()
      lose('the view closed the connection')
    } catch (error) {
      lose(error instanceof Error && error.name !== 'AbortError' ? error.message : 'connecting again')
    }
    failures = Date.now() - began > 5_000 ? 0 : failures + 1
    await pause(Math.min(5_000, 250 * 2 ** Math.min(failures, 5)) * (0.75 + Math.random() / 2))
  }
}

function pause(ms: number): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, ms)
    wake = () => { clearTimeout(timer); resolve() }
  })
}

async function stream(): Promise<void> {
  attempt = new AbortController()
  // Without a gap: what it begins with is not older than the place where the stream goes on.
  const hasBegun = position === null
  if (position === null) position = await begin(attempt.signal)
  const headers: Record<string, string> = { 'Last-Event-ID': String(position) }
  const answer = await fetch('/api/events/stream', { headers, signal: attempt.signal })
  if (!answer.ok || !answer.body) throw await refusal(answer)
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  const blocks = new SentReader()
  isHubAway = false
  if (!hasNews) await loadNews()
  hasNews = true
  let isFirst = !hasBegun
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    heard = Date.now()
    const events: HubEvent[] = []
    for (const sent of blocks.feed(value)) {
      if (sent.id) position = Number(sent.id)
      if (sent.name === 'hub') {
        isHubAway = (JSON.parse(sent.data) as { state: string }).state === 'away'
        if (isHubAway) lose('the hub is not running')
        else { isFirst = true }
      } else if (sent.name === 'reset') {
        change(world => ({ ...world, lastEvent: 0, news: [] }))
        isFirst = true
      } else if (sent.data) {
        events.push(JSON.parse(sent.data) as HubEvent)
      }
    }
    if (events.length) receive(events)
    if (isFirst && !isHubAway) {
      isFirst = false
      await load()
    }
  }
}

function receive(events: HubEvent[]): void {
  let stale = new Set<Part>()
  change(world => {
    const taken = take(world, events)
    stale = taken.stale
    return taken.world
  })
  if (stale.size) refresh([...stale])
}

interface Start {
  position: number
  agents: { agents: Agent[]; broken: Record<string, string> }
  approvals: { approvals: Approval[] }
  landings: { landings: Landing[] }
  tasks: { tasks: Task[] }
  usage: UsageReport
}

/** All that the page begins with, and where the stream of events goes on. */
async function begin(signal: AbortSignal): Promise<number> {
  const { position, agents: { agents, broken }, approvals: { approvals }, landings: { landings }, tasks: { tasks }, usage } = await get<Start>('/start', {}, signal)
  heard = Date.now()
  change(world => ({ ...world, agents: mergeAgents(world, agents), broken, approvals, landings, tasks, usdToday: usage.total.usd, lastEvent: position, isLoaded: true }))
  setLink({ is: 'live' })
  return position
}

/** Everything anew; only then the page is live again. */
async function load(): Promise<void> {
  await Promise.all(ALL.map(fetchPart))
  if (!isHubAway) setLink({ is: 'live' })
}

async function loadNews(): Promise<void> {
  const last = position ?? 0
  const after = Math.max(0, last - NEWS_EVENTS)
  const { events } = await get<{ events: HubEvent[] }>('/events', { after, limit: NEWS_EVENTS })
  // What came after the stream began comes through the stream.
  const old = events.filter(event => event.id <= last).map(newsOf).filter(item => item !== null).reverse()
  change(world => {
    const known = new Set(world.news.map(item => item.id))
    return { ...world, news: [...world.news, ...old.filter(item => !known.has(item.id))] }
  })
}

const fetching = new Map<Part, Promise<void>>()
const wanted = new Set<Part>()

/** Fetch parts again. What is asked for while it is fetched is fetched once more. */
export function refresh(parts: Part[]): void {
  for (const part of parts) {
    if (fetching.has(part)) {
      wanted.add(part)
      continue
    }
    const done = fetchPart(part).catch((error: unknown) => {
      lose(error instanceof Error ? error.message : String(error))
    }).finally(() => {
      fetching.delete(part)
      if (wanted.delete(part)) refresh([part])
    })
    fetching.set(part, done)
  }
}

async function fetchPart(part: Part): Promise<void> {
  switch (part) {
    case 'agents': {
      const { agents, broken } = await get<{ agents: Agent[]; broken: Record<string, string> }>('/agents')
      return change(world => ({ ...world, agents: mergeAgents(world, agents), broken }))
    }
    case 'approvals': {
      const { approvals } = await get<{ approvals: Approval[] }>('/approvals')
      return change(world => ({ ...world, approvals }))
    }
    case 'landings': {
      const { landings } = await get<{ landings: Landing[] }>('/landings', { all: 1 })
      return change(world => ({ ...world, landings }))
    }
    case 'tasks': {
      const { tasks } = await get<{ tasks: Task[] }>('/tasks')
      return change(world => ({ ...world, tasks }))
    }
    case 'usage': {
      const { total } = await get<UsageReport>('/usage', { by: 'day', since_seconds: 0 })
      return change(world => ({ ...world, usdToday: total.usd }))
    }
  }
}
