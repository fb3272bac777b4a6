// Requests to the view's API. What it refuses is thrown as it said it.
import type { Problem } from '../model/nouns.ts'

export class Refused extends Error {
  readonly status: number
  readonly hint: string
  readonly details: Record<string, unknown>

  constructor(status: number, problem: Partial<Problem>) {
    super(problem.message ?? `the view answered ${status}`)
    this.status = status
    this.details = problem.details ?? {}
    this.hint = String(problem.hint ?? this.details['hint'] ?? '')
  }
}

const listeners = new Set<() => void>()

/** Called when the view says that nobody is logged in any more. */
export function onLoggedOut(call: () => void): void {
  listeners.add(call)
}

export async function get<T>(path: string, query: Record<string, string | number> = {}, signal?: AbortSignal): Promise<T> {
  const words = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)]))
  const tail = words.size ? `?${words}` : ''
  return ask<T>(`/api${path}${tail}`, signal ? { signal } : {})
}

export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  return ask<T>(`/api${path}`, { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })
}

export async function remove<T>(path: string): Promise<T> {
  return ask<T>(`/api${path}`, { method: 'DELETE' })
}

async function ask<T>(address: string, request: RequestInit): Promise<T> {
  let answer: Response
  try {
    answer = await fetch(address, request)
  } catch (error) {
    if (error instanceof DOMException) throw error  // aborted by us
    throw new Refused(0, { message: 'The view does not answer', hint: 'nothing was changed as far as we know; it is tried again by itself' })
  }
  if (answer.ok) return (await answer.json()) as T
  throw await refusal(answer)
}

/** Ends this log-in everywhere, and leads to the form for the next. */
export async function logOut(): Promise<void> {
  const answer = await fetch('/logout', { method: 'POST' })
  if (!answer.ok && answer.status !== 401) throw await refusal(answer)
  location.assign('/')
}

export async function refusal(answer: Response): Promise<Refused> {
  if (answer.status === 401) for (const call of listeners) call()
  const problem = await answer.json().catch(() => ({})) as Partial<Problem>
  return new Refused(answer.status, problem)
}

/** A name for a request: sent twice, it counts once. */
export function fresh(): string {
  return crypto.randomUUID().replaceAll('-', '')
}

export function path(...parts: string[]): string {
  return parts.map(part => `/${encodeURIComponent(part)}`).join('')
}
